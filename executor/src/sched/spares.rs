//! Spare cores: when one is lent, how it comes into use, and how it goes out of use. The protocol
//! is under "Spare cores" in `handoff/hand_off.md`.

use super::{Local, PointerSized, Scheduler};
use std::sync::atomic::Ordering::Relaxed;

/// Where a spare core is, as far as the monitor knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// With the monitor.
    Here,
    /// Lent: a thread holds it, or is to come for it.
    Out,
    /// A thread holds it, and was asked to give it back.
    Recalled,
}

/// A spare core, as the monitor sees it at one look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spare {
    pub(crate) whereabouts: Whereabouts,
    /// Whether its holder is in a poll that does not return.
    pub(crate) held: bool,
    /// Whether its holder is asleep.
    pub(crate) asleep: bool,
}

/// What the monitor does next about a spare core, named by its place among them.
#[must_use = "a poll may wait for the spare worker"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// Lends it to a thread.
    Lend(usize),
    /// Leaves it out, although it was recalled.
    Keep(usize),
    /// Asks its holder to give it back.
    Recall(usize),
}

/// Returns the next move towards one spare worker beside each poll that holds its core, as far as
/// there are spare cores; `None` if all are where they are to be. `held` is the number of such
/// polls on cores that are not spare.
///
/// A spare worker that is held itself is not recalled, and is kept if it was: another takes its
/// place among those that run tasks. So after the last move at most as many workers run tasks as
/// there are cores that are not spare.
pub(crate) fn next_move(held: usize, spares: &[Spare]) -> Option<Move> {
    let find = |which: &dyn Fn(&Spare) -> bool| spares.iter().position(which);
    if let Some(place) = find(&|spare| spare.whereabouts == Whereabouts::Recalled && spare.held) {
        return Some(Move::Keep(place));
    }
    let count =
        |which: &dyn Fn(&Spare) -> bool| spares.iter().filter(|&spare| which(spare)).count();
    let out = count(&|spare| spare.whereabouts == Whereabouts::Out);
    let wanted = (held + count(&|spare| spare.held)).min(spares.len());
    if out < wanted {
        // A core that was recalled and has not come back yet has a worker that is at work already.
        let recalled = find(&|spare| spare.whereabouts == Whereabouts::Recalled);
        let here = || find(&|spare| spare.whereabouts == Whereabouts::Here);
        return recalled.map(Move::Keep).or_else(|| here().map(Move::Lend));
    }
    // A worker that is asleep gives its core back at once. Of several the last one: the fewer cores
    // are in use, the fewer there are to look at.
    let free = spares
        .iter()
        .enumerate()
        .filter(|(_, spare)| spare.whereabouts == Whereabouts::Out && !spare.held);
    let recall = free.max_by_key(|(place, spare)| (spare.asleep, *place)).filter(|_| out > wanted);
    recall.map(|(place, _)| Move::Recall(place))
}

impl<T: PointerSized> Scheduler<T> {
    /// Sets how many cores are looked at, counted from the first, and how many of them have a
    /// worker. Called by the monitor.
    ///
    /// A core that is no longer looked at has been [emptied](Self::empty) by its last holder, and
    /// the monitor has it back.
    pub(crate) fn set_in_use(&self, cores: usize, workers: usize) {
        // Ordering: relaxed. Before a spare core is lent: the loan publishes this to the core's
        // holder, and the fence after the holder's push publishes it to the looks that are to find
        // what was pushed.
        self.in_use.store(cores, Relaxed);
        self.idle.set_workers(workers);
    }

