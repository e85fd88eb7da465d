//! A way out of the budget, for futures that it must not delay. This file owns the pinning of the
//! wrapped value; `cell` swaps the count.

use crate::cell::without_budget;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Wraps a future or a stream, so that nothing it does spends budget or is refused for lack of it.
///
/// The typical use is a deadline beside the work that it bounds. Work that spends the whole budget
/// in each poll would otherwise keep the timer from ever being polled.
///
/// Each poll of `inner` runs with an unconstrained budget. When that poll ends or panics, the
/// budget around it is back as it was. [Interrupts](crate::with_interrupt) are ignored too. With
/// the feature `futures-core`, a wrapped stream is a stream.
///
/// # Not guaranteed
///
/// That `inner` ever leaves its thread: nothing makes it give way any more.
///
/// # Cancel safety
///
/// That of `inner`. Between two polls the wrapper holds nothing else.
///
/// # Panics
///
/// Only if `inner` panics.
///
/// # Examples
///
/// ```
/// use giveway_budget::{consume, remaining, unconstrained, with_budget};
/// use std::pin::pin;
/// use std::task::{Context, Waker};
///
/// let mut urgent = pin!(unconstrained(async {
///     for _ in 0..1000 {
///         consume().await;
///     }
/// }));
/// let mut cx = Context::from_waker(Waker::noop());
/// with_budget(5, || {
///     assert!(urgent.as_mut().poll(&mut cx).is_ready(), "in one poll");
///     assert_eq!(remaining(), Some(5));
/// });
/// ```
#[inline]
pub fn unconstrained<T>(inner: T) -> Unconstrained<T> {
    Unconstrained { inner }
}

/// The future or stream of [`unconstrained`].
///
/// # Examples
///
/// ```
/// use giveway_budget::{Unconstrained, unconstrained};
/// use std::future::{Ready, ready};
///
/// let mut answer: Unconstrained<Ready<u32>> = unconstrained(ready(42));
/// assert_eq!(futures::executor::block_on(&mut answer), 42);
/// ```
#[derive(Debug)]
#[must_use = "futures and streams do nothing unless polled"]
pub struct Unconstrained<T> {
    /// The wrapped value. It is pinned when the wrapper is: there must be no `Drop` that moves it,
    /// and no `Unpin` but the automatic one.
    inner: T,
}

impl<T> Unconstrained<T> {
    /// Returns a reference to the wrapped value.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(giveway_budget::unconstrained("inner").get_ref(), &"inner");
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns a mutable reference to the wrapped value. A poll through it does spend.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut wrapped = giveway_budget::unconstrained(1);
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
    /// assert_eq!(giveway_budget::unconstrained("inner").into_inner(), "inner");
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

impl<T: Future> Future for Unconstrained<T> {
    type Output = T::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T::Output> {
        without_budget(|| self.project().poll(cx))
    }
}

#[cfg(feature = "futures-core")]
impl<T: futures_core::Stream> futures_core::Stream for Unconstrained<T> {
    type Item = T::Item;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T::Item>> {
        without_budget(|| self.project().poll_next(cx))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{consume, poll_proceed, remaining, with_budget, with_interrupt};
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::task::Waker;

    #[test]
    fn the_inner_future_spends_nothing_and_the_outer_budget_is_back_after_each_poll() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut polls = 0;
        let mut twice = pin!(unconstrained(poll_fn(|cx| {
            assert_eq!(remaining(), None);
            assert!(poll_proceed(cx).map(|spent| spent.made_progress()).is_ready());
            polls += 1;
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        })));
        with_budget(3, || {
            assert!(twice.as_mut().poll(&mut cx).is_pending());
            assert_eq!(remaining(), Some(3));
            assert!(twice.as_mut().poll(&mut cx).is_ready());
            assert_eq!(remaining(), Some(3));
        });
    }

    #[test]
    fn the_outer_budget_is_back_after_a_panic() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut bad = pin!(unconstrained(async { panic!("in the inner future") }));
        with_budget(3, || {
            let poll = AssertUnwindSafe(|| bad.as_mut().poll(&mut cx));
            assert!(catch_unwind(poll).is_err());
            assert_eq!(remaining(), Some(3));
        });
    }

    #[test]
    fn it_goes_on_with_the_budget_spent_and_the_interrupt_raised() {
        let mut cx = Context::from_waker(Waker::noop());
        with_budget(0, || assert!(pin!(unconstrained(consume())).poll(&mut cx).is_ready()));
        with_interrupt(&AtomicBool::new(true), || {
            with_budget(3, || {
                assert!(pin!(consume()).poll(&mut cx).is_pending());
                assert!(pin!(unconstrained(consume())).poll(&mut cx).is_ready());
            });
        });
    }

    #[cfg(feature = "futures-core")]
    #[test]
    fn a_stream_spends_nothing() {
        use futures::stream::{self, Stream, StreamExt};

        let mut cx = Context::from_waker(Waker::noop());
        let spending = stream::repeat(()).take(1000).then(|()| consume());
        let mut items = pin!(unconstrained(spending));
        assert_eq!(items.size_hint(), (1000, Some(1000)));
        with_budget(3, || {
            for _ in 0..1000 {
                assert_eq!(items.poll_next_unpin(&mut cx), Poll::Ready(Some(())));
            }
            assert_eq!(items.poll_next_unpin(&mut cx), Poll::Ready(None));
            assert_eq!(remaining(), Some(3));
        });
    }
}
