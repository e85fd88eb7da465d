//! Ending a task without waiting for it.

use super::{Id, Meta};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::task::Waker;

/// Aborts a task. Does not wait for it, and does not keep it from finishing. Cheap to clone.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let task = giveway::spawn(std::future::pending::<()>());
///     let abort = task.abort_handle();
///     drop(task); // detached
///     abort.abort();
/// });
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    id: Id,
    /// `None` if the task had been joined when this handle was made.
    task: Option<Target>,
}

#[derive(Clone)]
struct Target {
    /// The task's metadata, in the allocation that `_waker` holds a reference to.
    meta: NonNull<Meta>,
    _waker: Waker,
}

impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

// SAFETY: `meta` is only read, and `Meta` is `Sync`. `_waker`, which moves along, keeps the
// metadata in place.
unsafe impl Send for Target {}
// SAFETY: a `&Target` gives access to the metadata, which is `Sync`, and to a waker, which is too.
// `_waker` keeps the metadata in place.
unsafe impl Sync for Target {}

impl AbortHandle {
    pub(crate) fn new(id: Id, task: Option<&Meta>) -> Self {
        Self {
            id,
            task: task.map(|meta| Target { meta: NonNull::from(meta), _waker: meta.waker() }),
        }
    }

    /// Ends the task at its next chance, as [`JoinHandle::abort`](super::JoinHandle::abort) says.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(std::future::pending::<()>());
    ///     task.abort_handle().abort();
    ///     assert!(task.await.unwrap_err().is_cancelled());
    /// });
    /// ```
    pub fn abort(&self) {
        if let Some(task) = &self.task {
            // SAFETY: `meta` points to metadata that was written before the handle was made, and
            // the waker beside it holds a reference to the allocation that the metadata lives in.
            // Nothing has a mutable reference to it.
            unsafe { task.meta.as_ref() }.abort();
        }
    }

    /// Returns whether the task's future has been dropped, finished or not. The task's output may
    /// take a moment longer to reach its [`JoinHandle`](super::JoinHandle).
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(async {});
    ///     let abort = task.abort_handle();
    ///     task.await.unwrap();
    ///     assert!(abort.is_finished());
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        // SAFETY: `meta` points to metadata that was written before the handle was made, and the
        // waker beside it holds a reference to the allocation that the metadata lives in. Nothing
        // has a mutable reference to it.
        self.task.as_ref().is_none_or(|task| unsafe { task.meta.as_ref() }.has_ended())
    }

    /// Returns the task's number.
    ///
    /// # Examples
    ///
    /// ```
    /// let task = giveway::spawn(async {});
    /// assert_eq!(task.abort_handle().id(), task.id());
    /// ```
    pub fn id(&self) -> Id {
        self.id
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("id", &self.id).finish()
    }
}
