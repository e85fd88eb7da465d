//! A bucket of CPU time. Plain data: the time is passed in.
//!
//! The bucket fills at `rate` CPU nanoseconds a nanosecond. As soon as there is anything in it, a
//! whole slice is handed out, and the bucket owes the rest. So slices of any length are handed out
//! in the order in which they are asked for, and over time no more is handed out than flows in.
//! What was used beyond a slice is owed as well.

/// How long an empty bucket takes to fill, in nanoseconds. What flows in during that time, and one
/// slice, can be had at once after a pause.
const FULL_AFTER: f64 = 250e6;

/// Debts that would take longer than this to pay back are forgiven, in nanoseconds. A process that
/// was stopped in a debugger seems to have used hours, and paced work should not wait for days.
const FORGIVEN_AFTER: f64 = 60e9;

#[derive(Debug)]
pub(super) struct Bucket {
    /// CPU nanoseconds. Less than zero: owed.
    tokens: f64,
    /// CPU nanoseconds a nanosecond; more than zero.
    rate: f64,
    /// Up to when the inflow is in `tokens`.
    filled_at: u64,
    /// When the bucket was last full.
    full_at: u64,
}

impl Bucket {
    /// Creates a full bucket.
    pub(super) fn new(rate: f64, now: u64) -> Self {
        Self { tokens: rate * FULL_AFTER, rate, filled_at: now, full_at: now }
    }

    fn capacity(&self) -> f64 {
        self.rate * FULL_AFTER
    }

    /// Lets in what has flowed in by now. A clock that goes back is taken to stand still.
    pub(super) fn fill(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        self.pour(self.rate * elapsed as f64);
    }

    /// Adds `tokens`, up to the capacity.
    fn pour(&mut self, tokens: f64) {
        self.tokens += tokens;
        if self.tokens >= self.capacity() {
            self.tokens = self.capacity();
            self.full_at = self.filled_at;
        }
    }

    /// Fills the bucket at `rate` from now on.
    pub(super) fn set_rate(&mut self, rate: f64, now: u64) {
        self.fill(now);
        self.rate = rate;
        self.pour(0.0);
    }

    /// Hands out a slice, if there is anything in the bucket.
    #[must_use]
    pub(super) fn take(&mut self, slice: u64) -> bool {
        let any = self.tokens > 0.0;
        if any {
            self.tokens -= slice as f64;
        }
        any
    }

    /// Charges for what was used without being asked for.
    pub(super) fn charge(&mut self, used: u64) {
        let least = self.tokens.min(-self.rate * FORGIVEN_AFTER);
        self.tokens = (self.tokens - used as f64).max(least);
    }

    /// Takes back `rest` of a slice, which has not been used since `unused_since`.
    ///
    /// What does not fit is lost. All of it is lost if the bucket was full in the meantime: given
    /// back at once, it would not have fitted. Otherwise a thousand jobs that were idle would have
    /// a thousand slices.
    pub(super) fn give_back(&mut self, rest: u64, unused_since: u64) {
        if self.full_at <= unused_since {
            self.pour(rest as f64);
        }
    }

