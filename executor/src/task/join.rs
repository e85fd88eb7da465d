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

/// A handle to a spawned task. Await it for the task's output, [`abort`](Self::abort) the task by
/// it, or drop it to let the task run on detached.
///
/// # Cancel safety
///
/// Awaiting `&mut handle` is cancel safe: an output is never lost, and can be awaited again until
/// it has been returned.
///
/// Awaiting spends an operation of the [budget](crate::budget) if the task has finished.
///
/// # Panics
///
/// Polling the handle again after it was ready panics. A waker that panics when the awaited task
/// clones, wakes or drops it aborts the process.
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
    /// `None` once the output has been returned. Taken out before the handle is dropped, to detach
    /// the task: async-task's handle would cancel it.
    task: Option<FallibleTask<Output<T>, InPlace>>,
    /// `Key::meta` if `task` is `Some`, `Key::id` if it is `None`.
    key: Key,
}

/// What a handle needs besides `task`. A union, so that the handle has two words: it is then passed
/// in a pair of registers, and not copied through memory.
#[derive(Clone, Copy)]
union Key {
    /// While `task` is `Some`: the metadata, in the allocation that `task` holds.
    meta: NonNull<Meta>,
    /// Once `task` is `None`: the id.
    id: Id,
}

// SAFETY: sending the handle sends the right to the output, which is `Send`. The rest of the task
// that it reaches is the metadata, which is `Sync`, and async-task's state word, which is atomic.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a `&JoinHandle` does not reach the output. It reaches the metadata, which is `Sync`, and
// async-task's state word, which is atomic.
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

    /// Returns the task's metadata, or `None` once the output has been returned.
    #[inline]
    fn meta(&self) -> Option<&Meta> {
        self.task.as_ref()?;
        // SAFETY: `task` is `Some`, so `meta` is the field of the union that is valid.
        let meta = unsafe { self.key.meta };
        // SAFETY: the metadata has been written, and nothing makes a mutable reference to it.
        // `task` holds the allocation that it is in for as long as `self` is borrowed.
        Some(unsafe { meta.as_ref() })
    }

    /// Detaches the task, or drops its output if it has finished.
    ///
    /// Not inlined: a handle that was awaited has no task any more, and the code of its drop is in
    /// every future that awaits one.
    #[inline(never)]
    fn detach(&mut self) {
        let id = self.id();
        if let Some(task) = self.task.take() {
            dropping(id, || task.detach());
        }
    }

    /// Ends the task at its next chance.
    ///
    /// If the task waits or is queued, its future is dropped when its turn comes, instead of being
    /// polled. If it is being polled, that happens when the poll has returned. The handle then
    /// yields a [cancelled](JoinError::is_cancelled) error. A task that finishes before it notices
    /// the abort yields its output all the same. May be called on any thread, any number of times.
    ///
    /// A loop whose only awaits are yield points that do not give way stays in one poll. The
    /// runtime asks such a poll to return after 10 ms. A task in the yield queue is dropped when
    /// its turn comes. On a machine whose foreground leaves no worker free that may take
    /// [as long as that](crate::Builder::yield_patience).
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

    /// Returns a handle that can abort the task but not wait for it.
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

    /// Returns whether the task has finished, with an output or without: awaiting it would not
    /// wait.
    ///
    /// After [`abort`](Self::abort) this stays false until the future has been dropped.
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
        // async-task's answer is not enough: it calls a closed task finished while its future is
        // still being dropped.
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
            && self.meta().is_none_or(Meta::has_ended)
    }

    /// Returns the task's number.
    ///
    /// # Examples
    ///
    /// ```
    /// let task = giveway::spawn(async {});
    /// println!("started {}", task.id());
    /// ```
    pub fn id(&self) -> Id {
        // SAFETY: `meta` returns `None` if and only if `task` is `None`, and then `id` is the field
        // of the union that is valid.
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
            // The task has finished since the first poll, or shutdown has dropped its future and
            // async-task has not noted it yet. In the second case there will be no output to wait
            // for.
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
            // No output: the runtime was shut down and dropped the task unfinished.
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
