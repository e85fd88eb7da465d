//! Hyper's clock, which hyper asks of a runtime. Streams implement hyper's traits themselves.

use crate::time;
use ::hyper::rt;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Hyper's timeouts, kept by the timers of the runtime that polls the connection.
///
/// Give it to the builder of a connection, by its method `timer`. Hyper then ends what takes too
/// long, if its `header_read_timeout` and the like are set; without a timer some of these panic.
///
/// # Panics
///
/// As [`time::sleep`] does: when a sleep is first polled, if there is no runtime and none can be
/// started.
///
/// # Examples
///
/// ```
/// use giveway_io::hyper::Timer;
/// use hyper::rt::Timer as _;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// giveway::block_on(Timer.sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Timer;

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(time::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(time::sleep_until(deadline))
    }

    /// Moves the sleep. Hyper's own way would be to make another, which is an allocation for each
    /// request.
    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<time::Sleep>() {
            Some(sleep) => sleep.reset(new_deadline),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

impl rt::Sleep for time::Sleep {}
