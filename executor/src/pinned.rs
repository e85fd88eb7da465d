//! Tasks that stay on one thread.
//!
//! A core has an inbox of tasks that nobody may steal. Only its home thread takes from it (`blocking/hand_off.md`): a
//! stand-in leaves it alone, so a pinned task never changes its thread, though its core may.
//!
//! The future need not be `Send`. It is made, polled and dropped by the home thread alone; what crosses threads is the
//! function that makes it, and the task's output. The types cannot say so, and [`Pinned`] asserts it.

use crate::runtime::{Phase, Shared, context};
use crate::task::{self, Class, JoinHandle, Runnable};
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
/// The function is sent to a worker with few such tasks; there it makes the future, which is polled and dropped by
/// that thread alone. What it holds across an await may be an `Rc`, a `RefCell`'s guard, or whatever a C library ties to a
/// thread. In [`task::Builder::on_worker`](task::Builder::on_worker) you choose the worker.
///
/// The function is sent, so it cannot capture an `Rc` of the task that spawns: futures that share one belong into one pinned
/// task, in a `join!` or a `FuturesUnordered`.
///
/// It takes turns with what is queued on its worker otherwise. Nobody steals it, so it waits for whatever its worker is
/// busy with, [`block_in_place`](crate::block_in_place) included, even if others are idle. At a
/// [yield point](crate::yield_now_if_busy) it lets others go first, but goes to the back of its worker's queue and not into
/// the yield queue: it runs again though there is other work elsewhere. In all other respects it is like
/// [`spawn`](crate::spawn).
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

/// Spawns onto a worker of this runtime.
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
        assert!(worker < workers, "there is no worker {worker}: this runtime has {workers}, numbered from 0");
    }
    let class = class.unwrap_or_else(|| context::class_in(shared));
    let lodging = Lodging::new(shared, worker);
    let worker = lodging.worker;
    // After the count of the lodging: if the runtime is open now its worker waits for this task, whatever happens to the
    // runtime, and drops it at the latest in `Worker::drop_pinned`. If not, the lodging ends here and not with the function:
    // its destructor may drop the runtime, and wait for that worker.
    let lodging = (shared.gate.phase() == Phase::Open).then_some(lodging);
    let admitted = lodging.is_some();
    let future = Pinned { state: State::Unmade(Some(f)), _lodging: lodging };
    let (runnable, handle) = task::allocate_with(Arc::as_ptr(shared), name, class, location, future, schedule);
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

/// The schedule function of a pinned task. For the pointer to the runtime see `worker::schedule`.
fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let worker = runnable.metadata().pinned_to();
    // SAFETY: the runtime is alive until the push, as argued at `worker::schedule`.
    let shared = unsafe { runnable.metadata().runtime() };
    shared.meter.queued_for(worker, runnable.metadata(), || shared.now());
    if info.woken_while_running {
        shared.pinned_again(worker, runnable);
    } else {
        shared.push_pinned(worker, runnable);
    }
}

/// A task's place on a worker, from its spawn to the end of its future.
struct Lodging {
    shared: Arc<Shared>,
    worker: usize,
}

impl Lodging {
    fn new(shared: &Arc<Shared>, worker: Option<usize>) -> Self {
        let worker = worker.unwrap_or_else(|| one_of_the_less_busy(shared));
        // Ordering: AcqRel, to stand in one chain with the ends of lodgings; the fence below is what counts.
        shared.posts[worker].pinned.fetch_add(1, AcqRel);
        // Ordering: SeqCst fence, partner of the one in `Worker::drop_pinned`. Our count comes before it and our look at the
        // phase after it; theirs the other way round. Either the worker waits for this task, or we see that it will not.
        fence(SeqCst);
        Self { shared: shared.clone(), worker }
    }
}

/// The worker with the fewest pinned tasks, of all if they are few, otherwise of some chosen at random: almost as even, and as
/// many lines to read however many workers there are.
fn one_of_the_less_busy(shared: &Shared) -> usize {
    const LOOKS: usize = 8;
    let workers = shared.workers();
    let lodgers = |&worker: &usize| shared.posts[worker].pinned.load(Acquire);
    // Two that choose at once may choose the same: it is only a matter of balance.
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
        // Ordering: AcqRel, partner of the acquire in `drop_pinned`: who sees that nobody is left sees what they did.
        post.pinned.fetch_sub(1, AcqRel);
        if self.shared.gate.phase() != Phase::Open {
            post.home.unpark();
        }
    }
}

/// A future that is made, polled and dropped by one thread, or never made.
struct Pinned<F, Fut> {
    state: State<F, Fut>,
    // After the state: the worker waits for it. None if the runtime is shut down: then it is never made.
    _lodging: Option<Lodging>,
}

enum State<F, Fut> {
    Unmade(Option<F>),
    // Dropped by hand, by the thread that made it.
    Made(ManuallyDrop<Fut>, ThreadId),
}

// SAFETY: before the first poll there is nothing in it but `F`, which is `Send`. After that there is a `Fut`, which may not
// be: it is polled only by the home thread, which alone takes from the inbox that `schedule` puts the task into; and
// dropped only by the thread that made it, which `drop` checks.
unsafe impl<F: Send, Fut> Send for Pinned<F, Fut> {}

impl<F: FnOnce() -> Fut, Fut: Future> Future for Pinned<F, Fut> {
    type Output = Fut::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fut::Output> {
        // SAFETY: the future is pinned again below, and moved by nobody once it is made.
        let this = unsafe { self.get_unchecked_mut() };
        if let State::Unmade(f) = &mut this.state {
            let f = f.take().expect("a task whose function panicked is not polled again");
            // Made before it is put there: the function may panic.
            let future = f();
            this.state = State::Made(ManuallyDrop::new(future), thread::current().id());
        }
        let State::Made(future, _) = &mut this.state else { unreachable!("it was made above") };
        // SAFETY: it is where it was made, and is dropped there.
        unsafe { Pin::new_unchecked(&mut **future) }.poll(cx)
    }
}

impl<F, Fut> Drop for Pinned<F, Fut> {
    fn drop(&mut self) {
        if let State::Made(future, thread) = &mut self.state {
            if *thread == thread::current().id() {
                // SAFETY: dropped once, here, by the thread that made it.
                unsafe { ManuallyDrop::drop(future) };
            } else {
                // Only a bug of ours could bring it here. Better to leak it than to touch what belongs to another thread.
                debug_assert!(false, "a pinned task ends on another thread");
            }
        }
    }
}
