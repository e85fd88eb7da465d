//! The loop of a worker: what it runs next, and how.

use super::{Hold, Stop, Worker, spin};
use crate::runtime::{Phase, context};
use crate::sched::{Entry, Source, Yielded};
use crate::sites::{Expect, POLLS};
use crate::task::{Mark, Meta, Runnable, with_polled};
use giveway_budget::{OPERATIONS, with_budget};
use giveway_yield::host::paced_poll_begins;

/// How long a worker that has run out of work waits before it goes back to the injector, if its last visit brought
/// little: some two microseconds.
///
/// A worker that is faster than the thread which feeds it would otherwise come for every single task, and each time
/// take from that thread the lines that it is about to write. Not when it was just woken: then somebody waits.
const GATHER_SPINS: usize = 64;

/// A poll that returns later than this after it was asked to give way, in nanoseconds, had no yield point in that time.
const LATE: u64 = 300_000;

impl Worker {
    pub(super) fn run_tasks(&self) -> Stop {
        while self.shared.gate.phase() == Phase::Open {
            if !self.home && self.give_back() {
                return Stop::GivenBack;
            }
            self.look_beyond_now_and_then();
            // The yield queue before a search: what is queued elsewhere keeps it shut, and then the search finds it.
            let found = self
                .next()
                .or_else(|| self.next_after_io())
                .or_else(|| self.next_before_pinned())
                .or_else(|| self.resume())
                .or_else(|| self.search())
                .or_else(|| self.resume());
            match found {
                Some((task, source)) => {
                    self.poll(task, source);
                    if let Hold::Lost(loan) = self.hold.get() {
                        return Stop::Lost(loan);
                    }
                }
                None => self.sleep(),
            }
        }
        Stop::Closed
    }

    #[inline]
    pub(super) fn next(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        let found = self.overdue().or_else(|| scheduler.next_local(self.core(), || self.shared.now()));
        let found = found.or_else(|| {
            if self.core().take_poor_visit() && scheduler.yielded.is_empty() {
                spin(GATHER_SPINS);
            }
            scheduler.take_injected(self.core()).map(|task| (task, Source::Queue))
        });
        if found.is_some() && self.searching.get() {
            self.stop_search();
        }
        found
    }

    #[inline]
    fn poll(&self, task: Runnable, source: Source) {
        if task.metadata().is_background() {
            self.poll_background(task, source);
        } else {
            self.poll_here(task, source, false);
        }
    }

    /// Polls a background task, or leaves it to a lowered thread if polls of its kind do not return in time. See
    /// `monitor/overruns.md`.
    #[inline(never)]
    fn poll_background(&self, task: Runnable, source: Source) {
        let (meta, shared) = (task.metadata(), &self.shared);
        // One that was aborted ends at once; and in the child of a fork there are no other threads.
        let elsewhere = || meta.is_aborted() || shared.birth.is_elsewhere();
        if !meta.may_be_lowered() || !shared.preempts_background() || elsewhere() {
            return self.poll_apart(task, source);
        }
        let site = POLLS.at(meta.location());
        match site.expect() {
            Expect::Short => {
                self.poll_apart(task, source);
                if self.hold.get() == Hold::Core && shared.scheduler.polite.unanswered_for(self.index) > LATE {
                    // Or its thread had no CPU. The next ones are watched, which tells.
                    POLLS.doubt(site);
                }
            }
            // One that is overdue has its turn, whatever it does with it.
            Expect::Long if source != Source::Overdue => {
                // As before a poll: this may take long, too.
                shared.unpark(shared.scheduler.before_poll(self.core()));
                meta.set_lowered(true);
                shared.push_lowered(task);
            }
            Expect::Long | Expect::Unknown => {
                self.post().begin_unproven(self.core().tick());
                shared.monitor.watch_closely();
                self.poll_apart(task, source);
                self.post().end_unproven();
                // If it was long, the monitor has said so by now.
                if self.hold.get() == Hold::Core && site.expect() == Expect::Unknown {
                    POLLS.learn(site, false);
                }
            }
        }
    }

