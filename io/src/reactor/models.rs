//! Models of the reactor's protocols, under loom: every interleaving. Each says which mutation turns
//! it red.

use super::turn_owner::{TurnOwner, Who};
use super::wait_deadline::WaitDeadline;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The lock of the turn, and what its holder has said. The lock is a plain word: loom's locks
/// make a thread wait that only tries.
struct Turn {
    taken: AtomicBool,
    turn_owner: TurnOwner,
}

impl Turn {
    fn try_take(&self) -> bool {
        // Ordering: as std's lock.
        self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    fn look(&self, who: Who) {
        if self.try_take() {
            self.turn_owner.is(who);
            self.give_back();
        }
    }

    fn give_back(&self) {
        self.turn_owner.is(Who::Passes);
        // Ordering: as std's lock.
        self.taken.store(false, Release);
    }

    /// A worker goes to sleep. Returns true if it does so outside of the reactor; false if it
    /// does so there, or still tries.
    fn sleeps_outside(&self) -> bool {
        for _ in 0..2 {
            if self.try_take() {
                self.turn_owner.is(Who::Waits);
                return false;
            }
            if self.turn_owner.ask() != Who::Passes {
                return true;
            }
            thread::yield_now();
        }
        false
    }
}

/// Two workers look and go to sleep, while a thread that is no worker passes by: one of the
/// workers is in the reactor.
///
/// Red if a thread that passes is taken for one that returns, and if a thread that returns does
/// not take its word back.
#[test]
fn sleepers_against_passer() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let turn = Arc::new(Turn { taken: AtomicBool::new(false), turn_owner: TurnOwner::new() });
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

/// A timer is added while a thread goes to block for a later one: the thread sleeps for it, or
/// is called back.
///
/// Red without either fence, and without the second look.
#[test]
fn timer_against_block() {
    loom::model(|| {
        let state = Arc::new((WaitDeadline::new(), AtomicU64::new(100)));
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

/// Meanwhile a third thread fires the timer that was first, so that the two looks of the
/// blocking thread differ.
///
/// Red if the blocking thread goes by the second look alone.
#[test]
fn timer_against_block_and_fire() {
    loom::model(|| {
        // The shard: when its first timer is due, and whether the new one is in it.
        let state = Arc::new((WaitDeadline::new(), AtomicU64::new(10), Mutex::new(false)));
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
