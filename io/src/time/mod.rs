//! Waiting for time to pass: [`sleep`], [`timeout`], [`interval`].
//!
//! Timers keep nanoseconds, never fire early, and are cheap to create and drop: most of them are
//! timeouts that never come.

mod interval;
mod sleep;
mod timeout;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};

pub use std::time::{Duration, Instant};