    /// [`Self::poll_here`] of a background task. A copy apart: that of foreground tasks is a part of the loop.
    #[inline(never)]
    fn poll_apart(&self, task: Runnable, source: Source) {
        self.poll_here(task, source, true);
    }

    #[inline(always)]
    fn poll_here(&self, task: Runnable, source: Source, background: bool) {
        self.shared.unpark(self.shared.scheduler.before_poll(self.core()));
        match task.metadata().take_mark() {
            Mark::QUEUED => self.poll_now(task, source, background, false),
            mark => self.poll_marked(task, source, mark),
        }
    }

    /// Polls a task that is timed, or has given way. Apart from the others, so that they do not pay for it.
    #[inline(never)]
    fn poll_marked(&self, task: Runnable, source: Source, mark: Mark) {
        let began = mark.number().map(|number| self.begin_timed(task.metadata(), mark, number, source));
        let background = task.metadata().is_background();
        self.poll_now(task, source, background, mark.is_swapped());
        if let Some(began) = began
            && self.hold.get() == Hold::Core
        {
            let took = self.shared.now().saturating_sub(began);
            self.tally().polled(took);
            if took > self.core().manners().pace.reactor_interval() {
                // Long, so the count of polls says nothing.
                self.polls_to_look.set(1);
            }
        }
    }

    /// `swapped`: the task changed places with another when it was polled last.
    #[inline(always)]
    fn poll_now(&self, task: Runnable, source: Source, background: bool, swapped: bool) {
        let (scheduler, post, meta) = (&self.shared.scheduler, self.post(), task.metadata());
        self.core().manners().set_pinned(meta.is_pinned());
        scheduler.begin_poll(self.core(), source, background, swapped);
        if scheduler.has_pinned(self.core()) {
            // Whoever is idle cannot take it: a polite task is to give way to it all the same.
            giveway_yield::host::ask_once();
        }
        if meta.is_pinned() {
            // A guard that it holds across an await, which only a task that stays on its thread can.
            context::come_back_to_entered(Some(meta.id));
        }
        post.begin(meta, background);
        post.count_poll();
        if meta.is_paced() {
            self.begin_paced();
        }
        let rationed = background && self.shared.reactor.has_anything_for(self.index());
        let budget = match source {
            Source::Slot => {
                post.count_hand_off();
                self.budget_left.get()
            }
            _ if rationed => self.ration.get(),
            Source::Queue | Source::Yielded | Source::Overdue => OPERATIONS,
        };
        let left = self.lending(true, || {
            with_budget(budget, || {
                task.run();
                giveway_budget::remaining()
            })
        });
        context::leave_entered();
        if self.hold.get() != Hold::Core {
            // The rest is for another to do.
            self.paced.reset();
            return;
        }
        // A poll that was cut short has not spent its budget: the slot's task, which is what it was cut short for, starts
        // afresh.
        let cut_short = scheduler.polite.is_interrupted(self.index());
        self.budget_left.set(if cut_short { OPERATIONS } else { left.unwrap_or(0) });
        if rationed && left == Some(0) {
            self.adapt_ration();
        }
        if self.paced.is_running() {
            self.end_paced();
        }
        post.end();
        if post.is_watched(self.core().tick()) {
            self.end_watched();
        }
        if scheduler.has_returned(self.index()) {
            // It took long, so the count of polls says nothing.
            self.polls_to_look.set(1);
        }
    }

    /// A task that is timed is about to be polled: when that is.
    fn begin_timed(&self, meta: &Meta, mark: Mark, number: u16, source: Source) -> u64 {
        let gave_way = mark.is_swapped() || matches!(source, Source::Yielded | Source::Overdue);
        let now = self.shared.now();
        self.shared.meter.begin_timed(self.index, meta, number, gave_way, now);
        now
    }

    /// A paced task is about to be polled.
    #[cold]
    fn begin_paced(&self) {
        self.start_paced(self.shared.now());
        paced_poll_begins();
    }

