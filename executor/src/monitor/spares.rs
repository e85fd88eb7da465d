//! Spare workers: company for polls that do not return.
//!
//! A poll that was asked to return and did not holds its core, and nobody can take the core away: its private half is in the
//! hands of the poll. So the monitor puts another core beside it, one that it kept for this. With every worker in such a poll
//! tasks, timers and sockets still go on, on twice as many threads, between which the OS divides the CPUs. When the poll has
//! returned, a spare core comes back.
//!
//! The protocol is the hand-off's, with the monitor in the place of the home thread: see "Spare cores" in
//! `blocking/hand_off.md`. What is here decides when.

use crate::blocking::Loan;
use crate::runtime::Shared;
use std::sync::Arc;

/// Where a spare core is, as far as the monitor knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spare {
    /// With the monitor.
    Here,
    /// Lent: a thread holds it, or is to come for it.
    Out(Loan),
    /// A thread holds it, and was asked to give it back.
    Recalled(Loan),
}

/// The spare cores of a runtime.
pub(super) struct Spares {
    // By their places behind those of the workers.
    spares: Vec<Spare>,
}

impl Spares {
    pub(super) fn new(shared: &Shared) -> Self {
        Self { spares: vec![Spare::Here; shared.posts.len() - shared.workers()] }
    }

    /// Whether any is not here.
    pub(super) fn any_out(&self) -> bool {
        self.spares.iter().any(|spare| *spare != Spare::Here)
    }

    /// Sees to it that there are as many spare workers as polls that do not return, as far as there are any.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, held: usize) {
        if held == 0 && !self.any_out() {
            return;
        }
        self.take_given(shared);
        let wanted = held.min(self.spares.len());
        while self.out() < wanted && self.send_one(shared) {}
        while self.out() > wanted && self.recall_one(shared) {}
    }

    /// How many are at work, or are to be.
    fn out(&self) -> usize {
        self.spares.iter().filter(|spare| matches!(spare, Spare::Out(_))).count()
    }

    /// Takes back the cores that were given back.
    fn take_given(&mut self, shared: &Shared) {
        for place in 0..self.spares.len() {
            let core = shared.workers() + place;
            if matches!(self.spares[place], Spare::Recalled(_)) && shared.posts[core].recall.take_given() {
                self.is_back(shared, place);
            }
        }
    }

    /// Sends one more, if there is one.
    fn send_one(&mut self, shared: &Arc<Shared>) -> bool {
        // One that was asked to come back, and has not, is at work already.
        for (place, spare) in self.spares.iter_mut().enumerate() {
            if let Spare::Recalled(loan) = *spare
                && shared.posts[shared.workers() + place].recall.give_up()
            {
                *spare = Spare::Out(loan);
                return true;
            }
        }
        let Some(place) = self.spares.iter().position(|spare| *spare == Spare::Here) else { return false };
        let core = shared.workers() + place;
        let out = |nth: usize| nth == place || self.spares[nth] != Spare::Here;
        // Before it is lent: who pushes to it may rely on being looked at.
        publish(shared, (0..self.spares.len()).filter(|&nth| out(nth)));
        let loan = shared.posts[core].lease.lend();
        self.spares[place] = Spare::Out(loan);
        shared.monitor.count_spare();
        shared.offer(core, loan);
        true
    }

    /// Has one come back, if one is out: one that is asleep, rather than one that may be in a long poll itself; of these the
    /// last, for the fewer cores there are to look at, the better.
    fn recall_one(&mut self, shared: &Arc<Shared>) -> bool {
        let scheduler = &shared.scheduler;
        let out = self.spares.iter().enumerate().filter_map(|(place, spare)| match spare {
            Spare::Out(loan) => Some((place, *loan)),
            _ => None,
        });
        let chosen = out.max_by_key(|&(place, _)| (scheduler.idle.is_asleep(shared.workers() + place), place));
        let Some((place, loan)) = chosen else { return false };
        let core = shared.workers() + place;
        if shared.posts[core].lease.take(loan) {
            // Nobody has come for it.
            self.is_back(shared, place);
            return true;
        }
        self.spares[place] = Spare::Recalled(loan);
        shared.posts[core].recall.want();
        if scheduler.idle.remove(core) {
            // Its holder is asleep, and is woken as a searcher.
            shared.unpark(Some(core));
        } else {
            scheduler.ask_to_yield(core);
        }
        true
    }

    fn is_back(&mut self, shared: &Shared, place: usize) {
        self.spares[place] = Spare::Here;
        // Its last poll may have been overrun, and this core is not looked at any more.
        shared.posts[shared.workers() + place].step_back();
        // What was asked of the last poll there was asked too late.
        shared.scheduler.has_returned(shared.workers() + place);
        publish(shared, (0..self.spares.len()).filter(|&nth| self.spares[nth] != Spare::Here));
    }
}

/// Tells everybody which spare cores are in use, by their places.
fn publish(shared: &Shared, out: impl Iterator<Item = usize> + Clone) {
    let cores = out.clone().max().map_or(0, |last| last + 1);
    shared.scheduler.set_in_use(shared.workers() + cores, shared.workers() + out.count());
}
