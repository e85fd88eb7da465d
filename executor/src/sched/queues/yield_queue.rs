//! The yield queue: what has given way, and waits until nothing else can run.
//!
//! One locked ring, first in, first out. A lock is enough: a task comes here when it gives way to
//! another, or when a background task becomes runnable on a busy machine. It leaves when a worker
//! has nothing else to do.
//!
//! First in, first out is not fairness: a task that no other makes give way runs on for ever. But
//! it keeps a task that gave way from going before those that gave way earlier.

use super::ring::Ring;
use std::task::Waker;

/// What waits in the yield queue.
pub(crate) enum Yielded<T> {
    /// A task. The worker that takes it out runs it.
    Task(T),
    /// A thread in `block_on` whose own future has given way. The thread that takes it out wakes
    /// it.
    Thread(Waker),
}

/// Something that waits in the yield queue.
pub(crate) struct Entry<T> {
    pub(crate) yielded: Yielded<T>,
    /// When it came, by the clock of the pushing thread. Zero if its waiting time is not measured.
    pub(crate) since: u64,
}

/// The yield queue of one runtime.
pub(crate) struct YieldQueue<T> {
    ring: Ring<Entry<T>>,
}

impl<T> YieldQueue<T> {
    pub(crate) fn new() -> Self {
        Self { ring: Ring::new() }
    }

    /// Returns whether there was nothing in the queue a moment ago.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn push(&self, yielded: Yielded<T>, since: u64) {
        self.ring.push(Entry { yielded, since });
    }

    /// Takes the entry that has waited longest.
    pub(crate) fn take(&self) -> Option<Entry<T>> {
        self.ring.take_if(|_| true)
    }

    /// Calls `f` with at most the first `most` entries, and since when each is here (zero if that
    /// is not measured), under a lock: `f` must not run user code.
    pub(crate) fn look_at(&self, most: usize, mut f: impl FnMut(&Yielded<T>, u64)) {
        self.ring.look_at(most, |entry| f(&entry.yielded, entry.since));
    }

    /// Returns how many entries there were a moment ago.
    pub(crate) fn len(&self) -> usize {
        self.ring.count()
    }

    /// Takes the entry that has waited longest, if it came at `deadline` or before.
    pub(in crate::sched) fn take_from_before(&self, deadline: u64) -> Option<Entry<T>> {
        self.ring.take_if(|entry| entry.since <= deadline)
    }

    /// Wakes every thread that waits here, and leaves the tasks.
    pub(crate) fn wake_threads(&self) {
        let mut threads = Vec::new();
        self.ring.retain(|entry| match &entry.yielded {
            Yielded::Task(_) => true,
            Yielded::Thread(waker) => {
                threads.push(waker.clone());
                false
            }
        });
        threads.into_iter().for_each(Waker::wake);
    }

    /// Takes a task to be dropped. Wakes the threads that wait before it.
    pub(crate) fn take_task(&self) -> Option<T> {
        loop {
            match self.take()?.yielded {
                Yielded::Task(task) => return Some(task),
                Yielded::Thread(waker) => waker.wake(),
            }
        }
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_waits_longest_comes_first_and_only_when_it_is_old_enough() {
        let queue = YieldQueue::new();
        (1..=3).for_each(|n| queue.push(Yielded::Task(n), n));
        assert!(queue.take_from_before(0).is_none());
        let task = |entry: Option<Entry<u64>>| entry.map(|entry| (entry.yielded, entry.since));
        assert!(matches!(task(queue.take_from_before(2)), Some((Yielded::Task(1), 1))));
        assert!(matches!(task(queue.take_from_before(2)), Some((Yielded::Task(2), 2))));
        assert!(queue.take_from_before(2).is_none());
        assert!(matches!(task(queue.take()), Some((Yielded::Task(3), 3))));
        assert!(queue.is_empty());
    }

    #[test]
    fn threads_are_woken_on_the_way_to_a_task() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let woken = std::sync::Arc::new(Count(std::sync::atomic::AtomicUsize::new(0)));
        let queue = YieldQueue::new();
        queue.push(Yielded::Thread(woken.clone().into()), 0);
        queue.push(Yielded::Task(7), 0);
        queue.push(Yielded::Thread(woken.clone().into()), 0);
        assert_eq!(queue.take_task(), Some(7));
        assert_eq!(queue.take_task(), None);
        assert_eq!(woken.0.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
