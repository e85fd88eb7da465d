//! Ending a task without waiting for it.

use super::{Id, Meta};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::task::Waker;

/// Aborts a task; does not wait for it, and does not keep it from finishing. Cheap to clone.
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
    // `None` if the task had been joined when this was made.
    task: Option<Target>,
}

#[derive(Clone)]
struct Target {
    // In the allocation that `_waker` holds a reference to.
    meta: NonNull<Meta>,
    _waker: Waker,
}

impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

// SAFETY: the metadata is `Sync`, and the waker keeps it in place.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl AbortHandle {
    pub(crate) fn new(id: Id, task: Option<&Meta>) -> Self {
        Self { id, task: task.map(|meta| Target { meta: NonNull::from(meta), _waker: meta.waker() }) }
    }

    /// Ends the task at its next chance; see [`JoinHandle::abort`](super::JoinHandle::abort).
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
            // SAFETY: the waker is a reference to the task's allocation, where the metadata lives.
            unsafe { task.meta.as_ref() }.abort();
        }
    }

    /// Whether the task's future is gone, one way or another. Its output may take a moment longer to reach its
    /// [`JoinHandle`](super::JoinHandle).
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
        // SAFETY: as in `abort`.
        self.task.as_ref().is_none_or(|task| unsafe { task.meta.as_ref() }.has_ended())
    }

    /// The task's number.
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
