//! How long things took: a histogram whose buckets grow with what they hold.
//!
//! Log-linear: eight buckets to an octave, from 32 ns to 137 s. So 240 counts of eight bytes give
//! every duration to an eighth of itself, on any scale. Two histograms are added or subtracted
//! count by count.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Durations that differ by less than `1 << GRAIN` nanoseconds are not told apart: a look at the
/// clock takes as long.
const GRAIN: u32 = 5;

/// An octave has `1 << STEPS` buckets.
const STEPS: u32 = 3;

/// The number of buckets of a histogram.
pub(crate) const BUCKETS: usize = 240;

/// The counts of a histogram. Cumulative, so that two of them can be subtracted.
pub(crate) type Counts = [u64; BUCKETS];

/// Returns the bucket for a duration of `nanos` nanoseconds. A duration that is too long for all
/// buckets goes into the last one.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let grains = nanos >> GRAIN;
    // Zero below the first octave, where a step is one grain.
    let shift = (u64::BITS - grains.leading_zeros()).saturating_sub(STEPS + 1);
    let bucket = (u64::from(shift) << STEPS) + (grains >> shift);
    (bucket as usize).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket in nanoseconds, exclusive. It is the lower bound of the next
/// bucket. The last bucket holds whatever is longer, too.
pub(crate) fn upper_bound(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    let shift = (next >> STEPS).saturating_sub(1);
    ((next - (shift << STEPS)) << shift) << GRAIN
}

/// Returns the number of nanoseconds that the `q`-th part of the durations did not exceed: the
/// upper end of the bucket that this quantile falls into. `None` if nothing was counted.
pub(crate) fn quantile(counts: &Counts, q: f64) -> Option<u64> {
    let total = counts.iter().fold(0_u64, |all, &count| all.saturating_add(count));
    let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0_u64;
    let bucket = counts.iter().position(|&count| {
        seen = seen.saturating_add(count);
        seen >= rank
    })?;
    Some(upper_bound(bucket))
}

/// A histogram that one thread at a time adds to, and that any thread may read.
///
/// `record` uses plain loads and stores. The holder of a core adds to the core's recorders, and a
/// core passes from thread to thread by a release and an acquire (`handoff/hand_off.md`), so the
/// next holder adds to counts that are up to date.
pub(super) struct Recorder {
    /// How many durations each bucket holds. Written by `record`, read by any thread, relaxed.
    counts: [AtomicU64; BUCKETS],
    /// The sum of the durations, in nanoseconds. Written and read as `counts`.
    sum: AtomicU64,
    /// The longest duration, in nanoseconds. Written and read as `counts`.
    longest: AtomicU64,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }

    /// Adds a duration of `nanos` nanoseconds. For one thread at a time.
    pub(super) fn record(&self, nanos: u64) {
        // Ordering: relaxed, here and below. One thread writes, so nothing is lost. A reader gets
        // counts that are each of some moment, and needs nothing that was written before them.
        add(&self.counts[bucket_of(nanos)], 1);
        add(&self.sum, nanos);
        if nanos > self.longest.load(Relaxed) {
            self.longest.store(nanos, Relaxed);
        }
    }

    /// Adds the counts of this recorder to `counts`.
    pub(super) fn add_counts_to(&self, counts: &mut Counts) {
        for (count, more) in counts.iter_mut().zip(&self.counts) {
            *count = count.saturating_add(more.load(Relaxed));
        }
    }

    /// Adds what was recorded to a histogram.
    pub(super) fn add_to(&self, histogram: &mut Histogram) {
        self.add_counts_to(&mut histogram.counts);
        histogram.sum = histogram.sum.saturating_add(self.sum.load(Relaxed));
        histogram.longest = histogram.longest.max(self.longest.load(Relaxed));
    }
}

/// Adds to a count that no other thread writes.
#[inline]
pub(super) fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Relaxed).wrapping_add(n), Relaxed);
}