    /// Returns in how many nanoseconds there is something to hand out.
    pub(super) fn ready_in(&self) -> u64 {
        if self.tokens > 0.0 { 0 } else { ((-self.tokens / self.rate) as u64).saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    /// Takes slices as soon as there is anything, from `from` to `until`. Returns how much was
    /// handed out.
    fn drain(bucket: &mut Bucket, from: u64, until: u64, slice: u64) -> u64 {
        let (mut now, mut taken) = (from, 0);
        while now < until {
            bucket.fill(now);
            while bucket.take(slice) {
                taken += slice;
            }
            now += bucket.ready_in();
        }
        taken
    }

    #[test]
    fn over_time_as_much_is_handed_out_as_flows_in_whatever_the_slice() {
        for rate in [0.01, 0.25, 1.0, 48.0] {
            for slice in [MS, 100 * MS, 1_000 * MS] {
                let mut bucket = Bucket::new(rate, 5);
                let taken = drain(&mut bucket, 5, 1_000 * SECOND, slice) as f64;
                let (least, most) = (rate * 1_000e9, rate * 1_000.25e9 + slice as f64 + 1.0);
                assert!(
                    (least - slice as f64..=most).contains(&taken),
                    "rate {rate}, slice {slice}: {taken}"
                );
            }
        }
    }

    #[test]
    fn after_a_pause_no_more_than_a_burst_is_there() {
        let mut bucket = Bucket::new(2.0, 0);
        bucket.fill(3_600 * SECOND);
        let taken = drain(&mut bucket, 3_600 * SECOND, 3_600 * SECOND + 1, 100 * MS);
        assert_eq!(taken, 500 * MS);
    }

    #[test]
    fn it_says_when_to_come_again_and_then_there_is_something() {
        for rate in [0.001, 0.3, 1.0, 7.0] {
            let mut bucket = Bucket::new(rate, 0);
            let mut now = 0;
            bucket.charge(SECOND);
            for slice in [1, 999, MS, 100 * MS, 12_345_678] {
                while bucket.take(slice) {}
                assert_ne!(bucket.ready_in(), 0);
                now += bucket.ready_in();
                bucket.fill(now);
                assert_eq!(bucket.ready_in(), 0, "rate {rate}, slice {slice}");
            }
        }
    }

    #[test]
    fn at_a_rate_of_next_to_nothing_it_takes_for_ever() {
        for rate in [f64::MIN_POSITIVE, 1e-12] {
            let mut bucket = Bucket::new(rate, 0);
            assert!(bucket.take(100 * MS));
            assert_eq!(bucket.ready_in(), u64::MAX);
        }
    }

    #[test]
    fn many_small_fills_are_one_large_fill() {
        let (mut often, mut once) = (Bucket::new(0.05, 0), Bucket::new(0.05, 0));
        for bucket in [&mut often, &mut once] {
            bucket.charge(SECOND);
        }
        (0..=SECOND / 100).for_each(|step| often.fill(step * 100));
        once.fill(SECOND);
        assert!((often.tokens - once.tokens).abs() < 1.0, "{often:?}, {once:?}");
    }

    #[test]
    fn what_was_used_beyond_a_slice_is_waited_for_up_to_a_point() {
        let mut bucket = Bucket::new(0.5, 0);
        assert!(bucket.take(125 * MS));
        bucket.charge(SECOND);
        assert_eq!(bucket.ready_in(), 2 * SECOND + 1);
        bucket.charge(u64::MAX);
        assert_eq!(bucket.ready_in(), 60 * SECOND + 1, "the rest is forgiven");
    }

    #[test]
    fn what_is_given_back_is_there_again_but_never_more_than_fits() {
        let mut bucket = Bucket::new(1.0, 0);
        assert!(bucket.take(300 * MS));
        assert!(!bucket.take(1));
        bucket.give_back(60 * MS, 0);
        assert!(bucket.take(10 * MS));
        assert!(!bucket.take(1), "it is just empty");
        bucket.give_back(u64::MAX, 0);
        assert_eq!(bucket.tokens, bucket.capacity());
    }

    #[test]
    fn what_would_have_overflowed_when_it_was_not_used_any_more_is_lost() {
        let mut bucket = Bucket::new(1.0, 0);
        assert!(bucket.take(100 * MS));
        bucket.fill(99 * MS);
        let mut early = Bucket { ..bucket };
        early.give_back(100 * MS, 0);
        assert_eq!(early.tokens, early.capacity());
        bucket.fill(100 * MS);
        assert!(bucket.take(250 * MS), "it was full");
        bucket.give_back(100 * MS, 0);
        assert!(!bucket.take(1));
        bucket.give_back(100 * MS, 100 * MS);
        assert!(bucket.take(1), "what was used until then is not lost");
    }

    #[test]
    fn a_lower_rate_shrinks_what_is_there_and_a_clock_that_goes_back_changes_nothing() {
        let mut bucket = Bucket::new(1.0, SECOND);
        bucket.set_rate(0.1, SECOND);
        assert_eq!(bucket.tokens, bucket.capacity());
        assert!(bucket.take(25 * MS + 1));
        bucket.fill(0);
        assert_ne!(bucket.ready_in(), 0);
        bucket.fill(SECOND);
        assert_ne!(bucket.ready_in(), 0, "that time was counted");
    }
}
