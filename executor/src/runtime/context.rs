//! Which runtime this thread is in.
//!
//! Thread-locals without destructors, so that reading them is one load and works while the thread ends: the worker that
//! runs here, and the runtime the thread has entered last, which takes precedence. Off the beaten track, two more: the
//! worker that has lent its core, and what runs here without one.

use super::{Shared, default_runtime};
use crate::task::{self, Class, Id, JoinHandle, Runnable};
use crate::worker::Worker;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

thread_local! {
    // The worker whose loop is on this thread's stack, while it holds its core.
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    // The same while it does not, in a poll.
    static AWAY: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    // What runs on this thread without a core.
    static RUNNING: Cell<Option<(*const Shared, Id, Class)>> = const { Cell::new(None) };
    // The top of `STACK`, which counts it; null outside any runtime.
    static ENTERED: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    static STACK: Stack = const { Stack(RefCell::new(Vec::new())) };
    // The number of the next guard.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Runs `f` with `worker` as this thread's worker.
pub(crate) fn on_worker<R>(worker: &Worker, f: impl FnOnce() -> R) -> R {
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            WORKER.set(ptr::null());
            AWAY.set(ptr::null());
            RUNNING.set(None);
        }
    }
    WORKER.set(worker);
    let _clear = Clear;
    f()
}

/// The worker of this thread does not hold its core for a while. Its poll goes on.
#[inline]
pub(crate) fn step_out(id: Id, class: Class) {
    let worker = WORKER.replace(ptr::null());
    AWAY.set(worker);
    // SAFETY: the worker that `on_worker` borrows further up this very stack; the caller is one of its methods.
    RUNNING.set(Some((Arc::as_ptr(unsafe { &*worker }.shared()), id, class)));
}

/// The worker of this thread holds its core again.
#[inline]
pub(crate) fn step_in(worker: &Worker) {
    WORKER.set(worker);
    AWAY.set(ptr::null());
    RUNNING.set(None);
}

/// The poll that went on without a core is over.
pub(crate) fn poll_ended() {
    AWAY.set(ptr::null());
    RUNNING.set(None);
}

/// Calls `f` with the worker of this thread, if it is one that does not hold its core.
pub(crate) fn with_away<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: null, or the worker that `on_worker` borrows further up this very stack.
    f(unsafe { AWAY.get().as_ref() })
}

/// A job that runs on this thread.
pub(crate) struct Running;

impl Running {
    pub(crate) fn new(shared: &Arc<Shared>, id: Id, class: Class) -> Self {
        RUNNING.set(Some((Arc::as_ptr(shared), id, class)));
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(None);
    }
}

/// The task or job that runs on this thread.
pub(crate) fn running_id() -> Option<Id> {
    with_worker(|worker| match worker {
        Some(worker) => worker.running_id(),
        None => RUNNING.get().map(|(_, id, _)| id),
    })
}

/// Calls `f` with the worker of this thread, if this is a worker thread.
#[inline]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: it does not leave `f`.
    f(unsafe { worker() })
}

/// The worker of this thread, if this is a worker thread.
///
/// # Safety
///
/// The reference must not outlive the stack frame that asks for it.
#[inline]
unsafe fn worker<'a>() -> Option<&'a Worker> {
    // SAFETY: null, or the worker that `on_worker` borrows further up this very stack.
    unsafe { WORKER.get().as_ref() }
}

