//! The loop of a worker: what it runs next, and how it polls it.

use super::{Hold, Stop, Worker, spin};
use crate::handoff::{Expect, POLLS};
use crate::runtime::{Phase, context};
use crate::sched::{Entry, Finder, Source, Step, Yielded};
use crate::task::{Mark, Meta, Runnable, with_polled};
use giveway_budget::{OPERATIONS, with_budget};
use giveway_yield::host::paced_poll_begins;

/// How long a worker that has run out of work waits before it goes back to the injector, if its
/// last visit brought little. Some two microseconds.
///
/// A worker that is faster than the thread which feeds it would otherwise come for every single
/// task, and each time take from that thread the cache lines that it is about to write. A worker
/// that was just woken does not wait: a task does.
const GATHER_SPINS: usize = 64;

/// The time in nanoseconds after which a poll that was asked to give way counts as late: it had no
/// yield point for that long.
const LATE: u64 = 300_000;

impl Worker {
    /// Runs tasks until the runtime closes, or until this thread does not hold its core any more.
    pub(super) fn run_tasks(&self) -> Stop {
        while self.shared.gate.phase() == Phase::Open {
            // Between two polls, when the thread has no task. A home thread gives its core to no
            // other.
            if !self.home && self.give_back() {
                return Stop::GivenBack;
            }
            self.look_beyond_now_and_then();
            let Some((task, source)) = self.next() else { continue };
            self.poll(task, source);
            if let Hold::Lost(loan) = self.hold.get() {
                return Stop::Lost(loan);
            }
        }
        Stop::Closed
    }

    /// Finds the next task, by the order of `sched/next.rs`. Returns nothing if the worker has slept
    /// instead.
    #[inline(always)]
    fn next(&self) -> Option<(Runnable, Source)> {
        let (scheduler, mut finder) = (&self.shared.scheduler, Finder::new());
        let found = loop {
            match scheduler.step(self.core(), &mut finder, || self.shared.now()) {
                Step::Run(task, source) => break (task, source),
                Step::Yielded(entry, source, woken) => {
                    self.shared.unpark(woken);
                    if let Some(task) = self.task_of(entry) {
                        break (task, source);
                    }
                }
                Step::GoOn => {}
                Step::Gather => spin(GATHER_SPINS),
                Step::Look => {
                    if self.poll_io() {
                        finder.woke();
                    }
                }
                Step::Linger => self.linger(),
                Step::Sleep => {
                    self.sleep();
                    return None;
                }
            }
        };
        // This worker is no searcher any more. As the last one, it wakes another if more is queued.
        self.end_search();
        Some(found)
    }

    /// Polls a task here, or leaves it to a lowered thread.
    #[inline]
    fn poll(&self, task: Runnable, source: Source) {
        if task.metadata().is_background() {
            self.poll_background(task, source);
        } else {
            self.poll_here(task, source, false);
        }
    }

    /// Polls a background task, or leaves it to a lowered thread if polls from its place do not
    /// return in time. See `monitor/overruns.md`.
    #[inline(never)]
    fn poll_background(&self, task: Runnable, source: Source) {
        let (meta, shared) = (task.metadata(), &self.shared);
        // A poll of an aborted task ends at once. In the child of a fork there are no other
        // threads.
        let elsewhere = || meta.is_aborted() || shared.process.in_forked_child();
        if !meta.may_be_lowered() || !shared.preempts_background() || elsewhere() {
            return self.poll_apart(task, source);
        }
        let site = POLLS.at(meta.location());
        match site.expect() {
            Expect::Short => {
                self.poll_apart(task, source);
                if self.hold.get() == Hold::Core
                    && shared.scheduler.interrupts.unanswered_for(self.index) > LATE
                {
                    // Either the poll had no yield point for that long, or its thread had no CPU.
                    // The next polls from this place are watched, which tells the two apart.
                    POLLS.doubt(site);
                }
            }
            // A task that is overdue has its turn here, however long it takes.
            Expect::Long if source != Source::Overdue => {
                // As before a poll: what was queued quietly is announced first, because the push
                // may take long.
                shared.unpark(shared.scheduler.before_poll(self.core()));
                meta.set_lowered(true);
                shared.push_lowered(task);
            }
            Expect::Long | Expect::Unknown => {
                // 1. Said before the monitor is called, which looks for it.
                let tick = self.core().tick();
                self.post().begin_unproven(tick);
                shared.monitor.watch_closely();
                // 2. The monitor is called before the poll: this thread cannot call it once the
                // poll goes on. It asks the poll to return after 100 µs.
                self.poll_apart(task, source);
                self.post().end_unproven(tick);
                // 3. If the poll was long, the monitor has marked the place as long by now.
                if self.hold.get() == Hold::Core && site.expect() == Expect::Unknown {
                    POLLS.learn(site, false);
                }
            }
        }
    }

