//! A worker without work: how it searches, and how it sleeps.

use super::Worker;
use crate::parker::Elsewhere;
use crate::runtime::Phase;
use crate::sched::{CountedOut, INJECTOR_TICK, SEARCH_ROUNDS, SecondLook, Source};
use crate::task::Runnable;
use giveway_io::driver::{Turn, Wait, wake_all};
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
    /// Searches for work: at the other cores, in the injector and at the reactor. Returns nothing
    /// if enough others search, or if nothing was found; in the second case the worker is still
    /// counted as a searcher.
    pub(super) fn search(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        if !self.searching.get() {
            if !scheduler.idle.try_start_search() {
                return None;
            }
            self.searching.set(true);
        }
        // Rounds without a pause between them are as good as one: the last round, which looks at
        // slots too.
        let first = if self.linger.pays() { 0 } else { SEARCH_ROUNDS - 1 };
        for round in first..SEARCH_ROUNDS {
            let found = scheduler
                .steal(self.core(), round, false)
                .or_else(|| scheduler.take_injected(self.core()));
            let found = match found {
                Some(task) => {
                    self.stop_search();
                    Some((task, Source::Queue))
                }
                None => self.next_after_io(),
            };
            if found.is_some() {
                if round > first {
                    self.linger.paid();
                }
                return found;
            }
            // While something can be resumed, waiting for something better is of no use.
            if scheduler.yielded.is_empty()
                && self.linger.pays()
                && !self.shared.has_threads_beside_workers()
            {
                self.stay_awake();
            }
        }
        None
    }

    /// Looks at the reactor if a look may find something, and wakes what is ready or due. Returns
    /// whether anything was.
    pub(super) fn poll_io(&self) -> bool {
        self.shared.reactor.wants_turn() && self.take_turn()
    }

    /// Looks at the reactor every few polls, unless another thread has looked just now.
    ///
    /// The number of polls follows the clock: a worker with short polls comes by every few
    /// microseconds, and one with long polls would leave the reactor alone for a second. At first
    /// it is one.
    #[inline]
    pub(super) fn look_beyond_now_and_then(&self) {
        let left = self.polls_to_look.get();
        if left > 1 {
            self.polls_to_look.set(left - 1);
        } else {
            self.look_beyond();
        }
    }

    /// Looks at the reactor if no thread has for a while, and chooses the number of polls until the
    /// next look.
    #[cold]
    fn look_beyond(&self) {
        let (reactor, interval) =
            (&self.shared.reactor, self.core().poll_state().look_timer.reactor_interval());
        let now = self.shared.now();
        let busy_for =
            self.counting_since.replace(Some(now)).map_or(0, |since| now.saturating_sub(since));
        let mut polls = self.polls_a_look.get();
        self.core().learn_queue(now, busy_for / u64::from(polls));
        let mut alone = 0;
        if reactor.has_anything_for(self.index()) {
            self.pass_door(busy_for / u64::from(polls));
            alone = now.saturating_sub(reactor.looked_at());
            if alone >= interval {
                self.take_turn();
            }
        }
        // The aim is some hundred microseconds between two looks, because a look costs half of one.
        // The number of polls grows below 10 intervals (100 µs by default), and shrinks from 33 on.
        match alone.max(busy_for) / interval.max(1) {
            ..10 => polls = (polls * 2).min(INJECTOR_TICK),
            late @ 33.. => polls = (u64::from(polls) * 20 / late).max(1) as u32,
            _ => {}
        }
        self.polls_a_look.set(polls);
        self.polls_to_look.set(polls);
    }

    /// Takes a turn at the reactor without waiting, and wakes what is ready or due. Returns whether
    /// anything was. Unlike `poll_io` it does not ask first whether a look may find something.
    pub(crate) fn take_turn(&self) -> bool {
        let mut ready = self.ready.take();
        // An error here is a fault of the runtime's own. The next turn that waits reports it.
        let looked = self.shared.reactor.turn(Wait::Not, &mut ready);
        self.back_at_door(looked.is_ok_and(|turn| turn == Turn::Taken));
        self.wake_ready(ready)
    }

    /// Wakes everything in `ready`, and keeps the empty list for the next turn.
    fn wake_ready(&self, mut ready: Vec<Waker>) -> bool {
        let any = !ready.is_empty();
        // A waker is foreign code, so nothing of the worker's is borrowed while it runs. It may not
        // lend the core either: the caller may be a yield point, whose task goes on with its core
        // after this.
        self.lending(false, || wake_all(&mut ready));
        self.ready.replace(ready);
        any
    }

    /// Stays awake a little longer, so that work which comes now needs no system call to be
    /// noticed.
    ///
    /// Not called beside a lowered thread, nor beside a poll that does not return: when this thread
    /// offers its CPU the kernel would go on with that thread until its next tick. A thread that
    /// sleeps preempts it when it is woken.
    fn stay_awake(&self) {
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

    /// Ends the search because work was found. As the last searcher, the worker wakes another if
    /// more is queued.
    pub(super) fn stop_search(&self) {
        self.searching.set(false);
        self.shared.unpark(self.shared.scheduler.found_work());
        self.see_to_door();
    }

    /// Parks until there is something to do. Returns as a searcher. The steps S1 to S4 are those of
    /// `sched/sleep.md`.
    pub(super) fn sleep(&self) {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        // S3. Runs after the worker was counted out (S1) and a fence (S2). In the other order, a
        // push between the look and the count-out would wake no worker: the pusher saw none idle.
        let look_again = |counted_out| {
            // The queues are looked at only if no worker searches any more. Otherwise a searcher is
            // left, which looks when it stops. A worker that rests and sees only the yield queue
            // wakes a worker that does not rest, and parks.
            let work = counted_out == CountedOut::LookAgain
                && match scheduler.idle.second_look(self.index(), scheduler.queued()) {
                    SecondLook::Leave => true,
                    SecondLook::Park(other) => {
                        self.shared.unpark(other);
                        false
                    }
                };
            // What follows concerns this worker alone, and is looked at whether another searches or
            // not.
            // - The gate: it is closed first, and the sleepers are woken second. If they were woken
            //   before this worker was in the list, the lock of the list, which both sides took,
            //   makes the closed gate visible here (`shutdown_against_sleep`).
            // - The recall: the home thread writes it first and takes that lock second (S2 of
            //   `handoff/hand_off.md`).
            // - The inbox: no other worker looks at it.
            let recalled = !self.home && self.post().recall.is_wanted();
            work || gate.phase() != Phase::Open || recalled || scheduler.has_pinned(self.core())
        };
        let mut ready = self.ready.take();
        // S1 to S4.
        let left = scheduler
            .idle
            .sleep(self.index(), self.searching.get(), look_again, || self.wait(&mut ready));
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
        self.searching.set(true);
        // The wakers come last. They are foreign code, and queue tasks on this worker.
        self.wake_ready(ready);
    }

    /// Calls [`Self::wait_in_place`], and times it.
    fn wait(&self, ready: &mut Vec<Waker>) -> bool {
        let before = self.shared.now();
        self.tally().rest(before);
        let left = self.wait_in_place(ready);
        let now = self.shared.now();
        self.linger.slept(now.saturating_sub(before));
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
    /// and the worker has left the idle set by itself. The worker is in the idle set.
    fn wait_in_place(&self, ready: &mut Vec<Waker>) -> bool {
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
                _ if !ready.is_empty() => {
                    if self.shared.scheduler.idle.remove(self.index()) {
                        return true;
                    }
                    // Another thread has taken the worker out of the set. Its token is on the way.
                }
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
        false
    }
}
