//! What a job calls between two pieces of work.
//!
//! A call has to be cheap enough for a tight loop, so it counts; only when the count has run out is the clock looked at. How
//! long the next count is follows from how long a call has taken lately. What a job uses between two looks is measured by
//! the executor, from the start of its poll or from the last look: time in which the job is not polled is not counted. The
//! first call in a poll looks at the clock too, since the ones that were counted before it were in another; what those took
//! after the last look is estimated by the average.

use super::admission::{Admission, Waiting};
use crate::host;
use crate::{YieldNowIfBusy, yield_now_if_busy};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The longest count. What a look costs, spread over so many calls, is a fraction of one; and a loop whose calls suddenly
/// come a thousand times slower finds out after so many of them.
const LONGEST: u32 = 128;

/// The clock is looked at about so often, in nanoseconds, as far as calls come often enough. So a slice is kept to within
/// that.
const LOOK_EVERY: u64 = 250_000;

/// A slice that nobody has used for so long is given back before another is asked for: a thousand jobs that wait for
/// something else must not have a thousand slices to spend when it comes.
const LAPSES_AFTER: u64 = 1_000_000_000;

/// The controller is told that there is somebody at least so often.
const STEP: u64 = super::window::STEP;

const DEFAULT_SLICE: Duration = Duration::from_millis(100);
const LONGEST_SLICE: Duration = Duration::from_secs(1);

/// Paces a background job: holds it, together with all others of its runtime, to a share of the cores that shrinks when
/// foreground tasks wait too long for one.
///
/// A job has a pacer and calls [`pace`](Self::pace) between two pieces of work. It needs no runtime to be made, and may be
/// moved from one to another. A clone is a pacer for another job: it shares nothing but the limit, as all pacers of a
/// runtime do. Shared by reference, several jobs use the same slices.
///
/// Dropped, it gives back what is left of its slice.
///
/// # Examples
///
/// ```
/// use giveway_yield::elastic::Pacer;
///
/// async fn compress(blocks: Vec<Vec<u8>>) -> usize {
///     let pacer = Pacer::new();
///     let mut length = 0;
///     for block in blocks {
///         length += block.len() / 2; // some tens of microseconds of work
///         pacer.pace().await;
///     }
///     length
/// }
///
/// assert_eq!(futures::executor::block_on(compress(vec![vec![0; 10]; 3])), 15);
/// ```
pub struct Pacer {
    slice: u64,
    // Calls until the next look at the clock. At one the next call looks.
    countdown: AtomicU32,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    // Whose slice this is.
    home: Option<Arc<Admission>>,
    // What is left of it, in CPU nanoseconds.
    left: u64,
    // What the countdown started from.
    count: u32,
    // What a call has taken lately: the call, and the work before it.
    average: u64,
    looked_at: u64,
    stepped_at: u64,
}

/// What an account comes to at a look.
#[must_use]
enum Next {
    /// There is something left. The controller may have to be told.
    GoOn { tell: bool },
    /// Another slice is needed, and so much was used beyond the last.
    Ask { overrun: u64 },
}

impl Pacer {
    /// A pacer that takes slices of 100 ms of CPU time.
    ///
    /// # Examples
    ///
    /// ```
    /// let pacer = giveway_yield::elastic::Pacer::new();
    /// ```
    pub fn new() -> Self {
        Self::with_slice(DEFAULT_SLICE)
    }

    /// A pacer with slices of this length. Shorter ones let jobs take turns sooner, and cost more; one of more than a second
    /// is one of a second.
    ///
    /// # Panics
    ///
    /// If it is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Pacer;
    /// use std::time::Duration;
    ///
    /// let pacer = Pacer::with_slice(Duration::from_millis(10));
    /// ```
    #[track_caller]
    pub fn with_slice(slice: Duration) -> Self {
        assert!(!slice.is_zero(), "a slice of no CPU time lets nobody do anything; 100 ms is the default");
        let slice = slice.min(LONGEST_SLICE).as_nanos() as u64;
        Self { slice, countdown: AtomicU32::new(1), account: Mutex::default() }
    }

