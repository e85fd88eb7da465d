//! The end of a worker: it drops what is left. See `runtime/shutdown.md`.

use super::Worker;
use crate::runtime::context;
use crate::sched::{Finder, Step, Ticket};
use crate::task::{Meta, Runnable};
use std::sync::atomic::{
    Ordering::{Acquire, SeqCst},
    fence,
};

impl Worker {
    /// Drops every task that no other thread polls. The steps C2 to C5 are those of
    /// `runtime/shutdown.md`.
    pub(super) fn drop_tasks(&self) {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        // A worker that leaves is no searcher: pushes rely on a searcher, and wake no other worker.
        if self.core().set_searching(false) {
            scheduler.idle.abandon_search();
        }
        // C2, after the last poll of this worker. A task that registered in that poll may have been
        // missed by all others that woke the registered tasks.
        self.drop_reachable();
        // Before the worker leaves: no other thread may drop the tasks that are pinned to this one.
        if self.home {
            self.drop_pinned();
        }
        // C3. After its own count the worker touches no task, unless it is the last.
        if !gate.leave() {
            return;
        }
        // C4. This is the last worker. A task that is registered now has one of two fates. A thread
        // from outside has claimed it to wake it and not queued it yet: the push is announced, and
        // finds this worker idle. Or the thread that shuts down with a deadline is dropping it, and
        // wakes this worker afterwards.
        self.drop_reachable();
        while self.shared.registry.len() > 0 {
            // The look comes after the entry: a push or a drop after this look finds the worker
            // idle.
            let look_again =
                |_: &Ticket| scheduler.anything_queued() || self.shared.registry.len() == 0;
            let ticket = scheduler.idle.enter(self.index(), false);
            if let Err(ticket) = scheduler.idle.settle(ticket, look_again) {
                self.post().parker.park();
                ticket.woken();
            }
            // A worker that comes back is counted as a searcher.
            scheduler.idle.abandon_search();
            self.drop_reachable();
        }
        // C5.
        self.shared.terminate();
    }

    /// Returns a task that can be reached from this core, by the order in which tasks run.
    fn next_to_drop(&self) -> Option<Runnable> {
        let mut finder = Finder::closing();
        loop {
            match self.shared.scheduler.step(self.core(), &mut finder, || 0) {
                Step::Run(task, _) => return Some(task),
                Step::Sleep => return None,
                Step::GoOn => {}
                Step::Yielded(..) | Step::Gather | Step::Look | Step::Linger => {
                    unreachable!("not a step of a runtime that closes")
                }
            }
        }
    }

    /// Drops the tasks that are pinned to this thread, which no other thread may drop. Waits for
    /// those that a waker has claimed and not queued yet, and for threads that are just spawning
    /// one. The home thread calls this, with or without its core.
    pub(super) fn drop_pinned(&self) {
        let (post, shared) = (self.post(), &self.shared);
        // What a destructor spawns is refused by this runtime, and not taken by the default one.
        let _inside = context::Entered::new(shared.clone());
        // 1. Tasks that wait come into the inbox.
        shared.registry.for_each(Meta::wake);
        // 2. The inbox is emptied before the look at the count. A task leaves the count when its
        // future is dropped.
        loop {
            while let Some(task) = shared.scheduler.take_from_inbox(self.index()) {
                drop(task);
            }
            // Ordering: SeqCst fence, partner of the one in `Lodging::new`. This thread has seen
            // the closed gate before the fence and reads the count after it; a spawn adds itself to
            // the count before its fence and looks at the gate after it. Either the count shows the
            // spawn, or the spawn sees that the gate is closed. Acquire, partner of the AcqRel in
            // `Lodging::drop`: what the destructors of the other lodgers did is visible here.
            fence(SeqCst);
            if post.pinned.load(Acquire) == 0 {
                break;
            }
            // 3. A push to the inbox and the end of a lodging both unpark this thread while the
            // gate is closed.
            post.home.park();
        }
        // The last worker may be asleep until one of these tasks is gone.
        shared.wake_all_workers();
    }

    /// Makes every task that waits runnable, and drops every task that is queued: on this core, in
    /// other deques and slots, and in the injector and the yield queue.
    fn drop_reachable(&self) {
        self.shared.registry.for_each(Meta::wake);
        while let Some(task) = self.next_to_drop() {
            self.post().begin_drop(task.metadata());
            drop(task);
            self.post().end();
        }
    }
}
