//! A worker without work: how it searches, and how it sleeps.

use super::Worker;
use crate::parker::Elsewhere;
use crate::runtime::Phase;
use crate::sched::{CountedOut, INJECTOR_TICK, SEARCH_ROUNDS, SecondLook, Source};
use crate::task::Runnable;
use giveway_io::driver::{Turn, Wait, wake_all};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long the last searcher waits between two of its rounds, in spin hints (some 30 ns each on current CPUs).
///
/// All rounds together take some twenty microseconds: about what a sleep and a wake-up cost, so that lingering at most
/// doubles what an unlucky worker burns, and a lucky one saves its waker a system call. Only the last searcher
/// lingers: one is enough to take the next push, and the others' CPUs may be wanted by threads that are not ours. And
/// it looks rarely: each look takes a cache line away from whoever pushes there.
const LINGER_SPINS: usize = 200;

/// How long a worker stays away from a reactor that cannot wait.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

impl Worker {
    pub(super) fn search(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        if !self.searching.get() {
            if !scheduler.idle.try_start_search() {
                return None;
            }
            self.searching.set(true);
        }
        // Rounds without a pause between them are as good as one: the last, which looks everywhere.
        let first = if self.linger.pays() { 0 } else { SEARCH_ROUNDS - 1 };
        for round in first..SEARCH_ROUNDS {
            let found = scheduler.steal(self.core(), round, false).or_else(|| scheduler.take_injected(self.core()));
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
            // With something to resume there is no use in waiting for something better.
            if scheduler.yielded.is_empty() && self.linger.pays() && !self.shared.has_threads_beside_workers() {
                self.stay_awake();
            }
        }
        None
    }

    /// Looks at the reactor, if there is anything that it could find, and wakes what is ready or due. True if anything is.
    pub(super) fn poll_io(&self) -> bool {
        self.shared.reactor.wants_turn() && self.take_turn()
    }

    /// A look at the reactor every few polls, unless another thread has looked just now. After how many is for the clock to say:
    /// a worker with short polls comes by every few microseconds, and one with long ones would leave it alone for a second. At
    /// first after each.
    #[inline]
    pub(super) fn look_beyond_now_and_then(&self) {
        let left = self.polls_to_look.get();
        if left > 1 {
            self.polls_to_look.set(left - 1);
        } else {
            self.look_beyond();
        }
    }

    #[cold]
    fn look_beyond(&self) {
        let (reactor, interval) = (&self.shared.reactor, self.core().manners().pace.reactor_interval());
        let now = self.shared.now();
        let busy_for = self.counting_since.replace(Some(now)).map_or(0, |since| now.saturating_sub(since));
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
        // Some hundred microseconds: a look is half of one.
        match alone.max(busy_for) / interval.max(1) {
            ..10 => polls = (polls * 2).min(INJECTOR_TICK),
            late @ 33.. => polls = (u64::from(polls) * 20 / late).max(1) as u32,
            _ => {}
        }
        self.polls_a_look.set(polls);
        self.polls_to_look.set(polls);
    }

    /// As `poll_io`, but looks at everybody's timers, whatever there may be.
    pub(crate) fn take_turn(&self) -> bool {
        let mut ready = self.ready.take();
        // An error here is one of our own making, and the next turn that waits tells of it.
        let looked = self.shared.reactor.turn(Wait::Not, &mut ready);
        self.back_at_door(looked.is_ok_and(|turn| turn == Turn::Taken));
        self.wake_ready(ready)
    }

    fn wake_ready(&self, mut ready: Vec<Waker>) -> bool {
        let any = !ready.is_empty();
        // The wakers are anybody's code: nothing of ours is borrowed while they run. But a yield point, which looks too, goes
        // on with its core after them.
        self.lending(false, || wake_all(&mut ready));
        self.ready.replace(ready);
        any
    }

