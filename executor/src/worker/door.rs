//! Whether a second worker waits in the reactor, for sockets that become ready while the first is
//! in a poll.
//!
//! A worker that leaves the reactor with a task in hand comes back when that poll is over. If polls
//! are short this is best: the next event finds the worker there, and no other thread is woken. If
//! polls are long, the next event waits for the end of the poll although another worker is idle.
//!
//! The two loads are told apart by what is free to measure. Every worker looks at the reactor again
//! before it sleeps, and that look reads the clock, so each return tells how long the worker was
//! away.
//!
//! [`Door`] remembers the last returns. While long ones are among them, two things change: an idle
//! worker that finds the turn taken waits in the reactor's second place
//! (`giveway_io::driver::Reactor::wait_second`), and a worker that leaves the reactor empty wakes
//! an idle one to go there.

use super::Worker;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The longest time away from the reactor that counts as short, in nanoseconds. A worker that is
/// away for longer keeps a ready socket waiting for longer than it takes to wake another thread.
const LONG: u64 = 50_000;

/// What a return after a long time adds to the score. A return after a short time takes one away.
const STEP: u32 = 8;
/// The most that the score holds.
const MOST: u32 = 4 * STEP;

/// The score from which on a second worker is wanted: two long polls of late. A single one may have
/// lost its CPU to another thread.
const WANTED: u32 = STEP + 1;

/// How long workers have stayed away from the reactor of late.
#[derive(Debug, Default)]
pub(crate) struct Door {
    /// Written by workers, by load and store. A return that is lost between the two is made up for
    /// by the next.
    score: AtomicU32,
}

impl Door {
    /// Notes that a worker is back at the reactor after `away` nanoseconds.
    fn came_back_after(&self, away: u64) {
        // Ordering: relaxed, here and below. Nothing is published by the score, and an idle worker
        // may wait in either place: a stale score costs time only.
        let before = self.score.load(Relaxed);
        let after = if away > LONG { (before + STEP).min(MOST) } else { before.saturating_sub(1) };
        if after != before {
            self.score.store(after, Relaxed);
        }
    }

    /// Returns whether a second worker is to wait in the reactor.
    pub(crate) fn wants_second(&self) -> bool {
        self.score.load(Relaxed) >= WANTED
    }
}

impl Worker {
    /// Notes that the worker has slept, and may have been in the reactor.
    pub(super) fn leave_door(&self, now: u64) {
        self.away_since.set(Some(now));
    }

    /// Notes that the worker has looked at the reactor or tried to. If it has `looked`, the reactor
    /// has just read the clock.
    #[inline]
    pub(super) fn back_at_door(&self, looked: bool) {
        if let Some(since) = self.away_since.take() {
            let now = if looked { self.shared.reactor.looked_at() } else { self.shared.now() };
            self.shared.door.came_back_after(now.saturating_sub(since));
        }
    }

    /// Notes the mean length of the worker's last polls, in nanoseconds. Called between two polls.
    pub(super) fn pass_door(&self, poll: u64) {
        self.shared.door.came_back_after(poll);
        self.see_to_door();
    }

    /// Sees to it that the reactor is attended. Called when the worker has something to run, which
    /// may take long.
    #[inline]
    pub(super) fn see_to_door(&self) {
        if self.shared.door.wants_second() {
            self.send_to_door();
        }
    }

    /// Wakes an idle worker if no thread waits in the reactor.
    #[cold]
    fn send_to_door(&self) {
        let (idle, reactor) = (&self.shared.scheduler.idle, &self.shared.reactor);
        if !idle.nobody_idle() && reactor.has_sources() && !reactor.is_attended() {
            // It is woken as a searcher, finds nothing, and goes to sleep in the reactor.
            self.shared.unpark(idle.wake_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a door that workers have come back to after these times, one after the other.
    fn after(away: impl IntoIterator<Item = u64>) -> Door {
        let door = Door::default();
        away.into_iter().for_each(|away| door.came_back_after(away));
        door
    }

    #[test]
    fn nobody_is_sent_while_polls_are_short() {
        assert!(!after([]).wants_second());
        assert!(!after([10_000; 100]).wants_second());
    }

    #[test]
    fn one_long_poll_among_short_ones_changes_nothing() {
        let mostly_short = (0..1_000).map(|nth| if nth % 20 == 0 { 2_000_000 } else { 10_000 });
        for door in (1..100).map(|polls| after(mostly_short.clone().take(polls))) {
            assert!(!door.wants_second(), "{door:?}");
        }
    }

    #[test]
    fn the_second_of_two_long_polls_is_not_the_last_one_with_a_second_worker() {
        assert!(after([100_000; 2]).wants_second());
        let every_fourth = (0..1_000).map(|nth| if nth % 4 == 0 { 100_000 } else { 10_000 });
        for polls in 100..200 {
            assert!(after(every_fourth.clone().take(polls)).wants_second(), "{polls}");
        }
    }

    #[test]
    fn long_polls_are_forgotten_after_as_many_short_ones_as_the_score_holds() {
        assert!(!after([2_000_000; 100].into_iter().chain([10_000; MOST as usize])).wants_second());
    }
}
