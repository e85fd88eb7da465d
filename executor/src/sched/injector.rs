//! The global queue: what threads without a core make runnable, and what overflows from a deque.
//!
//! crossbeam's block queue behind two rules of ours: a visitor takes its fair share, not what it can get; and the
//! share goes straight into the visitor's deque. We had a locked ring here first, as tokio and Go have: one lock a
//! batch looks cheap, but while one thread pushes and a worker keeps up with it the batches are of one or two, and
//! both spent a third of their time on the lock.

use crossbeam_deque::{Injector as Blocks, Steal, Worker as Deque};

/// The global queue of one runtime.
pub(crate) struct Injector<T> {
    blocks: Blocks<T>,
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Self { blocks: Blocks::new() }
    }

    /// Adds one task at the back.
    #[inline]
    pub(crate) fn push(&self, task: T) {
        self.blocks.push(task);
    }

    /// Takes from the front what is one core's share of `cores`, at most `most`: the first task is returned, the rest
    /// goes to the back of `deque`. May take less than the share, where it crosses from one block into the next.
    pub(crate) fn take_share(&self, cores: usize, most: usize, deque: &Deque<T>) -> Option<T> {
        let share = self.blocks.len() / cores + 1;
        retry(|| self.blocks.steal_batch_with_limit_and_pop(deque, share.min(most)))
    }

    /// Takes one task from the front.
    pub(crate) fn take_one(&self) -> Option<T> {
        retry(|| self.blocks.steal())
    }

    /// Whether there was nothing in the queue a moment ago.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// Steals until it is clear whether there is something. Each retry means that somebody else made progress.
pub(super) fn retry<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_takes_a_share_and_leaves_the_rest() {
        let injector = Injector::new();
        (0..12).for_each(|task| injector.push(task));
        let deque = Deque::new_fifo();
        assert_eq!(injector.take_share(4, 128, &deque), Some(0));
        assert_eq!(deque.len(), 3, "12 / 4 + 1 = 4 in all");
        assert_eq!(injector.take_share(1, 2, &deque), Some(4));
        assert_eq!(deque.len(), 4, "two in all: bounded by what the caller has room for");
        assert_eq!(injector.take_one(), Some(6));
    }
}
