//! The inbox of a core: tasks that nobody may steal. It takes turns with the deque.
//!
//! Only the home thread of the core takes from it, so nobody else need be told of a push: it wakes that thread, or asks what
//! runs there to give way, if it can.

use super::{DEQUE_CAPACITY, Local, PointerSized, Quiet, Scheduler, Source};
use crate::sync::fence;
use std::sync::atomic::Ordering::SeqCst;

impl<T: PointerSized> Scheduler<T> {
    /// Queues a pinned task from anywhere. Returns the worker to unpark, if it is the one to run it, and asleep.
    pub(crate) fn push_pinned(&self, worker: usize, task: T) -> Option<usize> {
        self.core(worker).inbox.push(task);
        // Ordering: SeqCst fence, partner of the one in `PoliteSet::arm`: a worker that begins something polite looks at its
        // inbox after its own. And of the one in `IdleSet::count_out`: a worker that goes to sleep does so too.
        fence(SeqCst);
        if self.idle.is_asleep(worker) && self.idle.remove(worker) {
            return Some(worker);
        }
        // A worker that is idle, now or in a moment, cannot help: a polite task has to give way beside it.
        self.ask_to_yield(worker);
        if self.idle.nobody_idle() {
            self.polite.interrupt_if_armed(worker);
        }
        None
    }

    /// Queues a pinned task from the very worker that is to run it. The task that runs there is to give way at its next yield
    /// point, if it can, whoever is idle: the caller sees to it that the yield point asks.
    pub(crate) fn push_pinned_here(&self, core: &Local<T>, task: T) {
        self.remote(core).inbox.push(task);
        core.manners().disturb();
    }

    /// Queues a pinned task whose poll has just returned here. `gives_way`: after everything else that is queued.
    pub(crate) fn pinned_again(&self, core: &Local<T>, task: T, gives_way: bool) {
        self.remote(core).inbox.push(task);
        core.set_inbox_turn(false);
        // Whatever waits here and in the global queue now, and one from elsewhere; but it is not to wait for ever.
        let queued = (core.deque().len() + self.injector.len()).min(DEQUE_CAPACITY) + 1;
        core.let_go_first(if gives_way { queued } else { 0 });
    }

    /// Whether it is not to wait for others, having given way. Counts one of them.
    #[cold]
    pub(super) fn may_run_pinned(&self, core: &Local<T>) -> bool {
        let waits_for = core.go_first();
        core.let_go_first(waits_for.saturating_sub(1));
        // Those that came after it did not give way.
        waits_for == 0 || self.remote(core).inbox.count() > 1
    }

    /// Whether the holder of this core has a pinned task to run.
    #[inline]
    pub(crate) fn has_pinned(&self, core: &Local<T>) -> bool {
        core.is_at_home() && !self.remote(core).inbox.is_empty()
    }

    /// A pinned task has given way, and its worker has nothing else of its own: what waits for other workers goes before it.
    pub(crate) fn next_before_pinned(&self, core: &Local<T>) -> Option<(T, Source)> {
        if !self.has_pinned(core) {
            return None;
        }
        let stolen = self.steal(core, 0, false).map(|task| (task, Source::Queue));
        if stolen.is_some() {
            // Not as a searcher: nobody else was told of the rest.
            core.set_unannounced(Quiet::Work);
        }
        stolen.or_else(|| self.take_pinned(core))
    }

    /// Takes from a worker's inbox, to be dropped. Its home thread's to call, with or without the core.
    pub(crate) fn take_from_inbox(&self, worker: usize) -> Option<T> {
        self.core(worker).inbox.take_if(|_| true)
    }

    /// The next of the inbox.
    pub(crate) fn take_pinned(&self, core: &Local<T>) -> Option<(T, Source)> {
        if !self.has_pinned(core) {
            return None;
        }
        core.set_inbox_turn(false);
        core.let_go_first(0);
        let task = self.remote(core).inbox.take_if(|_| true)?;
        Some((task, Source::Queue))
    }
}
