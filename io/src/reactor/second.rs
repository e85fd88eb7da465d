//! The second thread that waits in the reactor, beside the thread that has the turn.
//!
//! A worker that leaves its turn with a task in hand leaves the reactor unattended until the poll
//! of that task is over. An executor whose polls are long sends a second idle worker here. It waits
//! on the same epoll descriptor, and is the thread that the kernel wakes while the first is away.
//! While both wait the kernel wakes the one that came last, so a first that serves short polls
//! keeps its events. An executor whose polls are all short should still not send a second: what the
//! first itself makes ready within a poll wakes the second.
//!
//! The second is an extra. It never takes the place of the first: a worker that finds the turn free
//! takes that. The promise that one thread waits in the reactor when all sleep, the wait deadline
//! of timers and the spin for punctuality concern the first alone. What a second changes is where
//! calls go. Of two threads that wait on one epoll descriptor each can be handed the call that was
//! meant for the other, and so can a thread that only looks. The rule: *a call that reaches another
//! place is passed on if that place is taken*. If it is not, the thread that tried the place's lock
//! has held it after the call was made. So the next thread that takes the place sees what was
//! written before the call, and it looks for that before it waits. See `reactor.md`.

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
    /// The place: locked by the thread that is in it. Only ever tried, never waited for.
    events: Mutex<Events>,
    /// Whether a thread is in the place. Written by that thread, under the lock; a hint for others.
    taken: AtomicBool,
}

/// Holds the second place until it is dropped.
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

    /// Returns whether a thread is in the place: a hint.
    pub(crate) fn is_taken(&self) -> bool {
        // Ordering: relaxed; a wrong answer costs one wake-up, or the wait for the next look.
        self.taken.load(Relaxed)
    }

    /// Returns whether a call for this place has to be passed on by the thread that was handed it.
    #[must_use = "a call that is dropped is a lost wake-up"]
    pub(crate) fn must_hear(&self) -> bool {
        must_hear(&self.events)
    }
}

/// Returns whether a thread is in the place with this lock, and has to hear a call that another
/// thread was handed.
///
/// If not, the lock was taken and released here after the call was made. A thread that takes it
/// later sees what was written before the call.
pub(crate) fn must_hear<T>(lock: &Mutex<T>) -> bool {
    try_lock(lock).is_none()
}

/// Returns the guard, unless another thread has it.
pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}
