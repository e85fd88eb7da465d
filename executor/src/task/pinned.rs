//! Tasks that stay on one thread.
//!
//! A core has an inbox of tasks that no other worker may steal. Only the core's home thread takes
//! from it (`handoff/hand_off.md`). A stand-in leaves it alone, so a pinned task never changes its
//! thread, though its core may.
//!
//! The future need not be `Send`. It is made, polled and dropped by the home thread alone. What
//! crosses threads is the function that makes it, and the task's output. The types cannot say so,
//! and [`Pinned`] asserts it.

use crate::runtime::{Phase, Shared, TaskMeta, context};
use crate::task::{self, Class, Id, JoinHandle, Runnable};
use async_task::ScheduleInfo;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    Ordering::{AcqRel, Acquire, SeqCst},
    fence,
};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

/// Spawns a future that stays on one worker's thread, and so need not be [`Send`].
///
/// The function is sent to a worker with few such tasks. There it makes the future, which is polled
/// and dropped by that thread alone. What the future holds across an await may be an `Rc`, a
/// `RefCell`'s guard, or whatever a C library ties to a thread.
/// [`task::Builder::on_worker`](task::Builder::on_worker) chooses the worker.
///
/// The function is sent, so it cannot capture an `Rc` of the task that spawns. Futures that share
/// one belong into one pinned task, in a `join!` or a `FuturesUnordered`.
///
/// The task takes turns with what else is queued on its worker. It is never stolen, so it waits for
/// whatever its worker is busy with, [`block_in_place`](crate::block_in_place) included, even if
/// other workers are idle. At a [yield point](crate::yield_now_if_busy) it lets others go first,
/// but goes to the back of its worker's queue and not into the yield queue: it runs again though
/// there is other work elsewhere. In all other respects it is like [`spawn`](crate::spawn).
///
/// # Panics
///
/// Where [`spawn`](crate::spawn) does.
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
///
/// giveway::block_on(async {
///     let sum = giveway::spawn_pinned(|| async {
///         let numbers = Rc::new([1, 2, 3]); // stays where it is
///         giveway::yield_now().await;
///         numbers.iter().sum::<i32>()
///     });
///     assert_eq!(sum.await.unwrap(), 6);
/// });
/// ```
#[track_caller]
pub fn spawn_pinned<F, Fut>(f: F) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    spawn_on(&context::current_or_default(), None, None, None, Location::caller(), f)
}

/// Spawns a pinned task onto a worker of this runtime.
#[track_caller]
pub(crate) fn spawn_on<F, Fut>(
    shared: &Arc<Shared>,
    name: Option<Box<str>>,
    class: Option<Class>,
    worker: Option<usize>,
    location: &'static Location<'static>,
    f: F,
) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    shared.refuse_in_forked_child();
    let workers = shared.workers();
    if let Some(worker) = worker {
        assert!(
            worker < workers,
            "there is no worker {worker}: this runtime has {workers}, numbered from 0"
        );
    }
    let class = class.unwrap_or_else(|| super::spawning::class_in(shared));
    let id = Id::next();
    // The hook comes before the lodging: it is the user's code, and may drop the runtime. The drop
    // waits for the worker, which would wait for the lodging.
    shared.hooks.task_spawned(|| TaskMeta::new(id, name.as_deref(), class, location));
    let lodging = Lodging::new(shared, worker);
    let worker = lodging.worker;
    // The look at the gate comes after the count of the lodging. If the runtime is open now, the
    // worker waits for this task, whatever happens to the runtime, and drops it in
    // `Worker::drop_pinned` if not before. If it is closed, the lodging ends here and not with the
    // function: the destructor of the function may drop the runtime, and wait for that worker.
    let lodging = (shared.gate.phase() == Phase::Open).then_some(lodging);
    let admitted = lodging.is_some();
    let future = Pinned { state: State::Unmade(Some(f)), _lodging: lodging };
    let (runnable, handle) =
        task::allocate_with(Arc::as_ptr(shared), id, name, class, location, future, schedule);
    runnable.metadata().pin_to(worker);
    if admitted {
        if runnable.metadata().name().is_some() {
            runnable.metadata().register();
        }
        shared.meter.queued_for(worker, runnable.metadata(), || shared.now());
        shared.push_pinned(worker, runnable);
    } else {
        drop(runnable);
    }
    handle
}

/// Queues a pinned task that has become runnable. This is the schedule function of pinned tasks, in
/// place of `worker::schedule`.
fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let worker = runnable.metadata().pinned_to();
    // SAFETY: the runtime is alive until the push. `runnable` holds the task's future until then,
    // and the future's `Lodging` holds a count of the runtime.
    let shared = unsafe { runnable.metadata().runtime() };
    shared.meter.queued_for(worker, runnable.metadata(), || shared.now());
    if info.woken_while_running {
        shared.pinned_again(worker, runnable);
    } else {
        shared.push_pinned(worker, runnable);
    }
}

