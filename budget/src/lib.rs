//! A per-task operation budget that any async library can spend, under any executor.
//!
//! An executor that takes part gives each poll of a task a number of *operations* ([`OPERATIONS`]). Every resource
//! that makes progress spends one. When none are left the resource wakes its task and returns `Pending` although it
//! could go on: the task goes to the back of the queue and a neighbour gets its turn. A task whose socket always has
//! data can no longer starve the rest.
//!
//! Outside such an executor the budget is unconstrained: every function here is one thread-local read.
//!
//! # For a library author
//!
//! Ask before the operation, and say when it made progress; whatever is not reported is given back:
//!
//! ```
//! use std::collections::VecDeque;
//! use std::task::{ready, Context, Poll};
//!
//! struct Inbox(VecDeque<u32>);
//!
//! impl Inbox {
//!     fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
//!         let spent = ready!(giveway_budget::poll_proceed(cx));
//!         match self.0.pop_front() {
//!             Some(letter) => {
//!                 spent.made_progress();
//!                 Poll::Ready(letter)
//!             }
//!             // Dropping `spent` refunds the operation. (A real inbox stores the waker here.)
//!             None => Poll::Pending,
//!         }
//!     }
//! }
//!
//! let mut cx = Context::from_waker(std::task::Waker::noop());
//! let mut inbox = Inbox([1, 2, 3].into());
//! giveway_budget::with_budget(2, || {
//!     assert_eq!(inbox.poll_take(&mut cx), Poll::Ready(1));
//!     assert_eq!(inbox.poll_take(&mut cx), Poll::Ready(2));
//!     assert_eq!(inbox.poll_take(&mut cx), Poll::Pending, "two operations, and they are spent");
//! });
//! assert_eq!(inbox.poll_take(&mut cx), Poll::Ready(3), "outside an executor nothing is constrained");
//! ```

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::task::{Context, Poll};

/// How many operations an executor grants a task for one poll.
///
/// Small enough that a task which never waits gives its neighbours a turn every few tens of microseconds, large
/// enough that the extra trip through the queue is lost in the cost of 128 operations.
pub const OPERATIONS: u8 = 128;

/// The thread-local's value when no executor constrains this thread.
const UNCONSTRAINED: u16 = u16::MAX;

thread_local! {
    // Operations left in the current poll, or `UNCONSTRAINED`. Constant-initialised and without a destructor, so
    // that reading it is one load and works even while the thread's other locals are being destroyed.
    static REMAINING: Cell<u16> = const { Cell::new(UNCONSTRAINED) };
}

/// Runs `f` with a budget of `operations`, then puts back the budget that was there before, even if `f` panics.
///
/// This is what an executor wraps around each poll. Returns what `f` returned.
///
/// # Examples
///
/// ```
/// giveway_budget::with_budget(0, || assert!(!giveway_budget::has_remaining()));
/// assert!(giveway_budget::has_remaining());
/// ```
#[inline]
pub fn with_budget<R>(operations: u8, f: impl FnOnce() -> R) -> R {
    struct PutBack(u16);
    impl Drop for PutBack {
        fn drop(&mut self) {
            REMAINING.set(self.0);
        }
    }
    let _put_back = PutBack(REMAINING.replace(u16::from(operations)));
    f()
}

/// Operations left in the current poll; `None` when nothing constrains this thread.
///
/// # Examples
///
/// ```
/// assert_eq!(giveway_budget::remaining(), None);
/// giveway_budget::with_budget(7, || assert_eq!(giveway_budget::remaining(), Some(7)));
/// ```
#[inline]
pub fn remaining() -> Option<u8> {
    u8::try_from(REMAINING.get()).ok()
}

/// Whether an operation may still be spent in this poll.
///
/// A scheduler inside a task (a `FuturesUnordered`, say) can stop early when this turns false, instead of polling
/// children that can only answer `Pending`.
///
/// # Examples
///
/// ```
/// assert!(giveway_budget::has_remaining());
/// ```
#[inline]
pub fn has_remaining() -> bool {
    REMAINING.get() != 0
}

/// Spends one operation, or, when none are left, wakes the task and returns `Pending`.
///
/// Call it first in a resource's `poll`. Keep the returned [`Restore`] until it is known whether the operation made
/// progress.
///
/// # Examples
///
/// See the [crate's page](crate).
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<Restore> {
    let before = REMAINING.get();
    match before {
        UNCONSTRAINED => {}
        0 => {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        left => REMAINING.set(left - 1),
    }
    Poll::Ready(Restore { refund: before != UNCONSTRAINED, not_send: PhantomData })
}

/// Gives an operation back on drop, unless it [made progress](Restore::made_progress).
///
/// Without the refund a task that polls many resources, each pending, would use up its budget on waiting and could
/// deadlock against the one that is ready.
#[derive(Debug)]
#[must_use = "dropping this refunds the operation; call `made_progress` if there was one"]
pub struct Restore {
    refund: bool,
    // It belongs to the thread whose budget was spent.
    not_send: PhantomData<*const ()>,
}

impl Restore {
    /// Keeps the operation spent.
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
        // One operation, and not the count of before: others may have been spent since. None at all where the poll that
        // spent it has ended.
        if self.refund && now < UNCONSTRAINED - 1 {
            REMAINING.set(now + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::task::Waker;

    #[test]
    fn an_operation_is_refunded_unless_it_made_progress() {
        let mut cx = Context::from_waker(Waker::noop());
        with_budget(2, || {
            drop(poll_proceed(&mut cx));
            assert_eq!(remaining(), Some(2));
            let Poll::Ready(spent) = poll_proceed(&mut cx) else { panic!("two operations are left") };
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
    fn the_outer_budget_is_back_after_a_panic() {
        with_budget(5, || {
            assert!(catch_unwind(|| with_budget(1, || panic!("in the inner poll"))).is_err());
            assert_eq!(remaining(), Some(5));
        });
        assert_eq!(remaining(), None);
    }
}
