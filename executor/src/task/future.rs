//! The future that async-task sees: the user's, with panics caught, aborts obeyed and the registry told.

use super::contain::{Contained, contain, drop_contained};
use super::error::Reason;
use super::id::dropping;
use super::{Class, InPlace, JoinError, JoinHandle, Meta, Payload, Runnable};
use crate::runtime::Shared;
use crate::worker;
use async_task::{ScheduleInfo, WithInfo};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll};

/// What the task's allocation holds once the future is done.
pub(crate) type Output<T> = Contained<Result<T, JoinError>>;

/// Allocates a task. It is in no queue yet; the caller pushes the `Runnable`.
#[inline]
pub(crate) fn allocate<F>(
    shared: *const Shared,
    name: Option<Box<str>>,
    class: Class,
    location: &'static Location<'static>,
    future: F,
) -> (Runnable, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    allocate_with(shared, name, class, location, future, worker::schedule)
}

/// As [`allocate`], with a schedule function of its own.
#[inline]
pub(crate) fn allocate_with<F>(
    shared: *const Shared,
    name: Option<Box<str>>,
    class: Class,
    location: &'static Location<'static>,
    future: F,
    schedule: impl Fn(Runnable, ScheduleInfo) + Send + Sync + 'static,
) -> (Runnable, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // The schedule function captures nothing. async-task then keeps no reference of its own while it runs, which
    // saves two read-modify-writes a wake-up; the price is that `schedule` must not touch the task after its push.
    //
    // The closure captures the future and nothing else, so that it is moved as one piece.
    let (runnable, task) = async_task::Builder::new()
        .metadata(InPlace::unwritten())
        .spawn(|place| TaskFuture { meta: place.address(), future: Some(future) }, WithInfo(schedule));
    // SAFETY: the task is in no queue, nor polled, nor dropped: nobody else looks at its metadata yet.
    let meta = unsafe { runnable.metadata().write(Meta::new(shared, name, class, location)) };
    meta.remember_waker(runnable.waker());
    (runnable, JoinHandle::new(task))
}

thread_local! {
    // Why the job that is being ended on this thread was not run.
    static REFUSAL: Cell<Option<Box<str>>> = const { Cell::new(None) };
    // The task whose future is being polled on this thread; null if none is.
    static POLLED: Cell<*const Meta> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with the task whose future is being polled on this thread, if one is. Not as soon and as long as its worker is
/// busy with it: whoever awaits a task is woken when it may be gone, and a waker is anybody's code.
pub(crate) fn with_polled<R>(f: impl FnOnce(Option<&Meta>) -> R) -> R {
    // SAFETY: null, or in the allocation of a task that is being polled further up this very stack.
    f(unsafe { POLLED.get().as_ref() })
}

/// Ends a job that there is no thread for: its handle says why.
#[cold]
pub(crate) fn refuse(job: Runnable, error: &io::Error) {
    REFUSAL.set(Some(error.to_string().into()));
    job.metadata().abort();
    dropping(job.metadata().id, || job.run());
    REFUSAL.set(None);
}

struct TaskFuture<F> {
    // In the task's allocation, which this future is in too (or in a box that it owns), and outlives it there.
    meta: NonNull<Meta>,
    // `None` once finished. Pinned structurally: dropped in place by the assignment of `None`, never moved.
    future: Option<F>,
}

// SAFETY: the pointer is to a `Sync` value that lives as long as the allocation this future is in.
unsafe impl<F: Send> Send for TaskFuture<F> {}

impl<F> TaskFuture<F> {
    fn meta(&self) -> &Meta {
        // SAFETY: the metadata lives in the allocation that this future lives in, or, if it is so large that async-task
        // boxes it, in the one that owns it.
        unsafe { self.meta.as_ref() }
    }

    /// Polls the future. If that panics, the future is dropped while the panic unwinds, as the locals of a function are:
    /// [`std::thread::panicking`] is true in its destructors. One that panics itself is contained, where a panic while
    /// unwinding would abort the process: the handle has the first panic, which is the cause.
    #[inline]
    fn poll_future(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output>
    where
        F: Future,
    {
        /// The way out of a poll that panics.
        struct Unwinding<'a, F> {
            future: &'a mut Option<F>,
            outer: *const Meta,
        }
        impl<F> Drop for Unwinding<'_, F> {
            #[cold]
            fn drop(&mut self) {
                POLLED.set(self.outer);
                drop_contained(DropInPlace(self.future));
            }
        }
        // SAFETY: `future` is not moved out of `this`; it is pinned again below, and dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        let unwinding = Unwinding { outer: POLLED.replace(this.meta.as_ptr()), future: &mut this.future };
        let future = unwinding.future.as_mut().expect("async-task does not poll a finished task");
        // SAFETY: `this` was pinned, and `future` is pinned with it.
        let mut future = unsafe { Pin::new_unchecked(future) };
        let polled = giveway_io::driver::poll_task(cx.waker(), || future.as_mut().poll(cx));
        POLLED.set(unwinding.outer);
        std::mem::forget(unwinding);
        polled
    }

    #[cold]
    fn panicked(&self, payload: Payload) -> JoinError {
        worker::task_panicked(self.meta(), &*payload);
        JoinError::new(self.meta(), Reason::Panicked(payload))
    }
}

impl<F: Future> Future for TaskFuture<F> {
    type Output = Output<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = if self.meta().is_aborted() {
            Err(JoinError::new(self.meta(), REFUSAL.take().map_or(Reason::Aborted, Reason::Refused)))
        } else {
            match contain(|| self.as_mut().poll_future(cx)) {
                Ok(Poll::Pending) => {
                    self.meta().begin_wait();
                    return Poll::Pending;
                }
                Ok(Poll::Ready(output)) => Ok(output),
                Err(payload) => Err(self.panicked(payload)),
            }
        };
        // Contained from here on: if the future's destructor panics below, the output has to go quietly.
        let result = Contained::new(result);
        // SAFETY: the future is not moved, but dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        let result = match contain(|| this.future = None) {
            Ok(()) => result,
            Err(payload) => {
                drop(result);
                Contained::new(Err(this.panicked(payload)))
            }
        };
        Poll::Ready(result)
    }
}

impl<F> Drop for TaskFuture<F> {
    fn drop(&mut self) {
        // Only a task dropped before its end still has a future here. The unregistering has to come last: until then
        // shutdown waits for us, and the runtime is there for whatever the destructor does.
        if self.future.is_some() {
            dropping(self.meta().id, || drop_contained(DropInPlace(&mut self.future)));
        }
        self.meta().unregister();
        self.meta().set_ended();
    }
}

/// Ends what it points to without moving it.
struct DropInPlace<'a, F>(&'a mut Option<F>);

impl<F> Drop for DropInPlace<'_, F> {
    fn drop(&mut self) {
        *self.0 = None;
    }
}
