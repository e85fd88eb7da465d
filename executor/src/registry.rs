//! Every task that waits, so that shutdown can find those that nobody else would.
//!
//! An intrusive list per core, its links in the tasks' own metadata: no allocation, and no line that all cores write.
//! A task enters the shard of the core where it first waited and leaves it when its future is dropped, wherever that
//! is. Tasks that have not waited yet are in a queue or on a worker and need no entry; those with a name get one at
//! their spawn all the same, because a name is given to be found by.

use crate::runtime::context;
use crate::sync::{Mutex, lock};
use crate::task::{Id, Meta};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::ptr;

/// A task's place in its shard's list. Under that shard's lock.
pub(crate) struct Links {
    prev: Cell<*const Meta>,
    next: Cell<*const Meta>,
}

impl Links {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { prev: Cell::new(ptr::null()), next: Cell::new(ptr::null()) }
    }
}

#[derive(Clone, Copy)]
struct Shard {
    first: *const Meta,
    len: usize,
}

// SAFETY: the pointers are followed under the shard's lock only, and what they point to is `Sync`.
unsafe impl Send for Shard {}

/// The registry of one runtime.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

impl Registry {
    pub(crate) fn new(shards: usize) -> Self {
        let empty = Shard { first: ptr::null(), len: 0 };
        Self { shards: (0..shards).map(|_| CachePadded::new(Mutex::new(empty))).collect() }
    }

    /// Adds a task. It must be removed before its metadata goes away.
    pub(crate) fn insert(&self, meta: &Meta) {
        let home = if meta.is_pinned() {
            meta.pinned_to()
        } else {
            let home = context::with_worker(|worker| worker.map_or(0, |worker| worker.index()));
            // A thread of another runtime may have a higher number than we have shards.
            let home = home % self.shards.len();
            meta.shard.set(u16::try_from(home).expect("a runtime has at most `MAX_WORKERS` shards"));
            home
        };
        let mut shard = lock(&self.shards[home]);
        meta.links.next.set(shard.first);
        // SAFETY: a linked task is alive: it unlinks itself, under this lock, before it goes away.
        if let Some(first) = unsafe { shard.first.as_ref() } {
            first.links.prev.set(meta);
        }
        shard.first = meta;
        shard.len += 1;
    }

    /// Removes a task that was added.
    pub(crate) fn remove(&self, meta: &Meta) {
        let mut shard = lock(&self.shards[usize::from(meta.shard.get())]);
        let (prev, next) = (meta.links.prev.get(), meta.links.next.get());
        // SAFETY: neighbours in the list are linked, hence alive, as in `insert`.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.links.next.set(next),
            None => shard.first = next,
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_ref() } {
            next.links.prev.set(prev);
        }
        shard.len -= 1;
    }

    /// Calls `f` with every task, under a shard's lock: `f` must not run user code, nor come back here.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Meta)) {
        for shard in &self.shards {
            let shard = lock(shard);
            let mut next = shard.first;
            // SAFETY: a linked task is alive while we hold the lock.
            while let Some(meta) = unsafe { next.as_ref() } {
                f(meta);
                next = meta.links.next.get();
            }
        }
    }

    /// The name of a task, if it has one and is still there.
    pub(crate) fn name_of(&self, id: Id) -> Option<String> {
        let mut name = None;
        self.for_each(|meta| {
            if meta.id == id {
                name = meta.name().map(str::to_owned);
            }
        });
        name
    }

    /// How many tasks are registered.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len).sum()
    }
}
