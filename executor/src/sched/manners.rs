//! What a core knows of the manners of the task it runs: whether it can give way, and whether it was told to. A thread in
//! `block_on`, which has no core, has manners too.
//!
//! Private to the thread. All of it is set at the start of each poll, so nothing of one task is left for the
//! next.

use super::Pace;
use std::cell::Cell;

/// How a task gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the back of its core's own deque: what waits is there.
    Swap,
    /// Into the yield queue.
    Park,
}

/// The part of a core that yield points use.
pub(crate) struct Manners {
    // The core is armed in the `PoliteSet`, as far as its holder knows: somebody may have asked it to give way since.
    armed: Cell<bool>,
    background: Cell<bool>,
    pinned: Cell<bool>,
    // The running task swapped the last time, and has not been at a yield point where nobody waited since.
    swapped: Cell<bool>,
    // How many yield points want the running task to give way, and how.
    asked: Cell<u32>,
    way: Cell<Way>,
    // A look found work, and nobody gave way: the next yield point looks again.
    unanswered: Cell<bool>,
    pub(crate) pace: Pace,
}

impl Manners {
    pub(crate) fn new(wide_look_interval: u64) -> Self {
        Self {
            armed: Cell::new(false),
            background: Cell::new(false),
            pinned: Cell::new(false),
            swapped: Cell::new(false),
            asked: Cell::new(0),
            way: Cell::new(Way::Park),
            unanswered: Cell::new(false),
            pace: Pace::new(wide_look_interval),
        }
    }

    #[inline]
    pub(crate) fn begin_poll(&self, background: bool, swapped: bool) {
        self.background.set(background);
        self.swapped.set(swapped);
        self.asked.set(0);
        self.disturb();
    }

    /// Something was queued on this core, or another task runs here: the next yield point looks.
    #[inline]
    pub(super) fn disturb(&self) {
        self.pace.hurry();
    }

    /// A yield point has looked at everything near and found nothing.
    pub(super) fn forget_swap(&self) {
        self.swapped.set(false);
    }

    /// A look found work, but the task did not give way. Only yield points come to know of it: the flag of the core would
    /// cut budgets short too.
    pub(crate) fn look_again(&self) {
        self.unanswered.set(true);
        self.pace.hurry();
    }

    /// Whether a look is to be made again. Forgets it.
    #[inline]
    pub(crate) fn take_unanswered(&self) -> bool {
        self.unanswered.replace(false)
    }

    #[cfg(test)]
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered.get()
    }

    /// Whether the running task is of the background.
    #[inline]
    pub(crate) fn runs_background(&self) -> bool {
        self.background.get()
    }

    /// Whether the running task is pinned.
    pub(super) fn runs_pinned(&self) -> bool {
        self.pinned.get()
    }

    #[inline]
    pub(crate) fn set_pinned(&self, pinned: bool) {
        self.pinned.set(pinned);
    }

    /// Notes that the running task is to give way. The first to ask decides how.
    pub(crate) fn ask(&self, way: Way) {
        if self.asked.get() == 0 {
            self.way.set(way);
        }
        self.asked.set(self.asked.get() + 1);
    }

    /// Forgets one request. After the last, the next yield point looks again: what it was about still waits.
    pub(crate) fn take_back(&self) {
        self.asked.set(self.asked.get().saturating_sub(1));
        if self.asked.get() == 0 {
            self.look_again();
        }
    }

    /// How many yield points want the running task to give way.
    pub(crate) fn times_asked(&self) -> u32 {
        self.asked.get()
    }

    /// How the running task is to give way, if it is.
    #[inline]
    pub(crate) fn asked(&self) -> Option<Way> {
        (self.asked.get() > 0).then(|| self.way.get())
    }

    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.armed.get()
    }

    #[inline]
    pub(super) fn set_armed(&self, armed: bool) {
        self.armed.set(armed);
    }

    #[inline]
    pub(super) fn swapped(&self) -> bool {
        self.swapped.get()
    }
}
