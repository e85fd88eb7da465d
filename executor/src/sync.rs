//! The primitives that the modelled protocols are written against: std's, or in tests under
//! `--cfg giveway_loom` loom's, which users need not even look up: it is a dependency of the tests.
//!
//! Only the protocols we own go through here (slot, idle set, parker, gate). The deques and async-task use std's
//! atomics always: loom cannot see into them, so the models put a stub queue in their place.

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

/// Locks, whatever happened to the thread that held the lock before.
///
/// No user code runs under any lock of this crate, so a poisoned lock can only mean a bug of ours, and the data
/// behind it is still whole: every critical section leaves it so at each step.
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
