//! Giving way: what a yield point decides, and what becomes of a task that gives way.
//!
//! CockroachDB's `runtime.Yield` is the model, with two differences:
//!
//! - There, a yield point finds work on other cores only by looking, every quarter of a
//!   millisecond. Here, the thread that queues the work interrupts a core that can give way
//!   (`interrupts.rs`), and the look is a safety net below that.
//! - There, everything polite has to call it. Here, a background task waits in the yield queue
//!   whenever it becomes runnable on a busy machine, whether it has yield points or not.
//!
//! The protocol is in `yielding.md`; A1 to R5 in the comments here are its steps.

mod interrupts;
mod look_timer;
mod poll_state;

pub(crate) use interrupts::Interrupts;
pub(crate) use look_timer::{Due, LookTimer};
pub(crate) use poll_state::{PollState, Way};

use super::{Entry, Local, PointerSized, Quiet, Scheduler, Source, Yielded};
use crate::sync::fence;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Once in this many ticks a worker looks for a task that has waited in the yield queue for too
/// long, if there is a limit. Not at every tick: however many tasks are overdue, the foreground
/// gets seven turns out of eight.
const OVERDUE_TICK: u32 = 8;

/// What a user may set. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// The least time between two looks of a core at all the others.
    pub(crate) wide_look_interval: u64,
    /// How long a task may wait in the yield queue while other work goes first.
    pub(crate) yield_patience: Option<u64>,
    /// The number of spare cores.
    pub(crate) spares: usize,
    /// A clock, in nanoseconds, by which requests to give way are timed.
    pub(crate) clock: fn() -> u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { wide_look_interval: 100_000, yield_patience: None, spares: 0, clock: || 0 }
    }
}

/// What a yield point sees beyond the queues: the clock and the reactor.
pub(crate) trait Outside {
    /// Returns the time, in nanoseconds.
    fn now(&self) -> u64;

    /// Returns when a thread last looked at the reactor, or `None` if there is nothing to look for.
    fn looked_at(&self) -> Option<u64>;

    /// Looks at the reactor, and queues what is ready or due.
    fn look(&self);
}

/// A clock that stands still, and no reactor.
#[cfg(test)]
pub(in crate::sched) struct AlwaysAt(pub(in crate::sched) u64);

#[cfg(test)]
impl Outside for AlwaysAt {
    fn now(&self) -> u64 {
        self.0
    }

    fn looked_at(&self) -> Option<u64> {
        None
    }

    fn look(&self) {}
}

impl<T: PointerSized> Scheduler<T> {
    /// Decides whether the running task gives way at a yield point, and how. Called when something
    /// may be new, and no worker is idle or the task is to look in spite of that.
    pub(crate) fn yield_point(&self, core: &Local<T>, outside: &impl Outside) -> Option<Way> {
        let poll_state = core.poll_state();
        // 1. In any case: a count that was cut short goes on.
        let ran_out = poll_state.look_timer.ran_out();
        // A task that went to the back of this queue a moment ago and still finds another in it has
        // met a second polite task. One of the two has to leave, or they change places for ever.
        let own = || {
            let queued = !self.remote(core).slot.is_empty_relaxed() || !core.deque().is_empty();
            // Of two polite tasks in one inbox neither can leave. The second time they ignore each
            // other.
            let pinned =
                self.has_pinned(core) && !(poll_state.runs_pinned() && poll_state.swapped());
            (queued || pinned)
                .then(|| if poll_state.swapped() { Way::YieldQueue } else { Way::Swap })
        };
        // 2. (Y1) The core's own queues. The task can change places with what waits there.
        if let Some(way) = own() {
            return Some(way);
        }
        // 3. (Y2) The injector. And a core that is to rest, which the task leaves even if no work
        //    waits.
        if !self.injector.is_empty() || self.leaves_to_lowered(core) {
            return Some(Way::YieldQueue);
        }
        // 4. (Y3) A request. `arm` comes before the look of step 6: a push that the look does not
        //    see then finds the bit, and interrupts this core.
        let asked = poll_state.take_unanswered() | self.interrupts.is_raised(core.index());
        let wide = if asked || !poll_state.is_armed() {
            // The request may be out of date, because another core has taken the work. Then the
            // core has to be armed for the next one.
            self.arm(core);
            true
        } else {
            // 5. (Y4) The countdown. The reactor comes before the look: the look sees what it
            //    queued.
            let due = if ran_out {
                poll_state.look_timer.due(outside.now(), outside.looked_at())
            } else {
                Due::Nothing
            };
            if due != Due::Nothing {
                outside.look();
                if let Some(way) = own() {
                    return Some(way);
                }
            }
            due == Due::Everything
        };
        // 6. (A3) The look at every core, after `arm`.
        if wide && self.work_waits() {
            return Some(Way::YieldQueue);
        }
        poll_state.forget_swap();
        // 7. Nothing waits. A task that was asked to return finds nothing before it, and is polled
        //    again at once.
        self.remote(core).is_asked_to_return(core.tick()).then_some(Way::Swap)
    }

