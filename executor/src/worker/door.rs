//! Whether a second worker waits in the reactor, for sockets that become ready while the first is in a poll.
//!
//! A worker that leaves the reactor with a task in hand comes back when that poll is over. If polls are short that is the
//! best: the next event finds it there, and no other thread is woken. If they are long, the next event waits for as long as
//! the poll takes beside a worker that is idle. The two loads are told apart by what is free to measure: every worker looks
//! at the reactor again before it sleeps, and that look reads the clock. So each return tells how long that worker was away.
//!
//! [`Door`] remembers the last returns. While long ones are among them, an idle worker that finds the turn taken waits in the
//! reactor's second place (`giveway_io::driver::Reactor::wait_second`), and a worker that leaves the reactor without anybody
//! in it wakes an idle one to go there.

use super::Worker;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A worker that was away from the reactor for longer than this, in nanoseconds, has kept a ready socket waiting for longer
/// than it takes to wake another thread.
const LONG: u64 = 50_000;

/// What a return after a long time adds to the score, and the most that it holds. A return after a short time takes one away.
const STEP: u32 = 8;
const MOST: u32 = 4 * STEP;

/// From here on a second worker is wanted: after two long polls of late. One alone may be the kernel's doing, which gave
/// the CPU to another thread.
const WANTED: u32 = STEP + 1;

/// How long workers stayed away from the reactor of late.
#[derive(Debug, Default)]
pub(crate) struct Door {
    // Written by workers, by load and store: a return that is lost among others is made up for by the next.
    score: AtomicU32,
}

impl Door {
    /// A worker is back at the reactor after so many nanoseconds.
    fn came_back_after(&self, away: u64) {
        // Ordering: relaxed, here and below: what is decided by it is right either way, and one is quicker.
        let before = self.score.load(Relaxed);
        let after = if away > LONG { (before + STEP).min(MOST) } else { before.saturating_sub(1) };
        if after != before {
            self.score.store(after, Relaxed);
        }
    }

    /// Whether a second worker is to wait in the reactor.
    pub(crate) fn wants_second(&self) -> bool {
        self.score.load(Relaxed) >= WANTED
    }
}

impl Worker {
    /// The worker has slept, and may have been in the reactor.
    pub(super) fn leave_door(&self, now: u64) {
        self.away_since.set(Some(now));
    }

    /// The worker has looked at the reactor, or tried to: whether it was just now that the clock was read there.
    #[inline]
    pub(super) fn back_at_door(&self, looked: bool) {
        if let Some(since) = self.away_since.take() {
            let now = if looked { self.shared.reactor.looked_at() } else { self.shared.now() };
            self.shared.door.came_back_after(now.saturating_sub(since));
        }
    }

    /// The worker is between two polls, of which the last took so many nanoseconds.
    pub(super) fn pass_door(&self, poll: u64) {
        self.shared.door.came_back_after(poll);
        self.see_to_door();
    }

    /// The worker has something to run: if that may take long, another one is to be in the reactor.
    #[inline]
    pub(super) fn see_to_door(&self) {
        if self.shared.door.wants_second() {
            self.send_to_door();
        }
    }

    #[cold]
    fn send_to_door(&self) {
        let (idle, reactor) = (&self.shared.scheduler.idle, &self.shared.reactor);
        if !idle.nobody_idle() && reactor.has_sources() && !reactor.is_attended() {
            // As a searcher, which finds nothing and goes to sleep in the reactor.
            self.shared.unpark(idle.wake_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A door after workers were away for so long, one after the other.
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
