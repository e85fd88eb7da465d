//! The count of operations left in the current poll: what sets it, reads it and spends it.
//!
//! This file owns the thread-local `REMAINING`. Its value is in 0..=255 inside of `with_budget`,
//! and `UNCONSTRAINED` elsewhere, in `without_budget`, and after too many refusals. It never has a
//! value in between. `interrupt` says whether another thread wants the budget to count as empty.
//!
//! Unlike tokio's, a refund gives back one operation and not the count of before: operations that
//! were spent while the `Restore` was held stay spent.

use crate::interrupt;
use std::cell::Cell;
use std::marker::PhantomData;
use std::task::{Context, Poll};

/// The number of operations that an executor grants a task for one poll.
///
/// It is small enough that a task which never waits gives others a turn every few tens of
/// microseconds. It is large enough that the extra trip through the queue is lost in the cost of
/// 128 operations.
///
/// # Examples
///
/// ```
/// use giveway_budget::{OPERATIONS, remaining, with_budget};
///
/// with_budget(OPERATIONS, || assert_eq!(remaining(), Some(128)));
/// ```
pub const OPERATIONS: u8 = 128;

/// The value of `REMAINING` while no executor constrains this thread.
const UNCONSTRAINED: u16 = u16::MAX;

/// The number of refusals after which the rest of a poll is unconstrained.
///
/// A task that is refused is meant to return. If it does not after that many refusals, it cannot:
/// an executor inside of the task (`futures::executor::block_on`) polls in a loop, and would do so
/// for ever. The number is more than the children of any join that asks each of them once, and
/// costs such a loop at most a millisecond.
const REFUSALS: u32 = 50_000;

thread_local! {
    /// The number of refusals in the current poll.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
    /// The operations left in the current poll, or `UNCONSTRAINED`. Constant-initialised and
    /// without a destructor, so that reading it is one load, and works even while the thread's
    /// other locals are being destroyed.
    static REMAINING: Cell<u16> = const { Cell::new(UNCONSTRAINED) };
}

/// Runs `f` with a budget of `operations`, then puts back the budget of before, even if `f` panics.
///
/// An executor wraps this around each poll. Returns what `f` returned. Calls nest: the inner budget
/// is neither taken from the outer one nor added to it. A budget of 0 refuses everything, so a task
/// that gets no other budget never makes progress.
///
/// # Not guaranteed
///
/// That `f` ends after that many operations: only code that asks is refused.
///
/// # Panics
///
/// Only if `f` panics.
///
/// # Examples
///
/// ```
/// giveway_budget::with_budget(0, || assert!(!giveway_budget::has_remaining()));
/// assert!(giveway_budget::has_remaining());
/// ```
#[inline]
pub fn with_budget<R>(operations: u8, f: impl FnOnce() -> R) -> R {
    with_remaining(u16::from(operations), 0, f)
}

/// Runs `f` without counting what it does, then puts back the budget of before, even if `f` panics.
///
/// This is for synchronous code inside of a task that itself waits, for example a `block_on` of
/// another executor. If it were refused it could not give way, and would wait for ever. For a
/// future see [`unconstrained`](crate::unconstrained).
///
/// # Panics
///
/// Only if `f` panics.
///
/// # Examples
///
/// ```
/// use giveway_budget::{remaining, with_budget, without_budget};
///
/// with_budget(7, || {
///     without_budget(|| assert_eq!(remaining(), None));
///     assert_eq!(remaining(), Some(7));
/// });
/// ```
#[inline]
pub fn without_budget<R>(f: impl FnOnce() -> R) -> R {
    // The refusals of the poll around this are still counted.
    with_remaining(UNCONSTRAINED, REFUSED.get(), f)
}

/// Runs `f` with these values of `REMAINING` and `REFUSED`, then puts back those of before.
#[inline]
fn with_remaining<R>(remaining: u16, refused: u32, f: impl FnOnce() -> R) -> R {
    struct PutBack(u16, u32);
    impl Drop for PutBack {
        #[inline]
        fn drop(&mut self) {
            REMAINING.set(self.0);
            REFUSED.set(self.1);
        }
    }
    let _put_back = PutBack(REMAINING.replace(remaining), REFUSED.replace(refused));
    f()
}

/// Spends all that is left of the budget: the next operation of the current poll is refused, and
/// its task gives way.
///
/// It has no effect where nothing constrains this thread, nor on a budget around the innermost one.
///
/// # Panics
///
/// Never.
///
/// # Examples
///
/// ```
/// use giveway_budget::{exhaust, remaining, with_budget};
///
/// with_budget(7, || {
///     exhaust();
///     assert_eq!(remaining(), Some(0));
/// });
/// exhaust();
/// assert_eq!(remaining(), None);
/// ```
#[inline]
pub fn exhaust() {
    if REMAINING.get() != UNCONSTRAINED {
        REMAINING.set(0);
    }
}

