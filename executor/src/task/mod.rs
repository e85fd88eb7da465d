//! Tasks: spawning, joining, aborting.
//!
//! [`spawn`] starts a task and returns a [`JoinHandle`] to await it by. A [`Builder`] gives a task
//! a name. A [`JoinSet`] holds many tasks, and joins them in the order in which they finish.

mod abort;
mod builder;
mod class;
mod contain;
mod error;
mod future;
mod id;
mod join;
mod join_set;
mod mark;
mod meta;
pub(crate) mod pinned;
pub(crate) mod registry;
pub(crate) mod spawning;

pub use abort::AbortHandle;
pub use builder::Builder;
pub use class::{Class, class, spawn_background};
pub use error::JoinError;
pub use id::Id;
pub use join::JoinHandle;
pub use join_set::JoinSet;
pub use pinned::spawn_pinned;

pub use crate::blocking::spawn_blocking;
pub use crate::handoff::block_in_place;
pub use crate::runtime::{should_yield, yield_now_if_busy};
pub use giveway_yield::{YieldNow, YieldNowIfBusy};

pub(crate) use contain::{Payload, contain, drop_contained, panic_message};
pub(crate) use future::{allocate, allocate_with, refuse, with_polled};
pub(crate) use mark::{Mark, Place};
pub(crate) use meta::{InPlace, Meta, Runnable};

use std::fmt;
use std::future::Future;
use std::panic::Location;

use crate::runtime::context;

/// Writes a task as errors and reports call it.
pub(crate) fn describe(
    f: &mut fmt::Formatter<'_>,
    id: Id,
    name: Option<&str>,
    spawned_at: &Location<'_>,
) -> fmt::Result {
    match name {
        Some(name) => write!(f, "task {name:?} ({id}), spawned at {spawned_at}"),
        None => write!(f, "task {id}, spawned at {spawned_at}"),
    }
}

/// Spawns a future as a task of the current runtime.
///
/// The task starts at once, whether its handle is awaited or not. It runs on any worker, and may
/// move between workers at every await. It inherits the [class](Class) of the task that spawns it:
/// what a background task spawns is a background task too.
///
/// The current runtime is the one whose task or [`block_on`](crate::block_on) calls this function,
/// or the one that the thread has [entered](crate::Handle::enter). Anywhere else it is the default
/// runtime: that of `#[giveway::main]` while it runs, otherwise one that is
/// [started at first use](crate::block_on).
///
/// The order in which tasks run is not guaranteed. A task that spawns several tasks on its own
/// worker mostly sees the last one run first: it is still in the cache, and so are the things that
/// its parent has just made for it.
///
/// Unlike tokio's `spawn`, this one does not panic outside of a runtime. A `std::thread` does not
/// inherit the runtime of the thread that started it: there this function means the default
/// runtime. Give the thread a [`Handle`](crate::Handle).
///
/// Dropping the [`JoinHandle`] detaches the task. If the runtime has been shut down, the future is
/// dropped in this call, and the handle yields a [cancelled](JoinError::is_cancelled) error.
///
/// # Panics
///
/// Panics in the child of a `fork`, where the runtime's threads do not exist, and if the default
/// runtime has to be started and cannot be (see [`Builder::build`](crate::Builder::build)). A panic
/// in the future itself is caught, and goes to the handle.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let answer = giveway::spawn(async { 6 * 7 });
///     assert_eq!(answer.await.unwrap(), 42);
/// });
/// ```
#[inline]
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawning::spawn(None, None, Location::caller(), future)
}

/// Returns a future that sends its task to the back of its worker's queue, once.
///
/// Every task that is queued on this worker runs first. A task that was spawned or woken from
/// outside of the workers is in the global queue, which a worker with work of its own looks at
/// every 61st turn.
///
/// # Not guaranteed
///
/// Which task runs next, on which thread this one goes on, or that any other runs at all: if
/// nothing else is runnable the task continues at once.
///
/// # Cancel safety
///
/// Dropping the future before it is ready has no effect but one spurious wake-up of the task.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let counting = giveway::spawn(async {
///         for _ in 0..1_000 {
///             giveway::yield_now().await; // others get their turn
///         }
///     });
///     counting.await.unwrap();
/// });
/// ```
pub fn yield_now() -> YieldNow {
    giveway_yield::yield_now()
}

/// Returns the number of the worker that runs on this thread, from 0: one of
/// [`Handle::workers`](crate::Handle::workers).
///
/// Returns `None`
///
/// - on a thread that is no worker, or a [spare worker](crate::Builder::max_spare_workers);
/// - in a task that lowered threads poll, because it is [preemptible](Builder::preemptible) or
///   because [others like it](crate::Builder::preempt_background) did not give way;
/// - in a task that has lost its worker's place in [`block_in_place`] or in a nested
///   [`block_on`](crate::block_on), up to its next await.
///
/// # Examples
///
/// ```
/// assert!(giveway::task::worker().is_none());
/// giveway::block_on(async {
///     assert!(giveway::spawn(async { giveway::task::worker() }).await.unwrap().is_some());
/// });
/// ```
pub fn worker() -> Option<usize> {
    context::with_worker(|worker| {
        let worker = worker.filter(|worker| !worker.shared().is_spare(worker.index()))?;
        Some(worker.index())
    })
}

/// Returns the id of the task that is running on this thread.
///
/// In the destructor of a future or an output this is the id of the task that the value belongs to,
/// wherever it is dropped: by a worker, with its handle, or in a shutdown.
///
/// # Panics
///
/// Panics outside of a task; [`try_id`] does not.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let handle = giveway::spawn(async { giveway::task::id() });
///     let id = handle.id();
///     assert_eq!(handle.await.unwrap(), id);
/// });
/// ```
#[track_caller]
pub fn id() -> Id {
    try_id().expect(
        "no task is running on this thread; `task::id` is for tasks, and the future of `block_on` \
         is not one",
    )
}

/// Returns the id of the task that is running on this thread, if one is. In destructors this is the
/// id that [`id`] returns.
///
/// # Examples
///
/// ```
/// assert!(giveway::task::try_id().is_none());
/// giveway::block_on(async {
///     let handle = giveway::spawn(async { giveway::task::try_id() });
///     let id = handle.id();
///     assert_eq!(handle.await.unwrap(), Some(id));
/// });
/// ```
pub fn try_id() -> Option<Id> {
    id::dropped().or_else(context::running_id)
}
