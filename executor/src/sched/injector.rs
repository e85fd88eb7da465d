//! The global queue: what threads without a core make runnable, and what overflows from a deque.
//!
//! A locked ring, not a lock-free list: every visit moves a batch, so the lock is taken once for up to 128 tasks, and
//! an overflow of half a deque goes in under one lock as well. The length beside it lets a worker see "empty" without
//! the lock. It is the only lock on a worker's way to its next task.

use crate::sync::{AtomicUsize, Mutex, lock};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Release};

/// An emptied ring larger than this gives its memory back.
const KEEP: usize = 4096;

/// The global queue of one runtime.
pub(crate) struct Injector<T> {
    queue: CachePadded<Mutex<VecDeque<T>>>,
    // Written under the lock, read without it.
    len: CachePadded<AtomicUsize>,
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Self { queue: CachePadded::new(Mutex::new(VecDeque::new())), len: CachePadded::new(AtomicUsize::new(0)) }
    }

    /// Adds one task at the back.
    pub(crate) fn push(&self, task: T) {
        self.push_batch(std::iter::once(task));
    }

    /// Adds tasks at the back, in order.
    pub(crate) fn push_batch(&self, tasks: impl IntoIterator<Item = T>) {
        let mut queue = lock(&self.queue);
        queue.extend(tasks);
        self.publish(&queue);
    }

    /// Takes from the front what is one core's share of `cores`: returns the first task, gives the rest to `keep`.
    /// At most `most` in all.
    pub(crate) fn take_share(&self, cores: usize, most: usize, mut keep: impl FnMut(T)) -> Option<T> {
        let mut queue = lock(&self.queue);
        let share = (queue.len() / cores + 1).min(queue.len()).min(most);
        let mut tasks = queue.drain(..share);
        let first = tasks.next();
        tasks.for_each(&mut keep);
        if queue.is_empty() && queue.capacity() > KEEP {
            queue.shrink_to(KEEP);
        }
        self.publish(&queue);
        first
    }

    fn publish(&self, queue: &VecDeque<T>) {
        // Ordering: release, partner of the acquire in `is_empty`. That an announcement follows the push in the eyes
        // of a sleeper is the business of the fences around it (`Scheduler::announce`), not of this store.
        self.len.store(queue.len(), Release);
    }

    /// Whether there was nothing in the queue a moment ago.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tasks there were a moment ago.
    pub(crate) fn len(&self) -> usize {
        // Ordering: acquire, partner of the release in `publish`; the tasks themselves are read under the lock.
        self.len.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_nth_part_rounded_up_and_bounded() {
        let injector = Injector::new();
        injector.push_batch(0..10);
        let mut rest = Vec::new();
        assert_eq!(injector.take_share(4, 128, |t| rest.push(t)), Some(0));
        assert_eq!(rest, [1, 2], "10 / 4 + 1 = 3 in all");
        assert_eq!(injector.take_share(1, 2, |t| rest.push(t)), Some(3));
        assert_eq!(rest, [1, 2, 4], "bounded by what the caller has room for");
        assert_eq!(injector.len(), 5);
    }

    #[test]
    fn an_emptied_queue_gives_its_memory_back() {
        let injector = Injector::new();
        injector.push_batch(0..100_000);
        while injector.take_share(1, 128, drop).is_some() {}
        assert!(injector.is_empty());
        assert!(lock(&injector.queue).capacity() <= 2 * KEEP);
    }
}
