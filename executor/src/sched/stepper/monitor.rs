//! The stepper's monitor: spare workers beside polls that do not return, workers that rest, stuck
//! slots.
//!
//! When it looks, and what it notices then, is drawn. What it does about spare workers is
//! [`next_move`], as in the real one.

use super::books::Place;
use super::lowered::SITES;
use super::*;

impl Stepper {
    /// Makes one of the monitor's looks, or a part of one.
    pub(super) fn step_monitor(&mut self) {
        match self.rng.u8(..8) {
            0..4 => self.look_at_polls(),
            4 => {
                // Any number: the decision is not bound by the figures that the monitor sees.
                let resting = self.rng.usize(..=self.cores);
                self.rest(resting);
                let in_poll = |core: usize| matches!(self.workers[core].state, State::Polling(_));
                self.scheduler.ask_to_rest(in_poll);
            }
            5 => {
                let core = self.scheduler.core(self.rng.usize(..self.workers.len()));
                if !core.slot.is_empty_relaxed() {
                    core.mark_stuck(core.polling());
                    self.outside_owes.push(Push::Foreground);
                }
            }
            // The polls from that place have been short for a while.
            6 => self.lowered.long[self.rng.usize(..SITES)] = false,
            _ => {}
        }
    }

    /// Notices polls that do not return, learns where their tasks come from, and moves spare cores.
    fn look_at_polls(&mut self) {
        for index in 0..self.workers.len() {
            let State::Stretch(task) = &self.workers[index].state else { continue };
            if self.rng.bool() {
                self.lowered.long[task.site] |= task.background;
                self.workers[index].holds = true;
            }
        }
        let held = self.workers[..self.cores].iter().filter(|worker| worker.holds).count();
        while let Some(step) = next_move(held, &self.see_spares()) {
            match step {
                Move::Lend(place) => {
                    self.workers[self.cores + place].state = State::Choose;
                    self.count_in_use();
                }
                Move::Keep(place) => self.workers[self.cores + place].recalled = false,
                Move::Recall(place) => self.recall(self.cores + place),
            }
        }
        self.returned = 0;
        self.check_workers_at_work();
    }

    fn see_spares(&self) -> Vec<Spare> {
        let see = |worker: &Worker| {
            let whereabouts = match worker.state {
                State::Retired => Whereabouts::Here,
                _ if worker.recalled => Whereabouts::Recalled,
                _ => Whereabouts::Out,
            };
            Spare {
                whereabouts,
                held: worker.holds,
                asleep: matches!(worker.state, State::Parked(_)),
            }
        };
        self.workers[self.cores..].iter().map(see).collect()
    }

    fn recall(&mut self, index: usize) {
        self.workers[index].recalled = true;
        if self.scheduler.idle.remove(index) {
            self.unpark(Some(index));
        } else {
            self.scheduler.ask_to_yield(index);
        }
    }

    /// Checks that never more workers run tasks than there are cores that are not spare. Not
    /// counted are workers that are held, which have company, and those that have been asked to
    /// retire. A poll that held its core and has returned is one more until the monitor looks.
    pub(super) fn check_workers_at_work(&self) {
        let at_work = |worker: &&Worker| {
            !worker.holds && !worker.recalled && !matches!(worker.state, State::Retired)
        };
        let at_work = self.workers.iter().filter(at_work).count();
        assert!(
            at_work <= self.cores + self.returned,
            "{at_work} workers run tasks on {} cores",
            self.cores
        );
    }

    fn count_in_use(&self) {
        let used = |worker: &Worker| !matches!(worker.state, State::Retired);
        let last = self.workers.iter().rposition(used).map_or(0, |last| last + 1);
        let workers = self.workers.iter().filter(|worker| used(worker)).count();
        self.scheduler.set_in_use(last.max(self.cores), workers);
    }

    /// Gives a spare core back to the monitor, with nothing left in it.
    pub(super) fn retire(&mut self, index: usize) {
        let in_slot = self.slots[index];
        if self.books.place(in_slot) == Some(Place::Slot(index)) {
            self.books.insert(in_slot, Place::Queued { waiting: true });
        }
        let woken = self.scheduler.empty(&self.workers[index].core);
        self.unpark(woken);
        let core = self.scheduler.core(index);
        assert!(core.slot.is_empty_relaxed() && core.deque_len() == 0, "something is left behind");
        let polite = &self.scheduler.interrupts;
        assert!(
            !polite.is_armed(index) && !polite.is_raised(index),
            "a core that nobody holds may be asked"
        );
        self.scheduler.has_returned(index);
        self.workers[index].recalled = false;
        self.workers[index].state = State::Retired;
        self.count_in_use();
        self.retired += 1;
    }

    /// Has the first `workers` workers rest.
    pub(super) fn rest(&mut self, workers: usize) {
        let woken = self.scheduler.set_resting(workers);
        self.unpark(woken);
        self.rested += usize::from(workers > 0);
    }
}
