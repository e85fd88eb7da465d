//! The controller: computes the next limit from a limit and a sample. It knows no clock.
//!
//! The rule is that of CockroachDB's elastic admission control. Above the target, the limit falls
//! by two deltas. Otherwise, if a job waits, it rises by one delta. Otherwise it drifts to a
//! baseline. It falls faster than it rises because a limit that is too high hurts foreground tasks,
//! while one that is too low only delays paced jobs, which can wait.
//!
//! What is compared with the target is not how long foreground tasks waited, but the part of it for
//! which paced jobs are to blame ([`Machine::latencies`](super::admission::Machine::latencies)). A
//! limit can only change what paced jobs do. If it fell for waits with another cause, a burst of
//! foreground tasks or a busy neighbour, it would fall to its minimum and stay there, and no task
//! would wait any less. Lowering it for waits that paced jobs cause works under any load: the time
//! that is charged is time that these jobs were given, and half the limit halves it.
//!
//! A delta is an amount per second, so it does not matter how often the rule is applied.

use super::Settings;
use super::window::SPAN;

/// What the controller sees at a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Paced jobs kept 99 of 100 foreground tasks waiting for less than this, in nanoseconds.
    /// `None` if the window has no task in it.
    pub(super) p99: Option<u64>,
    /// Whether a job waits for a slice, or has waited for one since the last sample.
    pub(super) waiting: bool,
    /// The time since the last sample, in nanoseconds.
    pub(super) elapsed: u64,
}

