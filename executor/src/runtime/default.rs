//! The default runtime: the one that serves threads that are in no other. It is the runtime of
//! `#[giveway::main]` while that runs, or one that is started at its first use and lives as long as
//! the process.
//!
//! It is one pointer and no lock: a thread that is in no runtime asks at each spawn, and after a
//! `fork` a lock might stay taken. The entry behind the pointer is never freed, so that any thread
//! may look at it at any time. It holds a runtime that is never shut down, or a weak pointer to one
//! that is. The latter costs some hundred bytes for each call of a function with the attribute.

use super::{Builder, Runtime, Shared};
use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Weak};

/// The entry of the default runtime, which was leaked. Null if there is none. Written by the thread
/// that starts a runtime, and by `#[giveway::main]` at its beginning and end.
static DEFAULT: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// The entries of `main` functions that have returned. They are kept here so that a leak checker
/// finds them.
static RETIRED: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// A default runtime.
struct Entry {
    runtime: Kind,
    /// The next entry in `RETIRED`. Written by the thread that puts this one there, read by none.
    next: AtomicPtr<Entry>,
}

enum Kind {
    /// Started at its first use, and never shut down.
    Started(Runtime),
    /// Lent by a `main` function, which shuts it down.
    Lent(Weak<Shared>),
}

impl Entry {
    fn leak(runtime: Kind) -> *mut Self {
        Box::into_raw(Box::new(Self { runtime, next: AtomicPtr::new(ptr::null_mut()) }))
    }

    /// Returns the entry behind the pointer, if it is not null.
    fn at(entry: *mut Self) -> Option<&'static Self> {
        // SAFETY: the pointer is null, or comes from a box that was leaked and is never freed once
        // another thread may have seen it. There are only shared references to the entry.
        unsafe { entry.as_ref() }
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        match &self.runtime {
            Kind::Started(runtime) => Some(runtime.handle.shared.clone()),
            Kind::Lent(shared) => shared.upgrade(),
        }
    }
}

/// Returns the default runtime. It may be shutting down, if it is that of a `main`.
#[track_caller]
pub(crate) fn default_runtime() -> Arc<Shared> {
    let runtime = get_or_start(|_| true);
    runtime.unwrap_or_else(|error| panic!("the default runtime could not be started: {error}"))
}

/// Returns the default runtime, or another in its place if its reactor is closed. If none can be
/// started, returns the error.
pub(crate) fn default_runtime_for_io() -> io::Result<Arc<Shared>> {
    get_or_start(|shared| !shared.reactor.is_closed())
}

fn get_or_start(is_usable: impl Fn(&Shared) -> bool) -> io::Result<Arc<Shared>> {
    loop {
        // Ordering: acquire, partner of the releases in this function and in `Lent::new`: a thread
        // that sees an entry sees what is in it.
        let current = DEFAULT.load(Acquire);
        if let Some(shared) =
            Entry::at(current).and_then(Entry::shared).filter(|shared| is_usable(shared))
        {
            return Ok(shared);
        }
        let runtime = Builder::new().build()?;
        let shared = runtime.handle.shared.clone();
        let new = Entry::leak(Kind::Started(runtime));
        // Ordering: release, partner of the load above. An entry is never used a second time, so an
        // unchanged pointer means an unchanged entry.
        if DEFAULT.compare_exchange(current, new, Release, Relaxed).is_ok() {
            return Ok(shared);
        }
        // Another thread was faster: its runtime is the default one. This one was never used, and
        // is dropped.
        // SAFETY: the pointer comes from a box, and is freed once: the exchange failed, so no other
        // thread has seen it.
        drop(unsafe { Box::from_raw(new) });
    }
}

/// Makes a runtime the default one, if there is none, until this is dropped. Holds the entry, or
/// null if there was another.
pub(crate) struct Lent(*mut Entry);

impl Lent {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let new = Entry::leak(Kind::Lent(Arc::downgrade(&runtime.handle.shared)));
        // Ordering: release, partner of the load in `get_or_start`.
        if DEFAULT.compare_exchange(ptr::null_mut(), new, Release, Relaxed).is_ok() {
            return Self(new);
        }
        // SAFETY: the pointer comes from a box, and is freed once: the exchange failed, so no other
        // thread has seen it.
        drop(unsafe { Box::from_raw(new) });
        Self(ptr::null_mut())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(entry) = Entry::at(self.0) else { return };
        // Ordering: relaxed; this publishes nothing. It fails if another entry has taken the place.
        let _replaced = DEFAULT.compare_exchange(self.0, ptr::null_mut(), Relaxed, Relaxed);
        // Ordering: relaxed; no thread follows the list.
        let _last = RETIRED.fetch_update(Relaxed, Relaxed, |last| {
            entry.next.store(last, Relaxed);
            Some(self.0)
        });
    }
}
