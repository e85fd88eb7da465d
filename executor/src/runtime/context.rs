//! Which runtime this thread is in.
//!
//! Two thread-locals without destructors, so that reading them is one load and works while the thread ends: the [`Place`] of
//! the thread in a runtime, and the runtime that it has entered last, which takes precedence. Whatever changes a place saves
//! the whole of it, and puts it back when it is left.
//!
//! A runtime that was entered inside of a poll is current for that task alone, also if its guard is held across an await:
//! the entries of the stack know the task that made them, and a worker leaves and comes back to them with the task's polls.

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
    static PLACE: Cell<Place> = const { Cell::new(NOWHERE) };
    // The entry of `STACK` that counts now, which counts it: the last that the running task has made, or, outside of any task,
    // the last that was made there. Null if there is none.
    static ENTERED: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    static STACK: Stack = const { Stack(RefCell::new(Vec::new())) };
    // The number of the next guard.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// What a thread is in a runtime.
#[derive(Clone, Copy)]
struct Place {
    // The worker whose loop is on this thread's stack, while it holds its core.
    worker: *const Worker,
    // The same worker while it does not, in a poll.
    away: *const Worker,
    // What runs here without a core: such a poll, or a blocking job.
    running: Option<(*const Shared, Id, Class)>,
    // Of a poll on a lowered thread: where its task is left if it is to be polled again.
    again: *const Again,
}

/// Where the task of a poll is left that has been woken before the poll returned.
pub(crate) type Again = Cell<Option<Runnable>>;

const NOWHERE: Place = Place { worker: ptr::null(), away: ptr::null(), running: None, again: ptr::null() };

/// Puts back the place that the thread had before.
struct PutBack(Place);

impl Drop for PutBack {
    #[inline]
    fn drop(&mut self) {
        PLACE.set(self.0);
    }
}

/// Makes current again what was entered at the place that the thread has come back to.
struct ComeBack;

impl Drop for ComeBack {
    fn drop(&mut self) {
        come_back_to_entered(running_id());
    }
}

/// Runs `f` with `worker`, which holds its core, as this thread's worker.
pub(crate) fn on_worker<R>(worker: &Worker, f: impl FnOnce() -> R) -> R {
    let _come_back = ComeBack;
    let _put_back = PutBack(PLACE.replace(Place { worker, ..NOWHERE }));
    leave_entered();
    f()
}

/// Runs `f` while this thread's worker does not hold its core, in the middle of a poll of this task. If `kept` says afterwards
/// that it has the core again, the thread is where it was; otherwise it stays away up to the end of [`on_worker`].
#[inline]
pub(crate) fn away<R>(worker: &Worker, id: Id, class: Class, f: impl FnOnce() -> R, kept: impl FnOnce() -> bool) -> R {
    struct Back<K: FnOnce() -> bool>(Place, Option<K>);
    impl<K: FnOnce() -> bool> Drop for Back<K> {
        #[inline]
        fn drop(&mut self) {
            if self.1.take().is_some_and(|kept| kept()) {
                PLACE.set(self.0);
            }
        }
    }
    let running = Some((Arc::as_ptr(worker.shared()), id, class));
    let back = Back(PLACE.replace(Place { away: worker, running, ..NOWHERE }), Some(kept));
    let result = f();
    drop(back);
    result
}

/// Calls `f` with the worker of this thread, if it is one that does not hold its core.
pub(crate) fn with_away<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: null, or the worker that `on_worker` borrows further up this very stack.
    f(unsafe { PLACE.get().away.as_ref() })
}

/// Runs `f`, a job on this thread.
pub(crate) fn in_job<R>(shared: &Arc<Shared>, id: Id, class: Class, f: impl FnOnce() -> R) -> R {
    let running = Some((Arc::as_ptr(shared), id, class));
    in_place(shared, Place { running, ..NOWHERE }, f)
}

/// Runs `f`, a poll of a background task on this thread, which is a lowered one. If the task is to be polled again it is left
/// in `again`.
pub(crate) fn in_lowered_poll<R>(shared: &Arc<Shared>, id: Id, again: &Again, f: impl FnOnce() -> R) -> R {
    let running = Some((Arc::as_ptr(shared), id, Class::Background));
    in_place(shared, Place { running, again, ..NOWHERE }, f)
}

/// Leaves a task, whose poll has just returned on this thread and which is to be polled again, to the lowered thread that has
/// polled it. Gives it back if this is none.
pub(crate) fn leave_again(runnable: Runnable) -> Option<Runnable> {
    // SAFETY: null, or the cell that `in_lowered_poll` borrows further up this very stack: `PutBack` takes the pointer out before
    // the borrow ends.
    match unsafe { PLACE.get().again.as_ref() } {
        None => Some(runnable),
        // There is none before: a poll leaves one task, its own.
        Some(again) => again.replace(Some(runnable)),
    }
}

