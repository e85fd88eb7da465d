//! The budget for code that awaits: one operation as a future. It has no state; `cell` counts.

use crate::poll_proceed;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Spends one operation. Gives way first if none is left.
///
/// Use it for a loop in an `async fn` that may go round many times without waiting for anything
/// that spends: parsing, hashing, reading from a buffer. The future is ready at once while there is
/// budget, and always where no executor constrains the thread. When none is left, the task is woken
/// and goes to the back of its queue.
///
/// # Not guaranteed
///
/// That it ever gives way. It counts an operation, and is not a yield.
///
/// # Cancel safety
///
/// If the future is dropped before it is ready, it has spent nothing. It leaves behind only the
/// wake-up that it made.
///
/// # Panics
///
/// Only if the waker panics. If it is polled again after it was ready, it spends another operation.
///
/// # Examples
///
/// ```
/// async fn checksum(blocks: &[[u8; 512]]) -> u32 {
///     let mut sum = 0u32;
///     for block in blocks {
///         sum = block.iter().fold(sum, |sum, &byte| sum.rotate_left(5) ^ u32::from(byte));
///         giveway_budget::consume().await;
///     }
///     sum
/// }
///
/// # use giveway_budget::{OPERATIONS, with_budget};
/// # use std::task::{Context, Poll, Waker};
/// let blocks = [[7; 512]; 200];
/// let mut sum = std::pin::pin!(checksum(&blocks));
/// let mut cx = Context::from_waker(Waker::noop());
/// assert!(with_budget(OPERATIONS, || sum.as_mut().poll(&mut cx)).is_pending(), "128 of 200");
/// assert!(with_budget(OPERATIONS, || sum.as_mut().poll(&mut cx)).is_ready(), "and the rest");
/// ```
#[inline]
pub fn consume() -> Consume {
    Consume { _private: () }
}

/// The future of [`consume`].
///
/// # Examples
///
/// ```
/// let spend: giveway_budget::Consume = giveway_budget::consume();
/// futures::executor::block_on(spend);
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Consume {
    _private: (),
}

impl Future for Consume {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(poll_proceed(cx)).made_progress();
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Wakes;
    use crate::{remaining, with_budget};
    use std::pin::pin;

    #[test]
    fn it_spends_one_and_waits_while_none_is_left() {
        let (wakes, waker) = Wakes::new();
        let mut cx = Context::from_waker(&waker);
        let mut three = pin!(async {
            for _ in 0..3 {
                consume().await;
            }
        });
        with_budget(2, || {
            assert!(three.as_mut().poll(&mut cx).is_pending());
            assert_eq!((remaining(), wakes.count()), (Some(0), 1));
            assert!(three.as_mut().poll(&mut cx).is_pending(), "the same poll gets no more");
            assert_eq!(wakes.count(), 2);
        });
        with_budget(2, || {
            assert!(three.as_mut().poll(&mut cx).is_ready());
            assert_eq!((remaining(), wakes.count()), (Some(1), 2));
        });
    }

    #[test]
    fn dropped_while_pending_it_has_spent_nothing() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut one = Box::pin(consume());
        with_budget(0, || assert!(one.as_mut().poll(&mut cx).is_pending()));
        with_budget(1, || {
            drop(one);
            assert_eq!(remaining(), Some(1));
        });
    }
}