impl Settings {
    /// Returns the limit that follows `limit`.
    #[must_use]
    pub(super) fn next_limit(&self, limit: f64, sample: Sample) -> f64 {
        let target = u64::try_from(self.target.as_nanos()).unwrap_or(u64::MAX);
        let delta = |elapsed: u64| self.delta * elapsed as f64 / 1e9;
        // A sample says nothing about the time before its window.
        let seen = delta(sample.elapsed.min(SPAN));
        let next = if sample.p99.is_some_and(|p99| p99 > target) {
            limit - 2.0 * seen
        } else if sample.waiting {
            limit + seen
        } else {
            let drift = delta(sample.elapsed) / 2.0;
            limit + (self.baseline - limit).clamp(-drift, drift)
        };
        next.clamp(self.minimum, self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::STEP;
    use super::*;

    const GOOD: Option<u64> = Some(1_000_000);
    const BAD: Option<u64> = Some(1_000_001);
    const SECOND: u64 = 1_000_000_000;

    fn settings() -> Settings {
        Settings::new().minimum(0.1).baseline(0.3).maximum(0.8).delta_per_second(0.02)
    }

    fn next(limit: f64, p99: Option<u64>, waiting: bool, elapsed: u64) -> f64 {
        settings().next_limit(limit, Sample { p99, waiting, elapsed })
    }

    #[track_caller]
    fn assert_near(limit: f64, expected: f64) {
        assert!((limit - expected).abs() < 1e-12, "{limit}, and not {expected}");
    }

    #[test]
    fn the_rule_case_by_case() {
        for (limit, p99, waiting, elapsed, expected) in [
            // Above the target: two deltas down, whether a job waits or not, and no further than
            // the minimum.
            (0.5, BAD, true, SECOND, 0.46),
            (0.5, BAD, false, SECOND, 0.46),
            (0.5, BAD, true, STEP, 0.496),
            (0.12, BAD, true, SECOND, 0.1),
            (0.1, BAD, false, SECOND, 0.1),
            // On target or below, and a job waits: one delta up, and no further than the maximum.
            (0.5, GOOD, true, SECOND, 0.52),
            (0.5, Some(0), true, STEP, 0.502),
            (0.5, None, true, SECOND, 0.52),
            (0.79, GOOD, true, SECOND, 0.8),
            (0.8, None, true, SECOND, 0.8),
            // No job waits: slowly to the baseline, from above and from below, and not past it.
            (0.5, GOOD, false, SECOND, 0.49),
            (0.2, GOOD, false, SECOND, 0.21),
            (0.305, None, false, SECOND, 0.3),
            (0.295, None, false, SECOND, 0.3),
            (0.3, None, false, SECOND, 0.3),
            (0.8, None, false, 3_600 * SECOND, 0.3),
            // No sample speaks for longer than its window.
            (0.5, BAD, true, 3_600 * SECOND, 0.4),
            (0.5, GOOD, true, 3_600 * SECOND, 0.55),
            (0.5, BAD, true, 0, 0.5),
        ] {
            assert_near(next(limit, p99, waiting, elapsed), expected);
        }
    }

    /// Every combination of a few values of everything.
    fn each(mut check: impl FnMut(f64, Option<u64>, bool, u64)) {
        for limit in [0.1, 0.1001, 0.2, 0.3, 0.30001, 0.5, 0.7999, 0.8] {
            for p99 in [None, Some(0), GOOD, BAD, Some(u64::MAX)] {
                for waiting in [false, true] {
                    for elapsed in [0, 1, STEP, SECOND, SPAN, 100 * SECOND, u64::MAX] {
                        check(limit, p99, waiting, elapsed);
                    }
                }
            }
        }
    }

    #[test]
    fn the_limit_stays_within_its_bounds() {
        each(|limit, p99, waiting, elapsed| {
            let next = next(limit, p99, waiting, elapsed);
            assert!((0.1..=0.8).contains(&next), "{limit} {p99:?} {waiting} {elapsed}: {next}");
        });
    }

    #[test]
    fn a_longer_wait_never_raises_the_limit_nor_does_somebody_who_asks_lower_it() {
        each(|limit, p99, waiting, elapsed| {
            // Beyond the window only the drift goes on.
            let elapsed = elapsed.min(SPAN);
            let here = next(limit, p99, waiting, elapsed);
            for worse in [GOOD, BAD, Some(u64::MAX)].into_iter().filter(|worse| *worse >= p99) {
                assert!(next(limit, worse, waiting, elapsed) <= here);
            }
            assert!(next(limit, p99, true, elapsed) >= next(limit, p99, false, elapsed));
        });
    }

    #[test]
    fn it_falls_twice_as_fast_as_it_rises_and_drifts_half_as_fast() {
        let (up, down) = (next(0.5, GOOD, true, STEP) - 0.5, 0.5 - next(0.5, BAD, true, STEP));
        let drift = 0.5 - next(0.5, GOOD, false, STEP);
        assert_near(down, 2.0 * up);
        assert_near(drift, up / 2.0);
    }

    #[test]
    fn ten_small_steps_are_one_large_step() {
        for (p99, waiting) in [(BAD, true), (GOOD, true), (GOOD, false)] {
            let small = (0..10).fold(0.5, |limit, _| next(limit, p99, waiting, STEP));
            assert_near(small, next(0.5, p99, waiting, SECOND));
        }
    }

    /// Simulates a machine whose tasks wait too long as soon as the foreground and the limit
    /// together want more than there is. The controller sees this through the window, so its p99
    /// lags by the length of the window. Returns the limits of the last minute.
    fn simulate(foreground: f64, waiting: bool, minutes: usize) -> Vec<f64> {
        let settings = Settings::new();
        let lag = (SPAN / STEP) as usize;
        let (mut limit, mut busy) =
            (settings.baseline, std::collections::VecDeque::from(vec![false; lag]));
        let mut limits = Vec::new();
        for _ in 0..minutes * 600 {
            busy.pop_front();
            busy.push_back(foreground + limit > 0.95);
            let p99 = if busy.contains(&true) { BAD } else { GOOD };
            limit = settings.next_limit(limit, Sample { p99, waiting, elapsed: STEP });
            limits.push(limit);
        }
        limits.split_off(limits.len() - 600)
    }

    #[test]
    fn beside_a_light_load_it_goes_to_the_maximum_and_stays() {
        for foreground in [0.0, 0.05, 0.15] {
            assert!(simulate(foreground, true, 3).iter().all(|&limit| limit == 0.75));
        }
    }

    #[test]
    fn beside_a_heavy_load_it_goes_to_the_minimum_and_stays() {
        for foreground in [0.91, 0.95, 1.0, 2.0] {
            assert!(simulate(foreground, true, 3).iter().all(|&limit| limit == 0.05));
        }
    }

    #[test]
    fn beside_a_load_between_it_stays_about_what_is_left_over_and_swings_little() {
        for foreground in [0.3, 0.5, 0.7] {
            let (limits, free) = (simulate(foreground, true, 3), 0.95 - foreground);
            let (least, most) =
                limits.iter().fold((1.0_f64, 0.0_f64), |(l, m), &x| (l.min(x), m.max(x)));
            assert!(least <= free && free <= most, "{least} to {most} beside {foreground}");
            // Two windows of falling: one in which the window still holds bad steps, and the step
            // that went too far.
            assert!(most - least < 0.06, "{least} to {most} beside {foreground}");
        }
    }

    #[test]
    fn while_nobody_asks_it_goes_to_the_baseline() {
        assert!(simulate(0.1, false, 3).iter().all(|&limit| limit == 0.25));
    }
}
