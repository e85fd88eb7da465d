//! What a thread that wants to sleep in the reactor has to know of the thread that has the turn.
//!
//! Of the threads that drive a reactor one has to be in it when all sleep, or no thread hears of a
//! socket. A worker that finds the turn taken may sleep elsewhere if the holder waits there, and
//! also if the holder *returns*: a thread that drives the reactor and is awake comes by here before
//! it sleeps. If the holder only passes (the monitor, or a thread that is no worker), the worker
//! comes again. See `reactor.md`.
//!
//! Coming again in any case would be slow. Of two workers, one that serves a pair of sockets and
//! one that has nothing to do, the idle one would always end up in the reactor, take the next event
//! from the other, and leave that one idle: a switch of threads for every answer, for as long as
//! the two do not sleep at once.

#[cfg(all(test, giveway_loom))]
use loom::sync::atomic::{AtomicU8, fence};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
#[cfg(not(all(test, giveway_loom)))]
use std::sync::atomic::{AtomicU8, fence};

/// What the thread that has the turn does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// It gives the turn back in a moment, and need not come again; or the turn is free.
    Passes,
    /// It gives the turn back in a moment, and tries to get it again before it sleeps.
    Returns,
    /// It waits in its turn, and once it is woken it returns.
    Waits,
}

/// What the holder of the turn has said: a [`Who`]. Written by the holder, under the lock of the
/// turn; read by threads that find the turn taken.
#[derive(Debug)]
pub(crate) struct TurnOwner(AtomicU8);

impl TurnOwner {
    /// Makes the word of a turn that is free.
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Who::Passes as u8))
    }

    /// Says what the thread that has the turn does next. Before it gives the turn back it says that
    /// it [passes](Who::Passes).
    pub(crate) fn is(&self, who: Who) {
        // Ordering: relaxed; the lock of the turn orders what its holders say. For threads that do
        // not have the turn see `ask`.
        self.0.store(who as u8, Relaxed);
    }

    /// Returns what the holder does next, for a thread that has just found the turn taken. A thread
    /// that is said to return or to wait had the turn at that try, or has got it since.
    pub(crate) fn ask(&self) -> Who {
        // Ordering: acquire fence, partner of the release with which the holder before the present
        // one gave the turn back. The read that found the lock taken was relaxed, and saw a write
        // that continues that release. So the oldest word that is visible here is what that holder
        // said last: that it passes. Without the fence a word from an earlier turn could be read,
        // about a thread that may sleep by now. (It takes three workers, each with such a word
        // about the next, for that to go wrong: more than the model has.)
        fence(Acquire);
        match self.0.load(Relaxed) {
            returns if returns == Who::Returns as u8 => Who::Returns,
            waits if waits == Who::Waits as u8 => Who::Waits,
            _ => Who::Passes,
        }
    }
}
