//! Pending timers: a shard a core, and one for everybody else.
//!
//! Most timers never fire: they are the timeouts of what comes in time. So making one and dropping it again has to be
//! cheap, and sorting is put off. A new timer is written down in a list; only when somebody asks which is next are those
//! that are still there moved into a heap. One that is dropped before that has cost two uncontended locks and nothing
//! else. One that is dropped after it leaves its place in the heap behind, and the heap is swept when half of it is dead.
//!
//! Times are nanoseconds since the reactor was made.

use crate::reactor::Home;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// No timer.
pub(crate) const NEVER: u64 = u64::MAX;

/// Below this many dead places a heap is not swept.
const SWEEP_FROM: usize = 64;

/// A shard of the pending timers.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) home: Arc<Home>,
    timers: Mutex<Timers>,
    // Nothing is due before this. May be too early, when the timer it stood for was dropped; never too late. Written
    // under the lock, read without it.
    earliest: AtomicU64,
}

/// Which timer of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    index: usize,
    // Tells a timer from a later one in the same place.
    serial: u64,
}

#[derive(Debug, Default)]
struct Timers {
    entries: Slab<Entry>,
    // Those that are not in the heap yet.
    fresh: Vec<usize>,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    // Places in the heap whose timer was dropped.
    dead: usize,
    serial: u64,
}

#[derive(Debug)]
struct Entry {
    deadline: u64,
    serial: u64,
    // Its place in `fresh`; `usize::MAX` once it is in the heap.
    fresh_at: usize,
    waker: Waker,
}

impl Shard {
    pub(crate) fn new(home: Arc<Home>) -> Self {
        Self { home, timers: Mutex::default(), earliest: AtomicU64::new(NEVER) }
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        // No user code runs under it but the clone of a waker, before anything is changed.
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When to look next.
    pub(crate) fn earliest(&self) -> u64 {
        // Ordering: relaxed. Against a thread that is about to block for too long there are fences: see `Reactor`.
        self.earliest.load(Relaxed)
    }

    /// Adds a timer. Whoever waits for a later one is told.
    pub(crate) fn insert(&self, deadline: u64, waker: &Waker) -> Key {
        let waker = waker.clone();
        let mut timers = self.lock();
        timers.serial += 1;
        let (serial, fresh_at) = (timers.serial, timers.fresh.len());
        let index = timers.entries.insert(Entry { deadline, serial, fresh_at, waker });
        timers.fresh.push(index);
        let first = deadline < self.earliest.load(Relaxed);
        if first {
            self.earliest.store(deadline, Relaxed);
        }
        drop(timers);
        if first {
            // Ordering: SeqCst fence, partner of the one in `Reactor::block`: the new deadline is before it, the look at
            // who blocks after it.
            fence(SeqCst);
            self.home.tell(deadline);
        }
        Key { index, serial }
    }

    /// Replaces the waker of a timer that has not fired. False if it has.
    pub(crate) fn update(&self, key: Key, waker: &Waker) -> bool {
        let old = {
            let mut timers = self.lock();
            let Some(entry) = timers.entries.get_mut(key.index).filter(|entry| entry.serial == key.serial) else {
                return false;
            };
            if entry.waker.will_wake(waker) {
                return true;
            }
            std::mem::replace(&mut entry.waker, waker.clone())
        };
        // Outside of the lock: it may be the last one of a task.
        drop(old);
        true
    }

    /// Drops a timer, if it has not fired.
    pub(crate) fn remove(&self, key: Key) {
        let mut timers = self.lock();
        if timers.entries.get(key.index).is_none_or(|entry| entry.serial != key.serial) {
            return;
        }
        let entry = timers.remove(key.index);
        drop(timers);
        drop(entry);
    }

    /// Fires what is due: adds the wakers to `woken`.
    pub(crate) fn fire(&self, now: u64, woken: &mut Vec<Waker>) {
        if self.earliest() > now {
            return;
        }
        let mut timers = self.lock();
        timers.sort();
        while let Some(&Reverse((deadline, serial, index))) = timers.heap.peek() {
            let alive = timers.entries.get(index).is_some_and(|entry| entry.serial == serial);
            if alive && deadline > now {
                break;
            }
            timers.heap.pop();
            if alive {
                woken.push(timers.entries.remove(index).waker);
            } else {
                timers.dead -= 1;
            }
        }
        let next = timers.heap.peek().map_or(NEVER, |Reverse((deadline, ..))| *deadline);
        self.earliest.store(next, Relaxed);
    }

    /// How many are pending.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().entries.len()
    }
}

