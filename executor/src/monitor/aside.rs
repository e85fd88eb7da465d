//! The thread of an overrun poll steps aside for others, and back when the poll is over. See
//! `overruns.md`.

use crate::sync::AtomicU64;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Whether a thread steps aside on a core, and how to undo it: what
/// [`os::step_aside`](crate::os::step_aside) returns, or zero.
///
/// Set by the monitor. Taken by the monitor or by the core's holder when the poll is over.
#[derive(Default)]
pub(crate) struct Aside(AtomicU64);

impl Aside {
    /// Returns whether a thread has stepped aside.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Has a thread step aside by `step`, unless one has. Returns whether it did. Only the monitor
    /// may call this.
    pub(crate) fn set(&self, step: impl FnOnce() -> Option<NonZeroU64>) -> bool {
        if self.is_set() {
            return false;
        }
        let Some(aside) = step() else { return false };
        // After `step` (M2 before M3): set first, it could be taken before the thread has stepped
        // aside, and the thread would never step back.
        //
        // Ordering: release, partner of the acquire in `take`. The thread has stepped aside before
        // this store, so the thread that takes the word has it step back after that.
        self.0.store(aside.get(), Release);
        true
    }

    /// Has the thread that has stepped aside step back by `back`, if one has.
    pub(crate) fn take(&self, back: impl FnOnce(NonZeroU64)) {
        // Ordering: acquire, partner of the release in `set`. A read-modify-write, so that one
        // thread takes it. Relaxed for the load: if it misses a thread that has just stepped aside,
        // the monitor's next look does not.
        if self.is_set()
            && let Some(aside) = NonZeroU64::new(self.0.swap(0, Acquire))
        {
            back(aside);
        }
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_steps_aside_once_and_back_once() {
        let (aside, undo) = (Aside::default(), NonZeroU64::new(7));
        assert!(aside.set(|| undo) && aside.is_set());
        assert!(!aside.set(|| panic!("it has stepped aside")));
        let mut undone = None;
        aside.take(|undo| undone = Some(undo));
        assert_eq!(undone, undo);
        aside.take(|_| panic!("it has stepped back"));
        assert!(!aside.set(|| None) && !aside.is_set(), "the system refuses");
    }
}