    /// Waits until the job may go on: while it has CPU time left of its slice only for those who go first, as at
    /// [`yield_now_if_busy`]; otherwise for another slice too.
    ///
    /// A slice costs what it is long, and what the job uses beyond it, in stretches without a call, is paid for before anybody
    /// gets the next. Pacers are served in the order in which they come. A call within a slice takes a few nanoseconds, so it
    /// can stand in a tight loop.
    ///
    /// What counts is the time in which the job's task is polled, by the clock on the wall: from the start of the poll, or
    /// from the first call if it is the task's first. So time in a blocking call counts, and time in which the thread had no
    /// CPU; but not the time in which the task waits for something else. In a `join!` or `select!` what is beside the job in
    /// the same task counts as the job's.
    ///
    /// Outside of an executor that paces, and when it is shut down, it is ready at once.
    ///
    /// # Not guaranteed
    ///
    /// That the limit is kept at every moment: it holds over some seconds, and to within a slice a job. Nor when a slice
    /// comes: with a hundred jobs in line each waits for ninety-nine others.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready it gives up its place in line; if a slice was on its way, that goes to the next.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn next_page(_: u32) -> Vec<u8> { Vec::new() }
    /// # fn checksum(_: &[u8]) {}
    /// async fn scrub(pages: u32) {
    ///     let pacer = giveway_yield::elastic::Pacer::new();
    ///     for page in 0..pages {
    ///         checksum(&next_page(page).await);
    ///         pacer.pace().await;
    ///     }
    /// }
    ///
    /// futures::executor::block_on(scrub(10));
    /// ```
    #[inline]
    pub fn pace(&self) -> Pace<'_> {
        Pace { pacer: self, step: Step::Call }
    }

    /// The share of all cores that paced work is held to just now, where this pacer got its last slice. None before its
    /// first, and where nobody paces.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(giveway_yield::elastic::Pacer::new().limit(), None, "no runtime has paced it");
    /// ```
    pub fn limit(&self) -> Option<f64> {
        let home = self.lock().home.clone();
        home.map(|home| home.limit())
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        // No code of others runs under it.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. False if it has to look at the clock.
    #[inline]
    fn count(&self) -> bool {
        // Ordering: relaxed, here and below. A counter of one job; where several share it, calls that get lost are calls
        // that are not counted.
        let left = self.countdown.load(Relaxed);
        if left <= 1 || host::is_new_poll() {
            return false;
        }
        self.countdown.store(left - 1, Relaxed);
        true
    }

    /// Looks at the clock, and asks for a slice if the last one is used up. What to wait for.
    #[cold]
    fn look(&self, waker: &Waker) -> Option<Waiting> {
        let new_poll = host::take_new_poll();
        let Some(host::Paced { admission, now, spent }) = host::paced() else {
            // Nobody paces here. Not forgotten: it may be moved back.
            self.countdown.store(LONGEST, Relaxed);
            return None;
        };
        let mut account = self.lock();
        let given_back = account.settle_in(&admission, now);
        // How many calls have been counted since the last look, without this one.
        let calls = account.count.saturating_sub(self.countdown.load(Relaxed));
        let next = account.spend(now, spent, calls, new_poll);
        self.countdown.store(account.count, Relaxed);
        drop(account);
        if let Some((home, rest, unused_since)) = given_back {
            home.give_back(rest, unused_since);
        }
        match next {
            Next::GoOn { tell } => {
                if tell {
                    admission.advance(now);
                }
                None
            }
            Next::Ask { overrun } => {
                let waiting = admission.ask(now, overrun, self.slice, waker);
                if waiting.is_none() {
                    self.receive(&admission, now);
                }
                waiting
            }
        }
    }

    /// A slice has come.
    fn receive(&self, from: &Arc<Admission>, now: u64) {
        let mut account = self.lock();
        if account.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, from)) {
            account.left += self.slice;
            // It lapses from now on, however long it was waited for.
            account.looked_at = now;
            return;
        }
        drop(account);
        // The job has moved to another executor while this call waited. The slice is of no use there.
        from.give_back(self.slice, u64::MAX);
    }
}

