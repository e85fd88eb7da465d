//! The budget for futures and streams that know nothing of it. This file owns the pinning of the
//! wrapped value; `cell` counts.
//!
//! The wrapper asks first and spends last, instead of holding a `Restore` across the inner poll. So
//! it may wrap a future that spends as well: the inner one can have the last operation. When the
//! inner one is refused, the wrapper has nothing to give back. A refund would tell a scheduler
//! around it that there is budget left, and to poll it again.

use crate::cell::{poll_has_remaining, spend};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Wraps a future or a stream that is not aware of budgets, so that it spends one operation each
/// time it is ready.
///
/// A future spends one operation when it finishes. A stream (with the feature `futures-core`)
/// spends one for each item, and none for its end. A pending poll spends none. When no budget is
/// left, the wrapper wakes the task and returns `Pending`, and does not poll `inner`. If `inner`
/// spends by itself, both spend, as far as the budget goes.
///
/// # Not guaranteed
///
/// That a poll is short: a future that computes for a second before its one answer still does.
///
/// # Cancel safety
///
/// That of `inner`: the wrapper never holds back an output or an item that `inner` has given.
///
/// # Panics
///
/// Only if `inner` or the waker panics.
///
/// # Examples
///
/// ```
/// use giveway_budget::{cooperative, remaining, with_budget};
/// use std::future::ready;
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
///
/// let mut cx = Context::from_waker(Waker::noop());
/// with_budget(1, || {
///     assert_eq!(pin!(cooperative(ready('a'))).poll(&mut cx), Poll::Ready('a'));
///     assert_eq!(remaining(), Some(0));
///     assert_eq!(pin!(cooperative(ready('b'))).poll(&mut cx), Poll::Pending);
/// });
/// ```
///
/// The [crate's page](crate#futures-and-streams-that-spend-nothing) has an example with a stream.
#[inline]
pub fn cooperative<T>(inner: T) -> Cooperative<T> {
    Cooperative { inner }
}

/// The future or stream of [`cooperative`].
///
/// # Examples
///
/// ```
/// use giveway_budget::{Cooperative, cooperative};
/// use std::future::{Ready, ready};
///
/// let mut answer: Cooperative<Ready<u32>> = cooperative(ready(42));
/// assert_eq!(futures::executor::block_on(&mut answer), 42);
/// ```
#[derive(Debug)]
#[must_use = "futures and streams do nothing unless polled"]
pub struct Cooperative<T> {
    /// The wrapped value. It is pinned when the wrapper is: there must be no `Drop` that moves it,
    /// and no `Unpin` but the automatic one.
    inner: T,
}

impl<T> Cooperative<T> {
    /// Returns a reference to the wrapped value.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(giveway_budget::cooperative("inner").get_ref(), &"inner");
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns a mutable reference to the wrapped value. A poll through it spends nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut wrapped = giveway_budget::cooperative(1);
    /// *wrapped.get_mut() += 1;
    /// assert_eq!(wrapped.into_inner(), 2);
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Unwraps the value.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(giveway_budget::cooperative("inner").into_inner(), "inner");
    /// ```
    pub fn into_inner(self) -> T {
        self.inner
    }

    #[inline]
    fn project(self: Pin<&mut Self>) -> Pin<&mut T> {
        #[expect(unsafe_code, reason = "the projection to a pinned field, without a dependency")]
        // SAFETY: the closure returns a field of its argument, which does not move as long as the
        // argument does not. The field is pinned with the wrapper, so nothing may move it while the
        // wrapper is pinned: `get_mut` and `into_inner` need the wrapper unpinned, there is no
        // `Drop`, and the wrapper is `Unpin` only where `T` is.
        unsafe {
            self.map_unchecked_mut(|wrapper| &mut wrapper.inner)
        }
    }
}

impl<T: Future> Future for Cooperative<T> {
    type Output = T::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T::Output> {
        ready!(poll_has_remaining(cx));
        let output = ready!(self.project().poll(cx));
        spend();
        Poll::Ready(output)
    }
}

#[cfg(feature = "futures-core")]
impl<T: futures_core::Stream> futures_core::Stream for Cooperative<T> {
    type Item = T::Item;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T::Item>> {
        ready!(poll_has_remaining(cx));
        let item = ready!(self.project().poll_next(cx));
        if item.is_some() {
            spend();
        }
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{consume, has_remaining, remaining, with_budget};
    use std::future::{pending, poll_fn, ready};
    use std::pin::pin;
    use std::task::Waker;

    #[test]
    fn a_future_spends_one_when_it_finishes_and_none_while_it_is_pending() {
        let mut cx = Context::from_waker(Waker::noop());
        with_budget(2, || {
            let mut never = pin!(cooperative(pending::<()>()));
            for _ in 0..5 {
                assert!(never.as_mut().poll(&mut cx).is_pending());
                assert_eq!(remaining(), Some(2));
            }
            assert!(pin!(cooperative(ready(()))).poll(&mut cx).is_ready());
            assert_eq!(remaining(), Some(1));
        });
    }

    #[test]
    fn without_budget_the_inner_future_is_not_polled() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut inner = pin!(cooperative(poll_fn(|_| -> Poll<()> { panic!("polled") })));
        with_budget(0, || assert!(inner.as_mut().poll(&mut cx).is_pending()));
    }

    #[test]
    fn around_one_that_spends_the_last_operation_is_enough_and_a_refusal_refunds_nothing() {
        let mut cx = Context::from_waker(Waker::noop());
        with_budget(1, || {
            assert!(pin!(cooperative(consume())).poll(&mut cx).is_ready());
            assert!(!has_remaining());
        });
        with_budget(2, || {
            let three = async {
                for _ in 0..3 {
                    consume().await;
                }
            };
            assert!(pin!(cooperative(three)).poll(&mut cx).is_pending());
            assert!(!has_remaining(), "else a scheduler around it would poll it again");
        });
    }

    #[cfg(feature = "futures-core")]
    mod streams {
        use super::*;
        use crate::OPERATIONS;
        use crate::counting::Wakes;
        use futures::stream::{self, StreamExt};

        #[test]
        fn a_stream_that_is_always_ready_waits_after_its_budget_and_wakes_once() {
            let (wakes, waker) = Wakes::new();
            let mut cx = Context::from_waker(&waker);
            let mut ones = cooperative(stream::repeat(1));
            for round in 0..3 {
                with_budget(OPERATIONS, || {
                    for _ in 0..OPERATIONS {
                        assert_eq!(ones.poll_next_unpin(&mut cx), Poll::Ready(Some(1)));
                    }
                    assert_eq!(wakes.count(), round);
                    assert_eq!(ones.poll_next_unpin(&mut cx), Poll::Pending);
                    assert_eq!(wakes.count(), round + 1);
                });
            }
        }

        #[test]
        fn neither_waiting_nor_the_end_spends() {
            let mut cx = Context::from_waker(Waker::noop());
            with_budget(2, || {
                assert!(cooperative(stream::pending::<()>()).poll_next_unpin(&mut cx).is_pending());
                assert_eq!(
                    cooperative(stream::empty::<()>()).poll_next_unpin(&mut cx),
                    Poll::Ready(None)
                );
                assert_eq!(remaining(), Some(2));
            });
        }

        #[test]
        fn the_size_is_that_of_the_inner_stream() {
            use futures_core::Stream;

            assert_eq!(cooperative(stream::iter([1, 2, 3])).size_hint(), (3, Some(3)));
        }
    }
}
