//! Which runtime the calling thread is in.
//!
//! There are two thread-locals without destructors, so that reading them is one load and works
//! while the thread ends: `PLACE`, the [`Place`] of the thread in a runtime, and `ENTERED`, the
//! runtime that it has entered last, which takes precedence. Code that changes the place saves the
//! whole of it, and puts it back afterwards.
//!
//! A runtime that was entered inside of a poll is current for that task alone, also if its guard is
//! held across an await. Each entry of `STACK` has the task that made it. A worker leaves the
//! entries of a task after its poll, and comes back to them before the next.

use super::{Shared, default_runtime};
use crate::task::{Class, Id, Runnable};
use crate::worker::Worker;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

thread_local! {
    /// What this thread is in a runtime.
    static PLACE: Cell<Place> = const { Cell::new(NOWHERE) };
    /// The runtime of the entry of `STACK` that counts now; the entry holds the count. It is the
    /// last entry that the running task has made, or, outside of any task, the last that was made
    /// there. Null if there is none.
    static ENTERED: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The runtimes that this thread has entered, the last at the end.
    static STACK: Stack = const { Stack(RefCell::new(Vec::new())) };
    /// The number of the next guard.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// What a thread is in a runtime.
#[derive(Clone, Copy)]
struct Place {
    /// The worker whose loop is on this thread's stack, while it holds its core. Otherwise null.
    worker: *const Worker,
    /// The same worker while it is in a poll and does not hold its core. Otherwise null.
    away: *const Worker,
    /// What runs here without a core: such a poll, a lowered poll, or a blocking job.
    running: Option<(*const Shared, Id, Class)>,
    /// In a poll on a lowered thread: where to leave its task if it is to be polled again.
    /// Otherwise null.
    again: *const Again,
}

/// Holds a task that was woken while it was polled, from the end of that poll until the lowered
/// thread takes it.
pub(crate) type Again = Cell<Option<Runnable>>;

const NOWHERE: Place =
    Place { worker: ptr::null(), away: ptr::null(), running: None, again: ptr::null() };

/// Puts back the place that the thread had before.
struct PutBack(Place);

impl Drop for PutBack {
    #[inline]
    fn drop(&mut self) {
        PLACE.set(self.0);
    }
}

/// Makes current again what was entered in the place that the thread has come back to.
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

/// Runs `f` while this thread's worker does not hold its core, in the middle of a poll of the task
/// `id`. If `kept` says afterwards that the worker has its core again, the thread gets back its
/// place. Otherwise it stays away up to the end of [`on_worker`].
#[inline]
pub(crate) fn away<R>(
    worker: &Worker,
    id: Id,
    class: Class,
    f: impl FnOnce() -> R,
    kept: impl FnOnce() -> bool,
) -> R {
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

/// Calls `f` with the worker of this thread if it does not hold its core, and otherwise with
/// `None`.
pub(crate) fn with_away<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: the reference ends with the call of `f`, which cannot return it, so it does not
    // outlive this frame.
    f(unsafe { worker_away() })
}

/// Returns the worker of this thread, if it is in a poll and does not hold its core.
///
/// # Safety
///
/// The reference must not outlive the stack frame that calls this.
#[inline]
pub(crate) unsafe fn worker_away<'a>() -> Option<&'a Worker> {
    // SAFETY: the pointer is null, or points to the worker that `on_worker` borrows further up this
    // stack; its `PutBack` takes the pointer out before the borrow ends. There are only shared
    // references to a worker. The caller keeps the reference within its own frame, which ends
    // before that of `on_worker`.
    unsafe { PLACE.get().away.as_ref() }
}

/// Runs `f`, a blocking job, on this thread.
pub(crate) fn in_job<R>(shared: &Arc<Shared>, id: Id, class: Class, f: impl FnOnce() -> R) -> R {
    let running = Some((Arc::as_ptr(shared), id, class));
    in_place(shared, Place { running, ..NOWHERE }, f)
}

/// Runs `f`, a poll of a background task, on this thread, which is a lowered one. If the task is to
/// be polled again, [`leave_again`] puts it into `again`.
pub(crate) fn in_lowered_poll<R>(
    shared: &Arc<Shared>,
    id: Id,
    again: &Again,
    f: impl FnOnce() -> R,
) -> R {
    let running = Some((Arc::as_ptr(shared), id, Class::Background));
    in_place(shared, Place { running, again, ..NOWHERE }, f)
}

/// Leaves a task to the lowered thread that has just polled it and is to poll it again. Returns the
/// task if the calling thread is no such thread.
pub(crate) fn leave_again(runnable: Runnable) -> Option<Runnable> {
    // SAFETY: the pointer is null, or points to the cell that `in_lowered_poll` borrows further up
    // this stack: `PutBack` takes the pointer out before the borrow ends. There are only shared
    // references to the cell. The reference is used in this frame alone.
    match unsafe { PLACE.get().again.as_ref() } {
        None => Some(runnable),
        // The cell was empty: a poll leaves one task, its own.
        Some(again) => again.replace(Some(runnable)),
    }
}

fn in_place<R>(shared: &Arc<Shared>, place: Place, f: impl FnOnce() -> R) -> R {
    // Dropped last: it asks `running_id`, so the place has to be put back first.
    let _come_back = ComeBack;
    let _put_back = PutBack(PLACE.replace(place));
    let _inside = Entered::new(shared.clone());
    f()
}

/// Returns the id of the task or job that runs on this thread.
pub(crate) fn running_id() -> Option<Id> {
    with_worker(|worker| match worker {
        Some(worker) => worker.running_id(),
        None => PLACE.get().running.map(|(_, id, _)| id),
    })
}

/// Calls `f` with the worker of this thread, if it is one that holds its core.
#[inline]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    // SAFETY: the reference ends with the call of `f`, which cannot return it, so it does not
    // outlive this frame.
    f(unsafe { worker() })
}

