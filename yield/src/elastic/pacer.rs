//! What a job calls between two pieces of work.
//!
//! A call has to be cheap enough for a tight loop, so it only counts. The clock is looked at when
//! the count has run out. How long the next count is follows from how long a call has taken lately.
//!
//! The executor measures what a job uses between two looks, from the start of its poll or from the
//! last look. Time in which the job is not polled is not counted. The first call in a poll looks at
//! the clock too, because the calls that were counted before it were in an earlier poll. What those
//! took after the last look is estimated by the average.

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

/// The longest count. The cost of a look at the clock, spread over that many calls, is a fraction
/// of the cost of a call. A loop whose calls suddenly come a thousand times slower finds out after
/// at most that many.
const LONGEST: u32 = 128;

/// About how often the clock is looked at, in nanoseconds, if calls come often enough. So a slice
/// is kept to within that time.
const LOOK_EVERY: u64 = 250_000;

/// After how long a slice that was not used is given back before another is asked for, in
/// nanoseconds. A thousand jobs that wait for something else must not have a thousand slices to
/// spend when it comes.
const LAPSES_AFTER: u64 = 1_000_000_000;

/// After how long a job that needs no new slice lets the controller take its step all the same, in
/// nanoseconds.
const STEP: u64 = super::window::STEP;

const DEFAULT_SLICE: Duration = Duration::from_millis(100);
const LONGEST_SLICE: Duration = Duration::from_secs(1);

/// Holds a background job, together with all other paced jobs of its runtime, to a share of the
/// cores.
///
/// The share shrinks when these jobs keep foreground tasks waiting for a core for too long.
///
/// A job has a pacer and calls [`pace`](Self::pace) between two pieces of work. A pacer can be made
/// without a runtime, and may be moved from one to another. A clone is a pacer for another job: it
/// shares nothing but the limit, as all pacers of a runtime do. Several jobs that share one pacer
/// by reference use the same slices.
///
/// A pacer that is dropped gives back what is left of its slice.
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
    /// How long a slice is, in nanoseconds.
    slice: u64,
    /// Calls until the next look at the clock. At one, the next call looks. Calls count it down,
    /// and a look sets it anew.
    countdown: AtomicU32,
    account: Mutex<Account>,
}

/// What a pacer has, under its lock. Times are those of the admission's machine.
#[derive(Default)]
struct Account {
    /// The admission that the slice is from.
    home: Option<Arc<Admission>>,
    /// What is left of the slice, in nanoseconds.
    left: u64,
    /// What the countdown started from.
    count: u32,
    /// What a call has taken lately, in nanoseconds: the call, and the work before it.
    average: u64,
    /// The time of the last look, or when the last slice came if that was later.
    looked_at: u64,
    /// When this job last let the controller take its step.
    stepped_at: u64,
}

/// What follows from a look at the clock.
#[must_use]
enum Next {
    /// Some of the slice is left. If `tell`, the controller is to take its step if it is due.
    GoOn { tell: bool },
    /// Another slice is needed, and `overrun` nanoseconds were used beyond the last one.
    Ask { overrun: u64 },
}

impl Pacer {
    /// Creates a pacer that takes slices of 100 ms of CPU time.
    ///
    /// # Examples
    ///
    /// ```
    /// let pacer = giveway_yield::elastic::Pacer::new();
    /// ```
    pub fn new() -> Self {
        Self::with_slice(DEFAULT_SLICE)
    }