impl Timers {
    fn remove(&mut self, index: usize) -> Entry {
        let entry = self.entries.remove(index);
        if entry.fresh_at == usize::MAX {
            self.dead += 1;
            if self.dead > SWEEP_FROM && self.dead > self.heap.len() / 2 {
                self.sweep();
            }
        } else {
            self.fresh.swap_remove(entry.fresh_at);
            if let Some(&moved) = self.fresh.get(entry.fresh_at) {
                self.entries[moved].fresh_at = entry.fresh_at;
            }
        }
        entry
    }

    fn sort(&mut self) {
        for index in self.fresh.drain(..) {
            let entry = &mut self.entries[index];
            entry.fresh_at = usize::MAX;
            self.heap.push(Reverse((entry.deadline, entry.serial, index)));
        }
    }

    fn sweep(&mut self) {
        let entries = &self.entries;
        self.heap.retain(|Reverse((_, serial, index))| entries.get(*index).is_some_and(|e| e.serial == *serial));
        self.dead = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The plainest thing that can be right, beside the real one, over many random steps.
    #[test]
    fn each_timer_fires_once_when_it_is_due_or_never_if_it_was_dropped() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = &**reactor.shard(0);
        // A waker of its own for each, so that they can be told apart.
        let mut pending: BTreeMap<u64, (u64, Key, Waker)> = BTreeMap::new();
        let mut now = 0;
        for name in 0..50_000 {
            match random(8) {
                0..4 => {
                    let (deadline, waker) = (now + random(1_000), Waker::from(std::sync::Arc::new(Nobody)));
                    let key = shard.insert(deadline, &waker);
                    pending.insert(name, (deadline, key, waker));
                }
                4..7 if !pending.is_empty() => {
                    let nth = random(pending.len() as u64) as usize;
                    let name = *pending.keys().nth(nth).expect("not empty");
                    shard.remove(pending.remove(&name).expect("there").1);
                }
                _ => {
                    now += random(200);
                    let mut woken = Vec::new();
                    shard.fire(now, &mut woken);
                    let due: Vec<_> = pending.iter().filter(|(_, timer)| timer.0 <= now).map(|(n, _)| *n).collect();
                    assert_eq!(woken.len(), due.len());
                    for name in due {
                        let (_, key, waker) = pending.remove(&name).expect("there");
                        assert!(woken.iter().any(|woken| woken.will_wake(&waker)));
                        shard.remove(key);
                    }
                }
            }
            assert_eq!(shard.len(), pending.len());
            assert!(pending.values().all(|timer| shard.earliest() <= timer.0), "too late");
        }
    }

    #[test]
    fn what_was_dropped_leaves_no_heap_behind() {
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = &**reactor.shard(0);
        for round in 0..100 {
            let keys: Vec<_> = (0..1_000).map(|n| shard.insert(1_000_000 + n, Waker::noop())).collect();
            if round % 2 == 0 {
                // Into the heap.
                shard.lock().sort();
            }
            keys.into_iter().for_each(|key| shard.remove(key));
        }
        let timers = shard.lock();
        assert!(timers.heap.len() <= 2 * SWEEP_FROM + 1, "{} places", timers.heap.len());
        assert!(timers.fresh.is_empty());
    }

    struct Nobody;
    impl std::task::Wake for Nobody {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
