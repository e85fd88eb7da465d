//! What a core knows of the task that it runs: whether the task can give way, and whether it was
//! told to. A thread in `block_on` has no core, but it has such a state too.
//!
//! Private to the thread. Each poll begins by setting what belongs to the task, so nothing of one
//! task is left for the next. Whether the core is armed, and the look timer, outlive the poll.

use super::LookTimer;
use std::cell::Cell;

/// How a task gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the back of its core's own deque: what it gives way to is on that core.
    Swap,
    /// Into the yield queue.
    YieldQueue,
}

/// The part of a core that yield points use.
pub(crate) struct PollState {
    /// Whether the core is armed in the `Interrupts`, as far as its holder knows: another thread
    /// may have asked it to give way since.
    armed: Cell<bool>,
    background: Cell<bool>,
    pinned: Cell<bool>,
    /// Whether the running task changed places when it was polled last, and has not been at a yield
    /// point where nothing waited since.
    swapped: Cell<bool>,
    /// How many yield points want the running task to give way.
    asked: Cell<u32>,
    /// How the running task is to give way, as the first of those yield points decided.
    way: Cell<Way>,
    /// Whether a look found work but the task did not give way: then the next yield point looks
    /// again.
    unanswered: Cell<bool>,
    pub(crate) look_timer: LookTimer,
}

impl PollState {
    pub(crate) fn new(wide_look_interval: u64) -> Self {
        Self {
            armed: Cell::new(false),
            background: Cell::new(false),
            pinned: Cell::new(false),
            swapped: Cell::new(false),
            asked: Cell::new(0),
            way: Cell::new(Way::YieldQueue),
            unanswered: Cell::new(false),
            look_timer: LookTimer::new(wide_look_interval),
        }
    }

    #[inline]
    pub(crate) fn begin_poll(&self, background: bool, swapped: bool) {
        self.background.set(background);
        self.swapped.set(swapped);
        self.asked.set(0);
        self.disturb();
    }

    /// Has the next yield point look: something was queued on this core, or another task runs here.
    #[inline]
    pub(in crate::sched) fn disturb(&self) {
        self.look_timer.hurry();
    }

    /// Forgets that the task changed places: a yield point has looked at everything near and found
    /// nothing.
    pub(in crate::sched) fn forget_swap(&self) {
        self.swapped.set(false);
    }

    /// Has the next yield point look again: a look found work, but the task did not give way. Only
    /// yield points learn of it, because the core's flag would cut budgets short too.
    pub(crate) fn look_again(&self) {
        self.unanswered.set(true);
        self.look_timer.hurry();
    }

    /// Returns whether a look is to be made again, and forgets it.
    #[inline]
    pub(crate) fn take_unanswered(&self) -> bool {
        self.unanswered.replace(false)
    }

    #[cfg(test)]
    pub(in crate::sched) fn is_unanswered(&self) -> bool {
        self.unanswered.get()
    }

    /// Returns whether the running task is of the background.
    #[inline]
    pub(crate) fn runs_background(&self) -> bool {
        self.background.get()
    }

    /// Returns whether the running task is pinned.
    pub(in crate::sched) fn runs_pinned(&self) -> bool {
        self.pinned.get()
    }

    #[inline]
    pub(crate) fn set_pinned(&self, pinned: bool) {
        self.pinned.set(pinned);
    }

    /// Notes that the running task is to give way. The first yield point to ask decides how.
    pub(crate) fn ask(&self, way: Way) {
        if self.asked.get() == 0 {
            self.way.set(way);
        }
        self.asked.set(self.asked.get() + 1);
    }

    /// Forgets one request. After the last one the next yield point looks again, because what the
    /// request was about still waits.
    pub(crate) fn take_back(&self) {
        self.asked.set(self.asked.get().saturating_sub(1));
        if self.asked.get() == 0 {
            self.look_again();
        }
    }

    /// Returns how many yield points want the running task to give way.
    pub(crate) fn times_asked(&self) -> u32 {
        self.asked.get()
    }

    /// Returns how the running task is to give way, if it is to.
    #[inline]
    pub(crate) fn asked(&self) -> Option<Way> {
        (self.asked.get() > 0).then(|| self.way.get())
    }

    #[inline]
    pub(in crate::sched) fn is_armed(&self) -> bool {
        self.armed.get()
    }

    #[inline]
    pub(in crate::sched) fn set_armed(&self, armed: bool) {
        self.armed.set(armed);
    }

    #[inline]
    pub(in crate::sched) fn swapped(&self) -> bool {
        self.swapped.get()
    }
}