    /// Creates a pacer with slices of this length.
    ///
    /// Shorter slices let jobs take turns sooner, and cost more. A slice of more than a second is
    /// one of a second.
    ///
    /// # Panics
    ///
    /// If `slice` is zero.
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
        assert!(
            !slice.is_zero(),
            "a slice of no CPU time lets nobody do anything; 100 ms is the default"
        );
        let slice = slice.min(LONGEST_SLICE).as_nanos() as u64;
        Self { slice, countdown: AtomicU32::new(1), account: Mutex::default() }
    }

    /// Waits until the job may go on.
    ///
    /// While the job has CPU time left of its slice, it waits only for tasks that go first, as at
    /// [`yield_now_if_busy`]. Otherwise it waits for another slice too.
    ///
    /// A slice costs as much as it is long. What the job uses beyond it, in stretches without a
    /// call, is paid for before any job gets the next slice. Pacers are served in the order in
    /// which they come. A call within a slice takes a few nanoseconds, so it can stand in a tight
    /// loop.
    ///
    /// The time in which the job's task is polled counts, by the wall clock: from the start of the
    /// poll, or from the first call if it is the task's first. So time in a blocking call counts,
    /// and time in which the thread had no CPU. The time in which the task waits for something else
    /// does not count. In a `join!` or `select!`, what is beside the job in the same task counts as
    /// the job's.
    ///
    /// Outside of an executor that paces, and when the executor is shut down, it is ready at once.
    ///
    /// # Not guaranteed
    ///
    /// That the limit is kept at every moment: it holds over some seconds, and to within a slice
    /// for each job. Nor when a slice comes: with a hundred jobs in line, each waits for
    /// ninety-nine others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready gives up its place in line. A slice that it was
    /// served already goes to the next in line.
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

    /// Returns the share of all cores that paced work is held to just now, in the runtime that
    /// paced this pacer last.
    ///
    /// `None` if no runtime has paced it yet.
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
        // No foreign code runs under the lock, so the account is whole even after a panic.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. Returns false if the call has to look at the clock.
    #[inline]
    fn count(&self) -> bool {
        // Ordering: relaxed, here and below. The countdown guards no other data, and has no partner
        // in another thread while a pacer belongs to one job. Where several jobs share it, a store
        // may overwrite another; the lost calls are just not counted.
        let left = self.countdown.load(Relaxed);
        if left <= 1 || host::is_new_poll() {
            return false;
        }
        self.countdown.store(left - 1, Relaxed);
        true
    }

    /// Looks at the clock, and asks for a slice if the last one is used up. Returns what to wait
    /// for, if the slice is not granted at once.
    #[cold]
    fn look(&self, waker: &Waker) -> Option<Waiting> {
        let new_poll = host::take_new_poll();
        let Some(host::Paced { admission, now, spent }) = host::paced() else {
            // No executor paces here. The account is kept, because the job may be moved back.
            self.countdown.store(LONGEST, Relaxed);
            return None;
        };
        let mut account = self.lock();
        let given_back = account.settle_in(&admission, now);
        // How many calls were counted since the last look, without this one.
        let calls = account.count.saturating_sub(self.countdown.load(Relaxed));
        let next = account.spend(now, spent, calls, new_poll);
        self.countdown.store(account.count, Relaxed);
        drop(account);
        // Not under the lock: the last owner of an admission drops its `Machine`, which is not
        // ours.
        if let Some((home, rest, unused_since)) = given_back.filter(|(_, rest, _)| *rest > 0) {
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

    /// Receives a slice that `from` has served.
    fn receive(&self, from: &Arc<Admission>, now: u64) {
        let mut account = self.lock();
        if account.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, from)) {
            account.left += self.slice;
            // The time until it lapses begins now, however long it was waited for.
            account.looked_at = now;
            return;
        }
        drop(account);
        // The pacer has been paced by another executor while this call waited. The slice is of no
        // use there.
        from.give_back(self.slice, u64::MAX);
    }
}

impl Account {
    /// Makes `admission` the one that this account belongs to.
    ///
    /// Returns the admission that it belonged to, and what is to be given back there: the rest of a
    /// slice that has lapsed, or that another admission granted, and since when it was not used.
    fn settle_in(
        &mut self,
        admission: &Arc<Admission>,
        now: u64,
    ) -> Option<(Arc<Admission>, u64, u64)> {
        let at_home = self.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, admission));
        if at_home && now.saturating_sub(self.looked_at) < LAPSES_AFTER {
            return None;
        }
        let rest = std::mem::take(&mut self.left);
        let home = self.home.replace(admission.clone())?;
        Some((home, rest, self.looked_at))
    }

    /// Pays for the time since the last look, in which `calls` were counted. In a new poll those
    /// were made in an earlier one, and what they took was not measured.
    fn spend(&mut self, now: u64, spent: u64, calls: u32, new_poll: bool) -> Next {
        let (measured, estimated) = if new_poll { (1, calls) } else { (calls + 1, 0) };
        let used = spent + u64::from(estimated) * self.average;
        if spent > 0 {
            // The last look makes half of the average, so a loop that changes its pace is soon
            // known.
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

    /// Returns after how many calls to look again. That is at most twice as many as the last time,
    /// because those may have come in a burst.
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

/// The future of a call. See [`Pacer::pace`] for an example.
///
/// Polled after it was ready, it is another call.
#[derive(Debug)]
#[must_use = "a job is not paced unless this is awaited"]
pub struct Pace<'a> {
    // Two words are written to create the future, and one is read to drop it.
    pacer: &'a Pacer,
    step: Step,
}

/// How far a call has come. A call that need not wait for a slice goes from `Call` to `Turn`.
#[derive(Debug)]
enum Step {
    /// Not begun, or ready.
    Call,
    /// In line for a slice. `Turn` is next.
    Line(Waiting),
    /// At the yield point. `Call` is next.
    Turn(YieldNowIfBusy),
}

impl Future for Pace<'_> {
    type Output = ();

    // Inlined into the caller's loop. It costs a load, a thread-local read and a store, and what
    // the yield point costs.
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
        let Step::Turn(turn) = &mut self.step else {
            unreachable!("every other step has been taken")
        };
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