    /// Calls [`Self::poll_here`] for a background task. Not inlined: the copy for foreground tasks
    /// is a part of the loop.
    #[inline(never)]
    fn poll_apart(&self, task: Runnable, source: Source) {
        self.poll_here(task, source, true);
    }

    /// Announces what was queued quietly, and polls a task on this worker.
    #[inline(always)]
    fn poll_here(&self, task: Runnable, source: Source, background: bool) {
        // 1. Before the poll, which may take any length of time. An idle worker can take meanwhile
        // what waits here.
        self.shared.unpark(self.shared.scheduler.before_poll(self.core()));
        // 2. The mark belongs to this worker until the poll returns. Most tasks are neither timed
        // nor swapped.
        match task.metadata().take_mark() {
            Mark::QUEUED => self.poll_now(task, source, background, false),
            mark => self.poll_marked(task, source, mark),
        }
    }

    /// Polls a task that is timed, or that has changed places with another. Not inlined, so that
    /// all other tasks do not pay for it.
    #[inline(never)]
    fn poll_marked(&self, task: Runnable, source: Source, mark: Mark) {
        let began =
            mark.number().map(|number| self.begin_timed(task.metadata(), mark, number, source));
        let background = task.metadata().is_background();
        self.poll_now(task, source, background, mark.is_swapped());
        if let Some(began) = began
            && self.hold.get() == Hold::Core
        {
            let took = self.shared.now().saturating_sub(began);
            self.tally().polled(took);
            if took > self.core().poll_state().look_timer.reactor_interval() {
                // The poll was long, so the count of polls says little about the last look at the
                // reactor. The worker looks next.
                self.polls_to_look.set(1);
            }
        }
    }

    /// Polls a task. `swapped` says that the task has changed places with another, to which it gave
    /// way in its last poll.
    #[inline(always)]
    fn poll_now(&self, task: Runnable, source: Source, background: bool, swapped: bool) {
        let (scheduler, post, meta) = (&self.shared.scheduler, self.post(), task.metadata());
        // 1. What this poll may be asked. `set_pinned` comes first, because `begin_poll` reads it.
        // `begin_poll` clears what was asked of the poll before, arms or disarms the core, and
        // passes on a request that nothing here will answer. Last, it publishes the tick.
        self.core().poll_state().set_pinned(meta.is_pinned());
        scheduler.begin_poll(self.core(), source, background, swapped);
        // 2. No idle worker can run what is in the inbox, so a polite task has to give way to it
        // beside an idle worker too: its first yield point asks. Every poll looks anew, because the
        // request of a push is for the poll that goes on, which may have ended without an answer.
        // `has_returned` (step 9), which took that request back, came before this look, so the look
        // sees what was pushed before the request. If the monitor took it back, from a poll that
        // did not answer, nothing orders the two, and the monitor's next request is 10 ms away.
        if scheduler.has_pinned(self.core()) {
            giveway_yield::host::ask_once();
        }
        // 3. A pinned task may have entered a runtime and hold the guard across an await, because
        // it stays on its thread. That runtime is current again.
        if meta.is_pinned() {
            context::come_back_to_entered(Some(meta.id));
        }
        // 4. The task is published after the tick. The monitor reads the task first and the tick
        // second: if the tick is still that of the poll it means, the task is not that of the next
        // one (`overrun` in `monitor/polls.rs`).
        post.begin(meta, background);
        post.count_poll();
        if meta.is_paced() {
            self.begin_paced();
        }
        // 5. The budget. A task from the slot goes on with what its predecessor left, so that two
        // tasks which wake each other cannot hold the core for ever. A background task gets a
        // ration while there is something at the reactor to look for.
        let rationed = background && self.shared.reactor.has_anything_for(self.index());
        let budget = match source {
            Source::Slot => {
                post.count_hand_off();
                self.budget_left.get()
            }
            _ if rationed => self.ration.get(),
            Source::Queue | Source::Yielded | Source::Overdue => OPERATIONS,
        };
        // 6. The poll. Only during it may the core be lent: at all other times the worker itself
        // uses it.
        let left = self.lending(true, || {
            with_budget(budget, || {
                task.run();
                giveway_budget::remaining()
            })
        });
        // 7. What the task has entered and not left is not current for the next task. This belongs
        // to the thread, so it is undone whether the thread has lost its core or not.
        context::leave_entered();
        // 8. Everything below touches the core. If another thread holds that now, that thread has
        // taken back what was asked of this poll; the rest is done by `poll_ended_away`.
        if self.hold.get() != Hold::Core {
            self.paced.reset();
            return;
        }
        // A poll that was cut short by an interrupt has not spent its budget. What it was cut short
        // for, the task in the slot, starts with a fresh one. This is read before the next
        // `begin_poll` clears the flag.
        let cut_short = scheduler.interrupts.is_raised(self.index());
        self.budget_left.set(if cut_short { OPERATIONS } else { left.unwrap_or(0) });
        if rationed && left == Some(0) {
            self.adapt_ration();
        }
        // `spent` may have started the stopwatch in this poll.
        if self.paced.is_running() {
            self.end_paced();
        }
        post.end();
        // W1 and W2 of `monitor/overruns.md`. If the monitor says that it watches only after this,
        // its next look does the same.
        if post.is_watched(self.core().tick()) {
            self.end_watched();
        }
        // 9. Takes back a request to return, after the poll that it was made of. A request that
        // comes later holds for the next poll.
        if scheduler.has_returned(self.index()) {
            // The poll was long, so the count of polls says little about the last look at the
            // reactor. The worker looks next.
            self.polls_to_look.set(1);
        }
    }