/// Where a spawn goes.
///
/// Not handed to a closure: a closure that captures the user's future is one more copy of it.
#[derive(Clone, Copy)]
enum Current<'a> {
    Worker(&'a Worker),
    Outside(&'a Arc<Shared>),
}

impl<'a> Current<'a> {
    #[inline]
    fn of(shared: &'a Arc<Shared>, worker: Option<&'a Worker>) -> Self {
        match worker {
            Some(worker) if worker.belongs_to(shared) => Self::Worker(worker),
            _ => Self::Outside(shared),
        }
    }

    /// Spawns here. Only the allocation depends on the type of the future; the rest is compiled once.
    #[inline]
    #[track_caller]
    fn spawn<F>(
        self,
        name: Option<Box<str>>,
        class: Option<Class>,
        location: &'static Location<'static>,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let class = class.unwrap_or_else(|| self.class());
        let (runnable, handle) = task::allocate(self.shared(), name, class, location, future);
        self.submit(runnable);
        handle
    }

    #[inline]
    #[track_caller]
    fn shared(self) -> *const Shared {
        match self {
            Self::Worker(worker) => Arc::as_ptr(worker.shared()),
            Self::Outside(shared) => {
                shared.refuse_in_forked_child();
                Arc::as_ptr(shared)
            }
        }
    }

    /// The class that a child inherits. Only within a runtime: what is the background of one may be the foreground of
    /// another.
    #[inline]
    fn class(self) -> Class {
        match self {
            Self::Worker(worker) => worker.class(),
            Self::Outside(shared) => match RUNNING.get() {
                Some((runtime, _, class)) if ptr::eq(runtime, Arc::as_ptr(shared)) => class,
                _ => Class::Foreground,
            },
        }
    }

    #[inline]
    fn submit(self, runnable: Runnable) {
        match self {
            Self::Worker(worker) => worker.submit(runnable),
            Self::Outside(shared) => shared.submit(runnable),
        }
    }
}

/// The class of the task that runs on this thread.
pub(crate) fn current_class() -> Class {
    with_worker(|worker| match worker {
        Some(worker) => worker.class(),
        None => RUNNING.get().map_or(Class::Foreground, |(_, _, class)| class),
    })
}

/// The current runtime; outside any, the default one.
#[track_caller]
pub(crate) fn current_or_default() -> Arc<Shared> {
    current_shared().unwrap_or_else(|| default_runtime().handle.shared.clone())
}

/// The class that a child of whatever runs on this thread inherits in that runtime.
pub(crate) fn class_in(shared: &Arc<Shared>) -> Class {
    // SAFETY: it is used in this frame.
    Current::of(shared, unsafe { worker() }).class()
}

/// Spawns onto the current runtime; outside any, onto the default one. Without a class the task inherits one.
#[inline]
#[track_caller]
pub(crate) fn spawn<F>(
    name: Option<Box<str>>,
    class: Option<Class>,
    location: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let entered = entered();
    // SAFETY: it is used in this frame.
    let worker = unsafe { worker() };
    let current = match (entered.as_deref(), worker) {
        (None, Some(worker)) => Current::Worker(worker),
        (Some(shared), worker) => Current::of(shared, worker),
        // SAFETY: it is used in this frame, as above.
        (None, None) => match unsafe { AWAY.get().as_ref() } {
            Some(away) => Current::Outside(away.shared()),
            None => Current::Outside(&default_runtime().handle.shared),
        },
    };
    current.spawn(name, class, location, future)
}

/// Spawns onto this runtime. Without a class the task inherits one.
#[inline]
#[track_caller]
pub(crate) fn spawn_on<F>(
    shared: &Arc<Shared>,
    name: Option<Box<str>>,
    class: Option<Class>,
    location: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: it is used in this frame.
    let worker = unsafe { worker() };
    Current::of(shared, worker).spawn(name, class, location, future)
}

/// The runtime entered last, borrowed from the stack.
///
/// Whoever runs user code while holding this, which may leave the runtime and drop it, must count it first.
#[inline]
fn entered() -> Option<ManuallyDrop<Arc<Shared>>> {
    let entered = ENTERED.get();
    if entered.is_null() {
        return None;
    }
    // SAFETY: the pointer is that of an `Arc` on the stack. Never dropped, this one takes no count away.
    Some(ManuallyDrop::new(unsafe { Arc::from_raw(entered) }))
}

/// The current runtime, if the thread is in one.
pub(crate) fn current_shared() -> Option<Arc<Shared>> {
    match entered() {
        Some(shared) => Some(Arc::clone(&shared)),
        None => with_worker(|worker| match worker {
            Some(worker) => Some(worker.shared().clone()),
            None => with_away(|away| away.map(Worker::shared).cloned()),
        }),
    }
}

/// A runtime being entered. Must stay on its thread.
pub(crate) struct Entered {
    number: u64,
    not_send: PhantomData<*const ()>,
}

impl Entered {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let number = NUMBER.get();
        NUMBER.set(number + 1);
        // Fails only in a thread that is being torn down, where there is nothing left to be inside of.
        let _ = STACK.try_with(|stack| {
            ENTERED.set(Arc::as_ptr(&shared));
            stack.0.borrow_mut().push((number, shared));
        });
        Self { number, not_send: PhantomData }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = STACK.try_with(|stack| {
            let mut stack = stack.0.borrow_mut();
            // On top, but for guards that are dropped in an unusual order.
            let place = stack.iter().rposition(|&(number, _)| number == self.number)?;
            let (_, left) = stack.remove(place);
            ENTERED.set(stack.last().map_or(ptr::null(), |(_, shared)| Arc::as_ptr(shared)));
            Some(left)
        });
        // Outside of the borrow: this may be the last count of a runtime.
        drop(left);
    }
}

/// The runtimes this thread has entered, each with the number of its guard.
struct Stack(RefCell<Vec<(u64, Arc<Shared>)>>);

impl Drop for Stack {
    fn drop(&mut self) {
        // Guards that were forgotten: the thread ends, and what they counted is given back.
        ENTERED.set(ptr::null());
    }
}
