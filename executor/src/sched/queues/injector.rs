//! The global queue: what threads without a core make runnable, and what overflows from a deque.
//!
//! Two locked rings, one to push into and one to take from, which change places when the latter is
//! empty. A worker that visits moves a batch of pointers that the pushing thread wrote a moment
//! ago: a cache miss for every eight. With one ring the pushing thread would wait for those at the
//! lock. Except for the inbox of pinned tasks, these two locks and that of the yield queue are the
//! only ones on a worker's way to its next task.
//!
//! We tried crossbeam's lock-free block queue. Its pushers and poppers meet on an index that both
//! change with a read-modify-write, so every look at it costs the pushing thread a cache miss. And
//! its blocks are allocated by the one side and freed by the other, which then meet at the
//! allocator's lock. With one thread pushing as fast as it could, that was nine tenths of all
//! context switches.

use super::ring::{Ring, take_if_oversized};
use crossbeam_deque::Worker as Deque;
use std::collections::VecDeque;

/// The global queue of one runtime.
pub(crate) struct Injector<T> {
    /// Where tasks are pushed: the younger part.
    inbox: Ring<T>,
    /// Where tasks are taken from: the older part. When it is empty the two rings change places, so
    /// that no pushing thread waits while a worker moves its batch. Its lock is taken before the
    /// inbox's.
    outbox: Ring<T>,
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Self { inbox: Ring::new(), outbox: Ring::new() }
    }

    /// Adds one task at the back.
    pub(crate) fn push(&self, task: T) {
        self.inbox.push(task);
    }

    /// Adds tasks at the back, in order.
    pub(crate) fn push_batch(&self, tasks: impl Iterator<Item = T>) {
        let mut inbox = self.inbox.lock();
        inbox.extend(tasks);
        self.inbox.publish(&inbox);
    }

    /// Takes one core's share of `cores` from the front, at most `most` tasks. Returns the first;
    /// the rest goes to the back of `deque`. If the share reaches from the older part into the
    /// younger, takes only the older.
    pub(crate) fn take_share(&self, cores: usize, most: usize, deque: &Deque<T>) -> Option<T> {
        let mut outbox = self.outbox.lock();
        self.refill(&mut outbox);
        let share = (outbox.len() / cores + 1).min(outbox.len()).min(most);
        let mut tasks = outbox.drain(..share);
        let first = tasks.next();
        tasks.for_each(|task| deque.push(task));
        self.outbox.publish(&outbox);
        let emptied = take_if_oversized(&mut outbox);
        drop(outbox);
        // Not under the lock: the allocator has locks of its own.
        drop(emptied);
        first
    }

    /// Returns about how many tasks there are.
    pub(crate) fn len(&self) -> usize {
        self.inbox.count() + self.outbox.count()
    }

    /// Calls `f` with at most the first `most` tasks of each part, under a lock: `f` must not run
    /// user code.
    pub(crate) fn look_at(&self, most: usize, mut f: impl FnMut(&T)) {
        self.outbox.look_at(most, &mut f);
        self.inbox.look_at(most, &mut f);
    }

    /// Takes one task from the front.
    pub(crate) fn take_one(&self) -> Option<T> {
        let mut outbox = self.outbox.lock();
        self.refill(&mut outbox);
        let first = outbox.pop_front();
        self.outbox.publish(&outbox);
        first
    }

    /// Lets the rings change places, if the outbox is empty and the inbox is not. Called under the
    /// outbox's lock.
    fn refill(&self, outbox: &mut VecDeque<T>) {
        if !outbox.is_empty() || self.inbox.is_empty() {
            return;
        }
        let mut inbox = self.inbox.lock();
        std::mem::swap(&mut *inbox, outbox);
        // The outbox first, and `is_empty` reads it last. In another order a look could find both
        // rings empty while tasks change places.
        self.outbox.publish(outbox);
        self.inbox.publish(&inbox);
    }

    /// Returns whether there was nothing in the queue a moment ago.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.inbox.is_empty() && self.outbox.is_empty()
    }

    /// Returns the lengths of both parts, for yield points.
    #[cfg(not(all(test, giveway_loom)))]
    pub(crate) fn lengths(&self) -> [&std::sync::atomic::AtomicUsize; 2] {
        [self.inbox.len(), self.outbox.len()]
    }

    #[cfg(test)]
    pub(in crate::sched) fn with_locked(&self, f: impl FnOnce()) {
        let _outbox = self.outbox.lock();
        let _inbox = self.inbox.lock();
        f();
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::super::ring::KEEP;
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
    fn order_is_kept_while_the_rings_change_places() {
        let injector = Injector::new();
        let deque = Deque::new_fifo();
        let mut taken = Vec::new();
        for round in 0..100 {
            injector.push_batch(3 * round..3 * round + 3);
            for _ in 0..2 {
                taken.extend(injector.take_share(2, 128, &deque));
                taken.extend(std::iter::from_fn(|| deque.pop()));
            }
        }
        while let Some(task) = injector.take_one() {
            taken.push(task);
        }
        assert_eq!(taken, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn an_emptied_queue_gives_its_memory_back() {
        let injector = Injector::new();
        injector.push_batch(0..100_000);
        let deque = Deque::new_fifo();
        while injector.take_share(1, 128, &deque).is_some() {}
        assert!(injector.is_empty());
        assert!(injector.outbox.lock().capacity() <= KEEP);
        assert!(injector.inbox.lock().capacity() <= KEEP);
    }
}
