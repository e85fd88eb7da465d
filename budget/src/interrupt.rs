//! The flag by which another thread empties the budget of the task that runs on this one.
//!
//! This file owns the thread-local `FLAG`, which points to the flag of the innermost
//! `with_interrupt`, or to one that is never raised. The flag itself is the executor's: other
//! threads raise it, the executor lowers it, and here it is only read. Nothing in this file knows
//! of the count. `cell` asks `raised` only where the thread is constrained and has some operations
//! left.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag that `FLAG` points to where no executor interrupts anything. Stays false.
static NEVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The flag of the innermost `with_interrupt` on this thread. Constant-initialised and without
    /// a destructor, for the same reasons as `REMAINING`. The lifetime is not the true one: it ends
    /// with the `with_interrupt` that wrote the reference. So nothing but `raised` may use the
    /// reference, and `raised` must keep no copy.
    static FLAG: Cell<&'static AtomicBool> = const { Cell::new(&NEVER) };
}

/// Runs `f`. Meanwhile, whenever `flag` is true, the budget on this thread counts as empty.
///
/// This function is for executors. A scheduler that has more urgent work, or a monitor that sees a
/// poll go on for too long, raises the flag from its own thread. At its next operation the task is
/// then refused as if it had spent everything: [`poll_proceed`](crate::poll_proceed) wakes it and
/// returns `Pending`, [`has_remaining`](crate::has_remaining) is false, and
/// [`remaining`](crate::remaining) is `Some(0)`. So a poll is bounded by operations, by events and
/// by time. The count itself stays, and applies again when the flag is lowered.
///
/// Calls nest: only the flag of the innermost call counts, and the flag of the call around it is
/// back when `f` returns or panics. Where the budget is unconstrained, outside of
/// [`with_budget`](crate::with_budget) or in [`unconstrained`](crate::unconstrained), the flag is
/// ignored.
///
/// # The executor lowers the flag
///
/// Nothing here lowers the flag. Lower it before each poll: under a raised flag no operation goes
/// through, so a task that is polled again and again meanwhile makes no progress. For the same
/// reason an executor that runs *inside* a task of another one, for example a `block_on`, must call
/// this function with a flag of its own, which may be one that is never raised. It cannot wait for
/// the outer flag to be lowered, since that happens only when the outer poll ends.
///
/// # Not guaranteed
///
/// That a request is seen: it is seen if the task does an operation after the store has reached
/// this thread and before the flag is lowered. Nor that what was written before the flag was raised
/// is visible: the flag does not publish it.
///
/// # Panics
///
/// Only if `f` panics.
///
/// # Examples
///
/// ```
/// use giveway_budget::{OPERATIONS, remaining, with_budget, with_interrupt};
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
///
/// let give_way = AtomicBool::new(false);
/// with_interrupt(&give_way, || {
///     with_budget(OPERATIONS, || {
///         assert_eq!(remaining(), Some(OPERATIONS));
///         give_way.store(true, Relaxed); // By another thread, in earnest.
///         assert_eq!(remaining(), Some(0));
///     });
///     give_way.store(false, Relaxed);
///     with_budget(OPERATIONS, || assert_eq!(remaining(), Some(OPERATIONS)));
/// });
/// ```
#[inline]
pub fn with_interrupt<R>(flag: &AtomicBool, f: impl FnOnce() -> R) -> R {
    struct PutBack(&'static AtomicBool);
    impl Drop for PutBack {
        #[inline]
        fn drop(&mut self) {
            FLAG.set(self.0);
        }
    }

    #[expect(
        unsafe_code,
        reason = "a thread-local cannot hold a borrow; the guard below ends it in time"
    )]
    // SAFETY: only the lifetime changes, so the reference must not be used after the caller's
    // borrow has ended. It can be reached through `FLAG` alone, which is private to this thread and
    // this file, and whose one reader, `raised`, keeps no copy. The guard takes it out before this
    // function returns or unwinds, and the borrow lasts until then. An inner call saves the
    // reference and puts it back, but returns before this one does.
    let flag = unsafe { std::mem::transmute::<&AtomicBool, &'static AtomicBool>(flag) };

    let _put_back = PutBack(FLAG.replace(flag));
    f()
}

/// Returns whether another thread has asked this thread's task to give way.
#[inline]
pub(crate) fn raised() -> bool {
    // Ordering: Relaxed, with no partner. The flag is a request and publishes nothing: a thread
    // that sees it gives way, and reads nothing because of it. If it is seen late, the requester
    // waits for one more operation.
    FLAG.get().load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Wakes;
    use crate::{has_remaining, poll_proceed, remaining, with_budget};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::{Context, Waker};

    #[test]
    fn a_raised_flag_is_seen_at_the_next_operation_and_keeps_the_count() {
        let (wakes, waker) = Wakes::new();
        let mut cx = Context::from_waker(&waker);
        let flag = AtomicBool::new(false);
        with_interrupt(&flag, || {
            with_budget(9, || {
                assert!(poll_proceed(&mut cx).is_ready());
                flag.store(true, Relaxed);
                assert!(!has_remaining());
                assert_eq!(remaining(), Some(0));
                assert_eq!(wakes.count(), 0);
                assert!(poll_proceed(&mut cx).is_pending());
                assert_eq!(wakes.count(), 1);
                flag.store(false, Relaxed);
                assert_eq!(remaining(), Some(9));
                assert!(poll_proceed(&mut cx).is_ready());
            });
        });
    }

    #[test]
    fn a_refund_under_a_raised_flag_is_kept_for_later() {
        let mut cx = Context::from_waker(Waker::noop());
        let flag = AtomicBool::new(false);
        with_interrupt(&flag, || {
            with_budget(3, || {
                let spent = poll_proceed(&mut cx);
                flag.store(true, Relaxed);
                drop(spent);
                assert_eq!(remaining(), Some(0));
                flag.store(false, Relaxed);
                assert_eq!(remaining(), Some(3));
            });
        });
    }

    #[test]
    fn an_unconstrained_thread_ignores_the_flag() {
        let mut cx = Context::from_waker(Waker::noop());
        with_interrupt(&AtomicBool::new(true), || {
            assert!(has_remaining());
            assert_eq!(remaining(), None);
            assert!(poll_proceed(&mut cx).is_ready());
        });
    }

    #[test]
    fn the_outer_flag_is_back_after_the_inner_also_on_panic() {
        let free = || with_budget(1, has_remaining);
        let (up, down) = (AtomicBool::new(true), AtomicBool::new(false));
        with_interrupt(&up, || {
            assert!(!free());
            with_interrupt(&down, || assert!(free(), "only the innermost counts"));
            assert!(!free());

            let inner = AssertUnwindSafe(|| with_interrupt(&down, || panic!("in the inner loop")));
            assert!(catch_unwind(inner).is_err());
            assert!(!free());
        });
        assert!(free(), "no flag at all outside");
    }

    #[test]
    fn another_thread_ends_a_poll_that_would_go_on_for_ever() {
        let (flag, started) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !started.load(Relaxed) {
                    std::thread::yield_now();
                }
                flag.store(true, Relaxed);
            });
            let mut cx = Context::from_waker(Waker::noop());
            let mut patience = giveway_patience::Patience::new();
            with_interrupt(&flag, || {
                // Each operation is refunded, so that the count alone would never end this.
                with_budget(1, || {
                    while poll_proceed(&mut cx).is_ready() {
                        started.store(true, Relaxed);
                        assert!(patience.lasts(), "the request was never seen");
                    }
                    assert!(flag.load(Relaxed), "nothing but the request ends it");
                });
            });
        });
    }
}
