//! The future that async-task polls. It wraps the user's future: it catches panics, obeys aborts,
//! and keeps the registry up to date.

use super::contain::{Contained, contain, drop_contained};
use super::error::Reason;
use super::id::dropping;
use super::{Class, Id, InPlace, JoinError, JoinHandle, Meta, Payload, Runnable};
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

/// What the task's allocation holds once the future has finished.
pub(crate) type Output<T> = Contained<Result<T, JoinError>>;

/// Allocates a task. The task is in no queue yet: the caller pushes the `Runnable`.
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
    allocate_with(shared, Id::next(), name, class, location, future, worker::schedule)
}

/// Allocates a task like [`allocate`], with an id and a schedule function of its own.
#[inline]
pub(crate) fn allocate_with<F>(
    shared: *const Shared,
    id: Id,
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
    // The schedule function captures nothing. async-task then keeps no reference of its own while
    // the function runs, which saves two read-modify-writes a wake-up. The price is that `schedule`
    // must not touch the task after its push.
    //
    // The closure captures the future and nothing else, so that it is moved as one piece.
    let (runnable, task) = async_task::Builder::new().metadata(InPlace::unwritten()).spawn(
        |place| TaskFuture { meta: place.address(), future: Some(future) },
        WithInfo(schedule),
    );
    // SAFETY: this is the first access to the metadata, and the only `write`. No other thread can
    // reach it: the task is in no queue, and has been neither polled nor dropped.
    let meta = unsafe { runnable.metadata().write(Meta::new(shared, id, name, class, location)) };
    meta.remember_waker(runnable.waker());
    (runnable, JoinHandle::new(task))
}

thread_local! {
    /// Why the job that is being ended on this thread was not run. Set by `refuse`, taken by the
    /// poll that ends the job.
    static REFUSAL: Cell<Option<Box<str>>> = const { Cell::new(None) };
    /// The task whose future is being polled on this thread; null if none is. Written by
    /// `poll_future`.
    static POLLED: Cell<*const Meta> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with the task whose future is being polled on this thread, if one is.
///
/// There is none outside of the future's own `poll`, although the thread is still busy with the
/// task: async-task wakes the awaiter when the task may be freed already, and that waker may be any
/// code.
pub(crate) fn with_polled<R>(f: impl FnOnce(Option<&Meta>) -> R) -> R {
    // SAFETY: the pointer is null, or it points into the allocation of a task that is being polled
    // further up this stack. That poll holds a reference to the task, and `poll_future` resets the
    // pointer before the poll returns or unwinds. Nothing makes a mutable reference to the
    // metadata.
    f(unsafe { POLLED.get().as_ref() })
}

/// Ends a job that no thread could be started for. Its handle yields the error.
#[cold]
pub(crate) fn refuse(job: Runnable, error: &io::Error) {
    REFUSAL.set(Some(error.to_string().into()));
    job.metadata().abort();
    dropping(job.metadata().id, || job.run());
    REFUSAL.set(None);
}

struct TaskFuture<F> {
    /// The metadata, in the task's allocation. This future lives in that allocation too, or in a
    /// box that the allocation owns, so the metadata outlives it.
    meta: NonNull<Meta>,
    /// `None` once finished. Structurally pinned: the assignment of `None` drops it in place, and
    /// it is never moved.
    future: Option<F>,
}

// SAFETY: `future` is `Send`. `meta` points to a value that is `Sync` and that lives as long as the
// allocation that owns this future, wherever the future is sent.
unsafe impl<F: Send> Send for TaskFuture<F> {}

impl<F> TaskFuture<F> {
    /// Returns the task's metadata.
    fn meta(&self) -> &Meta {
        // SAFETY: the metadata is written before the future is polled or dropped, and nothing makes
        // a mutable reference to it afterwards. It lives in the allocation that this future lives
        // in, or, if the future is so large that async-task boxes it, in the allocation that owns
        // the box.
        unsafe { self.meta.as_ref() }
    }

    /// Polls the future.
    ///
    /// If that panics, the future is dropped while the panic unwinds, as the locals of a function
    /// are: [`std::thread::panicking`] is true in its destructors. A destructor that panics too is
    /// contained, since a panic while unwinding would abort the process. The handle then has the
    /// first panic, which is the cause.
    #[inline]
    fn poll_future(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output>
    where
        F: Future,
    {
        /// Cleans up on the way out of a poll that panics.
        struct Unwinding<'a, F> {
            /// The future to drop.
            future: &'a mut Option<F>,
            /// What `POLLED` was before this poll.
            outer: *const Meta,
        }
        impl<F> Drop for Unwinding<'_, F> {
            #[cold]
            fn drop(&mut self) {
                POLLED.set(self.outer);
                drop_contained(DropInPlace(self.future));
            }
        }
        // SAFETY: `future` is not moved out of `this`: it is pinned again below, and dropped in
        // place. `meta` is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let unwinding =
            Unwinding { outer: POLLED.replace(this.meta.as_ptr()), future: &mut this.future };
        let future = unwinding.future.as_mut().expect("async-task does not poll a finished task");
        // SAFETY: `future` lies in `this`, which is pinned, and is not moved until it is dropped in
        // place.
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
            Err(JoinError::new(
                self.meta(),
                REFUSAL.take().map_or(Reason::Aborted, Reason::Refused),
            ))
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
        // From here on a drop of the output must not unwind: if the future's destructor panics
        // below, the panic takes the place of the output, which is dropped.
        let result = Contained::new(result);
        // SAFETY: the future is not moved out of `this`, but dropped in place.
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
        // The order matters:
        // 1. The future, if the task is dropped before its end. Shutdown waits for the tasks that
        //    are registered, so the runtime is still there for what the future's destructor does.
        // 2. The registry. From here on the runtime may be gone.
        // 3. The flag for the handles, which promises that the destructors have run. It is in the
        //    task's allocation, and needs no runtime.
        if self.future.is_some() {
            dropping(self.meta().id, || drop_contained(DropInPlace(&mut self.future)));
        }
        self.meta().unregister();
        self.meta().set_ended();
    }
}

/// Drops the future that it points to in place.
struct DropInPlace<'a, F>(&'a mut Option<F>);

impl<F> Drop for DropInPlace<'_, F> {
    fn drop(&mut self) {
        *self.0 = None;
    }
}