/// A task's place on a worker, from its spawn to the end of its future. The worker's home thread
/// does not end before it.
struct Lodging {
    shared: Arc<Shared>,
    worker: usize,
}

impl Lodging {
    /// Counts a task on `worker`, or on one with few pinned tasks.
    fn new(shared: &Arc<Shared>, worker: Option<usize>) -> Self {
        let worker = worker.unwrap_or_else(|| one_of_the_less_busy(shared));
        // Ordering: AcqRel, to continue the chain of the ends of lodgings. Against
        // `Worker::drop_pinned` the fence below is what counts.
        shared.posts[worker].pinned.fetch_add(1, AcqRel);
        // Ordering: SeqCst fence, partner of the one in `Worker::drop_pinned`. The count is written
        // before it, and the caller looks at the phase after it; the home thread has seen the
        // closed gate before its fence, and reads the count after it. Either the home thread waits
        // for this task, or the caller sees the closed gate.
        fence(SeqCst);
        Self { shared: shared.clone(), worker }
    }
}

/// Returns the worker with the fewest pinned tasks: of all workers if they are few, otherwise of
/// some chosen at random. The random choice is almost as even, and reads the same number of cache
/// lines however many workers there are.
fn one_of_the_less_busy(shared: &Shared) -> usize {
    const LOOKS: usize = 8;
    let workers = shared.workers();
    let lodgers = |&worker: &usize| shared.posts[worker].pinned.load(Acquire);
    // Two threads that choose at once may choose the same worker, which costs balance only.
    let least = if workers <= LOOKS {
        (0..workers).min_by_key(lodgers)
    } else {
        (0..LOOKS).map(|_| fastrand::usize(..workers)).min_by_key(lodgers)
    };
    least.unwrap_or(0)
}

impl Drop for Lodging {
    fn drop(&mut self) {
        let post = &self.shared.posts[self.worker];
        // Ordering: AcqRel, partner of the acquire in `Worker::drop_pinned`: a home thread that
        // sees that no lodger is left sees what the lodgers did.
        post.pinned.fetch_sub(1, AcqRel);
        if self.shared.gate.phase() != Phase::Open {
            post.home.unpark();
        }
    }
}

/// A future that is made, polled and dropped by one thread, or never made.
struct Pinned<F, Fut> {
    state: State<F, Fut>,
    /// Declared after `state`, and so dropped after it: the home thread waits for the lodging, and
    /// the function and the future are to be gone by then. `None` if the runtime is shut down: then
    /// the future is never made.
    _lodging: Option<Lodging>,
}

enum State<F, Fut> {
    Unmade(Option<F>),
    /// Dropped by hand, by the thread that made it.
    Made(ManuallyDrop<Fut>, ThreadId),
}

// SAFETY: another thread may own, drop, or poll a value of this type.
// - Before the first poll there is nothing in it but `F`, which is `Send`.
// - After that there is a `Fut`, which may not be `Send`. Only the home thread polls it, because it
//   alone takes from the inbox that `schedule` puts the task into. Only the thread that made it
//   drops it, which `drop` checks.
unsafe impl<F: Send, Fut> Send for Pinned<F, Fut> {}

impl<F: FnOnce() -> Fut, Fut: Future> Future for Pinned<F, Fut> {
    type Output = Fut::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fut::Output> {
        // SAFETY: nothing is moved out of `self` that was pinned. The function is not pinned. The
        // future is only pinned again below, and dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        if let State::Unmade(f) = &mut this.state {
            let f = f.take().expect("a task whose function panicked is not polled again");
            // The future is made before it is put there: the function may panic.
            let future = f();
            this.state = State::Made(ManuallyDrop::new(future), thread::current().id());
        }
        let State::Made(future, _) = &mut this.state else { unreachable!("it was made above") };
        // SAFETY: the future stays where it was put when it was made, in a value that is pinned,
        // and is dropped there.
        unsafe { Pin::new_unchecked(&mut **future) }.poll(cx)
    }
}

impl<F, Fut> Drop for Pinned<F, Fut> {
    fn drop(&mut self) {
        if let State::Made(future, thread) = &mut self.state {
            if *thread == thread::current().id() {
                // SAFETY: the future is dropped once, here, and not used afterwards. This is the
                // thread that made it.
                unsafe { ManuallyDrop::drop(future) };
            } else {
                // Only a fault of the runtime could bring the task here. A leak is better than
                // touching what belongs to another thread.
                debug_assert!(false, "a pinned task ends on another thread");
            }
        }
    }
}
