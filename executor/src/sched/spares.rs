//! Spare cores: how one comes into use and goes out of it. See "Spare cores" in `blocking/hand_off.md`.

use super::{Local, PointerSized, Scheduler};
use std::sync::atomic::Ordering::Relaxed;

impl<T: PointerSized> Scheduler<T> {
    /// Sets how many cores are looked at, counted from the first, and how many of them have a worker. The monitor's to call.
    ///
    /// A core that is no longer looked at has been [emptied](Self::empty) by its last holder, and the monitor has it back.
    pub(crate) fn set_in_use(&self, cores: usize, workers: usize) {
        // Ordering: relaxed. The loan of a spare core publishes it to the core's holder, and the holder's fence to those who
        // look for what that one pushes.
        self.in_use.store(cores, Relaxed);
        self.idle.set_workers(workers);
    }

    /// Empties a spare core before it is given back: what is queued there goes to the injector, and a request that the core
    /// has not answered goes to another. The holder's to call, between two polls and not as a searcher. Returns a worker to
    /// unpark: one that is idle, if any is, whether work waits or not. It may have found this one in the reactor and parked
    /// elsewhere, and this one does not come there again.
    pub(crate) fn empty(&self, core: &Local<T>) -> Option<usize> {
        let remote = self.remote(core);
        let slot = remote.slot.take();
        let queued = std::iter::from_fn(|| core.deque().pop());
        self.injector.push_batch(slot.into_iter().chain(queued));
        remote.set_may_have_task(false);
        self.cease_to_be_polite(core);
        core.take_unannounced();
        self.announce()
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::super::{Settings, Way};
    use super::*;

    fn with_spare() -> (Scheduler<Box<u32>>, Vec<Local<Box<u32>>>) {
        let (scheduler, locals) = Scheduler::new(1, Settings { spares: 1, ..Settings::default() });
        scheduler.set_in_use(2, 2);
        (scheduler, locals)
    }

    #[test]
    fn a_spare_core_leaves_nothing_behind() {
        let (scheduler, locals) = with_spare();
        for task in 0..5 {
            let _announced_below = scheduler.push_woken(&locals[1], Box::new(task));
        }
        let _idle = scheduler.idle.count_out(0, false);
        assert_eq!(scheduler.empty(&locals[1]), Some(0), "somebody is told");
        scheduler.set_in_use(1, 1);
        assert!(scheduler.anything_queued());
        let taken: Vec<_> = std::iter::from_fn(|| scheduler.injector.take_one()).map(|task| *task).collect();
        assert_eq!(taken, [4, 0, 1, 2, 3], "the slot's first, as it would have been");
    }

    /// It was pushed when nobody was idle, and is announced before the next poll; but there is none.
    #[test]
    fn what_gave_way_on_a_spare_core_is_announced_before_it_goes_out_of_use() {
        let (scheduler, locals) = with_spare();
        let _idle = scheduler.idle.count_out(0, false);
        scheduler.give_way(&locals[1], Box::new(1), Way::Park, 0, || 0);
        assert_eq!(scheduler.empty(&locals[1]), Some(0));
        assert_eq!(scheduler.empty(&locals[1]), None, "once");
    }

    #[test]
    fn somebody_is_sent_to_the_reactor_in_the_place_of_a_spare_worker_that_retires() {
        let (scheduler, locals) = with_spare();
        assert_eq!(scheduler.empty(&locals[1]), None, "the other one is awake, and looks before it sleeps");
        let _idle = scheduler.idle.count_out(0, false);
        assert_eq!(scheduler.empty(&locals[1]), Some(0));
    }

    #[test]
    fn cores_that_are_not_in_use_are_not_looked_at() {
        let (scheduler, locals) = Scheduler::<Box<u32>>::new(2, Settings { spares: 2, ..Settings::default() });
        assert_eq!((scheduler.cores().len(), scheduler.idle.workers(), locals.len()), (2, 2, 4));
        scheduler.set_in_use(4, 3);
        assert_eq!((scheduler.cores().len(), scheduler.idle.workers()), (4, 3));
    }
}
