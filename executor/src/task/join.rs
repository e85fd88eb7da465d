//! Waiting for a task.

use super::error::Reason;
use super::future::Output;
use super::id::dropping;
use super::{AbortHandle, Id, InPlace, JoinError, Meta};
use async_task::{FallibleTask, Task};
use futures_util::future::FusedFuture;
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, ready};

/// A task that was spawned: await it for its output, [`abort`](Self::abort) it, or drop it to let it run on alone.
///
/// # Cancel safety
///
/// Awaiting `&mut handle` is cancel safe: an output is never lost, and can be awaited again until it was returned.
///
/// Awaiting spends an operation of the [budget](crate::budget), if the task has finished.
///
/// # Panics
///
/// Polling the handle again after it was ready panics. A waker that panics when it is cloned, woken or dropped by the
/// task it waits for aborts the process.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let mut task = giveway::spawn(async { "ready" });
///     assert_eq!((&mut task).await.unwrap(), "ready");
/// });
/// ```
pub struct JoinHandle<T> {
    // `None` once the output was returned. Taken out to detach on drop: async-task's handle cancels on drop.
    task: Option<FallibleTask<Output<T>, InPlace>>,
    key: Key,
}

/// Two words make the handle a pair of registers, and not something that is copied through memory.
#[derive(Clone, Copy)]
union Key {
    /// While `task` is `Some`: the metadata, in the allocation that `task` holds.
    meta: NonNull<Meta>,
    /// Afterwards: the id.
    id: Id,
}

// SAFETY: sending the handle sends the output, and nothing else of the task: its metadata is `Sync`.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: by reference, only the metadata can be reached, which is `Sync`.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Unpin for JoinHandle<T> {}
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    #[inline]
    pub(crate) fn new(task: Task<Output<T>, InPlace>) -> Self {
        let meta = NonNull::from(&**task.metadata());
        Self { task: Some(task.fallible()), key: Key { meta } }
    }

    /// The task's metadata, until its output was returned.
    #[inline]
    fn meta(&self) -> Option<&Meta> {
        self.task.as_ref()?;
        // SAFETY: `task` is `Some`, so the key is the metadata.
        let meta = unsafe { self.key.meta };
        // SAFETY: `task` holds the allocation that the metadata is in.
        Some(unsafe { meta.as_ref() })
    }

    /// Lets the task run on alone, or drops its output. Not inlined: a handle that was awaited has no task any more, and the
    /// code of its drop is in every future that awaits one.
    #[inline(never)]
    fn detach(&mut self) {
        let id = self.id();
        if let Some(task) = self.task.take() {
            dropping(id, || task.detach());
        }
    }

    /// Ends the task at its next chance.
    ///
    /// If it waits or is queued, a worker drops its future instead of polling it; if it is being polled, that
    /// happens when the poll returns. The handle then yields a [cancelled](JoinError::is_cancelled) error. A task
    /// that finished before it noticed yields its output all the same. May be called from anywhere, any number of
    /// times.
    ///
    /// A loop whose only awaits are yield points that do not give way stays in one poll; it is asked to return after
    /// 10 ms. A task that waits in the yield queue is dropped when its turn comes, which on a machine whose foreground
    /// leaves no worker free may take [as long as that](crate::Builder::yield_patience).
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(std::future::pending::<()>());
    ///     task.abort();
    ///     assert!(task.await.unwrap_err().is_cancelled());
    /// });
    /// ```
    pub fn abort(&self) {
        if let Some(meta) = self.meta() {
            meta.abort();
        }
    }

    /// A handle that can abort the task but not wait for it.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(std::future::pending::<()>());
    ///     let abort = task.abort_handle();
    ///     giveway::spawn(async move { abort.abort() });
    ///     assert!(task.await.unwrap_err().is_cancelled());
    /// });
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.id(), self.meta())
    }

    /// Whether the task has finished, one way or another: awaiting it would not wait.
    ///
    /// After [`abort`](Self::abort) this stays false until a worker has dropped the future.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(std::future::pending::<()>());
    ///     assert!(!task.is_finished());
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        // async-task calls a task finished that was closed and whose future is still being dropped.
        self.task.as_ref().is_none_or(FallibleTask::is_finished) && self.meta().is_none_or(Meta::has_ended)
    }

    /// The task's number.
    ///
    /// # Examples
    ///
    /// ```
    /// let task = giveway::spawn(async {});
    /// println!("started {}", task.id());
    /// ```
    pub fn id(&self) -> Id {
        // SAFETY: without a task, the key is the id.
        self.meta().map_or_else(|| unsafe { self.key.id }, |meta| meta.id)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let spent = ready!(giveway_budget::poll_proceed(cx));
        let mut poll_task = |this: &mut Self| {
            let task = this.task.as_mut().expect("a `JoinHandle` was polled after it was ready");
            Pin::new(task).poll(cx)
        };
        let mut output = poll_task(&mut self);
        if output.is_pending() && self.is_finished() {
            // It finished meanwhile; or shutdown has dropped its future, and async-task is about to say so. The future
            // is gone and will leave no output, so we need not wait for that.
            output = Poll::Ready(match poll_task(&mut self) {
                Poll::Ready(output) => output,
                Poll::Pending => None,
            });
        }
        let Poll::Ready(output) = output else { return Poll::Pending };
        spent.made_progress();
        let id = self.id();
        let result = match (output, self.meta()) {
            (Some(output), _) => output.into_inner(),
            // No output at all: the runtime was shut down, and dropped the task unfinished.
            (None, Some(meta)) => Err(JoinError::new(meta, Reason::ShutDown)),
            (None, None) => unreachable!("the task was there a moment ago"),
        };
        self.task = None;
        self.key = Key { id };
        Poll::Ready(result)
    }
}

impl<T> FusedFuture for JoinHandle<T> {
    fn is_terminated(&self) -> bool {
        self.task.is_none()
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.task.is_some() {
            self.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id())
            .field("name", &self.meta().and_then(|meta| meta.name()))
            .field("finished", &self.is_finished())
            .finish()
    }
}
