//! A timer that a task waits for.

use crate::current;
use crate::timer::{Key, Shard};
use crossbeam_utils::CachePadded;
use giveway_budget::poll_proceed;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// What stands for the end of time: far enough that nobody waits for it, near enough that it can be added to.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// The time after a duration, or the end of time.
pub(super) fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration.min(FAR)).unwrap_or(now)
}

/// Waits until the duration is over: never less, and as little more as the system allows. Nothing is rounded to
/// milliseconds.
///
/// A duration of zero is ready at once, one of [`Duration::MAX`] never, for all practical purposes.
///
/// # Cancel safety
///
/// Dropping it forgets the timer. Made again, it starts anew; to go on waiting for the same moment keep it, or use
/// [`sleep_until`].
///
/// # Panics
///
/// When it is first polled, if there is no runtime and none can be started.
///
/// # Examples
///
/// ```
/// use giveway_io::time::sleep;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// futures::executor::block_on(sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { deadline: after(duration), look_first: duration.is_zero(), timer: None }
}

/// Waits until the moment has come.
///
/// # Cancel safety
///
/// Dropping it forgets the timer.
///
/// # Panics
///
/// When it is first polled, if there is no runtime and none can be started.
///
/// # Examples
///
/// ```
/// use giveway_io::time::sleep_until;
/// use std::time::{Duration, Instant};
///
/// let dinner = Instant::now() + Duration::from_millis(2);
/// futures::executor::block_on(sleep_until(dinner));
/// assert!(Instant::now() >= dinner);
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, look_first: true, timer: None }
}

/// The future of [`sleep`] and [`sleep_until`].
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    deadline: Instant,
    // Whether the first poll has to look at the clock: the moment may have passed.
    look_first: bool,
    timer: Option<Timer>,
}

struct Timer {
    shard: Arc<CachePadded<Shard>>,
    key: Key,
}

impl Sleep {
    /// When it is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::time::sleep;
    /// use std::time::{Duration, Instant};
    ///
    /// assert!(sleep(Duration::from_secs(1)).deadline() > Instant::now());
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::time::sleep;
    /// use std::time::Duration;
    ///
    /// assert!(!sleep(Duration::from_secs(1)).is_elapsed());
    /// ```
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Makes it wait for another moment, whether it was over or not. It stays with its runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::time::sleep;
    /// use std::pin::pin;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut sleep = pin!(sleep(Duration::from_secs(3600)));
    /// sleep.as_mut().reset(Instant::now());
    /// futures::executor::block_on(sleep);
    /// ```
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        self.look_first = true;
        if let Some(timer) = &self.timer {
            timer.shard.remove(timer.key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let spent = ready!(poll_proceed(cx));
        let this = &mut *self;
        if (this.look_first || this.timer.is_some()) && Instant::now() >= this.deadline {
            spent.made_progress();
            return Poll::Ready(());
        }
        // One whose runtime was shut down goes on in the one where it is polled.
        if this.timer.as_ref().is_some_and(|timer| timer.shard.home.is_closed()) {
            this.timer = None;
        }
        match &mut this.timer {
            // Not due, so it has not fired, unless it was reset.
            Some(timer) if timer.shard.update(timer.key, cx.waker()) => {}
            Some(timer) => {
                let deadline = timer.shard.home.time_of(this.deadline);
                timer.key = timer.shard.insert(deadline, cx.waker());
            }
            none => {
                let shard = match current::timers() {
                    Ok(shard) => shard,
                    Err(error) => panic!("there is no runtime to keep this timer, and none could be started: {error}"),
                };
                let key = shard.insert(shard.home.time_of(this.deadline), cx.waker());
                if shard.home.is_closed() {
                    // Too late for closing to have seen it.
                    cx.waker().wake_by_ref();
                }
                *none = Some(Timer { shard, key });
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.shard.remove(timer.key);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
