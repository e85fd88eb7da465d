//! Resting workers: how polite tasks share the CPUs with lowered threads.
//!
//! Lowered threads get what the kernel has left over, and workers that run polite tasks leave
//! nothing. So while lowered threads want a CPU, some workers rest: they leave the yield queue to
//! the others, and sleep, in the reactor if no other is there. For everything else they are workers
//! like the others, and idle ones: the best that can happen to a request. The monitor says how many
//! rest (`monitor/shares.rs`). It is always the first ones.
//!
//! The protocol is in `yielding.md`, under "Resting workers".

use super::{Local, PointerSized, Scheduler};

impl<T: PointerSized> Scheduler<T> {
    /// Has the first `workers` workers rest, and the others serve the yield queue. Returns a worker
    /// to unpark. Called by the monitor.
    pub(crate) fn set_resting(&self, workers: usize) -> Option<usize> {
        // 1. (M1) Before the announcement, whose fence orders it against a worker that goes to
        //    sleep.
        let fewer = workers < self.idle.resting();
        self.idle.set_resting(workers);
        // 2. (M3) Something may wait in the yield queue for a worker that rests no more. The queue
        //    is not looked at: the look would have to come after the fence of the announcement, and
        //    a needless wake-up costs little.
        if fewer { self.announce_yielded() } else { None }
    }

    /// Returns whether a background task that becomes runnable waits in the yield queue, and is not
    /// queued for any idle worker: none is idle, or one that rests would take it.
    #[inline]
    pub(crate) fn defers_background(&self) -> bool {
        self.idle.nobody_idle() || self.idle.resting() > 0
    }

    /// Returns whether the polite task that runs on this core is to leave it, because the holder is
    /// to rest. A pinned task stays: it would have to wait for this very worker.
    #[inline]
    pub(super) fn leaves_to_lowered(&self, core: &Local<T>) -> bool {
        self.idle.rests(core.index()) && !core.poll_state().runs_pinned()
    }

    /// Asks the polite polls on cores whose holders are to rest to return. Returns how many cores
    /// run something polite. `in_poll` tells which cores are in a poll: others may still be armed.
    pub(crate) fn ask_to_rest(&self, in_poll: impl Fn(usize) -> bool) -> usize {
        let polite = |&core: &usize| in_poll(core) && self.interrupts.is_polite(core);
        for core in (0..self.idle.resting()).filter(polite) {
            self.ask_to_return(core, self.core(core).polling());
        }
        (0..self.cores().len()).filter(polite).count()
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::super::{AlwaysAt, Queued, SecondLook, Settings, Source, Way, Yielded};
    use super::*;

    fn two() -> (Scheduler<Box<u32>>, Vec<Local<Box<u32>>>) {
        Scheduler::new(2, Settings::default())
    }

    #[test]
    fn a_worker_that_rests_leaves_the_yield_queue_to_the_others() {
        let (scheduler, locals) = two();
        assert_eq!(scheduler.set_resting(1), None);
        scheduler.push_to_yield_queue(Yielded::Task(Box::new(1)), 0, || 0);
        assert!(scheduler.resume(&locals[0]).is_none());
        assert!(scheduler.resume(&locals[1]).is_some());
    }

    #[test]
    fn only_a_worker_that_serves_the_yield_queue_is_woken_for_it() {
        let (scheduler, _locals) = two();
        let _ = scheduler.set_resting(1);
        let _asleep = scheduler.idle.enter(0, false);
        scheduler.push_to_yield_queue(Yielded::Task(Box::new(1)), 0, || 0);
        assert_eq!(scheduler.announce_yielded(), None, "it rests");
        assert!(!scheduler.anything_announced(), "so nothing waits for it");
        let _asleep = scheduler.idle.enter(1, false);
        assert_eq!(scheduler.announce_yielded(), Some(1));
    }

    #[test]
    fn a_worker_that_rests_is_woken_for_everything_else() {
        let (scheduler, _locals) = two();
        let _ = scheduler.set_resting(2);
        let _asleep = scheduler.idle.enter(0, false);
        scheduler.injector.push(Box::new(1));
        assert_eq!(scheduler.announce(), Some(0));
    }

    #[test]
    fn what_waited_is_announced_when_a_worker_rests_no_more() {
        let (scheduler, _locals) = two();
        let _ = scheduler.set_resting(2);
        let _asleep = scheduler.idle.enter(1, false);
        scheduler.push_to_yield_queue(Yielded::Task(Box::new(1)), 0, || 0);
        assert_eq!(scheduler.set_resting(1), Some(1));
    }

    #[test]
    fn the_last_searcher_calls_another_for_the_yield_queue_before_it_rests() {
        let (scheduler, _locals) = two();
        let _ = scheduler.set_resting(1);
        let _asleep = scheduler.idle.enter(1, false);
        assert!(scheduler.idle.try_start_search());
        scheduler.push_to_yield_queue(Yielded::Task(Box::new(1)), 0, || 0);
        assert_eq!(scheduler.announce_yielded(), None, "one searches");
        let _asleep = scheduler.idle.enter(0, true);
        assert_eq!(scheduler.idle.second_look(0, Queued::Yielded), SecondLook::Park(Some(1)));
    }

    #[test]
    fn a_polite_task_leaves_a_core_whose_holder_is_to_rest_and_a_pinned_one_stays() {
        let (scheduler, locals) = two();
        let core = &locals[0];
        core.advance_tick();
        scheduler.begin_poll(core, Source::Queue, false, false);
        assert_eq!(scheduler.yield_point(core, &AlwaysAt(0)), None);
        let _ = scheduler.set_resting(1);
        assert_eq!(scheduler.ask_to_rest(|core| core == 0), 1);
        assert_eq!(scheduler.yield_point(core, &AlwaysAt(0)), Some(Way::YieldQueue));
        assert!(scheduler.has_returned(0));
        core.poll_state().set_pinned(true);
        scheduler.begin_poll(core, Source::Queue, false, false);
        assert_eq!(scheduler.yield_point(core, &AlwaysAt(0)), None);
    }
}
