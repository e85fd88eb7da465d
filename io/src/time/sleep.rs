//! A timer that a task waits for.

use crate::timer::deferred;
use crate::timer::{self, Shard, time_of};
use crate::{current, scope};
use giveway_budget::poll_proceed;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

/// Stands for the end of time: too far away to be waited for, and near enough to be added to an
/// instant.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// Returns the time after a duration, or the end of time.
pub(super) fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration.min(FAR)).unwrap_or(now)
}

/// Waits until the duration is over: never less, and as little more as the system allows. Nothing
/// is rounded to milliseconds.
///
/// A duration of zero is ready at once, one of [`Duration::MAX`] never, for all practical purposes.
///
/// # Cancel safety
///
/// Dropping the future drops the timer. A new one begins anew; to go on waiting for the same
/// moment, keep the future or use [`sleep_until`].
///
/// # Panics
///
/// When it is first polled, if there is no runtime and none can be started.
///
/// # Examples
///
/// ```
/// use giveway::time::sleep;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// giveway::block_on(sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    let made_in = if duration.is_zero() { 0 } else { scope::this_poll() };
    Sleep { deadline: after(duration), made_in, timer: None }
}

/// Waits until the moment has come.
///
/// # Cancel safety
///
/// Dropping the future drops the timer.
///
/// # Panics
///
/// When it is first polled, if there is no runtime and none can be started.
///
/// # Examples
///
/// ```
/// use giveway::time::sleep_until;
/// use std::time::{Duration, Instant};
///
/// let dinner = Instant::now() + Duration::from_millis(2);
/// giveway::block_on(sleep_until(dinner));
/// assert!(Instant::now() >= dinner);
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, made_in: 0, timer: None }
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// See [`sleep`] for an example.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    deadline: Instant,
    /// The number of the poll in which it was made with a deadline in the future: until that poll
    /// is over the clock need not be read. Zero if the deadline may have passed. `STARTED` once it
    /// was polled or reset.
    made_in: u64,
    timer: Option<Timer>,
}

/// Of [`Sleep::made_in`]: no poll has this number.
const STARTED: u64 = u64::MAX;

/// A timer that was started. Dropping it stops it.
struct Timer {
    /// Where it is, or goes when the poll is over.
    shard: &'static Shard,
    serial: u64,
    /// Its place in the list of timers to register when the poll is over, if it was put there.
    deferred: Option<usize>,
}

impl Timer {
    /// Starts a timer. Returns `None` if the runtime is shut down.
    fn start(deadline: Instant, waker: &Waker) -> Option<Self> {
        let serial = deferred::next_serial();
        let timer = timer::Timer { serial, deadline };
        if let Some((shard, place)) = deferred::defer(timer, waker) {
            return Some(Self { shard, serial, deferred: Some(place) });
        }
        let shard = match current::timers() {
            Ok(shard) => shard,
            Err(error) => {
                panic!("there is no runtime to keep this timer, and none could be started: {error}")
            }
        };
        shard.insert(timer, waker).then_some(Self { shard, serial, deferred: None })
    }

    /// Ends a timer whose deadline has passed.
    fn end(self, deadline: Instant) {
        let deferred = self.deferred.is_some_and(|place| deferred::has(place, self.serial));
        if !deferred && self.shard.earliest() > time_of(deadline) {
            // It has fired: nothing pending is due before `earliest`. So there is nothing to stop,
            // and no lock to take. (Unless another thread has it in its list at this moment: then
            // the task of that list is woken once without effect.)
            std::mem::forget(self);
        }
    }

    /// Moves the timer to another time. Returns false if it has fired.
    fn reset(&mut self, deadline: Instant) -> bool {
        let serial = self.serial;
        if self
            .deferred
            .is_some_and(|place| deferred::reset(place, timer::Timer { serial, deadline }))
        {
            return true;
        }
        if self.shard.in_forked_child() {
            return false;
        }
        let to = timer::Timer { serial: deferred::next_serial(), deadline };
        let Some(serial) = self.shard.reset(serial, self.deferred.is_some(), to) else {
            return false;
        };
        if serial == to.serial {
            (self.serial, self.deferred) = (serial, None);
        }
        true
    }

    /// Makes the timer wake `waker` from now on. Returns false if it cannot: it has fired, or it is
    /// deferred and this is not the waker of the task that is being polled.
    fn wakes(&self, waker: &Waker) -> bool {
        match self.deferred {
            Some(place) if deferred::has(place, self.serial) => scope::defers_to(waker).is_some(),
            _ => !self.shard.in_forked_child() && self.shard.update(self.serial, waker),
        }
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        if !self.deferred.is_some_and(|place| deferred::cancel(place, self.serial))
            && !self.shard.in_forked_child()
        {
            self.shard.remove(self.serial, self.deferred.is_some());
        }
    }
}

impl Sleep {
    /// Returns when the sleep is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::sleep;
    /// use std::time::{Duration, Instant};
    ///
    /// assert!(sleep(Duration::from_secs(1)).deadline() > Instant::now());
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the sleep is over. As in tokio, it is not over before it has begun, which it
    /// does when it is first polled or [reset](Self::reset).
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::sleep;
    /// use std::pin::pin;
    /// use std::time::Duration;
    ///
    /// let mut nap = pin!(sleep(Duration::ZERO));
    /// assert!(!nap.is_elapsed(), "nobody has awaited it");
    /// giveway::block_on(nap.as_mut());
    /// assert!(nap.is_elapsed());
    /// ```
    pub fn is_elapsed(&self) -> bool {
        self.made_in == STARTED && Instant::now() >= self.deadline
    }

    /// Makes the sleep wait for another moment, whether it was over or not. A task that waits for
    /// it is woken then, and need not poll it before. Once it was over, no task waits until it is
    /// polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::sleep;
    /// use std::pin::pin;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut sleep = pin!(sleep(Duration::from_secs(3600)));
    /// sleep.as_mut().reset(Instant::now());
    /// giveway::block_on(sleep);
    /// ```
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        self.made_in = STARTED;
        if self.timer.as_mut().is_some_and(|timer| !timer.reset(deadline)) {
            self.timer = None;
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let spent = ready!(poll_proceed(cx));
        let this = &mut *self;
        let made_in = std::mem::replace(&mut this.made_in, STARTED);
        let just_made = made_in != 0 && made_in == scope::this_poll();
        // A sleep that was made in this poll is not over yet: that saves reading the clock.
        if !just_made && Instant::now() >= this.deadline {
            if let Some(timer) = this.timer.take() {
                timer.end(this.deadline);
            }
            spent.made_progress();
            return Poll::Ready(());
        }
        if !this.timer.as_ref().is_some_and(|timer| timer.wakes(cx.waker())) {
            // The first poll, or the timer is gone: it may have fired because its runtime was shut
            // down, or be the timer of a parent that has forked since. Then it goes on in the
            // runtime where it is polled.
            this.timer = None;
            this.timer = Timer::start(this.deadline, cx.waker());
            // The runtime is shut down. The task polls again, in whichever runtime it is then.
            if this.timer.is_none() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
