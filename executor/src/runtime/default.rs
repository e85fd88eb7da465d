//! The runtime that serves threads that are in no other: the one of `#[giveway::main]` while that runs, or one that is started
//! when it is first wanted and lives as long as the process.
//!
//! One pointer and no lock: a thread that is in no runtime asks at each spawn, and after a `fork` a lock might stay taken. What it
//! points to is never freed, so that it can be looked at at any time: a runtime that is never shut down, or a weak pointer to
//! one that is. The latter is some hundred bytes for each call of a function with the attribute.

use super::{Builder, Runtime, Shared};
use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Weak};

/// Null, or an [`Entry`] that was leaked.
static DEFAULT: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// The entries of `main` functions that have returned, so that a checker of leaks finds them.
static RETIRED: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

struct Entry {
    runtime: Kind,
    // The next in `RETIRED`. Written by the thread that puts it there.
    next: AtomicPtr<Entry>,
}

enum Kind {
    Started(Runtime),
    Lent(Weak<Shared>),
}

impl Entry {
    fn leak(runtime: Kind) -> *mut Self {
        Box::into_raw(Box::new(Self { runtime, next: AtomicPtr::new(ptr::null_mut()) }))
    }

    /// What the pointer leads to.
    fn at(entry: *mut Self) -> Option<&'static Self> {
        // SAFETY: null, or from a box that was leaked, and to which nobody has a mutable reference.
        unsafe { entry.as_ref() }
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        match &self.runtime {
            Kind::Started(runtime) => Some(runtime.handle.shared.clone()),
            Kind::Lent(shared) => shared.upgrade(),
        }
    }
}

/// The default runtime. It may be shutting down, if it is that of a `main`.
#[track_caller]
pub(crate) fn default_runtime() -> Arc<Shared> {
    let runtime = get_or_start(|_| true);
    runtime.unwrap_or_else(|error| panic!("the default runtime could not be started: {error}"))
}

/// The default runtime, or another in its place if its reactor is closed; or why none can be started.
pub(crate) fn default_runtime_for_io() -> io::Result<Arc<Shared>> {
    get_or_start(|shared| !shared.reactor.is_closed())
}

fn get_or_start(is_usable: impl Fn(&Shared) -> bool) -> io::Result<Arc<Shared>> {
    loop {
        // Ordering: acquire, partner of the releases below: who sees an entry sees what is in it.
        let current = DEFAULT.load(Acquire);
        if let Some(shared) = Entry::at(current).and_then(Entry::shared).filter(|shared| is_usable(shared)) {
            return Ok(shared);
        }
        let runtime = Builder::new().build()?;
        let shared = runtime.handle.shared.clone();
        let new = Entry::leak(Kind::Started(runtime));
        // Ordering: release, partner of the load above. An entry is never used a second time, so what is there is what was.
        if DEFAULT.compare_exchange(current, new, Release, Relaxed).is_ok() {
            return Ok(shared);
        }
        // Another thread was faster. Its runtime is the one; ours, never used, is dropped.
        // SAFETY: it comes from a box, and nobody else has seen it.
        drop(unsafe { Box::from_raw(new) });
    }
}

/// Makes a runtime the default one, if there is none, until this is dropped.
pub(crate) struct Lent(*mut Entry);

impl Lent {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let new = Entry::leak(Kind::Lent(Arc::downgrade(&runtime.handle.shared)));
        // Ordering: release, partner of the load in `get_or_start`.
        if DEFAULT.compare_exchange(ptr::null_mut(), new, Release, Relaxed).is_ok() {
            return Self(new);
        }
        // SAFETY: it comes from a box, and nobody else has seen it.
        drop(unsafe { Box::from_raw(new) });
        Self(ptr::null_mut())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(entry) = Entry::at(self.0) else { return };
        // Another may have taken its place. Ordering: nothing is published by it.
        let _replaced = DEFAULT.compare_exchange(self.0, ptr::null_mut(), Relaxed, Relaxed);
        // Ordering: relaxed; nobody follows the list.
        let _last = RETIRED.fetch_update(Relaxed, Relaxed, |last| {
            entry.next.store(last, Relaxed);
            Some(self.0)
        });
    }
}
