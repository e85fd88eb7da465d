//! The unconditional yield point. It needs no help from an executor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Gives way once, whether other work waits or not.
///
/// The returned future wakes its own task and is pending at the first poll, and is ready at the
/// second. The executor decides where the task goes in between: Giveway puts a task that woke
/// itself while it ran at the back of its worker's queue.
///
/// # Not guaranteed
///
/// Which task runs next, on which thread this one goes on, or that any other task runs at all. If
/// nothing else is runnable, the task continues at once.
///
/// # Cancel safety
///
/// Dropping the future before it is ready has no effect beyond one spurious wake-up of the task.
///
/// # Examples
///
/// ```
/// use std::future::Future;
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
///
/// let mut cx = Context::from_waker(Waker::noop());
/// let mut turn = pin!(giveway_yield::yield_now());
/// assert_eq!(turn.as_mut().poll(&mut cx), Poll::Pending);
/// assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(()));
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future that [`yield_now`] returns.
///
/// See [`yield_now`] for an example.
#[derive(Debug)]
#[must_use = "a yield does nothing unless it is awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
