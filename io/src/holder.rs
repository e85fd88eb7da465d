//! Who has the turn at the reactor, as far as others need to know who want to sleep there.
//!
//! Of the threads that drive a reactor one has to be in it when all sleep, or nobody hears of a socket. Who finds the turn
//! taken may sleep elsewhere if whoever has it waits there, and also if he *returns*: a thread that drives the reactor, awake,
//! comes by here before it sleeps. But not if he only passes (a monitor, a thread that is no worker): then he who wants to
//! sleep comes again. See `reactor.md`.
//!
//! Why not come again in any case: of two workers, one that serves a pair of sockets and one that has nothing to do, the idle
//! one would always end up in the reactor, take the next event from the other, and leave that one idle: a switch of threads
//! for every answer, for as long as nothing puts both to sleep at once.

#[cfg(all(test, giveway_loom))]
use loom::sync::atomic::{AtomicU8, fence};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
#[cfg(not(all(test, giveway_loom)))]
use std::sync::atomic::{AtomicU8, fence};

/// What becomes of the one who has the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// He is gone in a moment, or the turn is free.
    Passes,
    /// He is gone in a moment, and tries to get the turn again before he sleeps.
    Returns,
    /// He waits here, and if he is woken he returns.
    Waits,
}

/// Who has the turn.
#[derive(Debug)]
pub(crate) struct Holder(AtomicU8);

impl Holder {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Who::Passes as u8))
    }

    /// For whoever has the turn to say. Before he gives it back he says that he [passes](Who::Passes).
    pub(crate) fn is(&self, who: Who) {
        // Ordering: relaxed; the lock of the turn orders what its holders say. For those who do not have it see `ask`.
        self.0.store(who as u8, Relaxed);
    }

    /// For whoever has tried to get the turn, in vain. He who is said to return or to wait had the turn then, or has got it
    /// since.
    pub(crate) fn ask(&self) -> Who {
        // Ordering: acquire fence, partner of the release with which the last holder but one gave the turn back. The read that
        // found the lock taken was relaxed, and saw a write that continues that release. So what he said last, that he
        // passes, is the oldest that we can see: a word from an earlier turn would be about one who may sleep by now. (It
        // takes three workers, each with such a word about the next, to go wrong without: more than the model has.)
        fence(Acquire);
        match self.0.load(Relaxed) {
            returns if returns == Who::Returns as u8 => Who::Returns,
            waits if waits == Who::Waits as u8 => Who::Waits,
            _ => Who::Passes,
        }
    }
}

#[cfg(all(test, giveway_loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;
    use std::sync::atomic::Ordering::Release;

    /// The lock of the turn, and who has it. A word: loom's locks make those wait who only try.
    struct Turn {
        taken: AtomicBool,
        holder: Holder,
    }

    impl Turn {
        fn try_take(&self) -> bool {
            // Ordering: as std's lock.
            self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
        }

        fn look(&self, who: Who) {
            if self.try_take() {
                self.holder.is(who);
                self.give_back();
            }
        }

        fn give_back(&self) {
            self.holder.is(Who::Passes);
            // Ordering: as std's lock.
            self.taken.store(false, Release);
        }

        /// A worker goes to sleep. True if it does so outside of the reactor; not if it does so there, or still tries.
        fn sleeps_outside(&self) -> bool {
            for _ in 0..2 {
                if self.try_take() {
                    self.holder.is(Who::Waits);
                    return false;
                }
                if self.holder.ask() != Who::Passes {
                    return true;
                }
                thread::yield_now();
            }
            false
        }
    }

    /// Two workers look, and go to sleep, while somebody passes by who is none: one of them is in the reactor.
    ///
    /// Red if whoever passes is taken for one who returns, and if one who returns does not take back his word.
    #[test]
    fn sleepers_against_passer() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let turn = Arc::new(Turn { taken: AtomicBool::new(false), holder: Holder::new() });
            let passer = thread::spawn({
                let turn = turn.clone();
                move || turn.look(Who::Passes)
            });
            let other = thread::spawn({
                let turn = turn.clone();
                move || {
                    turn.look(Who::Returns);
                    turn.sleeps_outside()
                }
            });
            turn.look(Who::Returns);
            let here = turn.sleeps_outside();
            let there = other.join().unwrap();
            passer.join().unwrap();
            assert!(!(here && there), "all sleep, and nobody is in the reactor");
        });
    }
}
