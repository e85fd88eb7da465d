//! The primitives that the modelled protocols are written against. These are std's, or loom's in
//! tests under `--cfg giveway_loom`. Users need not even look loom up: it is a dependency of the
//! tests.
//!
//! Only the runtime's own protocols go through here, such as those of the slot, the idle set, the
//! parker and the gate. The deques and async-task always use std's atomics: loom cannot see into
//! them, so the models put a stub queue in their place.

#[cfg(not(all(test, giveway_loom)))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, fence},
    },
    thread,
};

#[cfg(all(test, giveway_loom))]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, fence},
    },
    thread,
};

/// Locks a mutex, also if it is poisoned.
///
/// No user code runs under any lock of this crate, so only a fault of the crate can poison one. The
/// data behind it is whole even then: every critical section leaves it so at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs a model: every interleaving under loom, many real ones otherwise.
#[cfg(test)]
pub(crate) fn model(f: impl Fn() + Send + Sync + 'static) {
    #[cfg(all(test, giveway_loom))]
    loom::model(f);
    #[cfg(not(all(test, giveway_loom)))]
    for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
        f();
    }
}
