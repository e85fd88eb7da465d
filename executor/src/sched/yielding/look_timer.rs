//! When a yield point looks wide: a clock behind a counter.
//!
//! A wide look reads every core's queue, and a look at the reactor makes a system call, so a yield
//! point makes a wide look at most once in an interval. Reading the clock at every call would cost
//! ten times the call. So calls are counted, and the clock is read when the count runs out. How
//! long the next count is follows from how long this one took.
//!
//! Each core looks at the queues by itself, once in an interval. The reactor is there once, and one
//! look at it serves all cores: it is due when *no* thread has looked for a tenth of the interval.
//! So ready I/O is noticed ten times as soon, and however many cores there are, one of them makes a
//! look each time. (A look reads two words for each core: the first deadlines of the timers.)

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The longest count. Spread over this many calls, the cost of a clock read is a fraction of a
/// call. A loop whose calls suddenly come a thousand times slower notices it within this many
/// calls.
const LONGEST: u32 = 128;

/// How many looks at the reactor there are to one at the queues. One costs 0.3 µs. With four
/// instead of ten, requests beside polite jobs took 6 µs longer in the median and some 20 µs longer
/// at p99, and the jobs got as much done.
const REACTOR_LOOKS: u64 = 10;

/// What is due when a count has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// A look at the reactor.
    Reactor,
    /// A look at everything.
    Everything,
}

/// Tells a thread when to look wide. Times are in nanoseconds, by whichever clock the caller has.
pub(crate) struct LookTimer {
    interval: u64,
    /// Calls until one asks. Belongs to one thread: it is an atomic only because the yield points
    /// of another crate count it down.
    countdown: AtomicU32,
    /// What was left of the count when it was cut short.
    rest: Cell<u32>,
    /// What the countdown started from.
    count: Cell<u32>,
    /// When the countdown started.
    counting_since: Cell<u64>,
    /// When the last wide look was.
    looked_wide: Cell<u64>,
}

impl LookTimer {
    pub(crate) fn new(interval: u64) -> Self {
        Self {
            interval,
            countdown: AtomicU32::new(1),
            rest: Cell::new(0),
            count: Cell::new(1),
            counting_since: Cell::new(0),
            looked_wide: Cell::new(0),
        }
    }

    /// Returns the counter. Every call that does not ask takes one from it; at one the next call
    /// asks.
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

    /// Notes that a call asks. Returns true if it asks because the count has run out: then the
    /// caller asks [`Self::due`]. A count that was cut short goes on.
    pub(crate) fn ran_out(&self) -> bool {
        let rest = self.rest.take();
        let left = self.countdown.load(Relaxed) + rest;
        self.countdown.store(left, Relaxed);
        left <= 1
    }

    /// Returns for how long the reactor may be left alone.
    pub(crate) fn reactor_interval(&self) -> u64 {
        self.interval / REACTOR_LOOKS
    }

