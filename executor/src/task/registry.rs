//! Every task that waits, so that shutdown finds it: such a task is in no queue and on no worker.
//!
//! The registry is an intrusive list per core, with its links in the tasks' own metadata. It takes
//! no allocation, and no cache line that all cores write. A task enters the shard of the core where
//! it first waited, and leaves it when its future is dropped, wherever that is. A task that has not
//! waited yet is in a queue or on a worker, and needs no entry. A task with a name gets one at its
//! spawn all the same, because a name is given to be found by.

use crate::runtime::context;
use crate::sync::{Mutex, lock};
use crate::task::{Id, Meta};
use crossbeam_utils::CachePadded;
use giveway_io::driver::on_behalf;
use std::cell::Cell;
use std::ptr;

/// A task's place in the list of its shard. Read and written under the lock of that shard.
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

/// The list of one core, newest task first. Behind the lock of the shard.
#[derive(Clone, Copy)]
struct Shard {
    first: *const Meta,
    last: *const Meta,
    len: usize,
}

// SAFETY: sending a shard gives another thread its pointers. They are followed under the shard's
// lock only, and what they point to is `Sync`.
unsafe impl Send for Shard {}

/// The number of tasks that one visit looks at under the lock.
const AT_A_TIME: usize = 256;

/// What the visitor says of a task: whether it has seen it before.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    First,
    Again,
}

impl Shard {
    /// Visits the first [`AT_A_TIME`] tasks, and puts them behind all others. Returns false if no
    /// more are left, or if one was visited before: new tasks come to the front, so all behind that
    /// one were visited too.
    fn visit_some(&mut self, f: &mut impl FnMut(&Meta) -> Visit) -> bool {
        let mut visited = ptr::null::<Meta>();
        for _ in 0..AT_A_TIME {
            // SAFETY: null, or a task that is linked here. It is alive: it unlinks itself under the
            // shard's lock, which the caller holds, before its metadata goes away.
            let next = unsafe { visited.as_ref() }.map_or(self.first, |meta| meta.links.next.get());
            // SAFETY: null, or the first task or a task's successor, so linked here. It is alive:
            // it unlinks itself under the shard's lock, which the caller holds.
            let Some(meta) = (unsafe { next.as_ref() }) else { return false };
            if f(meta) == Visit::Again {
                return false;
            }
            visited = meta;
        }
        // SAFETY: null, or the task that was visited last. It is still linked, because the caller
        // has held the shard's lock since.
        if let Some(visited) = unsafe { visited.as_ref() } {
            self.move_to_back(visited);
        }
        true
    }

    /// Puts everything up to and including `end` behind the rest.
    fn move_to_back(&mut self, end: &Meta) {
        // SAFETY: null, or the successor of a linked task, so linked here. It is alive: it unlinks
        // itself under the shard's lock, which the caller holds.
        let Some(rest) = (unsafe { end.links.next.get().as_ref() }) else { return };
        // SAFETY: both are null or linked here, so alive while the caller holds the shard's lock.
        // (Neither is null, as `end` is in the list.)
        let (Some(first), Some(last)) =
            (unsafe { self.first.as_ref() }, unsafe { self.last.as_ref() })
        else {
            return;
        };
        last.links.next.set(first);
        first.links.prev.set(last);
        end.links.next.set(ptr::null());
        rest.links.prev.set(ptr::null());
        self.first = rest;
        self.last = end;
    }
}

/// The registry of one runtime.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Held by the thread that turns the lists while it visits them. Two at once would end too
    /// early: each moves tasks behind those that the other has seen.
    turning: Mutex<()>,
}

impl Registry {
    pub(crate) fn new(shards: usize) -> Self {
        let empty = Shard { first: ptr::null(), last: ptr::null(), len: 0 };
        let shards = (0..shards).map(|_| CachePadded::new(Mutex::new(empty))).collect();
        Self { shards, turning: Mutex::new(()) }
    }

