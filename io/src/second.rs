//! The second thread that waits in the reactor, beside the one that has the turn.
//!
//! A worker that leaves its turn with a task in hand leaves the reactor unattended until the poll of that task is over. An
//! executor whose polls are long sends a second idle worker here: it waits on the same epoll descriptor, and is the one that
//! the kernel wakes while the first is away. While both wait the kernel wakes the one that came last, so a first that serves
//! short polls keeps its events; an executor whose polls are all short should not send a second all the same, for what the
//! first itself makes ready within a poll wakes the second.
//!
//! The second is an extra. It never takes the place of the first: a worker that finds the turn free takes that, and the
//! promise that one thread waits in the reactor when all sleep, the horizon of timers and the spin for punctuality are the
//! first's alone. What a second changes is where calls go. Two threads that wait on one epoll descriptor can each be handed
//! the call that was meant for the other, and so can a thread that only looks. The rule: *a call that reaches another place
//! is passed on if that place is taken*. If it is not, the thread that tried it has held its lock after the call, so the next
//! thread that takes the place sees what was written before the call, and asks for it before it waits. See `reactor.md`.

use crate::sys::Events;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Where a thread waits in the reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// With the turn.
    First,
    /// Beside the thread that has the turn.
    Second,
}

impl Place {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The place of the second.
#[derive(Debug)]
pub(crate) struct Second {
    events: Mutex<Events>,
    // Whether a thread is here. Written by it, under the lock; a hint for others.
    taken: AtomicBool,
}

/// A thread is in the second place until this is dropped.
pub(crate) struct Seated<'a> {
    second: &'a Second,
    pub(crate) events: MutexGuard<'a, Events>,
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        self.second.taken.store(false, Relaxed);
    }
}

impl Second {
    pub(crate) fn new() -> Self {
        Self { events: Mutex::new(Events::new()), taken: AtomicBool::new(false) }
    }

    /// Takes the place, unless another thread has it.
    pub(crate) fn take(&self) -> Option<Seated<'_>> {
        let events = try_lock(&self.events)?;
        self.taken.store(true, Relaxed);
        Some(Seated { second: self, events })
    }

    /// Whether a thread is here: a hint.
    pub(crate) fn is_taken(&self) -> bool {
        // Ordering: relaxed; a wrong answer costs one wake-up, or the wait for the next look.
        self.taken.load(Relaxed)
    }

    /// Whether a call for this place has to be passed on by the thread that was handed it.
    #[must_use = "a call that is dropped is a lost wake-up"]
    pub(crate) fn must_hear(&self) -> bool {
        must_hear(&self.events)
    }
}

/// Whether a thread is in the place with this lock, and has to hear a call that another was handed.
///
/// If not, the lock was taken and released here after the call. A thread that takes it later sees what was written before the
/// call.
pub(crate) fn must_hear<T>(lock: &Mutex<T>) -> bool {
    try_lock(lock).is_none()
}

/// The guard, unless another thread has it.
pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}
