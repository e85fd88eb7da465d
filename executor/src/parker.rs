//! One thread waits here until another says go.
//!
//! A token of our own over the thread's parking place: `std::thread::park` may return for no reason, and user code
//! may call it or `unpark` too, so neither its return nor its token means anything to us.

use crate::sync::{AtomicBool, AtomicU8, fence, thread};
use giveway_io::driver::on_behalf;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Where a thread waits for its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// In its turn at the reactor.
    Turn = 1,
    /// In the reactor, beside the thread that has the turn.
    Second = 2,
}

impl Elsewhere {
    fn from_word(word: u8) -> Option<Self> {
        [Self::Turn, Self::Second].into_iter().find(|place| *place as u8 == word)
    }
}

/// A place for one thread to park.
pub(crate) struct Parker {
    // Not modelled: whoever is bound does not wait here when another comes, and a stale one is woken in vain.
    thread: Mutex<Option<thread::Thread>>,
    token: AtomicBool,
    // The thread waits somewhere else for its token, and has to be called back from there: an `Elsewhere`, or zero. Written by
    // that thread.
    elsewhere: AtomicU8,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self { thread: Mutex::new(None), token: AtomicBool::new(false), elsewhere: AtomicU8::new(0) }
    }

    /// Makes the calling thread the one that parks here, in the place of another that does so no more.
    pub(crate) fn bind(&self) {
        *self.lock() = Some(thread::current());
    }

    fn lock(&self) -> MutexGuard<'_, Option<thread::Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a token and takes it.
    pub(crate) fn park(&self) {
        while !self.take_token() {
            thread::park();
        }
    }

    /// Waits for a token until `deadline`. Whether there was one.
    pub(crate) fn park_until(&self, deadline: Instant) -> bool {
        loop {
            if self.take_token() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            park_timeout(left);
        }
    }

    /// Takes the token, if there is one.
    pub(crate) fn take_token(&self) -> bool {
        // Ordering: acquire, partner of the release in `unpark`: what the waker did before, we see after. Release: a waker
        // whose token comes after this sees that we are not elsewhere any more. A swap and not a load and a store: a
        // token put in between must not be overwritten.
        self.token.swap(false, AcqRel)
    }

    /// Whether there is a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.load(Relaxed)
    }

    /// Waits at `place`, in `block`. That may return for any reason, and takes no token. It is given a way to ask for
    /// one, and has to, before it waits but when nobody can take a call-back from it any more.
    pub(crate) fn park_elsewhere(&self, place: Elsewhere, block: impl FnOnce(&dyn Fn() -> bool)) {
        self.elsewhere.store(place as u8, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `unpark_from`: either the waker sees us at this place, and calls us
        // back from there, or we see its token.
        fence(SeqCst);
        block(&|| self.token.load(Relaxed));
        self.elsewhere.store(0, Relaxed);
    }

    /// Leaves a token, and wakes the thread if it waits. Tokens do not add up.
    pub(crate) fn unpark(&self) {
        self.unpark_from(|place| unreachable!("this thread does not park at {place:?}"));
    }

    /// Leaves a token, and wakes the thread if it waits: with `call_back` if it waits elsewhere.
    pub(crate) fn unpark_from(&self, call_back: impl FnOnce(Elsewhere)) {
        // Ordering: the release half is the partner of `take_token`. The acquire half keeps a second waker in the
        // same chain as the first, so that the thread sees the work of both; and shows where the thread is.
        if self.token.swap(true, AcqRel) {
            return;
        }
        // Ordering: SeqCst fence, partner of the one in `park_elsewhere`.
        fence(SeqCst);
        if let Some(place) = Elsewhere::from_word(self.elsewhere.load(Relaxed)) {
            call_back(place);
        } else {
            let thread = on_behalf(|| self.lock().clone());
            if let Some(thread) = thread {
                thread.unpark();
            }
        }
    }
}

#[cfg(not(all(test, giveway_loom)))]
use std::thread::park_timeout;

/// In a model no time passes.
#[cfg(all(test, giveway_loom))]
fn park_timeout(_timeout: std::time::Duration) {
    thread::park();
}