    /// Has every core that can give way do so for good: the runtime closes, and a task that is in
    /// no queue is not dropped.
    pub(crate) fn close(&self) {
        // 1. Ordering: relaxed store, then a SeqCst fence, then the requests. The fence is the
        //    partner of the one in `Interrupts::arm`: a core that wipes out its request while it
        //    arms sees `closing` when it looks.
        self.closing.store(true, Relaxed);
        fence(SeqCst);
        // 2. The requests, after the store: a core that answers one finds the runtime closing.
        (0..self.cores().len()).for_each(|core| self.interrupts.raise(core));
        self.idle.require_look();
    }

    /// Asks the poll that a core is in to return at its next yield point or budgeted operation,
    /// whether or not work waits, and even while a worker is idle. Something else in its task, a
    /// timeout for instance, may want its turn, or the task may have been aborted.
    pub(crate) fn ask_to_return(&self, core: usize, tick: u32) {
        self.require_look_until_return(core, tick);
        // Even if its yield points were asked to look closer before: the poll may have none.
        self.interrupts.raise(core);
    }

    /// Has the yield points of a core look closer, even while a worker is idle. Unlike
    /// [`Self::ask_to_return`] it asks nothing of a poll without yield points. If the poll is over
    /// by then, the request holds for the next one.
    pub(crate) fn ask_to_yield(&self, core: usize) {
        self.require_look_until_return(core, self.core(core).polling());
    }

    /// Has every yield point ask until the core's holder says that the poll [has
    /// returned](Self::has_returned).
    fn require_look_until_return(&self, core: usize, tick: u32) {
        // 1. The reason, before the request. The holder may answer a request at once, and then
        //    takes the reason back. In the other order it might take back a reason that is not
        //    there yet. For a moment a worker would seem idle that is not, and a moment may be long
        //    for a thread that loses its CPU.
        self.idle.require_look();
        // 2. The request. If there was one already, its reason is in the hint, and one is enough.
        if !self.core(core).ask_to_return(tick) {
            self.idle.release_look();
        }
    }

    /// Forgets the request to return, and returns whether there was one. Called by the core's
    /// holder when a poll is over.
    #[inline]
    pub(crate) fn has_returned(&self, core: usize) -> bool {
        let asked = self.core(core).take_return_asked();
        if asked {
            self.idle.release_look();
        }
        asked
    }

    /// Forgets the request to return that was made of the poll with this tick. Called by the
    /// monitor, if the request came too late or the poll does not answer: what it was about may
    /// then still wait.
    pub(crate) fn take_request_back(&self, core: usize, tick: u32) {
        if self.core(core).take_request_back(tick) {
            self.idle.release_look();
        }
    }

    /// Makes the look of a yield point for a caller that only asks. Returns true if work waits.
    pub(crate) fn would_give_way(&self, core: &Local<T>, outside: &impl Outside) -> bool {
        let waits = self.yield_point(core, outside).is_some();
        if waits {
            // The look may have answered a request, and what it was about still waits.
            core.poll_state().look_again();
        }
        waits
    }

    /// Hands the task in the slot to an idle worker. Called when the running task goes on because a
    /// worker is idle: what it has put into its slot was not announced, and would wait for it.
    /// Returns a worker to unpark.
    pub(crate) fn hand_over_slot(&self, core: &Local<T>) -> Option<usize> {
        let task = self.remote(core).slot.take()?;
        self.push_back(core, task);
        self.announce()
    }

    fn arm(&self, core: &Local<T>) {
        self.interrupts.arm(core.index());
        core.poll_state().set_armed(true);
    }

    /// Begins a poll. `swapped`: the task changed places with another when it was polled last.
    #[inline(always)]
    pub(crate) fn begin_poll(
        &self,
        core: &Local<T>,
        source: Source,
        background: bool,
        swapped: bool,
    ) {
        let poll_state = core.poll_state();
        let unanswered = poll_state.take_unanswered();
        // An overdue task has had its place in the queue: at its first yield point it leaves for
        // the yield queue again, without changing places first.
        poll_state.begin_poll(background, swapped || source == Source::Overdue);
        // An overdue task has been asked to give way often enough.
        let polite = (background || swapped) && source != Source::Overdue;
        match (polite, source) {
            // `resume` has armed the core, and looked.
            (_, Source::Yielded) => {}
            (true, _) => {
                if !poll_state.is_armed() || self.interrupts.is_raised(core.index()) {
                    self.begin_polite(core);
                }
            }
            (false, _) if poll_state.is_armed() => self.end_polite(core, unanswered),
            // A request that came late, for a task that is gone, is dropped.
            (false, _) => self.interrupts.clear(core.index()),
        }
        self.remote(core).begin_poll(core.tick());
    }