    /// Empties a spare core before it is given back: what is queued there goes to the injector, and
    /// a request that the core has not answered goes to another. Called by the holder, between two
    /// polls and not as a searcher.
    ///
    /// Returns a worker to unpark whether work waits or not: one that is idle, if any is and none
    /// searches. That worker may have found this one in the reactor and parked elsewhere, and this
    /// one does not come to the reactor again.
    pub(crate) fn empty(&self, core: &Local<T>) -> Option<usize> {
        // 1. The queues. Only the holder pushes here, so nothing is added meanwhile.
        let remote = self.remote(core);
        let slot = remote.slot.take();
        let queued = std::iter::from_fn(|| core.deque().pop());
        self.injector.push_batch(slot.into_iter().chain(queued));
        remote.set_may_have_task(false);
        // 2. Before the announcement, which might otherwise ask this very core to give way.
        self.cease_to_be_polite(core);
        core.take_unannounced();
        // 3. Announces also what was queued quietly.
        self.announce()
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::super::{Settings, Way};
    use super::*;
    use Whereabouts::{Here, Out, Recalled};

    /// Returns spare cores whose holders are neither in a poll that does not return nor asleep.
    fn spares<const N: usize>(whereabouts: [Whereabouts; N]) -> [Spare; N] {
        whereabouts.map(|whereabouts| Spare { whereabouts, held: false, asleep: false })
    }

    #[test]
    fn one_spare_core_is_lent_for_each_poll_that_holds_a_core_as_far_as_there_are_any() {
        assert_eq!(next_move(0, &spares([Here, Here])), None);
        assert_eq!(next_move(1, &spares([Here, Here])), Some(Move::Lend(0)));
        assert_eq!(next_move(2, &spares([Out, Here])), Some(Move::Lend(1)));
        assert_eq!(next_move(3, &spares([Out, Out])), None);
        assert_eq!(next_move(1, &[]), None);
    }

    #[test]
    fn a_spare_core_that_is_still_out_goes_before_one_that_would_have_to_be_lent() {
        assert_eq!(next_move(1, &spares([Here, Recalled])), Some(Move::Keep(1)));
    }

    #[test]
    fn the_last_spare_worker_is_recalled_first_or_one_that_sleeps() {
        let mut out = spares([Out, Out]);
        assert_eq!(next_move(1, &out), Some(Move::Recall(1)));
        out[0].asleep = true;
        assert_eq!(next_move(1, &out), Some(Move::Recall(0)));
        assert_eq!(next_move(0, &spares([Recalled, Recalled])), None);
    }

    #[test]
    fn a_spare_worker_that_is_held_itself_stays_and_another_takes_its_place() {
        let mut out = spares([Out, Here]);
        out[0].held = true;
        assert_eq!(next_move(1, &out), Some(Move::Lend(1)));
        let mut out = spares([Out, Out]);
        out[1].held = true;
        assert_eq!(next_move(0, &out), Some(Move::Recall(0)), "the other would go on");
        let mut recalled = spares([Here, Recalled]);
        recalled[1].held = true;
        assert_eq!(next_move(0, &recalled), Some(Move::Keep(1)));
    }

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
        let _asleep = scheduler.idle.enter(0, false);
        assert_eq!(scheduler.empty(&locals[1]), Some(0), "somebody is told");
        scheduler.set_in_use(1, 1);
        assert!(scheduler.anything_queued());
        let taken: Vec<_> =
            std::iter::from_fn(|| scheduler.injector.take_one()).map(|task| *task).collect();
        assert_eq!(taken, [4, 0, 1, 2, 3], "the slot's first, as it would have been");
    }

    /// What was queued quietly is announced before the next poll, but on this core there is none.
    #[test]
    fn what_gave_way_on_a_spare_core_is_announced_before_it_goes_out_of_use() {
        let (scheduler, locals) = with_spare();
        let _asleep = scheduler.idle.enter(0, false);
        scheduler.queue_after_yield(&locals[1], Box::new(1), Way::YieldQueue, 0, || 0);
        assert_eq!(scheduler.empty(&locals[1]), Some(0));
        assert_eq!(scheduler.empty(&locals[1]), None, "once");
    }

    #[test]
    fn somebody_is_sent_to_the_reactor_in_the_place_of_a_spare_worker_that_retires() {
        let (scheduler, locals) = with_spare();
        assert_eq!(
            scheduler.empty(&locals[1]),
            None,
            "the other one is awake, and looks before it sleeps"
        );
        let _asleep = scheduler.idle.enter(0, false);
        assert_eq!(scheduler.empty(&locals[1]), Some(0));
    }

    #[test]
    fn cores_that_are_not_in_use_are_not_looked_at() {
        let (scheduler, locals) =
            Scheduler::<Box<u32>>::new(2, Settings { spares: 2, ..Settings::default() });
        assert_eq!((scheduler.cores().len(), scheduler.idle.workers(), locals.len()), (2, 2, 4));
        scheduler.set_in_use(4, 3);
        assert_eq!((scheduler.cores().len(), scheduler.idle.workers()), (4, 3));
    }
}
