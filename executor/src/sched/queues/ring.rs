//! A locked ring that can be seen to be empty without its lock.

use crate::sync::{AtomicUsize, Mutex, MutexGuard, lock};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Release};

/// An emptied ring that is larger than this gives its memory back.
pub(in crate::sched) const KEEP: usize = 4096;

/// A locked ring. Its length is on a cache line of its own. A worker that keeps looking takes that
/// line away from the pushing thread, but that thread only stores to it, and a store waits for no
/// other thread.
pub(in crate::sched) struct Ring<T> {
    items: CachePadded<Mutex<VecDeque<T>>>,
    /// The length of `items`. Written under the lock, read without it.
    len: CachePadded<AtomicUsize>,
}

impl<T> Ring<T> {
    pub(in crate::sched) fn new() -> Self {
        Self {
            items: CachePadded::new(Mutex::new(VecDeque::new())),
            len: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    pub(in crate::sched) fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        lock(&self.items)
    }

    /// Publishes the length of the ring. Called before the lock is released.
    pub(in crate::sched) fn publish(&self, items: &VecDeque<T>) {
        // Ordering: release, partner of the acquire in `count`. It does not order a push against a
        // worker that goes to sleep: the fences around the push do (`IdleSet::announce`).
        self.len.store(items.len(), Release);
    }

    #[inline]
    pub(in crate::sched) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns how many items there were a moment ago.
    #[inline]
    pub(in crate::sched) fn count(&self) -> usize {
        // Ordering: acquire, partner of the release in `publish`.
        self.len.load(Acquire)
    }

    #[cfg(not(all(test, giveway_loom)))]
    pub(in crate::sched) fn len(&self) -> &AtomicUsize {
        &self.len
    }

    pub(in crate::sched) fn push(&self, item: T) {
        let mut items = self.lock();
        items.push_back(item);
        self.publish(&items);
    }

    /// Calls `f` with at most the first `most` items, under the lock: `f` must not run user code.
    pub(in crate::sched) fn look_at(&self, most: usize, f: impl FnMut(&T)) {
        self.lock().iter().take(most).for_each(f);
    }

    pub(in crate::sched) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut items = self.lock();
        items.retain(keep);
        self.publish(&items);
    }

    /// Takes the first item, if there is one and it is `wanted`.
    pub(in crate::sched) fn take_if(&self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut items = self.lock();
        if !wanted(items.front()?) {
            return None;
        }
        let first = items.pop_front();
        self.publish(&items);
        let emptied = take_if_oversized(&mut items);
        drop(items);
        // Not under the lock: the allocator has locks of its own.
        drop(emptied);
        first
    }
}

/// Takes the memory of an emptied ring that has grown large.
pub(in crate::sched) fn take_if_oversized<T>(items: &mut VecDeque<T>) -> Option<VecDeque<T>> {
    (items.is_empty() && items.capacity() > KEEP).then(|| std::mem::take(items))
}
