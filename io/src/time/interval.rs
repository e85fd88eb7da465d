//! Ticks at equal distances.

use super::sleep::{Sleep, sleep_until};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Returns an [`Interval`] that ticks every `period`, the first time at once.
///
/// # Panics
///
/// If the period is zero.
///
/// # Examples
///
/// ```
/// use giveway::time::{Duration, interval};
///
/// giveway::block_on(async {
///     let mut ticks = interval(Duration::from_millis(1));
///     let first = ticks.tick().await; // at once
///     assert!(ticks.tick().await >= first + Duration::from_millis(1));
/// });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Returns an [`Interval`] that ticks every `period`, the first time at `start`.
///
/// # Panics
///
/// If the period is zero.
///
/// # Examples
///
/// ```
/// use giveway::time::{Duration, Instant, interval_at};
///
/// giveway::block_on(async {
///     let start = Instant::now() + Duration::from_millis(1);
///     let mut ticks = interval_at(start, Duration::from_millis(1));
///     assert_eq!(ticks.tick().await, start);
/// });
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval needs a period that is not zero");
    Interval { sleep: sleep_until(start), period, missed: MissedTickBehavior::default() }
}

/// What an [`Interval`] does when a tick was taken late.
///
/// A tick is late if it is taken more than 5 ms after it was due, however long the period is. A
/// tick that is taken sooner leaves the times of the others as they are, with every behaviour; that
/// is tokio's rule.
///
/// # Examples
///
/// ```
/// use giveway::time::{Duration, MissedTickBehavior, interval};
///
/// let mut ticks = interval(Duration::from_millis(10));
/// ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedTickBehavior {
    /// Every tick keeps its time. Ticks whose time has passed come one after the other, until the
    /// interval has caught up.
    #[default]
    Burst,
    /// The next tick is due one period after the late one was taken, and the following ones a
    /// period apart from there. Any two ticks are at least the period less 5 ms apart.
    Delay,
    /// Ticks whose time has passed are left out. The next tick is due at a time at which it would
    /// have been due anyway.
    Skip,
}

/// Ticks at equal distances; see [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick, and returns when it was due.
    ///
    /// See [`interval`] for an example.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a tick is not lost if the future is dropped before it is ready.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::{Duration, interval};
    /// use std::task::{Context, Waker};
    ///
    /// let mut ticks = interval(Duration::from_secs(1));
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(ticks.poll_tick(&mut cx).is_ready(), "the first tick comes at once");
    /// assert!(ticks.poll_tick(&mut cx).is_pending());
    /// ```
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(std::future::Future::poll(Pin::new(&mut self.sleep), cx));
        let due = self.sleep.deadline();
        let next = next_tick(due, Instant::now(), self.period, self.missed);
        Pin::new(&mut self.sleep).reset(next);
        Poll::Ready(due)
    }

    /// Makes the next tick come one period from now.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::{Duration, interval};
    /// use std::task::{Context, Waker};
    ///
    /// let mut ticks = interval(Duration::from_secs(1));
    /// ticks.reset();
    /// assert!(ticks.poll_tick(&mut Context::from_waker(Waker::noop())).is_pending());
    /// ```
    pub fn reset(&mut self) {
        let next = super::sleep::after(self.period);
        Pin::new(&mut self.sleep).reset(next);
    }

    /// Makes the next tick come at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::time::{Duration, interval};
    /// # use std::task::{Context, Waker};
    /// let mut ticks = interval(Duration::from_secs(1));
    /// ticks.reset();
    /// ticks.reset_immediately();
    /// assert!(ticks.poll_tick(&mut Context::from_waker(Waker::noop())).is_ready());
    /// ```
    pub fn reset_immediately(&mut self) {
        Pin::new(&mut self.sleep).reset(Instant::now());
    }

    /// Returns what happens to ticks that were taken late.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::time::{Duration, MissedTickBehavior, interval};
    /// assert_eq!(interval(Duration::from_secs(1)).missed_tick_behavior(), MissedTickBehavior::Burst);
    /// ```
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what happens to ticks that were taken late. By default they come in a burst.
    ///
    /// See [`MissedTickBehavior`] for an example.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the distance between two ticks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::time::{Duration, interval};
    /// assert_eq!(interval(Duration::from_secs(1)).period(), Duration::from_secs(1));
    /// ```
    pub fn period(&self) -> Duration {
        self.period
    }
}