    /// Decides which look is due now that the count has run out, and starts the next count.
    /// `reactor` is when a thread last looked at the reactor, or `None` if there is nothing to look
    /// for.
    pub(crate) fn due(&self, now: u64, reactor: Option<u64>) -> Due {
        let left = |since: u64, interval: u64| interval.saturating_sub(now.saturating_sub(since));
        let reactor_interval = self.reactor_interval();
        let queues_in = left(self.looked_wide.get(), self.interval);
        let reactor_in = reactor.map_or(u64::MAX, |looked_at| left(looked_at, reactor_interval));
        let (due, next_in) = match (queues_in, reactor_in) {
            (0, _) => {
                self.looked_wide.set(now);
                (Due::Everything, if reactor.is_some() { reactor_interval } else { self.interval })
            }
            (_, 0) => (Due::Reactor, reactor_interval.min(queues_in)),
            _ => (Due::Nothing, queues_in.min(reactor_in)),
        };
        let took = now.saturating_sub(self.counting_since.replace(now)).max(1);
        let count = u64::from(self.count.get());
        // At most twice as long as this one, which may have been spent in a burst.
        let next = count.saturating_mul(next_in) / took;
        let next = next.clamp(1, (count * 2).min(u64::from(LONGEST))) as u32;
        self.count.set(next);
        self.countdown.store(next, Relaxed);
        due
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    /// Makes `calls` calls, one every `every` nanoseconds. Returns the times of the looks, and how
    /// often the clock was read.
    fn run(timer: &LookTimer, now: &mut u64, every: u64, calls: u64) -> (Vec<u64>, u64) {
        let (mut looks, mut reads) = (Vec::new(), 0);
        for _ in 0..calls {
            *now += every;
            let left = timer.countdown.load(Relaxed);
            if left > 1 {
                timer.countdown.store(left - 1, Relaxed);
            } else if timer.ran_out() {
                reads += 1;
                if timer.due(*now, None) == Due::Everything {
                    looks.push(*now);
                }
            }
        }
        (looks, reads)
    }

    #[test]
    fn looks_are_at_least_the_interval_apart_and_seldom_much_more() {
        for every in [3, 100, 1_000, 20_000, 90_000] {
            let timer = LookTimer::new(100_000);
            let (looks, _) = run(&timer, &mut 0, every, 100_000_000 / every);
            let gaps: Vec<_> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().all(|&gap| gap >= 100_000), "every {every} ns");
            let late = gaps.iter().filter(|&&gap| gap > 250_000).count();
            assert!(
                late * 10 <= gaps.len(),
                "every {every} ns: {late} of {} gaps are long",
                gaps.len()
            );
        }
    }

    #[test]
    fn a_tight_loop_hardly_reads_the_clock() {
        let (_, reads) = run(&LookTimer::new(100_000), &mut 0, 3, 1_000_000);
        assert!(reads < 1_000_000 / 50, "{reads} reads in a million calls");
    }

    #[test]
    fn a_count_that_was_cut_short_goes_on() {
        let (timer, mut now) = (LookTimer::new(100_000), 0);
        run(&timer, &mut now, 3, 10_000);
        timer.countdown.store(50, Relaxed);
        timer.hurry();
        timer.hurry();
        assert_eq!(timer.countdown.load(Relaxed), 1);
        assert!(!timer.ran_out());
        assert_eq!(timer.countdown.load(Relaxed), 50);
        timer.countdown.store(1, Relaxed);
        assert!(timer.ran_out());
    }

    #[test]
    fn calls_slower_than_the_interval_look_every_time_after_the_first_few() {
        let (timer, mut now) = (LookTimer::new(100_000), 0);
        run(&timer, &mut now, 3, 1_000_000);
        run(&timer, &mut now, 1_000_000, u64::from(LONGEST));
        let (looks, _) = run(&timer, &mut now, 1_000_000, 100);
        assert_eq!(looks.len(), 100);
    }

    #[test]
    fn the_reactor_is_looked_at_by_whoever_comes_first_and_the_queues_by_each() {
        let paces = [LookTimer::new(100_000), LookTimer::new(100_000)];
        let (mut looked_at, mut reactor, mut queues) = (0, Vec::new(), [0; 2]);
        for now in (0..100_000_000).step_by(5_000) {
            let core = now as usize / 5_000 % 2;
            let timer = &paces[core];
            let left = timer.countdown.load(Relaxed);
            if left > 1 {
                timer.countdown.store(left - 1, Relaxed);
                continue;
            }
            assert!(timer.ran_out());
            let due = timer.due(now, Some(looked_at));
            queues[core] += u32::from(due == Due::Everything);
            if due != Due::Nothing {
                reactor.push(now - looked_at);
                looked_at = now;
            }
        }
        assert!(
            queues.iter().all(|looks| (800..=1_000).contains(looks)),
            "{queues:?} in 1,000 intervals"
        );
        reactor.sort_unstable();
        assert!(
            reactor[reactor.len() / 2] <= 30_000,
            "the median gap is {}",
            reactor[reactor.len() / 2]
        );
        assert!(
            reactor[reactor.len() - 1] <= 50_000,
            "the longest gap is {}",
            reactor[reactor.len() - 1]
        );
    }
}
