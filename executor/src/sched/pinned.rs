//! The inbox of a core: tasks that no other core may steal. It takes turns with the deque.
//!
//! Only the core's home thread takes from the inbox, so a push tells no other worker. It wakes the
//! home thread, or asks what runs there to give way, if it can.

use super::{DEQUE_CAPACITY, Local, PointerSized, Quiet, Scheduler, Source};
use crate::sync::fence;
use std::sync::atomic::Ordering::SeqCst;

impl<T: PointerSized> Scheduler<T> {
    /// Queues a pinned task, from any thread. Returns its worker if that was asleep and is to be
    /// unparked.
    pub(crate) fn push_pinned(&self, worker: usize, task: T) -> Option<usize> {
        self.core(worker).inbox.push(task);
        // 1. Ordering: SeqCst fence, partner of those in `IdleSet::enter` and
        //    `Interrupts::arm`. The push is before this fence, the looks at the worker after it. A
        //    worker that goes to sleep, or begins something polite, says so before its fence and
        //    looks at its inbox after it. So one sees the other.
        fence(SeqCst);
        // 2. Asleep: it is woken, and no other worker would do.
        if self.idle.is_asleep(worker) && self.idle.remove(worker) {
            return Some(worker);
        }
        // 3. Awake: a worker that is idle, now or in a moment, cannot help, so a polite task has to
        //    give way even beside it.
        self.ask_to_yield(worker);
        if self.idle.nobody_idle() {
            self.interrupts.raise_if_armed(worker);
        }
        None
    }

    /// Queues a pinned task from the very worker that is to run it. The task that runs there is to
    /// give way at its next yield point, if it can, even while a worker is idle: the caller sees to
    /// it that the yield point asks.
    pub(crate) fn push_pinned_here(&self, core: &Local<T>, task: T) {
        self.remote(core).inbox.push(task);
        core.poll_state().disturb();
    }

    /// Queues a pinned task whose poll has just returned here. With `gives_way` it goes after
    /// everything else that is queued.
    pub(crate) fn pinned_again(&self, core: &Local<T>, task: T, gives_way: bool) {
        self.remote(core).inbox.push(task);
        core.set_inbox_turn(false);
        // All that waits here and in the injector now, and one task from another core. Bounded, so
        // that the pinned task does not wait for ever.
        let queued = (core.deque().len() + self.injector.len()).min(DEQUE_CAPACITY) + 1;
        core.let_go_first(if gives_way { queued } else { 0 });
    }

    /// Returns whether the inbox may have its turn. It may not while a pinned task that has given
    /// way still lets others go first. Counts one of those others.
    #[cold]
    pub(super) fn may_run_pinned(&self, core: &Local<T>) -> bool {
        let waits_for = core.go_first();
        core.let_go_first(waits_for.saturating_sub(1));
        // With more than one in the inbox it may: those that came after it did not give way.
        waits_for == 0 || self.remote(core).inbox.count() > 1
    }

    /// Returns whether the holder of this core has a pinned task to run.
    #[inline]
    pub(crate) fn has_pinned(&self, core: &Local<T>) -> bool {
        core.is_at_home() && !self.remote(core).inbox.is_empty()
    }

    /// Takes the next task when a pinned one has given way, and its worker has nothing else of its
    /// own: what waits for other workers goes before the pinned task.
    pub(crate) fn next_before_pinned(&self, core: &Local<T>) -> Option<(T, Source)> {
        if !self.has_pinned(core) {
            return None;
        }
        let stolen = self.steal(core, 0, false).map(|task| (task, Source::Queue));
        if stolen.is_some() {
            // The worker did not steal as a searcher, so no other worker was told of the rest of
            // the batch.
            core.set_unannounced(Quiet::Work);
        }
        stolen.or_else(|| self.take_pinned(core))
    }

    /// Takes a task from a worker's inbox, to be dropped. Called by its home thread, with or
    /// without the core.
    pub(crate) fn take_from_inbox(&self, worker: usize) -> Option<T> {
        self.core(worker).inbox.take_if(|_| true)
    }

    /// Takes the next task of the inbox.
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
