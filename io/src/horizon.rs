//! Until when the thread that has the turn blocks, and who has to call it back.
//!
//! The thread that blocks says until when, then looks at the timers once more. Who adds a timer that comes first writes
//! that down, then looks at who blocks. Each does the first before a fence and the second after it, so one of them sees
//! the other: the timer is slept for, or its maker calls back. See `reactor.md`.

#[cfg(all(test, giveway_loom))]
use loom::sync::atomic::{AtomicU64, fence};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
#[cfg(not(all(test, giveway_loom)))]
use std::sync::atomic::{AtomicU64, fence};

/// Until when somebody blocks.
#[derive(Debug)]
pub(crate) struct Horizon {
    // Zero if nobody does. Written by the thread that has the turn.
    blocked_until: AtomicU64,
}

impl Horizon {
    pub(crate) fn new() -> Self {
        Self { blocked_until: AtomicU64::new(0) }
    }

    /// The thread that has the turn is about to block: until when it may. `earliest` is when the first timer is due.
    pub(crate) fn plan(&self, earliest: impl Fn() -> u64) -> u64 {
        let until = earliest();
        self.blocked_until.store(until, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `must_call_back`.
        fence(SeqCst);
        // The earlier of the two: what was due first may be gone by now, but whoever adds a timer goes by what we said.
        until.min(earliest())
    }

    /// It does not block any more, if it did.
    pub(crate) fn awake(&self) {
        // Most turns do not block, and leave the line alone.
        if self.blocked_until.load(Relaxed) != 0 {
            self.blocked_until.store(0, Relaxed);
        }
    }

    /// A timer was added, and is the first of its shard: does somebody block for longer?
    pub(crate) fn must_call_back(&self, deadline: u64) -> bool {
        // Ordering: SeqCst fence, partner of the one in `plan`.
        fence(SeqCst);
        deadline < self.blocked_until.load(Relaxed)
    }
}

#[cfg(all(test, giveway_loom))]
mod models {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A timer is made while a thread goes to block for a later one: it is slept for, or the thread is called back.
    ///
    /// Red without either fence, and without the second look.
    #[test]
    fn timer_against_block() {
        loom::model(|| {
            let state = Arc::new((Horizon::new(), AtomicU64::new(100)));
            let blocking = thread::spawn({
                let state = state.clone();
                move || state.0.plan(|| state.1.load(Relaxed))
            });
            state.1.store(50, Relaxed);
            let called = state.0.must_call_back(50);
            let until = blocking.join().unwrap();
            assert!(until <= 50 || called, "a timer at 50 is slept through until {until}");
        });
    }

    /// Meanwhile a third fires what was due first, so that the two looks of the thread that blocks differ.
    ///
    /// Red if it goes by the second look alone.
    #[test]
    fn timer_against_block_and_fire() {
        loom::model(|| {
            // The shard: when its first timer is due, and whether the new one is in it.
            let state = Arc::new((Horizon::new(), AtomicU64::new(10), Mutex::new(false)));
            let blocking = thread::spawn({
                let state = state.clone();
                move || state.0.plan(|| state.1.load(Relaxed))
            });
            let firing = thread::spawn({
                let state = state.clone();
                move || {
                    let added = state.2.lock().unwrap();
                    state.1.store(if *added { 50 } else { 100 }, Relaxed);
                }
            });
            let mut added = state.2.lock().unwrap();
            *added = true;
            let first = state.1.load(Relaxed) > 50;
            if first {
                state.1.store(50, Relaxed);
            }
            let called = first && state.0.must_call_back(50);
            drop(added);
            firing.join().unwrap();
            let until = blocking.join().unwrap();
            assert!(until <= 50 || called, "a timer at 50 is slept through until {until}");
        });
    }
}