fn in_place<R>(shared: &Arc<Shared>, place: Place, f: impl FnOnce() -> R) -> R {
    // Dropped last: what the job leaves behind is put back first.
    let _come_back = ComeBack;
    let _put_back = PutBack(PLACE.replace(place));
    let _inside = Entered::new(shared.clone());
    f()
}

/// The task or job that runs on this thread.
pub(crate) fn running_id() -> Option<Id> {
    with_worker(|worker| match worker {
        Some(worker) => worker.running_id(),
        None => PLACE.get().running.map(|(_, id, _)| id),
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
    unsafe { PLACE.get().worker.as_ref() }
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
        let shared = match self {
            Self::Worker(worker) => worker.shared(),
            Self::Outside(shared) => shared,
        };
        // On a worker too: a task may fork.
        shared.refuse_in_forked_child();
        Arc::as_ptr(shared)
    }

    /// The class that a child inherits. Only within a runtime: what is the background of one may be the foreground of
    /// another.
    #[inline]
    fn class(self) -> Class {
        match self {
            Self::Worker(worker) => worker.class(),
            Self::Outside(shared) => match PLACE.get().running {
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
        None => PLACE.get().running.map_or(Class::Foreground, |(_, _, class)| class),
    })
}

/// The current runtime; outside any, the default one.
#[track_caller]
pub(crate) fn current_or_default() -> Arc<Shared> {
    current_shared().unwrap_or_else(|| default_runtime())
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
    let default;
    let current = match (entered.as_deref(), worker) {
        (None, Some(worker)) => Current::Worker(worker),
        (Some(shared), worker) => Current::of(shared, worker),
        // SAFETY: it is used in this frame, as above.
        (None, None) => match unsafe { PLACE.get().away.as_ref() } {
            Some(away) => Current::Outside(away.shared()),
            None => {
                default = default_runtime();
                Current::Outside(&default)
            }
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

/// Spawns a task onto this runtime of which it is said whether it is polled on lowered threads. One that is, is of the
/// background.
#[track_caller]
pub(crate) fn spawn_outright<F>(
    shared: &Arc<Shared>,
    name: Option<Box<str>>,
    class: Option<Class>,
    lowered: bool,
    location: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: it is used in this frame.
    let current = Current::of(shared, unsafe { worker() });
    let class = if lowered { Class::Background } else { class.unwrap_or_else(|| current.class()) };
    let (runnable, handle) = task::allocate(current.shared(), name, class, location, future);
    runnable.metadata().set_lowered_outright(lowered);
    if lowered {
        shared.submit_lowered(runnable);
    } else {
        current.submit(runnable);
    }
    handle
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
        let made_by = running_id();
        // Fails only in a thread that is being torn down, where there is nothing left to be inside of.
        let _ = STACK.try_with(|stack| {
            ENTERED.set(Arc::as_ptr(&shared));
            stack.0.borrow_mut().push(Entry { number, made_by, shared });
        });
        Self { number, not_send: PhantomData }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let running = running_id();
        let left = STACK.try_with(|stack| {
            let mut entries = stack.0.borrow_mut();
            // On top, but for guards that are dropped in an unusual order, and those of other tasks.
            let place = entries.iter().rposition(|entry| entry.number == self.number)?;
            let Entry { shared, .. } = entries.remove(place);
            ENTERED.set(top(&entries, running));
            Some(shared)
        });
        // Outside of the borrow: this may be the last count of a runtime.
        drop(left);
    }
}

/// This task goes on here, or none: the runtimes that it has entered and not left are current again.
#[cold]
pub(crate) fn come_back_to_entered(task: Option<Id>) {
    let _ = STACK.try_with(|stack| ENTERED.set(top(&stack.0.borrow(), task)));
}

/// Another task, or none, goes on here: what the last has entered and not left is not for it.
#[inline]
pub(crate) fn leave_entered() {
    ENTERED.set(ptr::null());
}

/// The runtime that was entered last by this task, or outside of any.
fn top(entries: &[Entry], task: Option<Id>) -> *const Shared {
    let entry = entries.iter().rfind(|entry| entry.made_by == task);
    entry.map_or(ptr::null(), |entry| Arc::as_ptr(&entry.shared))
}

/// A runtime that this thread has entered.
struct Entry {
    number: u64,
    // The task in whose poll it was entered, which alone is in it.
    made_by: Option<Id>,
    shared: Arc<Shared>,
}

/// The runtimes this thread has entered.
struct Stack(RefCell<Vec<Entry>>);

impl Drop for Stack {
    fn drop(&mut self) {
        // Guards that were forgotten: the thread ends, and what they counted is given back.
        ENTERED.set(ptr::null());
    }
}