/// Returns the operations left in the current poll, or `None` when nothing constrains this thread.
///
/// While an [interrupt](crate::with_interrupt) is raised, it returns `Some(0)`, whatever the count
/// is.
///
/// # Not guaranteed
///
/// That the next operation finds what this function saw: an interrupt may come or go in between.
///
/// # Panics
///
/// Never.
///
/// # Examples
///
/// ```
/// assert_eq!(giveway_budget::remaining(), None);
/// giveway_budget::with_budget(7, || assert_eq!(giveway_budget::remaining(), Some(7)));
/// ```
#[inline]
#[must_use]
pub fn remaining() -> Option<u8> {
    // `UNCONSTRAINED` is the only value that does not fit.
    let left = u8::try_from(REMAINING.get()).ok()?;
    Some(if left == 0 || interrupt::raised() { 0 } else { left })
}

/// Returns whether an operation may still be spent in this poll. Always true when nothing
/// constrains this thread.
///
/// A scheduler inside of a task (for example a `FuturesUnordered`) can stop early when this turns
/// false, instead of polling children that can only answer `Pending`. It must then wake its task
/// itself. The [crate's page](crate#a-scheduler-inside-a-task) has such a scheduler in full.
///
/// # Not guaranteed
///
/// That the next operation finds what this function saw: an interrupt may come or go in between.
///
/// # Panics
///
/// Never.
///
/// # Examples
///
/// ```
/// use giveway_budget::{has_remaining, with_budget};
///
/// assert!(has_remaining(), "no executor, no constraint");
/// with_budget(1, || assert!(has_remaining()));
/// with_budget(0, || assert!(!has_remaining()));
/// ```
#[inline]
#[must_use]
pub fn has_remaining() -> bool {
    let remains = may_spend(REMAINING.get());
    if !remains {
        refuse();
    }
    remains
}

/// Returns whether an operation may be spent. The count comes first: an unconstrained thread, and
/// one that has spent everything, need not look at the flag.
#[inline]
fn may_spend(left: u16) -> bool {
    left == UNCONSTRAINED || (left != 0 && !interrupt::raised())
}

/// Spends one operation. If none is left, wakes the task and returns `Pending`.
///
/// Call it first in a resource's `poll`, before anything is taken that a `Pending` would lose. Keep
/// the returned [`Restore`] until it is known whether the operation made progress.
///
/// `Pending` means that the waker of `cx` has been woken, once, before this function returned. The
/// caller returns `Pending` and registers nothing. The wake-up comes at once and not after the
/// poll, because that is how a scheduler inside of the task sees that its child gave way, and
/// stops.
///
/// # Not guaranteed
///
/// Fairness among the resources of one task: the resource that is polled first spends first. Nor
/// that a poll is refused for ever: after fifty thousand refusals the rest of it is unconstrained,
/// since an executor inside of the task that polls in a loop would never return.
///
/// # Panics
///
/// Only if the waker panics.
///
/// # Examples
///
/// ```
/// use giveway_budget::{poll_proceed, with_budget};
/// use std::task::{Context, Poll, Waker};
///
/// let mut cx = Context::from_waker(Waker::noop());
/// with_budget(1, || {
///     let Poll::Ready(spent) = poll_proceed(&mut cx) else { unreachable!("one is left") };
///     assert!(poll_proceed(&mut cx).is_pending());
///     drop(spent); // No progress after all.
///     assert!(poll_proceed(&mut cx).is_ready());
/// });
/// ```
///
/// The [crate's page](crate#a-resource-of-your-own) has a resource in full.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<Restore> {
    let left = REMAINING.get();
    if !may_spend(left) {
        give_way(cx);
        return Poll::Pending;
    }
    let refund = left != UNCONSTRAINED;
    if refund {
        REMAINING.set(left - 1);
    }
    Poll::Ready(Restore { refund, not_send: PhantomData })
}

/// Works as [`poll_proceed`], but spends nothing yet: for a wrapper that spends only when the
/// wrapped value was ready.
#[inline]
pub(crate) fn poll_has_remaining(cx: &mut Context<'_>) -> Poll<()> {
    if may_spend(REMAINING.get()) {
        return Poll::Ready(());
    }
    give_way(cx);
    Poll::Pending
}

/// Spends an operation that has been done. Has no effect if none is left.
#[inline]
pub(crate) fn spend() {
    let left = REMAINING.get();
    if left != UNCONSTRAINED {
        REMAINING.set(left.saturating_sub(1));
    }
}

/// Refuses an operation and wakes the task. Out of line, because it happens at most once in each
/// poll of a task that returns when it is refused.
#[cold]
fn give_way(cx: &mut Context<'_>) {
    refuse();
    cx.waker().wake_by_ref();
}

/// Counts a refusal. After [`REFUSALS`] of them the rest of the poll is unconstrained.
/// `with_budget` puts back the values of before.
#[cold]
fn refuse() {
    REFUSED.set(REFUSED.get() + 1);
    if REFUSED.get() >= REFUSALS {
        REMAINING.set(UNCONSTRAINED);
    }
}