    /// Takes the time of a timed task that is about to be polled, and returns when that is.
    fn begin_timed(&self, meta: &Meta, mark: Mark, number: u16, source: Source) -> u64 {
        let gave_way = mark.is_swapped() || matches!(source, Source::Yielded | Source::Overdue);
        let now = self.shared.now();
        self.shared.meter.begin_timed(self.index, meta, number, gave_way, now);
        now
    }

    /// Begins to time the poll of a paced task.
    #[cold]
    fn begin_paced(&self) {
        self.start_paced(self.shared.now());
        paced_poll_begins();
    }

    /// Counts the poll of a paced task that had the core to its end.
    #[cold]
    fn end_paced(&self) {
        let lap = self.paced.stop(self.shared.now());
        self.shared.meter.paced.ends(self.index, lap.cpu);
    }

    /// Begins a stretch of a paced task.
    fn start_paced(&self, now: u64) {
        self.paced.start(now);
        if self.hold.get() == Hold::Core {
            self.shared.meter.paced.begins(self.index, now);
        }
    }

    /// Returns for how long the poll of a paced task has gone on, since it began or since the last
    /// call. Zero if the poll was not timed from its beginning. From now on the polls of this task
    /// are timed.
    pub(crate) fn spent(&self, now: u64) -> u64 {
        with_polled(|task| match task {
            None => 0,
            Some(task) => {
                // Zero on the first call: the stopwatch stands still.
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

    /// Ends a poll whose end the monitor wants to know: its thread steps back if it has stepped
    /// aside, and the time is told.
    #[cold]
    fn end_watched(&self) {
        let now = self.shared.now();
        self.post().step_back();
        self.post().tell_end(now);
        self.look_at_time(now);
    }

    /// Changes the ration after a background task has used it up.
    ///
    /// The task may have no yield points, so the reactor was left alone during its poll, unless
    /// another worker looked. Its return makes room for a look. So the ration is to take about as
    /// long as the reactor may be left alone, which is 10 µs by default: 128 operations of 20 µs
    /// each would take 2.6 ms.
    #[cold]
    fn adapt_ration(&self) {
        let (ration, bearable) =
            (self.ration.get(), self.core().poll_state().look_timer.reactor_interval());
        let alone = self.shared.reactor.alone_for();
        if alone > 2 * bearable {
            self.ration.set((ration / 2).max(1));
        } else if alone < bearable / 2 {
            self.ration.set(ration.saturating_mul(2).min(OPERATIONS));
        }
    }

    /// Returns the task of an entry of the yield queue. If the entry is a thread in `block_on`,
    /// wakes the thread instead.
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
