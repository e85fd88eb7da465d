//! The global queue: what threads without a core make runnable, and what overflows from a deque.
//!
//! A locked ring with its length beside it, on a line of its own. Whoever pushes stores the length and goes on: a
//! worker that keeps looking at it takes that line away, but a store waits for nobody. A visit moves a batch under one
//! lock. The lock is the only one on a worker's way to its next task.
//!
//! We tried crossbeam's lock-free block queue. Its pushers and poppers meet on an index that both change with a
//! read-modify-write, so that every look at it costs the pusher a cache miss; and its blocks are allocated by the one
//! and freed by the other, who then meet at the allocator's lock: with one thread pushing as fast as it could, that
//! was nine tenths of all context switches.

use crate::sync::{Mutex, lock};
use crossbeam_deque::Worker as Deque;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};

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
        let mut queue = lock(&self.queue);
        queue.push_back(task);
        self.publish(&queue);
    }

    /// Adds tasks at the back, in order.
    pub(crate) fn push_batch(&self, tasks: impl Iterator<Item = T>) {
        let mut queue = lock(&self.queue);
        queue.extend(tasks);
        self.publish(&queue);
    }

    /// Takes from the front what is one core's share of `cores`, at most `most`: the first task is returned, the rest
    /// goes to the back of `deque`.
    pub(crate) fn take_share(&self, cores: usize, most: usize, deque: &Deque<T>) -> Option<T> {
        let mut queue = lock(&self.queue);
        let share = (queue.len() / cores + 1).min(queue.len()).min(most);
        let mut tasks = queue.drain(..share);
        let first = tasks.next();
        tasks.for_each(|task| deque.push(task));
        self.publish(&queue);
        let emptied = (queue.is_empty() && queue.capacity() > KEEP).then(|| std::mem::take(&mut *queue));
        drop(queue);
        // The allocator has locks of its own.
        drop(emptied);
        first
    }

    /// Takes one task from the front.
    pub(crate) fn take_one(&self) -> Option<T> {
        let mut queue = lock(&self.queue);
        let first = queue.pop_front();
        self.publish(&queue);
        first
    }

    fn publish(&self, queue: &VecDeque<T>) {
        // Ordering: release, partner of the acquire in `is_empty`. That an announcement follows the push in the eyes
        // of a sleeper is the business of the fences around it (`IdleSet::announce`), not of this store.
        self.len.store(queue.len(), Release);
    }

    /// Whether there was nothing in the queue a moment ago.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Ordering: acquire, partner of the release in `publish`; the tasks themselves are read under the lock.
        self.len.load(Acquire) == 0
    }

    #[cfg(test)]
    pub(super) fn with_locked(&self, f: impl FnOnce()) {
        let _locked = lock(&self.queue);
        f();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_takes_a_share_and_leaves_the_rest() {
        let injector = Injector::new();
        injector.push_batch(0..12);
        let deque = Deque::new_fifo();
        assert_eq!(injector.take_share(4, 128, &deque), Some(0));
        assert_eq!(deque.len(), 3, "12 / 4 + 1 = 4 in all");
        assert_eq!(injector.take_share(1, 2, &deque), Some(4));
        assert_eq!(deque.len(), 4, "two in all: bounded by what the caller has room for");
        assert_eq!(injector.take_one(), Some(6));
    }

    #[test]
    fn an_emptied_queue_gives_its_memory_back() {
        let injector = Injector::new();
        injector.push_batch(0..100_000);
        let deque = Deque::new_fifo();
        while injector.take_share(1, 128, &deque).is_some() {}
        assert!(injector.is_empty());
        assert!(lock(&injector.queue).capacity() <= KEEP);
    }
}