impl futures_core::Stream for Interval {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.poll_tick(cx).map(Some)
    }
}

/// A tick that is taken later than this is late: then the [`MissedTickBehavior`] decides when the
/// next one is due.
const TOLERANCE: Duration = Duration::from_millis(5);

/// Returns when the next tick is due, if the tick that was due at `due` is taken at `now`.
fn next_tick(due: Instant, now: Instant, period: Duration, missed: MissedTickBehavior) -> Instant {
    let late = now.saturating_duration_since(due);
    let next = match missed {
        MissedTickBehavior::Delay if late > TOLERANCE => now.checked_add(period),
        MissedTickBehavior::Skip if late > TOLERANCE => {
            // At least one period: a tick that is due right now was missed too.
            let periods = late.as_nanos() / period.as_nanos() + 1;
            let after_due =
                periods.checked_mul(period.as_nanos()).and_then(|nanos| u64::try_from(nanos).ok());
            after_due.and_then(|nanos| due.checked_add(Duration::from_nanos(nanos)))
        }
        _ => due.checked_add(period),
    };
    next.unwrap_or_else(|| super::sleep::after(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::MissedTickBehavior::{Burst, Delay, Skip};
    use super::*;

    const PERIOD: u64 = 100;

    /// Asserts that the next tick is due `next` milliseconds after a tick that was taken `late`
    /// milliseconds late was due.
    #[track_caller]
    fn assert_next(missed: MissedTickBehavior, late: f64, next: f64) {
        let ms = |ms: f64| Duration::from_nanos((ms * 1e6) as u64);
        let due = Instant::now() + ms(1e6);
        let found = next_tick(due, due + ms(late), Duration::from_millis(PERIOD), missed) - due;
        assert_eq!(found, ms(next), "{missed:?}, taken {late} ms late");
    }

    #[test]
    fn a_tick_in_time_leaves_the_others_as_they_are() {
        for missed in [Burst, Delay, Skip] {
            for late in [0.0, 0.1, 4.9, 5.0] {
                assert_next(missed, late, 100.0);
            }
        }
    }

    #[test]
    fn after_a_late_tick_a_burst_catches_up() {
        for late in [5.1, 90.0, 100.0, 101.0, 350.0] {
            assert_next(Burst, late, 100.0);
        }
    }

    #[test]
    fn after_a_late_tick_a_delay_starts_anew() {
        for late in [5.1, 90.0, 100.0, 101.0, 350.0] {
            assert_next(Delay, late, late + 100.0);
        }
    }

    #[test]
    fn after_a_late_tick_a_skip_goes_on_at_the_next_time_to_come() {
        for (late, next) in
            [(5.1, 100.0), (90.0, 100.0), (99.9, 100.0), (100.1, 200.0), (350.0, 400.0)]
        {
            assert_next(Skip, late, next);
        }
        assert_next(Skip, 300.0, 400.0);
    }

    #[test]
    fn a_tick_that_is_taken_before_it_is_due_counts_as_in_time() {
        let (due, period) =
            (Instant::now() + Duration::from_secs(1), Duration::from_millis(PERIOD));
        for missed in [Burst, Delay, Skip] {
            assert_eq!(next_tick(due, due - period, period, missed), due + period, "{missed:?}");
        }
    }

    #[test]
    fn periods_without_end_do_not_overflow() {
        let due = Instant::now();
        for missed in [Burst, Delay, Skip] {
            for period in
                [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_nanos(u64::MAX)]
            {
                for late in [Duration::ZERO, Duration::from_secs(1)] {
                    assert!(
                        next_tick(due, due + late, period, missed)
                            > due + Duration::from_secs(1 << 29)
                    );
                }
            }
        }
    }
}
