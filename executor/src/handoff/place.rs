//! Blocking inside of a task.

use crate::handoff::CALLS;
use crate::runtime::{context, tokio};
use std::panic::Location;

/// Runs a function that blocks, or computes for long, in the task that calls it.
///
/// The tasks that are queued behind this one do not wait: after some 20 µs another thread takes
/// over the worker's place. A shorter call keeps the place, and costs some tens of nanoseconds. The
/// runtime expects of a call what earlier calls from the same place in the program took. It watches
/// the first calls from a place. If they are long, later calls lose the worker's place at once. If
/// they are short, later calls are left alone.
///
/// A task that has lost its worker's place goes on without one up to its next await point or
/// [budgeted](crate::budget) operation, and then comes back for one.
///
/// The closure may do anything: [`spawn`](crate::spawn), [`block_on`](crate::block_on), another
/// `block_in_place`. Yield points in it never give way ([`should_yield`](crate::should_yield) is
/// false), and the budget does not count. Outside of a task `block_in_place` only calls the
/// closure; unlike tokio's, it never panics by itself.
///
/// Other futures *of the same task* do wait: those beside this one in a `join!` or `select!`, and a
/// `timeout` around it. If they must not wait, use [`spawn_blocking`](crate::spawn_blocking).
///
/// # Not guaranteed
///
/// That another thread takes over: the OS may refuse one. Then the tasks behind this one are taken
/// by the other workers, or wait.
///
/// # Panics
///
/// Only if the function does.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let answer = giveway::spawn(async {
///         let bread = giveway::block_in_place(|| {
///             std::thread::sleep(std::time::Duration::from_millis(2)); // baking; others are served meanwhile
///             "bread"
///         });
///         format!("{bread} is ready")
///     });
///     assert_eq!(answer.await.unwrap(), "bread is ready");
/// });
/// ```
#[inline]
#[track_caller]
pub fn block_in_place<F, R>(f: F) -> R
where
    F: FnOnce() -> R,
{
    let location = Location::caller();
    context::with_worker(|worker| match worker {
        Some(worker) if worker.may_lend() => worker.lend(Some(CALLS.at(location)), f),
        _ => tokio::in_place(f),
    })
}

/// Runs `f`, which calls [`about_to_wait`](crate::worker::Worker::about_to_wait) before it waits.
///
/// So neither is the monitor called, nor the place of the call remembered.
///
/// # Panics
///
/// On a worker outside of a task.
#[track_caller]
pub(crate) fn on_any_thread<R>(f: impl FnOnce() -> R) -> R {
    context::with_worker(|worker| match worker {
        None => tokio::in_place(f),
        Some(worker) if worker.may_lend() => worker.lend(None, f),
        Some(_) => panic!(
            "`block_on` was called on a worker thread of a Giveway runtime outside of a task: in \
             a thread hook, a waker, or a destructor during shutdown; nobody would serve it there"
        ),
    })
}
