//! Giving way: what a yield point decides, and what becomes of a task that gave way.
//!
//! CockroachDB's `runtime.Yield` is the model, with two differences. There a yield point finds work on other cores only
//! by looking, every quarter of a millisecond; here whoever queues it interrupts a core that can give way
//! (`polite.rs`), and the look is a net below that. And there everything polite has to call it; here a background
//! task waits in the yield queue whenever it becomes runnable on a busy machine, whether it has yield points or not.
//!
//! The protocol is in `yielding.md`.

use super::{Due, Entry, Local, PointerSized, Quiet, Scheduler, Source, Way, Yielded};
use crate::sync::fence;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Every so many ticks a worker looks for a task that has waited in the yield queue for too long, if there is a limit.
/// Not every tick: however many are overdue, the foreground gets seven turns out of eight.
const OVERDUE_TICK: u32 = 8;

/// What a user may set. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// How often a core looks at all the others, at most.
    pub(crate) wide_look_interval: u64,
    /// How long a task may wait in the yield queue while other work goes first.
    pub(crate) yield_patience: Option<u64>,
    /// How many spare cores there are.
    pub(crate) spares: usize,
    /// A clock, in nanoseconds, by which requests to give way are timed.
    pub(crate) clock: fn() -> u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { wide_look_interval: 100_000, yield_patience: None, spares: 0, clock: || 0 }
    }
}

/// What a yield point sees beyond the queues: the clock, and the reactor.
pub(crate) trait Outside {
    /// The clock, in nanoseconds.
    fn now(&self) -> u64;

    /// When somebody last looked at the reactor, if there is anything to look for.
    fn looked_at(&self) -> Option<u64>;

    /// Looks at the reactor, and queues what is ready or due.
    fn look(&self);
}