    #[cold]
    fn begin_polite(&self, core: &Local<T>) {
        // 1. (A1, A2) Before the look: what is queued after the look finds the bit.
        self.arm(core);
        // 2. (A3) The look. If work waits, the core asks itself to give way. Not beside an idle
        //    worker, which is about to come for what waits: the task would go to the back of this
        //    very queue, and round and round with others like it. Nor for the inbox, if the task
        //    comes from there: it has had its turn, and the tasks that wait there would make it
        //    wait for them again and again, as it would them.
        let inbox_waits = !core.poll_state().runs_pinned() && self.has_pinned(core);
        if self.leaves_to_lowered(core)
            || self.idle.nobody_idle() && (self.work_waits() || inbox_waits)
        {
            self.interrupts.raise_own(core.index());
        }
    }

    #[cold]
    fn end_polite(&self, core: &Local<T>, unanswered: bool) {
        core.poll_state().set_armed(false);
        // (D1) The bit is cleared before the look. The request was for the task that ran here
        // before. If that ended without an answer, the work still waits, and another core is asked.
        // If it answered, the work is what runs now, and the look does not find it.
        if (self.interrupts.disarm(core.index()) || unanswered) && self.foreground_queued() {
            self.interrupts.raise_some();
        }
    }

    /// Ends the core's politeness: it runs nothing that could give way, nor will. A request to it
    /// goes to another core.
    pub(in crate::sched) fn cease_to_be_polite(&self, core: &Local<T>) {
        let unanswered = core.poll_state().take_unanswered();
        if core.poll_state().is_armed() {
            self.end_polite(core, unanswered);
        } else {
            self.interrupts.clear(core.index());
        }
    }

    /// Has the next operation of the running task serve as its yield point, if it is of the
    /// background and so may have no yield points. Called when the task has put foreground work
    /// into its slot, and only while no worker is idle.
    #[inline]
    pub(crate) fn interrupt_own(&self, core: &Local<T>) {
        if core.poll_state().runs_background() {
            self.interrupts.raise_own(core.index());
        }
    }

    /// Queues a task that gives way, as its yield point decided. Its poll has returned, and its
    /// core's holder looks for work next.
    ///
    /// `since` is for the yield queue, as at [`Self::push_to_yield_queue`].
    pub(crate) fn queue_after_yield(
        &self,
        core: &Local<T>,
        task: T,
        way: Way,
        since: u64,
        now: impl FnOnce() -> u64,
    ) {
        match way {
            Way::Swap => {
                // 1. The slot's task goes first even if it has had its three turns: it may be what
                //    the task gives way to.
                if !core.may_run_slot()
                    && let Some(first) = self.remote(core).slot.take()
                {
                    self.push_back(core, first);
                    core.set_unannounced(Quiet::Work);
                }
                // 2. The task itself, behind all that waits here.
                self.push_back(core, task);
            }
            Way::YieldQueue => self.push_to_yield_queue(Yielded::Task(task), since, now),
        }
        // 3. Announced before the next poll ([`Self::before_poll`]), and only to an idle worker.
        core.set_unannounced(Quiet::GaveWay);
    }

    /// Puts something into the yield queue. The caller owes [`Self::announce_yielded`]. `since` is
    /// when it became runnable, if its waiting time is measured; otherwise zero.
    pub(crate) fn push_to_yield_queue(
        &self,
        yielded: Yielded<T>,
        since: u64,
        now: impl FnOnce() -> u64,
    ) {
        let since =
            if since == 0 && self.settings.yield_patience.is_some() { now() } else { since };
        self.yielded.push(yielded, since);
    }

    /// Announces something that has given way. Returns a worker to unpark, if one is idle. No core
    /// is interrupted for it.
    pub(crate) fn announce_yielded(&self) -> Option<usize> {
        self.idle.announce_yielded()
    }

    /// Returns whether the yield queue holds anything for this core's holder.
    #[inline]
    pub(crate) fn may_resume(&self, core: &Local<T>) -> bool {
        !self.yielded.is_empty() && !self.idle.rests(core.index())
    }

    /// Takes one from the yield queue, if nothing waits anywhere else: step 6 of the order. The
    /// caller does not count as a searcher any more (R1): a push that sees a searcher interrupts no
    /// core.
    pub(crate) fn resume(&self, core: &Local<T>) -> Option<Entry<T>> {
        if !self.may_resume(core) {
            return None;
        }
        // 1. (R2) Armed before the look: a push after the look interrupts this core.
        self.arm(core);
        // 2. (R3) The look.
        if self.work_waits() || self.has_pinned(core) {
            return None;
        }
        // 3. (R4) Only now: something else that waits goes first.
        self.yielded.take()
    }

    /// Takes one from the yield queue that has waited for too long, if there is a limit.
    #[inline]
    pub(crate) fn take_overdue(
        &self,
        core: &Local<T>,
        now: impl FnOnce() -> u64,
    ) -> Option<Entry<T>> {
        let patience = self.settings.yield_patience?;
        if !core.tick().is_multiple_of(OVERDUE_TICK) || self.yielded.is_empty() {
            return None;
        }
        let overdue = self.yielded.take_from_before(now().checked_sub(patience)?)?;
        // It counts as a turn. The next tick is not a multiple, and goes to the foreground.
        core.advance_tick();
        Some(overdue)
    }
}