    /// The poll of a paced task is over, and had the core to its end.
    #[cold]
    fn end_paced(&self) {
        let lap = self.paced.stop(self.shared.now());
        self.shared.meter.paced.ends(self.index, lap.cpu);
    }

    /// A stretch of a paced task begins.
    fn start_paced(&self, now: u64) {
        self.paced.start(now);
        if self.hold.get() == Hold::Core {
            self.shared.meter.paced.begins(self.index, now);
        }
    }

    /// How long the poll of a paced task has gone on, since it began or since the last time this was asked; zero if it was not
    /// timed from the beginning. From now on the task's polls are.
    pub(crate) fn spent(&self, now: u64) -> u64 {
        with_polled(|task| match task {
            None => 0,
            Some(task) => {
                // Zero, if this is the first time.
                let lap = self.paced.stop(now);
                task.set_paced();
                if self.hold.get() == Hold::Core {
                    self.shared.meter.paced.ends(self.index, lap.cpu);
                }
                self.start_paced(now);
                lap.wall
            }
        })
    }

    /// A poll has ended that went on for long.
    #[cold]
    fn end_watched(&self) {
        let now = self.shared.now();
        self.post().step_back();
        self.post().tell_end(now);
        self.look_at_time(now);
    }

    /// A task of the background has used up its ration. It may have no yield points, so nobody has looked at the reactor
    /// meanwhile, unless another worker did; one that returns makes room for a look. The ration is what takes about as
    /// long as the reactor may be left alone: 128 operations of 20 µs each would be a hundred times that.
    #[cold]
    fn adapt_ration(&self) {
        let (ration, bearable) = (self.ration.get(), self.core().manners().pace.reactor_interval());
        let alone = self.shared.reactor.alone_for();
        if alone > 2 * bearable {
            self.ration.set((ration / 2).max(1));
        } else if alone < bearable / 2 {
            self.ration.set(ration.saturating_mul(2).min(OPERATIONS));
        }
    }

    /// A pinned task has given way to what waits anywhere.
    fn next_before_pinned(&self) -> Option<(Runnable, Source)> {
        let found = self.shared.scheduler.next_before_pinned(self.core())?;
        if self.searching.get() {
            self.stop_search();
        }
        Some(found)
    }

    pub(super) fn next_after_io(&self) -> Option<(Runnable, Source)> {
        if self.poll_io() { self.next() } else { None }
    }

    /// Takes something from the yield queue, if nothing else is queued anywhere.
    fn resume(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        while scheduler.may_resume(self.core()) {
            // Not as a searcher: what is pushed while somebody searches interrupts nobody. See `sched/yielding.md`.
            let searched = self.searching.replace(false);
            let was_last = searched && scheduler.idle.stop_search();
            let Some(yielded) = scheduler.resume(self.core()) else {
                if searched {
                    // Refused if others search; they find what is there.
                    self.searching.set(scheduler.idle.try_start_search());
                }
                return None;
            };
            if was_last {
                self.shared.unpark(scheduler.idle.wake_for_more(|| scheduler.queued()));
            }
            if let Some(task) = self.task_of(yielded) {
                return Some((task, Source::Yielded));
            }
        }
        None
    }

    /// A task that has waited in the yield queue for longer than it may.
    #[inline]
    fn overdue(&self) -> Option<(Runnable, Source)> {
        let overdue = self.shared.scheduler.take_overdue(self.core(), || self.shared.now())?;
        self.task_of(overdue).map(|task| (task, Source::Overdue))
    }

    /// The task that was taken from the yield queue. A thread is woken instead.
    fn task_of(&self, Entry { yielded, since }: Entry<Runnable>) -> Option<Runnable> {
        match yielded {
            Yielded::Task(task) => {
                self.shared.meter.resumes(task.metadata(), self.index(), since);
                Some(task)
            }
            Yielded::Thread(waker) => {
                if since != 0 {
                    self.tally().thread_waited(self.shared.now().saturating_sub(since));
                }
                waker.wake();
                None
            }
        }
    }
}