/// A clock that stands, and nothing else.
#[cfg(test)]
pub(super) struct AlwaysAt(pub(super) u64);

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
    /// The running task is at a yield point, no worker is idle, and something may be new: does it give way, and how?
    pub(crate) fn yield_point(&self, core: &Local<T>, outside: &impl Outside) -> Option<Way> {
        let manners = core.manners();
        let ran_out = manners.pace.ran_out();
        // A task that went to the back of this queue a moment ago and still finds somebody in it has met another
        // polite one. One of them has to leave, or they change places for ever.
        let own = || {
            let queued = !self.remote(core).slot.is_empty_relaxed() || !core.deque().is_empty();
            // Of two polite tasks in one inbox neither can leave: the second time they do not mind each other.
            let pinned = self.has_pinned(core) && !(manners.runs_pinned() && manners.swapped());
            (queued || pinned).then(|| if manners.swapped() { Way::Park } else { Way::Swap })
        };
        if let Some(way) = own() {
            return Some(way);
        }
        if !self.injector.is_empty() || self.leaves_to_lowered(core) {
            return Some(Way::Park);
        }
        let asked = manners.take_unanswered() | self.polite.is_interrupted(core.index());
        let wide = if asked || !manners.is_armed() {
            // A request may be out of date: what it was about may have been taken by another. Then we want the next.
            self.arm(core);
            true
        } else {
            let due = if ran_out { manners.pace.due(outside.now(), outside.looked_at()) } else { Due::Nothing };
            if due != Due::Nothing {
                outside.look();
                if let Some(way) = own() {
                    return Some(way);
                }
            }
            due == Due::Everything
        };
        if wide && self.work_waits() {
            return Some(Way::Park);
        }
        manners.forget_swap();
        // With nobody to give way to it is polled again at once.
        self.remote(core).is_asked_to_return(core.tick()).then_some(Way::Swap)
    }

    /// From now on everybody who can is to give way: the runtime closes, and a task that is in no queue is not dropped.
    pub(crate) fn close(&self) {
        // Ordering: relaxed store, SeqCst fence, then the requests. The fence is the partner of the one in `arm`: a core
        // that wipes out our request while arming sees this when it looks.
        self.closing.store(true, Relaxed);
        fence(SeqCst);
        (0..self.cores().len()).for_each(|core| self.polite.interrupt(core));
        self.idle.distract();
    }

    /// Asks the poll that a core is in to return at its next yield point or budgeted operation, whether anybody waits or
    /// not and whoever is idle: what else is in its task, a timeout say, may want its turn, or it may have been aborted.
    pub(crate) fn ask_to_return(&self, core: usize, tick: u32) {
        self.distract_until_return(core, tick);
        // Also if its yield points were asked to look closer before: it may have none.
        self.polite.interrupt(core);
    }

    /// Has the yield points of a core look closer, whoever is idle. Unlike [`Self::ask_to_return`] it asks nothing of a poll
    /// that has none. The poll may be over meanwhile: then it holds for the next one.
    pub(crate) fn ask_to_yield(&self, core: usize) {
        self.distract_until_return(core, self.core(core).polling());
    }

    /// Has every yield point ask until the core's holder says that a poll [has returned](Self::has_returned).
    fn distract_until_return(&self, core: usize, tick: u32) {
        // First, because the holder may answer at once, and takes it back then: for a moment a worker would seem idle that is
        // not, and a moment may be long for a thread that loses its CPU.
        self.idle.distract();
        if !self.core(core).ask_to_return(tick) {
            self.idle.attract();
        }
    }

    /// The poll that a core was in is over: if it had been asked to return, it has, and this is true. The holder's to call,
    /// and the monitor's if it asked too late or in vain: what the request was about may still wait.
    #[inline]
    pub(crate) fn has_returned(&self, core: usize) -> bool {
        let asked = self.core(core).take_return_asked();
        if asked {
            self.idle.attract();
        }
        asked
    }

    /// The look of a yield point, for somebody who only asks. True if work waits.
    pub(crate) fn would_give_way(&self, core: &Local<T>, outside: &impl Outside) -> bool {
        let waits = self.yield_point(core, outside).is_some();
        if waits {
            // The look may have answered a request. What it was about still waits.
            core.manners().look_again();
        }
        waits
    }

    /// The running task is at a yield point, and goes on because a worker is idle. What it has put into its slot was not
    /// announced, and would wait for it: the idle worker is to have it. Returns a worker to unpark.
    pub(crate) fn hand_over_slot(&self, core: &Local<T>) -> Option<usize> {
        let task = self.remote(core).slot.take()?;
        self.push_back(core, task);
        self.announce()
    }

    fn arm(&self, core: &Local<T>) {
        self.polite.arm(core.index());
        core.manners().set_armed(true);
    }

    /// A poll begins. `swapped`: the task changed places with another when it was polled last.
    #[inline(always)]
    pub(crate) fn begin_poll(&self, core: &Local<T>, source: Source, background: bool, swapped: bool) {
        let manners = core.manners();
        let unanswered = manners.take_unanswered();
        // One that is overdue has had its place in the queue: at its first yield point it leaves again, and does not
        // change places before that.
        manners.begin_poll(background, swapped || source == Source::Overdue);
        // One that is overdue has been asked to give way often enough.
        let polite = (background || swapped) && source != Source::Overdue;
        match (polite, source) {
            // `resume` has armed the core, and looked.
            (_, Source::Yielded) => {}
            (true, _) => {
                if !manners.is_armed() || self.polite.is_interrupted(core.index()) {
                    self.begin_polite(core);
                }
            }
            (false, _) if manners.is_armed() => self.end_polite(core, unanswered),
            // A request that came late, for a task that is gone.
            (false, _) => self.polite.clear(core.index()),
        }
        self.remote(core).begin_poll(core.tick());
    }

    #[cold]
    fn begin_polite(&self, core: &Local<T>) {
        self.arm(core);
        // Not beside an idle worker, which is about to come for what waits: the task would go to the back of this very
        // queue, and round and round with others like it.
        // Nor for the inbox, if it comes from there: it has had its turn, and those that wait there would make it wait for them
        // again and again, as it would them.
        let inbox_waits = !core.manners().runs_pinned() && self.has_pinned(core);
        if self.leaves_to_lowered(core) || self.idle.nobody_idle() && (self.work_waits() || inbox_waits) {
            self.polite.interrupt_self(core.index());
        }
    }

    #[cold]
    fn end_polite(&self, core: &Local<T>, unanswered: bool) {
        core.manners().set_armed(false);
        // Whoever asked meant the task that ran here before, which ended without answering; or it was answered, and what
        // it was about is what runs now.
        if (self.polite.disarm(core.index()) || unanswered) && self.foreground_queued() {
            self.polite.interrupt_some();
        }
    }

    /// The core runs nothing that could give way, nor will: a request to it goes to another.
    pub(super) fn cease_to_be_polite(&self, core: &Local<T>) {
        let unanswered = core.manners().take_unanswered();
        if core.manners().is_armed() {
            self.end_polite(core, unanswered);
        } else {
            self.polite.clear(core.index());
        }
    }

    /// The running task has put foreground work into its slot. If it is of the background, and so may have no yield points,
    /// its next operation is one. Only while nobody is idle.
    #[inline]
    pub(crate) fn interrupt_own(&self, core: &Local<T>) {
        if core.manners().runs_background() {
            self.polite.interrupt_self(core.index());
        }
    }

    /// A task gives way, as its yield point decided. Its poll has returned, and its core's holder looks for work next.
    ///
    /// `since`: for the yield queue, as at [`Self::push_yielded_task`].
    pub(crate) fn give_way(&self, core: &Local<T>, task: T, way: Way, since: u64, now: impl FnOnce() -> u64) {
        match way {
            Way::Swap => {
                // The slot's task goes first even if it has had its three turns: it may be what the task gives way to.
                if !core.may_run_slot()
                    && let Some(first) = self.remote(core).slot.take()
                {
                    self.push_back(core, first);
                    core.set_unannounced(Quiet::Work);
                }
                self.push_back(core, task);
            }
            Way::Park => self.push_yielded_task(Yielded::Task(task), since, now),
        }
        core.set_unannounced(Quiet::GaveWay);
    }

    /// Into the yield queue. The caller owes [`Self::announce_yielded`]. `since` is when it became runnable, if somebody wants
    /// to know how long it has to wait; otherwise zero.
    pub(crate) fn push_yielded_task(&self, yielded: Yielded<T>, since: u64, now: impl FnOnce() -> u64) {
        let since = if since == 0 && self.settings.yield_patience.is_some() { now() } else { since };
        self.yielded.push(yielded, since);
    }

    /// Something has given way. Returns a worker to unpark, should one be idle. Nobody is interrupted for it.
    pub(crate) fn announce_yielded(&self) -> Option<usize> {
        self.idle.announce_yielded()
    }

    /// Whether there is anything in the yield queue for this core's holder.
    #[inline]
    pub(crate) fn may_resume(&self, core: &Local<T>) -> bool {
        !self.yielded.is_empty() && !self.idle.rests(core.index())
    }

    /// Step 6 of the order: one from the yield queue, if nothing waits anywhere. Not to be called as a searcher.
    pub(crate) fn resume(&self, core: &Local<T>) -> Option<Entry<T>> {
        if !self.may_resume(core) {
            return None;
        }
        // Armed first: what is queued after the look interrupts us.
        self.arm(core);
        if self.work_waits() || self.has_pinned(core) {
            return None;
        }
        self.yielded.take()
    }

    /// One from the yield queue that has waited for too long, if there is a limit.
    #[inline]
    pub(crate) fn take_overdue(&self, core: &Local<T>, now: impl FnOnce() -> u64) -> Option<Entry<T>> {
        let patience = self.settings.yield_patience?;
        if !core.tick().is_multiple_of(OVERDUE_TICK) || self.yielded.is_empty() {
            return None;
        }
        let overdue = self.yielded.take_from_before(now().checked_sub(patience)?)?;
        // It counts as a turn. The next one is not a multiple, and goes to the foreground.
        core.advance_tick();
        Some(overdue)
    }
}