/// How long things took, as far as they were sampled: a part of [`Metrics`](super::Metrics).
///
/// An octave has eight buckets: a quantile is at most an eighth too high, or 32 ns, and never too
/// low. Beyond 137 s only [`max`](Self::max) and [`mean`](Self::mean) tell.
///
/// # Not guaranteed
///
/// That the counts are of one moment: each core's counts are read while it adds to them. Nor that
/// [`max`](Self::max) of a difference of two snapshots is more exact than a quantile.
///
/// # Examples
///
/// ```
/// let runtime = giveway::Runtime::new()?;
/// let before = runtime.metrics().poll_time;
/// runtime.block_on(async {
///     for _ in 0..1_000 {
///         giveway::spawn(async {}).await.unwrap();
///     }
/// });
/// let polls = runtime.metrics().poll_time.since(&before);
/// println!("{polls}"); // p50 256ns, p99 1.28µs, max 4.096µs (80 samples)
/// assert!(polls.p50() <= polls.p99() && polls.p99() <= polls.max());
/// assert_eq!(polls.quantile(0.5), polls.p50());
/// assert!(polls.mean() <= polls.max());
/// assert_eq!(polls.buckets().map(|(_, samples)| samples).sum::<u64>(), polls.count());
///
/// let mut twice = polls.clone();
/// twice.merge(&polls);
/// assert_eq!(twice.count(), 2 * polls.count());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<Counts>,
    sum: u64,
    longest: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), sum: 0, longest: 0 }
    }

    /// Returns the number of samples. See [`Histogram`] for an example.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, &count| all.saturating_add(count))
    }

    /// Returns what the shortest `q`-th part of the samples took at most: `quantile(0.99)` is
    /// [`p99`](Self::p99). Returns zero if there are no samples. A `q` below 0 counts as 0, one
    /// above 1 as 1. See [`Histogram`] for an example.
    pub fn quantile(&self, q: f64) -> Duration {
        Duration::from_nanos(match quantile(&self.counts, q) {
            // The last bucket has no upper end.
            Some(bound) if bound == upper_bound(BUCKETS - 1) => self.longest,
            Some(bound) => bound.min(self.longest),
            None => 0,
        })
    }

    /// Returns the median. See [`Histogram`] for an example.
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns what one sample in a hundred exceeds. See [`Histogram`] for an example.
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// Returns the longest sample; of a [difference](Self::since), the upper end of its last
    /// bucket. See [`Histogram`] for an example.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// Returns the mean, or zero if there are no samples. See [`Histogram`] for an example.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns the buckets that hold something, the shortest first: how long their samples took at
    /// most, and how many there are. For exporters. See [`Histogram`] for an example.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let buckets = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        buckets.map(|(bucket, &count)| (Duration::from_nanos(upper_bound(bucket)), count))
    }

    /// Returns what has been added since `earlier`, a histogram of the same runtime and figure. A
    /// count that is higher in `earlier` counts as zero. See [`Histogram`] for an example.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts.clone();
        for (count, before) in counts.iter_mut().zip(&*earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        let longest = match counts.iter().rposition(|&count| count > 0) {
            None => 0,
            Some(bucket) if bucket == BUCKETS - 1 => self.longest,
            Some(bucket) => upper_bound(bucket).min(self.longest),
        };
        Self { counts, sum: self.sum.saturating_sub(earlier.sum), longest }
    }

    /// Adds the samples of another histogram: of the other class, or of another runtime. See
    /// [`Histogram`] for an example.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&*other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            0 => f.write_str("no samples"),
            n => {
                let (p50, p99, max) = (self.p50(), self.p99(), self.max());
                write!(
                    f,
                    "p50 {p50:?}, p99 {p99:?}, max {max:?} ({n} sample{})",
                    if n == 1 { "" } else { "s" }
                )
            }
        }
    }
}

/// The histogram as [`Display`](fmt::Display) writes it: 240 counts would say little.
impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: impl IntoIterator<Item = u64>) -> Histogram {
        let (recorder, mut histogram) = (Recorder::new(), Histogram::new());
        samples.into_iter().for_each(|nanos| recorder.record(nanos));
        recorder.add_to(&mut histogram);
        histogram
    }

    #[test]
    fn every_duration_is_in_the_bucket_that_says_so() {
        let mut lower = 0;
        for bucket in 0..BUCKETS {
            let upper = upper_bound(bucket);
            assert_eq!(bucket_of(lower), bucket);
            assert_eq!(bucket_of(upper - 1), bucket);
            assert!(
                upper - lower <= (lower / 8).max(32),
                "bucket {bucket} is from {lower} to {upper}"
            );
            lower = upper;
        }
        assert_eq!(lower, 1 << 37);
    }

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_an_eighth_too_high() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let mut samples: Vec<u64> =
                (0..rng.usize(1..500)).map(|_| rng.u64(..) >> rng.u32(28..64)).collect();
            let histogram = of(samples.iter().copied());
            samples.sort_unstable();
            for q in [0.0, 0.25, 0.5, 0.9, 0.99, 1.0] {
                let rank = ((q * samples.len() as f64).ceil() as usize).max(1);
                let (exact, told) = (samples[rank - 1], histogram.quantile(q).as_nanos() as u64);
                assert!(
                    exact <= told && told <= exact + (exact / 8).max(32),
                    "q {q}: {exact} became {told}"
                );
            }
            assert_eq!(histogram.max().as_nanos() as u64, *samples.last().unwrap());
            assert_eq!(histogram.count(), samples.len() as u64);
        }
    }

    #[test]
    fn merged_histograms_are_that_of_all_samples() {
        let mut both = of([100, 5_000]);
        both.merge(&of([70_000, 3]));
        assert_eq!(both, of([3, 100, 5_000, 70_000]));
    }

    #[test]
    fn a_difference_is_what_came_in_between() {
        let (recorder, mut before, mut after) =
            (Recorder::new(), Histogram::new(), Histogram::new());
        [50, 1_000_000].iter().for_each(|&nanos| recorder.record(nanos));
        recorder.add_to(&mut before);
        [2_000, 3_000].iter().for_each(|&nanos| recorder.record(nanos));
        recorder.add_to(&mut after);
        let between = after.since(&before);
        assert_eq!((between.count(), between.mean()), (2, Duration::from_nanos(2_500)));
        assert!(
            (3_000..3_400).contains(&between.max().as_nanos()),
            "{between}: the long one was before"
        );
        assert_eq!(after.since(&Histogram::new()), after);
        assert_eq!(before.since(&after).count(), 0, "the wrong way round there is nothing");
        assert_eq!(before.since(&before), Histogram::new());
    }

    #[test]
    fn what_is_beyond_the_last_bucket_is_in_it() {
        let long = of([1 << 50, u64::MAX / 2]);
        assert_eq!(
            long.p50().as_nanos(),
            u128::from(u64::MAX / 2),
            "all that is known is the longest"
        );
        assert_eq!(long.count(), 2);
        let mut full = of([]);
        full.counts[7] = u64::MAX;
        full.merge(&full.clone());
        assert_eq!(full.count(), u64::MAX);
        assert_eq!(full.since(&Histogram::new()).count(), u64::MAX);
    }

    #[test]
    fn without_samples_everything_is_zero() {
        let empty = Histogram::new();
        assert_eq!((empty.p50(), empty.p99(), empty.max(), empty.mean()), Default::default());
        assert_eq!((empty.to_string().as_str(), empty.buckets().count()), ("no samples", 0));
        assert_eq!(quantile(&[0; BUCKETS], 0.99), None);
    }
}
