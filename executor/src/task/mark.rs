//! Where a task is, in two bytes: in a queue, on a worker, or waiting.
//!
//! ```text
//! all zero             running: on a worker, or on its way there
//! bit 15 clear         waiting: bits 0-14 are the tick at which it began to wait, from 1
//! bit 15 set           queued:
//!   bit 14 (SWAPPED)     it has changed places with another task
//!   bits 0-13 (NUMBER)   the number of the entry in `metrics::Stamps` with the time; 0 if it is
//!                        not timed; all ones (YIELDED) in the yield queue, which has the time
//! ```

use crate::metrics::NUMBER_BITS;
use std::fmt;
use std::time::Duration;

/// The task is in a queue.
const QUEUED: u16 = 1 << 15;
/// The task is queued because it has changed places with another.
const SWAPPED: u16 = 1 << 14;
/// The number of the entry in `metrics::Stamps` that says since when the task is queued; zero if it
/// is not timed.
const NUMBER: u16 = SWAPPED - 1;
/// In the place of a number, which no entry has: the task is in the yield queue, which says since
/// when.
const YIELDED: u16 = NUMBER;

/// The marks of tasks that begin to wait repeat after this many ticks.
const TICKS: u16 = QUEUED - 1;
/// A wait that seems to have lasted for `TICKS - LATER` ticks or more began after the clock was
/// read, and counts as zero.
const LATER: u16 = 60;
/// A tick has `1 << TICK` nanoseconds: about a second.
const TICK: u32 = 30;

const _: () = assert!(NUMBER == (1 << NUMBER_BITS) - 1);

/// Where a task is. Written by the task's owner alone, which spawns, polls, queues or drops it
/// (`meta.rs`); dumps read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u16);

/// A [`Mark`], decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a worker, or on its way there.
    Running,
    /// In a queue. The number of the entry with the time, if the task is timed.
    Queued(Option<u16>),
    /// In the yield queue.
    Yielded,
    /// In no queue, and waiting to be woken. The tick at which the wait began.
    Waiting(u16),
}

impl Mark {
    pub(crate) const RUNNING: Self = Self(0);
    pub(crate) const QUEUED: Self = Self(QUEUED);
    pub(crate) const YIELDED: Self = Self(QUEUED | YIELDED);

    pub(super) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the mark of a task that is in a queue since the time in this entry.
    #[inline]
    pub(crate) fn queued(number: Option<u16>) -> Self {
        Self(QUEUED | number.unwrap_or(0))
    }

    /// Returns the same mark, of a task that has changed places with another.
    pub(super) fn with_swap(self) -> Self {
        Self(self.0 | SWAPPED)
    }

    /// Returns the mark of a task that begins to wait now, as bits.
    pub(crate) const fn waiting_since(now: u64) -> u16 {
        1 + ((now >> TICK) % TICKS as u64) as u16
    }

    /// Returns how long a wait that began at this tick has lasted, to the second. Starts again from
    /// zero after nine hours and three quarters.
    pub(crate) fn waited(tick: u16, now: u64) -> Duration {
        let ticks =
            (i32::from(Self::waiting_since(now)) - i32::from(tick)).rem_euclid(TICKS.into());
        // The wait began after `now` was read: the difference is negative, modulo `TICKS`.
        let ticks = if ticks >= i32::from(TICKS - LATER) { 0 } else { ticks };
        Duration::from_nanos((ticks as u64) << TICK)
    }

    /// Returns whether the task is queued because it has changed places with another.
    #[inline]
    pub(crate) fn is_swapped(self) -> bool {
        self.0 & (QUEUED | SWAPPED) == QUEUED | SWAPPED
    }

    /// Returns the number of the entry that says since when the task is queued, if there is one.
    pub(crate) fn number(self) -> Option<u16> {
        match self.place() {
            Place::Queued(number) => number,
            Place::Running | Place::Yielded | Place::Waiting(_) => None,
        }
    }

    /// Decodes the mark.
    pub(crate) fn place(self) -> Place {
        match self.0 & NUMBER {
            _ if self == Self::RUNNING => Place::Running,
            _ if self.0 & QUEUED == 0 => Place::Waiting(self.0),
            YIELDED => Place::Yielded,
            0 => Place::Queued(None),
            number => Place::Queued(Some(number)),
        }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.place(), if self.is_swapped() { " (swapped)" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_one_thing() {
        let places = [
            (Mark::RUNNING, Place::Running),
            (Mark::QUEUED, Place::Queued(None)),
            (Mark::queued(Some(1)), Place::Queued(Some(1))),
            (Mark::queued(Some(NUMBER - 1)), Place::Queued(Some(NUMBER - 1))),
            (Mark::YIELDED, Place::Yielded),
        ];
        for (mark, place) in places {
            assert_eq!((mark.place(), mark.is_swapped()), (place, false));
        }
        for mark in [Mark::QUEUED, Mark::queued(Some(5))] {
            assert_eq!(
                (mark.with_swap().place(), mark.with_swap().is_swapped()),
                (mark.place(), true)
            );
        }
        for tick in [1, SWAPPED, TICKS] {
            assert_eq!(
                (Mark(tick).place(), Mark(tick).is_swapped()),
                (Place::Waiting(tick), false)
            );
        }
    }

    #[test]
    fn a_wait_is_told_to_the_second_for_nine_hours() {
        let second = 1 << TICK;
        let (began, hours) = (7 * second + 5, Duration::from_secs(9 * 3_600));
        let tick = Mark::waiting_since(began);
        let most = u64::from(TICKS - LATER) - 1;
        for waited in [0, 1, 100, most] {
            assert_eq!(
                Mark::waited(tick, began + waited * second),
                Duration::from_nanos(waited * second)
            );
        }
        assert!(Mark::waited(tick, began + most * second) > hours);
        assert_eq!(Mark::waited(tick, began + (most + 1) * second), Duration::ZERO);
        assert_eq!(
            Mark::waited(tick, began - 2 * second),
            Duration::ZERO,
            "who asks has read the clock earlier"
        );
    }
}