    /// Adds a task. It must be removed before its metadata goes away.
    pub(crate) fn insert(&self, meta: &Meta) {
        let home = if meta.is_pinned() {
            meta.pinned_to()
        } else {
            // The last shard is for threads that hold no core: a lowered one must not keep a worker
            // from the worker's own shard.
            let last = self.shards.len() - 1;
            let home = context::with_worker(|worker| worker.map_or(last, |worker| worker.index()));
            // A spare core, or a worker of another runtime, may have a higher number than there are
            // shards.
            let home = home % self.shards.len();
            meta.shard
                .set(u16::try_from(home).expect("a runtime has at most `MAX_WORKERS` shards"));
            home
        };
        on_behalf(|| self.link(home, meta));
    }

    /// Puts a task at the front of a shard's list.
    fn link(&self, home: usize, meta: &Meta) {
        let mut shard = lock(&self.shards[home]);
        meta.links.next.set(shard.first);
        // SAFETY: null, or a linked task. It is alive: it unlinks itself under this shard's lock,
        // which is held here, before its metadata goes away.
        match unsafe { shard.first.as_ref() } {
            Some(first) => first.links.prev.set(meta),
            None => shard.last = meta,
        }
        shard.first = meta;
        shard.len += 1;
    }

    /// Removes a task that was added.
    pub(crate) fn remove(&self, meta: &Meta) {
        on_behalf(|| self.unlink(meta));
    }

    /// Takes a task out of its shard's list.
    fn unlink(&self, meta: &Meta) {
        let mut shard = lock(&self.shards[usize::from(meta.shard.get())]);
        let (prev, next) = (meta.links.prev.get(), meta.links.next.get());
        // SAFETY: null, or a neighbour in the list, so linked. It is alive: it unlinks itself under
        // this shard's lock, which is held here, before its metadata goes away.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.links.next.set(next),
            None => shard.first = next,
        }
        // SAFETY: null, or a neighbour in the list, so linked, and alive while the shard's lock is
        // held.
        match unsafe { next.as_ref() } {
            Some(next) => next.links.prev.set(prev),
            None => shard.last = prev,
        }
        shard.len -= 1;
    }

    /// Calls `f` with every task, under the lock of its shard. `f` must not run user code, nor call
    /// the registry.
    ///
    /// What `f` calls may be [on behalf](on_behalf) of a lowered thread, as a wake is, so all of
    /// this function is. Otherwise a lowered thread could hold the lock and wait for the proxy,
    /// while the proxy waits for the lock.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Meta) + Send) {
        on_behalf(|| {
            for shard in &self.shards {
                let shard = lock(shard);
                let mut next = shard.first;
                // SAFETY: null, or linked in this shard. It is alive: it unlinks itself under the
                // shard's lock, which is held here, before its metadata goes away.
                while let Some(meta) = unsafe { next.as_ref() } {
                    f(meta);
                    next = meta.links.next.get();
                }
            }
        });
    }

    /// Calls `f` with the tasks, like [`Self::for_each`], but releases the lock after every few of
    /// them. However many there are, only another caller of this function waits for long, and, if
    /// the caller is a lowered thread, the others of its runtime. `f` says whether it has seen a
    /// task before. Tasks that come or go meanwhile may be missed.
    pub(crate) fn for_each_patiently(&self, mut f: impl FnMut(&Meta) -> Visit + Send) {
        on_behalf(|| {
            let _turning = lock(&self.turning);
            for shard in &self.shards {
                // A bound, in case tasks come faster than they are visited.
                let most = 2 * lock(shard).len + AT_A_TIME;
                for _ in 0..most.div_ceil(AT_A_TIME) {
                    if !lock(shard).visit_some(&mut f) {
                        break;
                    }
                    // Another thread may be waiting for the lock.
                    std::thread::yield_now();
                }
            }
        });
    }

    /// Returns the name of a task, if it has one and is still there.
    pub(crate) fn name_of(&self, id: Id) -> Option<String> {
        let mut name = None;
        self.for_each(|meta| {
            if meta.id == id {
                name = meta.name().map(str::to_owned);
            }
        });
        name
    }

    /// Returns how many tasks are registered.
    pub(crate) fn len(&self) -> usize {
        on_behalf(|| self.shards.iter().map(|shard| lock(shard).len).sum())
    }
}
