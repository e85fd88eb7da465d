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
use giveway_io::driver::on_behalf;
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
    last: *const Meta,
    len: usize,
}

// SAFETY: the pointers are followed under the shard's lock only, and what they point to is `Sync`.
unsafe impl Send for Shard {}

/// So many tasks are looked at under one lock, if there is time.
const AT_A_TIME: usize = 256;

/// What a look at a task says.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    First,
    Again,
}

impl Shard {
    /// Visits the first few tasks, and puts them behind all others. False if they were all, or one was visited before: new
    /// tasks come to the front, so all behind that one were too.
    fn visit_some(&mut self, f: &mut impl FnMut(&Meta) -> Visit) -> bool {
        let mut visited = ptr::null::<Meta>();
        for _ in 0..AT_A_TIME {
            // SAFETY: a linked task is alive while its shard is locked.
            let next = unsafe { visited.as_ref() }.map_or(self.first, |meta| meta.links.next.get());
            // SAFETY: as above.
            let Some(meta) = (unsafe { next.as_ref() }) else { return false };
            if f(meta) == Visit::Again {
                return false;
            }
            visited = meta;
        }
        // SAFETY: as above.
        if let Some(visited) = unsafe { visited.as_ref() } {
            self.move_to_back(visited);
        }
        true
    }

    /// Puts everything up to this task behind the rest.
    fn move_to_back(&mut self, end: &Meta) {
        // SAFETY: a linked task is alive while its shard is locked.
        let Some(rest) = (unsafe { end.links.next.get().as_ref() }) else { return };
        // SAFETY: as above; there is a first, as there is an end.
        let (Some(first), Some(last)) = (unsafe { self.first.as_ref() }, unsafe { self.last.as_ref() }) else { return };
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
    // Held by whoever turns the lists as it looks through them: two at once would take each other for the end.
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
            // The last one is for threads that hold no core: a lowered one must not keep a worker from its own.
            let last = self.shards.len() - 1;
            let home = context::with_worker(|worker| worker.map_or(last, |worker| worker.index()));
            // A thread of another runtime may have a higher number than we have shards.
            let home = home % self.shards.len();
            meta.shard.set(u16::try_from(home).expect("a runtime has at most `MAX_WORKERS` shards"));
            home
        };
        on_behalf(|| self.link(home, meta));
    }

    fn link(&self, home: usize, meta: &Meta) {
        let mut shard = lock(&self.shards[home]);
        meta.links.next.set(shard.first);
        // SAFETY: a linked task is alive: it unlinks itself, under this lock, before it goes away.
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

    fn unlink(&self, meta: &Meta) {
        let mut shard = lock(&self.shards[usize::from(meta.shard.get())]);
        let (prev, next) = (meta.links.prev.get(), meta.links.next.get());
        // SAFETY: neighbours in the list are linked, hence alive, as in `insert`.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.links.next.set(next),
            None => shard.first = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.links.prev.set(prev),
            None => shard.last = prev,
        }
        shard.len -= 1;
    }

    /// Calls `f` with every task, under a shard's lock: `f` must not run user code, nor come back here.
    ///
    /// What `f` calls may be [on behalf](on_behalf) of a lowered thread, as a wake is; so the whole is: a thread that held the lock
    /// and waited for the proxy would wait for ever, if the proxy was waiting for the lock.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Meta) + Send) {
        on_behalf(|| {
            for shard in &self.shards {
                let shard = lock(shard);
                let mut next = shard.first;
                // SAFETY: a linked task is alive while we hold the lock.
                while let Some(meta) = unsafe { next.as_ref() } {
                    f(meta);
                    next = meta.links.next.get();
                }
            }
        });
    }

    /// As [`Self::for_each`], but lets go of the lock after every few tasks: however many there are, no worker waits for
    /// long, but for another who does the same. `f` says whether it has seen a task before. What comes or goes meanwhile may
    /// be missed.
    pub(crate) fn for_each_patiently(&self, mut f: impl FnMut(&Meta) -> Visit + Send) {
        let _turning = lock(&self.turning);
        for shard in &self.shards {
            // Should tasks come faster than we look at them.
            let most = 2 * on_behalf(|| lock(shard).len) + AT_A_TIME;
            for _ in 0..most.div_ceil(AT_A_TIME) {
                if !on_behalf(|| lock(shard).visit_some(&mut f)) {
                    break;
                }
                // Somebody may be waiting for the lock.
                std::thread::yield_now();
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
