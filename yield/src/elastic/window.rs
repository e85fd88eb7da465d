//! How long tasks were kept waiting for a worker in the last 2.5 seconds, from counts that only
//! grow.

use std::collections::VecDeque;

/// The time between two steps of the controller, in nanoseconds.
pub(super) const STEP: u64 = 100_000_000;
/// How far back the controller looks, in nanoseconds.
pub(super) const SPAN: u64 = 25 * STEP;

/// A histogram whose counts only grow. A bucket is the longest wait that belongs to it, in
/// nanoseconds, and the number of tasks that waited at most that long and longer than the bucket
/// before says.
pub(super) type Counts = Vec<(u64, u64)>;

/// Snapshots of a growing histogram. The difference between the newest and the oldest is what
/// happened in between.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Each with the time when it was taken, in order. The oldest is the latest one that is at
    /// least `SPAN` older than the newest, as soon as there is one.
    snapshots: VecDeque<(u64, Counts)>,
}

impl Window {
    /// Adds a snapshot of what is counted now.
    pub(super) fn push(&mut self, now: u64, counts: Counts) {
        let is_old = |at: u64| now.saturating_sub(at) >= SPAN;
        if self.snapshots.back().is_some_and(|(at, old)| is_old(*at) || old.len() != counts.len()) {
            // No task was paced for a while, or the buckets are others: the old counts say nothing
            // about now.
            self.snapshots.clear();
        }
        self.snapshots.push_back((now, counts));
        while self.snapshots.get(1).is_some_and(|(at, _)| is_old(*at)) {
            self.snapshots.pop_front();
        }
    }

    /// Returns the wait that 99 of 100 tasks stayed below, in nanoseconds. With fewer than a
    /// hundred tasks it is the wait of the slowest. Waits are taken to be spread evenly within a
    /// bucket. `None` if no task was seen.
    pub(super) fn p99(&self) -> Option<u64> {
        let ((_, before), (_, after)) = (self.snapshots.front()?, self.snapshots.back()?);
        let counts = || before.iter().zip(after).map(|(old, new)| new.1.saturating_sub(old.1));
        let total: u64 = counts().sum();
        // The number of tasks that waited that long, or less: all but the hundredth part.
        let rank = total - total / 100;
        let (mut below, mut lower) = (0, 0_u64);
        for (&(upper, _), count) in after.iter().zip(counts()) {
            if count > 0 && below + count >= rank {
                if upper == u64::MAX {
                    // The last bucket has no end. It is only known that these tasks waited longer
                    // than `lower`.
                    return Some(lower.saturating_add(1));
                }
                let share = (rank - below) as f64 / count as f64;
                return Some(lower + (upper.saturating_sub(lower) as f64 * share) as u64);
            }
            below += count;
            lower = upper;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, u64::MAX];

    fn counts(counts: [u64; 5]) -> Counts {
        BOUNDS.into_iter().zip(counts).collect()
    }

    fn p99_of(seen: [u64; 5]) -> Option<u64> {
        let mut window = Window::default();
        window.push(0, counts([7, 0, 5, 1, 1_000_000]));
        window.push(
            STEP,
            counts([7 + seen[0], seen[1], 5 + seen[2], 1 + seen[3], 1_000_000 + seen[4]]),
        );
        window.p99()
    }

    #[test]
    fn only_what_came_since_the_oldest_snapshot_counts() {
        assert_eq!(p99_of([0; 5]), None);
        assert_eq!(p99_of([1, 0, 0, 0, 0]), Some(1_000));
        assert_eq!(p99_of([99, 0, 0, 0, 1]), Some(1_000), "one in a hundred may");
        assert_eq!(p99_of([98, 0, 0, 0, 2]), Some(1_000_001), "two may not");
        assert_eq!(p99_of([0, 0, 0, 0, 1]), Some(1_000_001), "longer than that");
        assert_eq!(p99_of([0, 0, 0, 100, 0]), Some(991_000), "spread evenly");
        assert_eq!(p99_of([900, 90, 0, 10, 0]), Some(10_000));
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::default();
        window.push(0, counts([0; 5]));
        // A long wait in the first step, and only short ones from then on.
        for step in 1..=60 {
            window.push(step * STEP, counts([step, 0, 0, 0, 1]));
            assert_eq!(
                window.p99(),
                Some(if step <= 25 { 1_000_001 } else { 1_000 }),
                "step {step}"
            );
            assert!(window.snapshots.len() <= 26);
        }
    }

    #[test]
    fn after_a_pause_it_starts_anew() {
        let mut window = Window::default();
        window.push(0, counts([0; 5]));
        window.push(STEP, counts([0, 0, 0, 0, 9]));
        window.push(STEP + SPAN, counts([0, 0, 0, 0, 99]));
        assert_eq!(window.p99(), None);
        window.push(2 * STEP + SPAN, counts([5, 0, 0, 0, 99]));
        assert_eq!(window.p99(), Some(1_000));
    }

    #[test]
    fn no_snapshot_or_one_says_nothing() {
        let mut window = Window::default();
        assert_eq!(window.p99(), None);
        window.push(0, counts([9; 5]));
        assert_eq!(window.p99(), None);
        window.push(STEP, Counts::new());
        assert_eq!(window.p99(), None, "other buckets");
    }
}