impl Account {
    /// Belongs to this admission from now on. What is to be given back, and to whom, and since when it was not used: the rest
    /// of a slice that has lapsed, or is another's.
    fn settle_in(&mut self, admission: &Arc<Admission>, now: u64) -> Option<(Arc<Admission>, u64, u64)> {
        let at_home = self.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, admission));
        if at_home && now.saturating_sub(self.looked_at) < LAPSES_AFTER {
            return None;
        }
        let rest = std::mem::take(&mut self.left);
        let home = self.home.replace(admission.clone())?;
        (rest > 0).then_some((home, rest, self.looked_at))
    }

    /// Pays for the time since the last look. `calls` were counted since; if this is a new poll, they were in another, and
    /// what they took was not measured.
    fn spend(&mut self, now: u64, spent: u64, calls: u32, new_poll: bool) -> Next {
        let (measured, estimated) = if new_poll { (1, calls) } else { (calls + 1, 0) };
        let used = spent + u64::from(estimated) * self.average;
        if spent > 0 {
            // Half of it is the last look's: a loop that changes its pace is soon known.
            self.average = (self.average + spent / u64::from(measured)).div_ceil(2);
        }
        self.looked_at = now;
        let overrun = used.saturating_sub(self.left);
        self.left = self.left.saturating_sub(used);
        self.count = self.next_count();
        if self.left == 0 {
            self.stepped_at = now;
            return Next::Ask { overrun };
        }
        let tell = now.saturating_sub(self.stepped_at) >= STEP;
        if tell {
            self.stepped_at = now;
        }
        Next::GoOn { tell }
    }

    /// After how many calls to look again: at most twice as many as the last time, for these may have come in a burst.
    fn next_count(&self) -> u32 {
        let within = if self.left == 0 { LOOK_EVERY } else { self.left.min(LOOK_EVERY) };
        let calls = within / self.average.max(1);
        calls.clamp(1, u64::from((self.count * 2).clamp(1, LONGEST))) as u32
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        let account = self.account.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = account.home.take()
            && account.left > 0
        {
            home.give_back(account.left, account.looked_at);
        }
    }
}

impl Clone for Pacer {
    fn clone(&self) -> Self {
        Self { slice: self.slice, countdown: AtomicU32::new(1), account: Mutex::default() }
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = Duration::from_nanos(self.lock().left);
        let slice = Duration::from_nanos(self.slice);
        f.debug_struct("Pacer").field("slice", &slice).field("left", &left).finish_non_exhaustive()
    }
}

/// The future of a call. See [`Pacer::pace`].
///
/// Polled after it was ready, it is a call once more.
#[derive(Debug)]
#[must_use = "a job is not paced unless this is awaited"]
pub struct Pace<'a> {
    // Two words have to be written to make it, and one read to drop it.
    pacer: &'a Pacer,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Call,
    /// In line for a slice.
    Line(Waiting),
    /// At the yield point.
    Turn(YieldNowIfBusy),
}

impl Future for Pace<'_> {
    type Output = ();

    // Inlined into the caller's loop: a load, a thread-local read, a store; and the yield point's.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let counted = matches!(self.step, Step::Call) && self.pacer.count();
        if counted && host::need_not_ask() {
            return Poll::Ready(());
        }
        self.poll_slowly(counted, cx)
    }
}

impl Pace<'_> {
    #[cold]
    fn poll_slowly(&mut self, counted: bool, cx: &mut Context<'_>) -> Poll<()> {
        match &self.step {
            Step::Call if !counted => {
                if let Some(waiting) = self.pacer.look(cx.waker()) {
                    self.step = Step::Line(waiting);
                    return Poll::Pending;
                }
                self.step = Step::Turn(yield_now_if_busy());
            }
            Step::Call => self.step = Step::Turn(yield_now_if_busy()),
            Step::Line(waiting) => {
                if waiting.poll(cx.waker()).is_pending() {
                    return Poll::Pending;
                }
                let admission = waiting.admission();
                self.pacer.receive(admission, admission.now());
                self.step = Step::Turn(yield_now_if_busy());
            }
            Step::Turn(_) => {}
        }
        let Step::Turn(turn) = &mut self.step else { unreachable!("every other step has been taken") };
        let result = Pin::new(turn).poll(cx);
        if result.is_ready() {
            self.step = Step::Call;
        }
        result
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