/// Gives an operation back on drop, unless it [made progress](Restore::made_progress).
///
/// Without the refund, a task that polls many resources, each pending, would spend its budget on
/// waiting, and could deadlock beside a resource that is ready.
///
/// Drop it in the poll that made it. If it is kept for longer, it refunds nothing where the thread
/// is unconstrained by then, and otherwise gives its operation to the poll that goes on then. It is
/// not `Send`.
///
/// # Examples
///
/// ```
/// use giveway_budget::{poll_proceed, remaining, with_budget};
/// use std::task::{Context, Waker};
///
/// let mut cx = Context::from_waker(Waker::noop());
/// with_budget(2, || {
///     let spent = poll_proceed(&mut cx);
///     assert_eq!(remaining(), Some(1));
///     drop(spent);
///     assert_eq!(remaining(), Some(2));
/// });
/// ```
#[derive(Debug)]
#[must_use = "dropping this refunds the operation; call `made_progress` if there was one"]
pub struct Restore {
    /// Whether dropping this gives an operation back.
    refund: bool,
    /// Not `Send`: it belongs to the thread whose budget was spent.
    not_send: PhantomData<*const ()>,
}

impl Restore {
    /// Keeps the operation spent.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let mut cx = Context::from_waker(Waker::noop());
    /// giveway_budget::with_budget(2, || {
    ///     let Poll::Ready(spent) = giveway_budget::poll_proceed(&mut cx) else { unreachable!() };
    ///     spent.made_progress();
    ///     assert_eq!(giveway_budget::remaining(), Some(1));
    /// });
    /// ```
    #[inline]
    pub fn made_progress(mut self) {
        self.refund = false;
    }
}

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        let now = REMAINING.get();
        // One operation, and not the count of before: others may have been spent since. None at all
        // where the poll that spent it has ended: an unconstrained count stays so, and a full one
        // must not grow beyond what a `u8` holds.
        if self.refund && now < u16::from(u8::MAX) {
            REMAINING.set(now + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Wakes;
    use std::panic::catch_unwind;
    use std::task::Waker;

    #[test]
    fn an_operation_is_refunded_unless_it_made_progress() {
        let mut cx = Context::from_waker(Waker::noop());
        with_budget(2, || {
            drop(poll_proceed(&mut cx));
            assert_eq!(remaining(), Some(2));
            let Poll::Ready(spent) = poll_proceed(&mut cx) else {
                panic!("two operations are left")
            };
            spent.made_progress();
            assert_eq!(remaining(), Some(1));
        });
    }

    #[test]
    fn a_refund_gives_back_one_operation_and_only_to_the_poll_that_spent_it() {
        let mut cx = Context::from_waker(Waker::noop());
        let late = with_budget(5, || {
            let Poll::Ready(first) = poll_proceed(&mut cx) else { panic!("five are left") };
            for _ in 0..4 {
                let Poll::Ready(spent) = poll_proceed(&mut cx) else { panic!("some are left") };
                spent.made_progress();
            }
            drop(first);
            assert_eq!(remaining(), Some(1));
            poll_proceed(&mut cx)
        });
        drop(late);
        assert_eq!(remaining(), None, "nothing constrains a thread without an executor");
    }

    #[test]
    fn a_late_refund_does_not_lift_the_constraint_of_a_full_budget() {
        let mut cx = Context::from_waker(Waker::noop());
        let late = with_budget(1, || poll_proceed(&mut cx));
        with_budget(u8::MAX, || {
            drop(late);
            assert_eq!(remaining(), Some(u8::MAX));
        });
    }

    #[test]
    fn a_spent_budget_wakes_the_task_and_an_unspent_one_does_not() {
        let (wakes, waker) = Wakes::new();
        let mut cx = Context::from_waker(&waker);
        with_budget(1, || {
            let Poll::Ready(spent) = poll_proceed(&mut cx) else { panic!("one is left") };
            spent.made_progress();
            assert_eq!(wakes.count(), 0);
            assert!(poll_proceed(&mut cx).is_pending());
            assert_eq!(wakes.count(), 1);
            assert!(!has_remaining());
        });
    }

    #[test]
    fn an_unconstrained_thread_never_runs_out() {
        let mut cx = Context::from_waker(Waker::noop());
        spend();
        // More operations than the cell could count down.
        for _ in 0..=u16::MAX {
            let Poll::Ready(spent) = poll_proceed(&mut cx) else {
                panic!("nothing constrains this thread")
            };
            spent.made_progress();
        }
        assert_eq!(remaining(), None);
    }

    #[test]
    fn the_outer_budget_is_back_after_a_panic() {
        with_budget(5, || {
            assert!(catch_unwind(|| with_budget(1, || panic!("in the inner poll"))).is_err());
            assert_eq!(remaining(), Some(5));
        });
        assert_eq!(remaining(), None);
    }
}
