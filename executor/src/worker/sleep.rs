//! A worker without work: how it lingers, sleeps and wakes up.

use super::Worker;
use crate::os;
use crate::parker::Elsewhere;
use crate::runtime::Phase;
use crate::sched::{SecondLook, Ticket};
use giveway_io::driver::{Turn, Wait};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long the last searcher waits after each of its rounds, in spin hints (some 30 ns each on
/// current CPUs).
///
/// All rounds together take some twenty microseconds, about what a sleep and a wake-up cost. So
/// lingering at most doubles what an unlucky worker burns, and a lucky one saves its waker a system
/// call. Only the last searcher lingers: one is enough to take the next push, and threads of other
/// programs may want the CPUs of the others. It looks rarely, because each look takes a cache line
/// away from the threads that push there.
const LINGER_SPINS: usize = 200;

/// How long a worker stays away from a reactor that fails to wait.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

impl Worker {
    /// Stays awake a little longer, so that work which comes now needs no system call to be
    /// noticed.
    ///
    /// Not beside a lowered thread, nor beside a poll that does not return: when this thread offers
    /// its CPU the kernel would go on with that thread until its next tick. A thread that sleeps
    /// preempts it when it is woken.
    pub(super) fn linger(&self) {
        if self.shared.has_threads_beside_workers() {
            return;
        }
        for _ in 0..LINGER_SPINS {
            if self.shared.scheduler.idle.counts().searching() > 1 {
                return;
            }
            std::hint::spin_loop();
        }
        // The thread that would push next may be waiting for this very CPU: the kernel likes to
        // wake a thread beside its waker. Without this, each worker that a pusher woke held the
        // pusher up for as long as the worker lingered.
        std::thread::yield_now();
    }

    /// Ends the search, if the worker searches. As the last searcher, it wakes another worker if
    /// more is queued.
    #[inline]
    pub(super) fn end_search(&self) {
        if let Some(woken) = self.shared.scheduler.end_search(self.core()) {
            self.shared.unpark(woken);
            self.see_to_door();
        }
    }

    /// Parks until there is something to do. Returns as a searcher. The steps S1 to S4 are those of
    /// `sched/sleep.md`.
    pub(super) fn sleep(&self) {
        let (idle, mut ready) = (&self.shared.scheduler.idle, self.ready.take());
        // S1 and S2.
        let ticket = idle.enter(self.index(), self.core().set_searching(false));
        // S3 and S4.
        let left = match idle.settle(ticket, |ticket| self.has_reason_to_stay(ticket)) {
            Ok(()) => true,
            Err(ticket) => self.wait(ticket, &mut ready),
        };
        if left {
            // The worker has left the idle set by itself. A waker would have roused the monitor,
            // which may have gone to sleep because it saw all workers idle.
            self.shared.monitor.rouse();
        }
        // Just woken: the worker goes to the injector at once (`GATHER_SPINS`).
        self.core().take_poor_visit();
        self.counting_since.set(None);
        // The thread that took this worker out of the idle set, perhaps this one, has counted it as
        // a searcher.
        self.core().set_searching(true);
        // The wakers come last. They are foreign code, and queue tasks on this worker.
        self.wake_ready(ready);
    }

    /// Looks once more, from within the idle set, whether there is anything for this worker.
    fn has_reason_to_stay(&self, ticket: &Ticket) -> bool {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        // 1. The queues, only if no worker searches any more. Otherwise a searcher is left, which
        // looks when it stops. A worker that rests and sees only the yield queue wakes a worker
        // that does not rest, and parks.
        let work = ticket.looks_again()
            && match scheduler.idle.second_look(self.index(), scheduler.queued()) {
                SecondLook::Leave => true,
                SecondLook::Park(other) => {
                    self.shared.unpark(other);
                    false
                }
            };
        // 2. What concerns this worker alone, whether another searches or not.
        // - The gate: it is closed first, and the sleepers are woken second. If they were woken
        //   before this worker was in the list, the lock of the list, which both sides took, makes
        //   the closed gate visible here (`shutdown_against_sleep`).
        // - The recall: the home thread writes it first and takes that lock second (S2 of
        //   `handoff/hand_off.md`).
        // - The inbox: no other worker looks at it.
        let recalled = !self.home && self.post().recall.is_wanted();
        work || gate.phase() != Phase::Open || recalled || scheduler.has_pinned(self.core())
    }

    /// Calls [`Self::wait_in_place`], and times it.
    fn wait(&self, ticket: Ticket, ready: &mut Vec<Waker>) -> bool {
        if !self.home {
            // A spare worker has had its CPU by now. From here on it is a worker as the others.
            os::calm();
        }
        let before = self.shared.now();
        self.tally().rest(before);
        let left = self.wait_in_place(ticket, ready);
        let now = self.shared.now();
        self.core().linger().slept(now.saturating_sub(before));
        self.tally().rested(now);
        self.look_at_time(now);
        self.leave_door(now);
        left
    }

    /// Tells the sampler and the meter what time it is, when much time may have passed.
    pub(super) fn look_at_time(&self, now: u64) {
        self.sampler.slow_down(now);
        self.shared.meter.tell_time(now);
    }

    /// Waits to be woken: in the reactor, or if another thread has the turn there, beside that
    /// thread (`door.rs`) or in the worker's own place. Returns true if the reactor found something
    /// and the worker has left the idle set by itself.
    fn wait_in_place(&self, mut ticket: Ticket, ready: &mut Vec<Waker>) -> bool {
        let (parker, reactor) = (&self.post().parker, &self.shared.reactor);
        // A slot that was filled while no worker was idle has no monitor that watches it. This
        // worker is idle now, and could take it over.
        if self.shared.slot_waits() {
            self.shared.monitor.watch_slots();
        }
        // 1. The token comes first: a waker leaves it before it looks where the worker is. The
        // place is published before the token is looked for again, in `park_elsewhere`, and the
        // reactor asks for the token only with the turn in hand: no other thread can take a
        // call-back to this worker then (`call_back_against_look`).
        while !parker.take_token() {
            let mut turn = Ok(Turn::Taken);
            parker.park_elsewhere(Elsewhere::Turn, |has_token| {
                turn = reactor.turn(Wait::Unless(has_token), ready)
            });
            // 2. Only if the holder of the turn is sure to come back to it before it sleeps: the
            // second is an extra to it.
            if matches!(turn, Ok(Turn::Waits | Turn::Returns)) && self.shared.door.wants_second() {
                parker.park_elsewhere(Elsewhere::Second, |has_token| {
                    match reactor.wait_second(has_token, ready) {
                        Ok(true) => turn = Ok(Turn::Taken),
                        Ok(false) => {}
                        Err(error) => turn = Err(error),
                    }
                });
            }
            match turn {
                // 3. What the reactor found is woken by `sleep`, after this worker has left the
                // idle set.
                _ if !ready.is_empty() => match self.shared.scheduler.idle.leave(ticket) {
                    Ok(()) => return true,
                    // Another thread has taken the worker out of the set. Its token is on the way.
                    Err(kept) => ticket = kept,
                },
                // The worker was called back, or is about to be, or the event was for nothing. It
                // looks for its token again.
                Ok(Turn::Taken) => continue,
                // The holder of the turn leaves in a moment, and does not come back to sleep. If
                // this worker parked beside it, no thread might be left in the reactor.
                Ok(Turn::Looks) => {
                    std::thread::yield_now();
                    continue;
                }
                // 4. One thread in the reactor is enough. A holder that returns is a worker, which
                // tries to get the turn before it sleeps (`sleepers_against_passer`).
                Ok(Turn::Waits | Turn::Returns) => {}
                // No descriptor of the runtime should cause this. After a pause the worker tries
                // again, so that timers go on.
                Err(error) => {
                    eprintln!("giveway: waiting for I/O failed: {error}");
                    if !parker.park_until(Instant::now() + AFTER_AN_ERROR) {
                        continue;
                    }
                    break;
                }
            }
            parker.park();
            break;
        }
        ticket.woken();
        false
    }
}
