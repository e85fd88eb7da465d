//! Spare workers: company for polls that do not return.
//!
//! A poll that was asked to return and did not holds its core. The core cannot be taken away,
//! because the poll may touch its private half at any moment. So the monitor puts another core
//! beside it, which it has kept for this. With every worker in such a poll tasks, timers and
//! sockets still go on, on twice as many threads, between which the OS divides the CPUs. When the
//! poll has returned, a spare core comes back.
//!
//! The protocol is the hand-off's, with the monitor in the place of the home thread: see "Spare
//! cores" in `handoff/hand_off.md`, which defines the steps named here. When a core is lent or
//! recalled is decided in `sched/spares.rs`.

use crate::handoff::Loan;
use crate::runtime::Shared;
use crate::sched::{Move, Spare, Whereabouts, next_move};
use std::sync::Arc;

/// The spare cores of a runtime.
pub(super) struct Spares {
    /// By their places behind those of the workers.
    spares: Vec<Lent>,
}

/// A spare core.
#[derive(Clone)]
struct Lent {
    /// Where it is, as far as the monitor knows.
    whereabouts: Whereabouts,
    /// The loan by which it was lent last.
    loan: Option<Loan>,
    /// Whether it was lent since the monitor looked at the polls: what the monitor knows of a poll
    /// there is of an earlier holder.
    fresh: bool,
}

impl Spares {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            spares: vec![
                Lent { whereabouts: Whereabouts::Here, loan: None, fresh: false };
                shared.posts.len() - shared.workers()
            ],
        }
    }

    /// Returns whether any spare core is not with the monitor.
    pub(super) fn any_out(&self) -> bool {
        self.spares.iter().any(is_out)
    }

    /// Sees to it that there are as many spare workers as polls that do not return, as far as there
    /// are spare cores. `holds` tells whether such a poll holds a core.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, holds: impl Fn(usize) -> bool) {
        let held = (0..shared.workers()).filter(|&core| holds(core)).count();
        if held == 0 && !self.any_out() {
            return;
        }
        self.take_given(shared);
        self.spares.iter_mut().for_each(|spare| spare.fresh = false);
        while let Some(step) = next_move(held, &self.see(shared, &holds)) {
            match step {
                Move::Lend(place) => self.lend(shared, place),
                Move::Keep(place) => self.keep(shared, place),
                Move::Recall(place) => self.recall(shared, place),
            }
        }
    }

    /// Returns the spare cores as [`next_move`] looks at them.
    fn see(&self, shared: &Shared, holds: impl Fn(usize) -> bool) -> Vec<Spare> {
        let see = |(place, spare): (usize, &Lent)| {
            let core = shared.workers() + place;
            let held = is_out(spare) && !spare.fresh && holds(core);
            Spare {
                whereabouts: spare.whereabouts,
                held,
                asleep: shared.scheduler.idle.is_asleep(core),
            }
        };
        self.spares.iter().enumerate().map(see).collect()
    }

    /// Takes back the cores that were given back (M4).
    fn take_given(&mut self, shared: &Shared) {
        for place in 0..self.spares.len() {
            let core = shared.workers() + place;
            if self.spares[place].whereabouts == Whereabouts::Recalled
                && shared.posts[core].recall.take_given()
            {
                self.is_back(shared, place);
            }
        }
    }

    /// Lends a spare core (M1, M2).
    fn lend(&mut self, shared: &Arc<Shared>, place: usize) {
        let core = shared.workers() + place;
        let out = |nth: usize| nth == place || is_out(&self.spares[nth]);
        // M1 comes before M2: a push to the core relies on the core being looked at.
        publish(shared, (0..self.spares.len()).filter(|&nth| out(nth)));
        let loan = shared.posts[core].lease.lend();
        self.spares[place] = Lent { whereabouts: Whereabouts::Out, loan: Some(loan), fresh: true };
        shared.monitor.count_spare();
        shared.offer(core, loan);
    }

    /// Leaves a core out that was asked to come back (M5), or takes it if it has just come back.
    fn keep(&mut self, shared: &Shared, place: usize) {
        if shared.posts[shared.workers() + place].recall.give_up() {
            self.spares[place].whereabouts = Whereabouts::Out;
        } else {
            self.take_given(shared);
        }
    }

    /// Asks a spare core back (M3).
    fn recall(&mut self, shared: &Shared, place: usize) {
        let (core, scheduler) = (shared.workers() + place, &shared.scheduler);
        if self.spares[place].loan.is_some_and(|loan| shared.posts[core].lease.take(loan)) {
            // No thread has come for the core.
            return self.is_back(shared, place);
        }
        self.spares[place].whereabouts = Whereabouts::Recalled;
        shared.posts[core].recall.want();
        if scheduler.idle.remove(core) {
            // The holder is asleep, and is woken as a searcher.
            shared.unpark(Some(core));
        } else {
            scheduler.ask_to_yield(core);
        }
    }

    /// Notes that the monitor has a spare core back.
    fn is_back(&mut self, shared: &Shared, place: usize) {
        self.spares[place].whereabouts = Whereabouts::Here;
        // The last poll there may have been overrun, and the monitor no longer looks at this core.
        shared.posts[shared.workers() + place].step_back();
        // What was asked of the last poll there came too late, and its holder is gone: the monitor
        // takes it back.
        shared.scheduler.has_returned(shared.workers() + place);
        // Last: up to here the core is looked at, though there is nothing in it.
        publish(shared, (0..self.spares.len()).filter(|&nth| is_out(&self.spares[nth])));
    }
}

fn is_out(spare: &Lent) -> bool {
    spare.whereabouts != Whereabouts::Here
}

/// Tells all threads which spare cores are in use, by their places.
fn publish(shared: &Shared, out: impl Iterator<Item = usize> + Clone) {
    let cores = out.clone().max().map_or(0, |last| last + 1);
    shared.scheduler.set_in_use(shared.workers() + cores, shared.workers() + out.count());
}
