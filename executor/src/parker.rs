//! A place where one thread waits until another wakes it.
//!
//! The parker has a token of its own, on top of the thread's parking place. `std::thread::park` may
//! return for no reason, and user code may call it or `unpark` too. So neither its return nor its
//! token says anything here.

use crate::sync::{AtomicBool, AtomicU8, fence, thread};
use giveway_io::driver::on_behalf;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A place other than the parker where a thread waits for its token.
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
    /// The thread that parks here. Not modelled: when another thread binds itself, the one before
    /// waits here no more, and a waker that still has it wakes it without effect.
    thread: Mutex<Option<thread::Thread>>,
    /// Whether the thread was woken. Set by wakers, taken by the thread, both by a swap.
    token: AtomicBool,
    /// Where the thread waits for its token instead of here, and has to be called back from: an
    /// `Elsewhere`, or zero. Written by that thread, read by wakers behind a fence.
    elsewhere: AtomicU8,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            thread: Mutex::new(None),
            token: AtomicBool::new(false),
            elsewhere: AtomicU8::new(0),
        }
    }

    /// Makes the calling thread the one that parks here, in place of another that parks here no
    /// more.
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

    /// Waits for a token until `deadline`, and takes it. Returns whether there was one.
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
        // Ordering: acquire, partner of the release in `unpark_from`: what the waker did before is
        // visible to this thread. Release: a waker whose token comes after this sees that the
        // thread is not elsewhere any more. A swap, because a load and a store could overwrite a
        // token that is left in between.
        self.token.swap(false, AcqRel)
    }

    /// Returns whether there is a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.load(Relaxed)
    }

    /// Waits at `place`, in `block`, which may return for any reason and takes no token.
    ///
    /// `block` is given a way to ask for the token. It has to ask before it waits, and only once no
    /// other thread can take a call-back from it any more.
    pub(crate) fn park_elsewhere(&self, place: Elsewhere, block: impl FnOnce(&dyn Fn() -> bool)) {
        // 1. The place is published before the token is looked for.
        self.elsewhere.store(place as u8, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `unpark_from`. The place is written before
        // it and the token read after it; the waker leaves the token before its fence and reads the
        // place after it. Either the waker sees the place and calls back from there, or this thread
        // sees the token. Without it each may see the old value of the other's.
        fence(SeqCst);
        // 2. `block` asks for the token with its place in hand.
        block(&|| self.token.load(Relaxed));
        self.elsewhere.store(0, Relaxed);
    }

    /// Leaves a token, and wakes the thread if it waits. Tokens do not add up. The thread must not
    /// wait elsewhere.
    pub(crate) fn unpark(&self) {
        self.unpark_from(|place| unreachable!("this thread does not park at {place:?}"));
    }

    /// Leaves a token, and wakes the thread if it waits: by `call_back` if it waits elsewhere.
    pub(crate) fn unpark_from(&self, call_back: impl FnOnce(Elsewhere)) {
        // 1. The token comes before the look at the place.
        // Ordering: release, partner of the acquire in `take_token`. Acquire: a second waker
        // continues the chain of the first, so that the thread sees the work of both; and a token
        // that follows `take_token` shows where the thread is now.
        if self.token.swap(true, AcqRel) {
            // An earlier waker has left a token that was not taken yet, and wakes the thread.
            return;
        }
        // 2. Where the thread waits.
        // Ordering: SeqCst fence, partner of the one in `park_elsewhere`: the token is left before
        // it and the place read after it. Either the place is visible here, or the token is visible
        // to the thread before it waits.
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

/// Parks without a deadline: in a model no time passes.
#[cfg(all(test, giveway_loom))]
fn park_timeout(_timeout: std::time::Duration) {
    thread::park();
}
