//! Ticks at equal distances.

use super::sleep::{Sleep, sleep_until};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Ticks every `period`, the first time at once.
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

/// Ticks every `period`, the first time at `start`.
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

/// What an [`Interval`] does when nobody was there for a tick or more.
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
    /// The missed ticks come one after the other, until the interval has caught up.
    #[default]
    Burst,
    /// The next tick is a period after the late one; those after it are at new times.
    Delay,
    /// Missed ticks are left out; the next one is at a time that it would have had anyway.
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
    /// Waits for the next tick, and says when it was due.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a tick is not lost if the future is dropped before it is ready.
    ///
    /// # Examples
    ///
    /// See [`interval`].
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

    /// The next tick comes a period from now.
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

    /// The next tick comes at once.
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

    /// What happens to ticks that nobody was there for.
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

    /// Says what happens to ticks that nobody was there for. By default they come in a burst.
    ///
    /// # Examples
    ///
    /// See [`MissedTickBehavior`].
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// The distance between two ticks.
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

/// When the tick after the one that was due at `due` comes, if it is `now`.
fn next_tick(due: Instant, now: Instant, period: Duration, missed: MissedTickBehavior) -> Instant {
    let on_time = due.checked_add(period).unwrap_or_else(|| super::sleep::after(Duration::MAX));
    if now < on_time {
        return on_time;
    }
    match missed {
        MissedTickBehavior::Burst => on_time,
        MissedTickBehavior::Delay => now + period,
        MissedTickBehavior::Skip => {
            let since = (now - due).as_nanos() % period.as_nanos();
            // Less than the period, which fits.
            now + period - Duration::from_nanos(since as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MissedTickBehavior::{Burst, Delay, Skip};
    use super::*;

    #[test]
    fn missed_ticks_come_in_a_burst_or_late_or_not_at_all() {
        let ms = Duration::from_millis;
        let due = Instant::now() + ms(1_000);
        let next = |late, missed| next_tick(due, due + ms(late), ms(10), missed) - due;
        for missed in [Burst, Delay, Skip] {
            assert_eq!(next(9, missed), ms(10), "{missed:?}: not missed yet");
        }
        assert_eq!(next(35, Burst), ms(10));
        assert_eq!(next(35, Delay), ms(45));
        assert_eq!(next(35, Skip), ms(40));
        assert_eq!(next(30, Skip), ms(40), "that one is due now, and would come twice");
    }
}
