//! The end of a worker: it drops what is left. See `runtime/shutdown.md`.

use super::Worker;
use crate::runtime::context;
use crate::sched::SEARCH_ROUNDS;
use crate::task::Meta;
use std::sync::atomic::{
    Ordering::{Acquire, SeqCst},
    fence,
};

impl Worker {
    /// The worker's side of `runtime/shutdown.md`: drops every task that is not being polled elsewhere.
    pub(super) fn drop_tasks(&self) {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        if self.searching.replace(false) {
            scheduler.idle.abandon_search();
        }
        self.drop_reachable();
        if self.home {
            self.drop_pinned();
        }
        if !gate.leave() {
            return;
        }
        // The last one out. What is registered now is being woken by a thread from outside that has claimed the task
        // and not queued it yet: it will, and will then announce it to us. Or it is being dropped by the thread that
        // shuts down with a deadline, which wakes us afterwards.
        self.drop_reachable();
        while self.shared.registry.len() > 0 {
            let look_again = |_| scheduler.anything_queued() || self.shared.registry.len() == 0;
            let park = || {
                self.post().parker.park();
                false
            };
            scheduler.idle.sleep(self.index(), false, look_again, park);
            scheduler.idle.abandon_search();
            self.drop_reachable();
        }
        self.shared.terminate();
    }

    /// Drops the tasks that are pinned to this thread: nobody else may. Waits for those that a waker has claimed and not
    /// queued yet, and for whoever is just spawning one. The home thread's to call, with or without its core.
    pub(super) fn drop_pinned(&self) {
        let (post, shared) = (self.post(), &self.shared);
        let _inside = context::Entered::new(shared.clone());
        shared.registry.for_each(Meta::wake);
        loop {
            while let Some(task) = shared.scheduler.take_from_inbox(self.index()) {
                drop(task);
            }
            // Ordering: SeqCst fence, partner of the one in `pinned::Lodging`. Acquire, partner of the end of a lodging.
            fence(SeqCst);
            if post.pinned.load(Acquire) == 0 {
                break;
            }
            post.home.park();
        }
        // The last worker may be asleep, waiting for one of these.
        shared.wake_all_workers();
    }

    /// Makes every task that waits runnable, and drops whatever is runnable.
    fn drop_reachable(&self) {
        let scheduler = &self.shared.scheduler;
        self.shared.registry.for_each(Meta::wake);
        let steal = || scheduler.steal(self.core(), SEARCH_ROUNDS - 1, true);
        let next = || scheduler.next(self.core()).map(|(task, _)| task);
        while let Some(task) = next().or_else(steal).or_else(|| scheduler.take_global()) {
            self.post().begin_drop(task.metadata());
            drop(task);
            self.post().end();
        }
    }
}
