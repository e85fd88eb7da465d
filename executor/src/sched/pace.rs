//! When to look wide: a clock behind a counter.
//!
//! A wide look reads every core's queue, and with I/O makes a system call, so a yield point makes one at most every
//! interval. Reading the clock at every call would cost ten times the call. So calls are counted, and the clock is read
//! when the count runs out; each time that turns out to be much too early the next count is twice as long.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The longest count. What a clock read costs, spread over so many calls, is a fraction of one; and a loop whose calls
/// suddenly come a thousand times slower finds out after so many of them.
const LONGEST: u32 = 128;

/// When to look wide. Times are in nanoseconds, by whichever clock the caller has.
pub(crate) struct Pace {
    interval: u64,
    // Calls until somebody asks. An atomic only because the yield points of other crates count it down; it belongs to
    // one thread.
    countdown: AtomicU32,
    // What was left of the count when it was cut short.
    rest: Cell<u32>,
    // What the countdown started from.
    count: Cell<u32>,
    last_look: Cell<u64>,
}

impl Pace {
    pub(crate) fn new(interval: u64) -> Self {
        Self {
            interval,
            countdown: AtomicU32::new(1),
            rest: Cell::new(0),
            count: Cell::new(1),
            last_look: Cell::new(0),
        }
    }

    /// The counter, which every call that does not ask takes one from. At one the next call asks.
    pub(crate) fn countdown(&self) -> &AtomicU32 {
        &self.countdown
    }

    /// Makes the next call ask.
    #[inline]
    pub(crate) fn hurry(&self) {
        // Ordering: relaxed, here and below: one thread.
        let left = self.countdown.load(Relaxed);
        if left > 1 {
            self.rest.set(self.rest.get() + left - 1);
            self.countdown.store(1, Relaxed);
        }
    }

    /// A call asks. True if that is because the count has run out, and [`Self::is_due`] has to be asked; if it was cut
    /// short, it goes on.
    pub(crate) fn ran_out(&self) -> bool {
        let rest = self.rest.take();
        let left = self.countdown.load(Relaxed) + rest;
        self.countdown.store(left, Relaxed);
        left <= 1
    }

    /// The count has run out: is it time for a wide look? Starts the next count.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let passed = now.saturating_sub(self.last_look.get());
        let due = passed >= self.interval;
        let count = match due {
            // More than half of the time is over: as many calls again would be too late.
            false if passed >= self.interval / 2 => self.count.get(),
            false => (self.count.get() * 2).min(LONGEST),
            // Much too late: the calls come slower than the count supposed.
            true if passed / 2 >= self.interval => 1,
            true => (self.count.get() / 2).max(1),
        };
        if due {
            self.last_look.set(now);
        }
        self.count.set(count);
        self.countdown.store(count, Relaxed);
        due
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    /// Calls that come every `every` nanoseconds, for `calls` calls: the times of the looks, and how often the clock
    /// was read.
    fn run(pace: &Pace, now: &mut u64, every: u64, calls: u64) -> (Vec<u64>, u64) {
        let (mut looks, mut reads) = (Vec::new(), 0);
        for _ in 0..calls {
            *now += every;
            let left = pace.countdown.load(Relaxed);
            if left > 1 {
                pace.countdown.store(left - 1, Relaxed);
            } else if pace.ran_out() {
                reads += 1;
                if pace.is_due(*now) {
                    looks.push(*now);
                }
            }
        }
        (looks, reads)
    }

    #[test]
    fn looks_are_at_least_the_interval_apart_and_seldom_much_more() {
        for every in [3, 100, 1_000, 20_000, 90_000] {
            let pace = Pace::new(100_000);
            let (looks, _) = run(&pace, &mut 0, every, 100_000_000 / every);
            let gaps: Vec<_> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().all(|&gap| gap >= 100_000), "every {every} ns");
            let late = gaps.iter().filter(|&&gap| gap > 250_000).count();
            assert!(late * 10 <= gaps.len(), "every {every} ns: {late} of {} gaps are long", gaps.len());
        }
    }

    #[test]
    fn a_tight_loop_hardly_reads_the_clock() {
        let (_, reads) = run(&Pace::new(100_000), &mut 0, 3, 1_000_000);
        assert!(reads < 1_000_000 / 50, "{reads} reads in a million calls");
    }

    #[test]
    fn a_count_that_was_cut_short_goes_on() {
        let (pace, mut now) = (Pace::new(100_000), 0);
        run(&pace, &mut now, 3, 10_000);
        pace.countdown.store(50, Relaxed);
        pace.hurry();
        pace.hurry();
        assert_eq!(pace.countdown.load(Relaxed), 1);
        assert!(!pace.ran_out());
        assert_eq!(pace.countdown.load(Relaxed), 50);
        pace.countdown.store(1, Relaxed);
        assert!(pace.ran_out());
    }

    #[test]
    fn calls_slower_than_the_interval_look_every_time_after_the_first_few() {
        let (pace, mut now) = (Pace::new(100_000), 0);
        run(&pace, &mut now, 3, 1_000_000);
        run(&pace, &mut now, 1_000_000, u64::from(LONGEST));
        let (looks, _) = run(&pace, &mut now, 1_000_000, 100);
        assert_eq!(looks.len(), 100);
    }
}
