//! How a core shares its time between its own queue and the injector.
//!
//! As long as polls are short, by ticks: every [`INJECTOR_TICK`]th goes to the injector. But 61
//! polls of 10 ms each are most of a second. So a core that sees something in the injector looks at
//! the clock, and the injector goes first when this core has not been there for [`PATIENCE`]. That
//! holds from the first long poll on, because the clock is read before the next. It costs nothing
//! while the injector is empty.
//!
//! What the core takes then depends on its own queue. Usually it takes its fair share of the
//! injector and runs the first of it. The others go to the back of its deque, which is served
//! within microseconds. If that would take longer than [`PATIENCE`], as far as the polls since the
//! last visit tell, the core takes one task at a time, and the injector keeps its turn for as long
//! as the core's own tasks had theirs. So each side has half of the time, however long the polls of
//! either are.
//!
//! tokio looks at its injection queue once in a number of polls, and learns that number from how
//! long the polls take. There, the first long polls after short ones delay the queue by the number
//! that the short ones allowed.

use super::INJECTOR_TICK;
use std::cell::Cell;

/// For how long the injector may be left alone, in nanoseconds.
const PATIENCE: u64 = 100_000;

/// The longest turn of the injector, in nanoseconds: what the monitor grants a poll.
const SLICE: u64 = 10_000_000;

/// What goes first at a tick.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectorTurn {
    /// The core's own queue.
    Not,
    /// One task of the injector.
    One,
    /// The core's share of the injector.
    Share,
}

/// Whose turn it is on one core.
#[derive(Debug, Default)]
pub(super) struct InjectorTurns {
    /// When the last visit by the clock was, or the injector's turn ended.
    since: Cell<u64>,
    /// The tick at that moment.
    since_tick: Cell<u32>,
    /// When the injector's turn ends. Zero if it had none since the core's own began.
    until: Cell<u64>,
}

impl InjectorTurns {
    /// Decides what goes first at this tick. Something waits in the injector, and the core has
    /// `queued` tasks of its own.
    pub(super) fn next(&self, tick: u32, now: u64, queued: usize) -> InjectorTurn {
        if now < self.until.get() {
            self.count_from(tick, now);
            return InjectorTurn::One;
        }
        if self.until.take() != 0 && tick.wrapping_sub(self.since_tick.get()) == 1 {
            // The last task was one of the injector's, and has used up the injector's turn.
            self.count_from(tick, now);
            return InjectorTurn::Not;
        }
        let own_turn = now.saturating_sub(self.since.get());
        if own_turn < PATIENCE {
            return if tick.is_multiple_of(INJECTOR_TICK) {
                InjectorTurn::Share
            } else {
                InjectorTurn::Not
            };
        }
        let polls = tick.wrapping_sub(self.since_tick.get()).max(1);
        let whole_queue = (own_turn / u64::from(polls)).saturating_mul(queued as u64);
        self.count_from(tick, now);
        if whole_queue < PATIENCE {
            return InjectorTurn::Share;
        }
        self.until.set(now + own_turn.min(SLICE));
        InjectorTurn::One
    }

    fn count_from(&self, tick: u32, now: u64) {
        self.since.set(now);
        self.since_tick.set(tick);
    }
}

/// Whether a core's deque takes long, by the clock. If it does, what becomes runnable on the core
/// goes to the injector instead: that shares the core's time with the deque, and other cores take
/// from it, too. In the deque each task would wait for all the long ones.
#[derive(Debug, Default)]
pub(super) struct QueueLength {
    long: Cell<bool>,
    /// When the deque stops counting as long, unless it is seen to be long again.
    until: Cell<u64>,
}

/// For how long a deque counts as long after it was seen to be, in nanoseconds. Short polls in
/// between, of what went ahead of it, say nothing about the tasks that wait in it.
const STAYS_LONG: u64 = 100_000_000;

impl QueueLength {
    /// Learns that the deque takes `whole_queue` nanoseconds, if its polls are like the last ones.
    pub(super) fn learn(&self, now: u64, whole_queue: u64) {
        if whole_queue > PATIENCE {
            self.until.set(now + STAYS_LONG);
            self.long.set(true);
        } else if self.long.get() && now >= self.until.get() {
            self.long.set(false);
        }
    }

    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.long.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = SLICE;

    #[test]
    fn short_polls_leave_it_to_the_tick_until_it_has_waited_for_long_enough() {
        let turns = InjectorTurns::default();
        let first: Vec<_> =
            (1..=400_u32).map(|tick| turns.next(tick, u64::from(tick) * 500, 3)).collect();
        let visits: Vec<_> =
            (1..=400).filter(|&tick| first[tick - 1] != InjectorTurn::Not).collect();
        // 200 polls are 100 microseconds.
        assert_eq!(visits, [61, 122, 183, 200, 244, 305, 366, 400]);
        assert!(!first.contains(&InjectorTurn::One));
    }

    #[test]
    fn it_goes_first_after_the_first_long_poll_that_follows_short_ones() {
        let turns = InjectorTurns::default();
        let mut now = 0;
        for tick in 1..=60 {
            now += 100;
            assert_eq!(turns.next(tick, now, 4), InjectorTurn::Not);
        }
        assert_ne!(turns.next(61 * 2 + 1, now + LONG, 4), InjectorTurn::Not);
    }

    #[test]
    fn beside_long_polls_each_side_has_half_of_the_time() {
        let turns = InjectorTurns::default();
        let (mut now, mut times) = (1, [0, 0]);
        for tick in 1..=10_000 {
            let (side, poll) = match turns.next(tick, now, 4) {
                InjectorTurn::Not => (0, LONG),
                InjectorTurn::One => (1, 20_000),
                InjectorTurn::Share => unreachable!("the queue takes four polls of 10 ms"),
            };
            times[side] += poll;
            now += poll;
        }
        let [own, injected] = times;
        assert!(own.abs_diff(injected) <= own / 10, "{own} and {injected}");
    }

    #[test]
    fn an_empty_queue_of_its_own_lets_the_core_take_its_share() {
        assert_eq!(InjectorTurns::default().next(1, LONG, 0), InjectorTurn::Share);
    }

    #[test]
    fn a_long_queue_is_taken_for_long_until_it_was_short_for_a_while() {
        let queue = QueueLength::default();
        queue.learn(0, PATIENCE);
        assert!(!queue.is_long());
        queue.learn(1, 4 * LONG);
        queue.learn(2, 0);
        assert!(queue.is_long(), "a short poll in between");
        queue.learn(1 + STAYS_LONG, 0);
        assert!(!queue.is_long());
    }

    /// The injector's turn is bounded, however long the clock says that the core's own turn was.
    #[test]
    fn its_turn_ends() {
        let turns = InjectorTurns::default();
        assert_eq!(turns.next(1, 100 * LONG, 4), InjectorTurn::One);
        assert_eq!(turns.next(2, 101 * LONG - 1, 4), InjectorTurn::One);
        assert_eq!(turns.next(3, 101 * LONG, 4), InjectorTurn::Not);
    }
}
