//! Blocking on a thread of its own.

use super::Kind;
use crate::runtime::{Shared, context};
use crate::task::{self, Class, Id, JoinHandle, Runnable};
use async_task::ScheduleInfo;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Runs a function that blocks, or computes for long, on a thread where it delays no task.
///
/// The threads are started as they are needed: at once up to a few for each worker, and then a few
/// every millisecond, up to
/// [`Builder::max_blocking_threads`](crate::Builder::max_blocking_threads). They end when they have
/// had nothing to do for a while. Jobs beyond that number wait in line, first come, first served.
///
/// A job runs to its end once it has started. [`abort`](JoinHandle::abort) only keeps it from
/// starting. (The handle of a job that was aborted says so when the turn of the job has come.)
///
/// # Shutdown
///
/// A job that was accepted runs, even if the runtime is dropped right after this call: the drop
/// waits for all jobs, in their usual turn. [`shutdown_timeout`](crate::Runtime::shutdown_timeout)
/// has a deadline; it cancels the jobs that still wait for a thread then, and its report names
/// them. [`shutdown_background`](crate::Runtime::shutdown_background) cancels those jobs at once.
///
/// A job that is spawned after the shutdown has begun, for example in another job, is cancelled. A
/// job may wait for something that only a task could bring about. If the drop of that task does not
/// end the wait, the job waits for ever, and the drop of the runtime with it.
///
/// # The current runtime
///
/// Inside of the job this runtime is the current one: the job may spawn, and
/// [`block_on`](crate::block_on). A job that is spawned in a task of the background is of the
/// background too: it runs on one of at most as many threads as there are workers, to which the OS
/// prefers every other thread.
///
/// # Errors
///
/// The handle yields a [`JoinError`](task::JoinError) if the function panics; if the job was
/// aborted before it started; if the runtime was being shut down when the job was spawned, or gave
/// up on it; and if the OS refuses to start a thread and there is no other that could take the job.
///
/// # Panics
///
/// Where [`spawn`](crate::spawn) does.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let numbers = giveway::spawn_blocking(|| {
///         let mut numbers = vec![3, 1, 2];
///         numbers.sort(); // imagine a great many
///         numbers
///     });
///     assert_eq!(numbers.await.unwrap(), [1, 2, 3]);
/// });
/// ```
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    spawn(None, None, Location::caller(), f)
}

/// Queues a job in the current runtime.
#[track_caller]
pub(crate) fn spawn<F, R>(
    name: Option<Box<str>>,
    class: Option<Class>,
    location: &'static Location<'static>,
    f: F,
) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    spawn_on(&context::current_or_default(), name, class, location, f)
}

/// Queues a job in this runtime.
#[track_caller]
pub(crate) fn spawn_on<F, R>(
    shared: &Arc<Shared>,
    name: Option<Box<str>>,
    class: Option<Class>,
    location: &'static Location<'static>,
    f: F,
) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    shared.refuse_in_forked_child();
    let class = class.unwrap_or_else(|| task::spawning::class_in(shared));
    let job = Job(Some(f));
    let (shared_ptr, id) = (Arc::as_ptr(shared), Id::next());
    let (runnable, handle) =
        task::allocate_with(shared_ptr, id, name, class, location, job, never_again);
    let kind = if class == Class::Background { Kind::Background } else { Kind::Blocking };
    // If the pool gives the job back, dropping it tells the handle.
    drop(shared.pool_of(kind).submit(shared, runnable));
    handle
}

/// The schedule function of a job, which is never called: a job is queued once, by its spawn, and
/// is never pending.
fn never_again(runnable: Runnable, _: ScheduleInfo) {
    debug_assert!(false, "a job is scheduled a second time");
    drop(runnable);
}

/// A function as a future that is ready when it is first polled.
struct Job<F>(Option<F>);

impl<F> Unpin for Job<F> {}

impl<F: FnOnce() -> R, R> Future for Job<F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        let f = self.0.take().expect("a job is polled once");
        Poll::Ready(f())
    }
}