/// Returns the worker of this thread, if it is one that holds its core.
///
/// # Safety
///
/// The reference must not outlive the stack frame that calls this.
#[inline]
pub(crate) unsafe fn worker<'a>() -> Option<&'a Worker> {
    // SAFETY: the pointer is null, or points to the worker that `on_worker` borrows further up this
    // stack; its `PutBack` takes the pointer out before the borrow ends. There are only shared
    // references to a worker. The caller keeps the reference within its own frame, which ends
    // before that of `on_worker`.
    unsafe { PLACE.get().worker.as_ref() }
}

/// Returns the class of the task that runs on this thread.
pub(crate) fn current_class() -> Class {
    with_worker(|worker| match worker {
        Some(worker) => worker.class(),
        None => PLACE.get().running.map_or(Class::Foreground, |(_, _, class)| class),
    })
}

/// Returns the current runtime; outside of any, the default one.
#[track_caller]
pub(crate) fn current_or_default() -> Arc<Shared> {
    current_shared().unwrap_or_else(|| default_runtime())
}

/// Returns the class of what runs on this thread without a core of `shared`, if it belongs to that
/// runtime.
pub(crate) fn running_class(shared: &Arc<Shared>) -> Option<Class> {
    let (runtime, _, class) = PLACE.get().running?;
    ptr::eq(runtime, Arc::as_ptr(shared)).then_some(class)
}

/// Returns the runtime that was entered last, borrowed from the stack.
///
/// User code may leave that runtime and drop it. A caller that runs user code while it holds this
/// must count the runtime first.
#[inline]
pub(crate) fn entered() -> Option<ManuallyDrop<Arc<Shared>>> {
    let entered = ENTERED.get();
    if entered.is_null() {
        return None;
    }
    // SAFETY: the pointer is that of an `Arc` in an entry of `STACK`, which keeps the runtime
    // alive; `ENTERED` is changed when the entry is removed. The `Arc` that is made here is never
    // dropped, so it takes no count away.
    Some(ManuallyDrop::new(unsafe { Arc::from_raw(entered) }))
}

/// Returns the current runtime, if the thread is in one.
pub(crate) fn current_shared() -> Option<Arc<Shared>> {
    match entered() {
        Some(shared) => Some(Arc::clone(&shared)),
        None => with_worker(|worker| match worker {
            Some(worker) => Some(worker.shared().clone()),
            None => with_away(|away| away.map(Worker::shared).cloned()),
        }),
    }
}

/// Keeps a runtime entered until it is dropped. Must stay on its thread.
pub(crate) struct Entered {
    number: u64,
    not_send: PhantomData<*const ()>,
}

impl Entered {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let number = NUMBER.get();
        NUMBER.set(number + 1);
        let made_by = running_id();
        // Fails only on a thread that is being torn down: there is nothing left there to be inside
        // of.
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
            // The entry is on top, except for guards that are dropped in an unusual order, and
            // beside those of other tasks.
            let place = entries.iter().rposition(|entry| entry.number == self.number)?;
            let Entry { shared, .. } = entries.remove(place);
            ENTERED.set(top(&entries, running));
            Some(shared)
        });
        // Outside of the borrow: this may be the last count of a runtime, whose drop must not find
        // the stack borrowed.
        drop(left);
    }
}

/// Makes current the runtime that `task`, which goes on here, has entered last and not left. `None`
/// stands for code outside of any task.
#[cold]
pub(crate) fn come_back_to_entered(task: Option<Id>) {
    let _ = STACK.try_with(|stack| ENTERED.set(top(&stack.0.borrow(), task)));
}

/// Makes no entry current: another task goes on here, or none, and the entries of the last one are
/// not for it.
#[inline]
pub(crate) fn leave_entered() {
    ENTERED.set(ptr::null());
}

/// Returns the runtime that `task` has entered last, or null. `None` stands for code outside of any
/// task.
fn top(entries: &[Entry], task: Option<Id>) -> *const Shared {
    let entry = entries.iter().rfind(|entry| entry.made_by == task);
    entry.map_or(ptr::null(), |entry| Arc::as_ptr(&entry.shared))
}

/// A runtime that this thread has entered.
struct Entry {
    number: u64,
    /// The task in whose poll it was entered. The entry counts for that task alone.
    made_by: Option<Id>,
    shared: Arc<Shared>,
}

/// The runtimes that this thread has entered and not left.
struct Stack(RefCell<Vec<Entry>>);

impl Drop for Stack {
    fn drop(&mut self) {
        // What is left are the entries of forgotten guards. The thread ends, and their counts are
        // given back.
        ENTERED.set(ptr::null());
    }
}
