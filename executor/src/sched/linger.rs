//! Whether lingering before a sleep pays, learnt from the sleeps before.
//!
//! A worker that lingers hopes for work within some twenty microseconds. Under a load that comes in
//! bursts it often gets some. Under a task that ticks a thousand times a second it never does, and
//! lingering was more than half of what such a task cost. So a worker stops lingering after
//! [`TRIES`] long sleeps in a row, and begins again after a sleep so short that lingering might
//! have saved it.

use std::cell::Cell;

/// The number of long sleeps in a row after which a worker does not linger.
const TRIES: u8 = 4;

/// The longest sleep that lingering might have saved, in nanoseconds: the time for which a worker
/// lingers, and that of a wake-up.
const SHORT: u64 = 50_000;

/// What a worker knows of its sleeps.
#[derive(Debug)]
pub(crate) struct Linger {
    /// The number of long sleeps after which the worker stops lingering.
    left: Cell<u8>,
}

impl Linger {
    pub(crate) fn new() -> Self {
        Self { left: Cell::new(TRIES) }
    }

    /// Returns whether the worker is to linger before its next sleep.
    pub(crate) fn pays(&self) -> bool {
        self.left.get() > 0
    }

    /// Notes that lingering brought work.
    pub(crate) fn paid(&self) {
        self.left.set(TRIES);
    }

    /// Notes that the worker slept for `nanos`.
    pub(crate) fn slept(&self, nanos: u64) {
        self.left.set(if nanos < SHORT { TRIES } else { self.left.get().saturating_sub(1) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sleeps_in_a_row_end_it_and_a_short_one_begins_it_again() {
        let linger = Linger::new();
        for _ in 0..TRIES {
            assert!(linger.pays());
            linger.slept(20 * SHORT);
        }
        assert!(!linger.pays());
        linger.slept(20 * SHORT);
        assert!(!linger.pays());
        linger.slept(SHORT / 2);
        assert!(linger.pays());
    }

    #[test]
    fn a_worker_that_finds_work_now_and_then_goes_on() {
        let linger = Linger::new();
        for _ in 0..100 {
            (1..TRIES).for_each(|_| linger.slept(20 * SHORT));
            assert!(linger.pays());
            linger.paid();
        }
    }
}
