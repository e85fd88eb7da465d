//! Until when the thread that has the turn blocks, and which thread has to call it back.
//!
//! The thread that blocks writes until when, and then looks at the timers once more. A thread that
//! adds a timer which comes first writes the timer's deadline, and then looks until when the other
//! blocks. Both have a fence between the two, so at least one of them sees the other: the blocking
//! thread sleeps for the timer, or the adding thread calls it back. See `reactor.md`.

#[cfg(all(test, giveway_loom))]
use loom::sync::atomic::{AtomicU64, fence};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
#[cfg(not(all(test, giveway_loom)))]
use std::sync::atomic::{AtomicU64, fence};

/// Until when the thread that has the turn blocks.
#[derive(Debug)]
pub(crate) struct WaitDeadline {
    /// Zero if it does not block. Written by the thread that has the turn, read by threads that add
    /// timers; both with a fence.
    blocked_until: AtomicU64,
}

impl WaitDeadline {
    pub(crate) fn new() -> Self {
        Self { blocked_until: AtomicU64::new(0) }
    }

    /// Announces that the thread that has the turn is about to block, and returns until when it
    /// may. `earliest` returns when the first timer is due.
    pub(crate) fn plan(&self, earliest: impl Fn() -> u64) -> u64 {
        let until = earliest();
        // 1. Say until when, before the second look. In the other order a timer could be added in
        //    between: this thread would not see it, and the adding thread would see none that
        //    blocks.
        self.blocked_until.store(until, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `must_call_back`. Without it both threads
        // could read before the other's write is visible, and the timer would be slept through.
        fence(SeqCst);
        // 2. Look again, and block until the earlier of the two times. The timer that was first at
        //    the first look may be gone by now, but a thread that adds one goes by what was said
        //    (model `timer_against_block_and_fire`).
        until.min(earliest())
    }

    /// Takes back what `plan` has said, if the thread has blocked.
    pub(crate) fn awake(&self) {
        // Most turns do not block, and leave the cache line alone.
        if self.blocked_until.load(Relaxed) != 0 {
            self.blocked_until.store(0, Relaxed);
        }
    }

    /// Returns whether the thread that has the turn blocks for longer than a timer that was just
    /// added, the first of its shard.
    pub(crate) fn must_call_back(&self, deadline: u64) -> bool {
        // Ordering: SeqCst fence, partner of the one in `plan`. The deadline was written before it.
        fence(SeqCst);
        deadline < self.blocked_until.load(Relaxed)
    }
}