    /// Stays awake a little longer, so that work which comes now needs no system call to be noticed.
    ///
    /// Not beside a lowered thread, nor beside a poll that does not return: the kernel would go on with that one, until its next
    /// tick, when this thread offers its CPU. A thread that sleeps preempts it when it is woken.
    fn stay_awake(&self) {
        for _ in 0..LINGER_SPINS {
            if self.shared.scheduler.idle.counts().searching() > 1 {
                return;
            }
            std::hint::spin_loop();
        }
        // The thread that would push next may be waiting for this very CPU: the kernel likes to wake us beside whoever
        // woke us. Without this a pusher was held up by each worker it woke for as long as that lingered.
        std::thread::yield_now();
    }

    pub(super) fn stop_search(&self) {
        self.searching.set(false);
        self.shared.unpark(self.shared.scheduler.found_work());
        self.see_to_door();
    }

    /// Parks until there is something to do; see `sched/sleep.md`. Returns as a searcher.
    pub(super) fn sleep(&self) {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        let look_again = |counted_out| {
            let work = counted_out == CountedOut::LookAgain
                && match scheduler.idle.second_look(self.index(), scheduler.queued()) {
                    SecondLook::Leave => true,
                    SecondLook::Park(other) => {
                        self.shared.unpark(other);
                        false
                    }
                };
            // The gate is closed first and the sleepers are woken second: if that passed before we were one of them,
            // the lock of their list, which both sides took, shows us the closed gate.
            let recalled = !self.home && self.post().recall.is_wanted();
            // Nobody else looks at our inbox, whether he searches or not.
            work || gate.phase() != Phase::Open || recalled || scheduler.has_pinned(self.core())
        };
        let mut ready = self.ready.take();
        let left = scheduler.idle.sleep(self.index(), self.searching.get(), look_again, || self.wait(&mut ready));
        if left {
            // All were idle for a moment. The monitor may have seen that, and whoever wakes a worker did not wake us.
            self.shared.monitor.rouse();
        }
        self.core().take_poor_visit();
        self.counting_since.set(None);
        self.searching.set(true);
        self.wake_ready(ready);
    }

    /// As [`Self::wait_in_place`], timed.
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

    /// A good moment to tell what time it is: much may have passed.
    pub(super) fn look_at_time(&self, now: u64) {
        self.sampler.slow_down(now);
        self.shared.meter.tell_time(now);
    }

    /// Waits to be woken: in the reactor, or if another thread has the turn there, beside that one (`door.rs`) or in the
    /// worker's own place. True if the reactor found something, and the worker has left the idle set by itself.
    fn wait_in_place(&self, ready: &mut Vec<Waker>) -> bool {
        let (parker, reactor) = (&self.post().parker, &self.shared.reactor);
        // It was filled while nobody was idle, and so nobody minds it.
        if self.shared.slot_waits() {
            self.shared.monitor.watch_slots();
        }
        while !parker.take_token() {
            let mut turn = Ok(Turn::Taken);
            parker.park_elsewhere(Elsewhere::Turn, |has_token| turn = reactor.turn(Wait::Unless(has_token), ready));
            if matches!(turn, Ok(Turn::Waits | Turn::Returns)) && self.shared.door.wants_second() {
                parker.park_elsewhere(Elsewhere::Second, |has_token| match reactor.wait_second(has_token, ready) {
                    Ok(true) => turn = Ok(Turn::Taken),
                    Ok(false) => {}
                    Err(error) => turn = Err(error),
                });
            }
            match turn {
                _ if !ready.is_empty() => {
                    if self.shared.scheduler.idle.remove(self.index()) {
                        return true;
                    }
                    // Somebody is waking us.
                }
                // Called back, or about to be.
                Ok(Turn::Taken) => continue,
                // He is gone in a moment, and then nobody would be there.
                Ok(Turn::Looks) => {
                    std::thread::yield_now();
                    continue;
                }
                // One is enough, and who returns is a worker that comes here before it sleeps.
                Ok(Turn::Waits | Turn::Returns) => {}
                // Nothing that a descriptor of ours should do. But timers go on.
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
