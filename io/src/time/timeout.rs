//! A future with a deadline.

use super::sleep::{Sleep, sleep, sleep_until};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Waits for a future for at most a duration.
///
/// The future is polled first: one that is ready at once is ready, whatever the duration. When the
/// time is over the future is not polled any more, and is dropped with the timeout.
///
/// # Errors
///
/// [`Elapsed`] if the time was over first.
///
/// # Cancel safety
///
/// As cancel safe as the future: dropping the timeout drops it. To keep the future beyond its
/// timeout, pass it by `&mut`.
///
/// # Panics
///
/// Where [`sleep`] does.
///
/// # Examples
///
/// ```
/// use giveway::time::{Duration, timeout};
///
/// let never = std::future::pending::<()>();
/// assert!(giveway::block_on(timeout(Duration::from_millis(1), never)).is_err());
/// assert_eq!(giveway::block_on(timeout(Duration::MAX, async { 5 })), Ok(5));
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep(duration) }
}

/// Waits for a future until a moment, as [`timeout`] does.
///
/// # Errors
///
/// [`Elapsed`] if the moment came first.
///
/// # Examples
///
/// ```
/// use giveway::time::{Instant, timeout_at};
///
/// let never = std::future::pending::<()>();
/// assert!(giveway::block_on(timeout_at(Instant::now(), never)).is_err());
/// ```
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep_until(deadline) }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    ///
    /// See [`timeout`] for an example.
    #[derive(Debug)]
    #[must_use = "a timeout does nothing unless it is awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    /// Returns the future.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::{Duration, timeout};
    ///
    /// let ready = timeout(Duration::from_secs(1), std::future::ready(5));
    /// assert_eq!(ready.get_ref().clone().into_inner(), 5);
    /// ```
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns the future, without its deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::{Duration, timeout};
    ///
    /// let ready = timeout(Duration::ZERO, std::future::ready(5)).into_inner();
    /// assert_eq!(giveway::block_on(ready), 5);
    /// ```
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let had_budget = giveway_budget::has_remaining();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // A future that has just spent the budget must not hide its own timeout: the clock is asked
        // all the same.
        let elapsed = if had_budget && !giveway_budget::has_remaining() {
            Pin::new(&mut giveway_budget::unconstrained(this.sleep)).poll(cx)
        } else {
            Pin::new(this.sleep).poll(cx)
        };
        elapsed.map(|()| Err(Elapsed(())))
    }
}

/// The error of a [`timeout`] whose time was over first.
///
/// # Examples
///
/// ```
/// use giveway::time::{Duration, timeout};
///
/// let late =
///     giveway::block_on(timeout(Duration::ZERO, std::future::pending::<()>())).unwrap_err();
/// assert_eq!(late.to_string(), "deadline has elapsed");
/// assert_eq!(std::io::Error::from(late).kind(), std::io::ErrorKind::TimedOut);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
