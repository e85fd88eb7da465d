//! Which runtime this thread is in.
//!
//! Thread-locals without destructors, so that reading them is one load and works while the thread ends: the
//! worker that runs here, fixed for the thread's life, and the runtime the thread has entered, which takes precedence.

use super::{Shared, default_runtime};
use crate::task::JoinHandle;
use crate::worker::Worker;
use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

thread_local! {
    // The worker whose loop is on this thread's stack. Set and cleared by `on_worker` alone.
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    // A counted pointer, owned by the innermost `Entered`; null outside any.
    static ENTERED: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    // How many `Entered` there are.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f` with `worker` as this thread's worker.
pub(crate) fn on_worker<R>(worker: &Worker, f: impl FnOnce() -> R) -> R {
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            WORKER.set(ptr::null());
        }
    }
    WORKER.set(worker);
    let _clear = Clear;
    f()
}

/// Calls `f` with the worker of this thread, if this is a worker thread.
#[inline]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: null, or the worker that `on_worker` borrows further up this very stack.
    f(unsafe { WORKER.get().as_ref() })
}

/// Where a spawn goes.
pub(crate) enum Current<'a> {
    Worker(&'a Worker),
    Outside(&'a Shared),
}

impl Current<'_> {
    #[inline]
    #[track_caller]
    pub(crate) fn spawn<F>(
        self,
        name: Option<Box<str>>,
        location: &'static Location<'static>,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Worker(worker) => worker.spawn(name, location, future),
            Self::Outside(shared) => shared.spawn_from_outside(name, location, future),
        }
    }
}

/// Calls `f` with the current runtime; outside any, with the default one.
#[inline]
#[track_caller]
pub(crate) fn with_current<R>(f: impl FnOnce(Current<'_>) -> R) -> R {
    // SAFETY: null, or counted by an `Entered` that is alive, or was forgotten with its count.
    let entered = unsafe { ENTERED.get().as_ref() };
    with_worker(|worker| match (entered, worker) {
        (Some(shared), Some(worker)) if worker.belongs_to(shared) => f(Current::Worker(worker)),
        (Some(shared), _) => f(Current::Outside(shared)),
        (None, Some(worker)) => f(Current::Worker(worker)),
        (None, None) => f(Current::Outside(&default_runtime().handle.shared)),
    })
}

/// The current runtime, if the thread is in one.
pub(crate) fn current_shared() -> Option<Arc<Shared>> {
    let entered = ENTERED.get();
    if entered.is_null() {
        return with_worker(|worker| worker.map(Worker::shared).cloned());
    }
    // SAFETY: the pointer came from an `Arc` whose count an `Entered` owns; one more makes a second owner.
    unsafe { Arc::increment_strong_count(entered) };
    // SAFETY: the count just added is ours.
    Some(unsafe { Arc::from_raw(entered) })
}

/// A runtime being entered. Must stay on its thread, and end before whatever was entered before it.
///
/// Owns a count by way of the thread-local: if a guard is forgotten the count leaks, and the pointer stays good.
pub(crate) struct Entered {
    before: *const Shared,
    depth: usize,
    not_send: PhantomData<*const ()>,
}

impl Entered {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        Self { before: ENTERED.replace(Arc::into_raw(shared)), depth, not_send: PhantomData }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if DEPTH.get() != self.depth {
            // Our pointer is not the one on top. It stays counted and entered for good: a leak, but a sound one.
            assert!(
                std::thread::panicking(),
                "`EnterGuard`s were dropped in another order than the reverse of their making"
            );
            return;
        }
        DEPTH.set(self.depth - 1);
        let entered = ENTERED.replace(self.before);
        // SAFETY: at this depth, it is the pointer that our `new` put there with its count.
        drop(unsafe { Arc::from_raw(entered) });
    }
}
