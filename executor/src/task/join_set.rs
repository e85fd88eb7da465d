//! Many tasks of one kind, joined in the order in which they finish.

use super::{AbortHandle, JoinError, JoinHandle};
use crate::runtime::Handle;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::task::{Context, Poll, Waker};

/// A set of tasks with outputs of one type. Dropping it aborts what has not finished.
///
/// A task that finishes wakes the one that joins, and costs nothing while it runs. To give a task a name, add it with
/// [`Builder::spawn_in`](super::Builder::spawn_in).
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let mut set = giveway::task::JoinSet::new();
///     for n in 0..10 {
///         set.spawn(async move { n });
///     }
///     let mut sum = 0;
///     while let Some(n) = set.join_next().await {
///         sum += n.unwrap();
///     }
///     assert_eq!(sum, 45);
/// });
/// ```
pub struct JoinSet<T> {
    tasks: FuturesUnordered<JoinHandle<T>>,
    // Whoever waits for the next task. `try_join_next` has to poll as well, and must not put another in its place.
    joiner: Option<Waker>,
}

impl<T> JoinSet<T> {
    /// An empty set.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(giveway::task::JoinSet::<()>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self { tasks: FuturesUnordered::new(), joiner: None }
    }

    /// How many tasks have not been joined.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut set = giveway::task::JoinSet::new();
    /// set.spawn(async {});
    /// assert_eq!(set.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether every task has been joined.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(giveway::task::JoinSet::<()>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Spawns a task onto the current runtime, as [`giveway::spawn`](crate::spawn) does, and adds it.
    ///
    /// # Panics
    ///
    /// Where [`giveway::spawn`](crate::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut set = giveway::task::JoinSet::new();
    /// set.spawn(async { "done" });
    /// ```
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.add(super::spawn(future))
    }

    /// Spawns a background task onto the current runtime, as [`giveway::spawn_background`](crate::spawn_background) does,
    /// and adds it.
    ///
    /// # Panics
    ///
    /// Where [`giveway::spawn`](crate::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut set = giveway::task::JoinSet::new();
    /// set.spawn_background(async { "done, some time" });
    /// ```
    #[track_caller]
    pub fn spawn_background<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.add(super::spawn_background(future))
    }

    /// Runs a function that blocks on a thread of its own, as [`giveway::spawn_blocking`](crate::spawn_blocking) does, and adds
    /// it. [`abort_all`](Self::abort_all) cancels it only as long as it has not started.
    ///
    /// # Panics
    ///
    /// Where [`giveway::spawn`](crate::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let mut set = giveway::task::JoinSet::new();
    ///     set.spawn(async { 6 });
    ///     set.spawn_blocking(|| 7);
    ///     assert_eq!(set.join_all().await.iter().product::<u32>(), 42);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, job: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.add(super::spawn_blocking(job))
    }

    /// Spawns a task onto the runtime of `handle` and adds it.
    ///
    /// # Panics
    ///
    /// In the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().workers(1).build()?;
    /// let mut set = giveway::task::JoinSet::new();
    /// set.spawn_on(async { "done" }, runtime.handle());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(&mut self, future: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.add(handle.spawn(future))
    }

    pub(super) fn add(&mut self, task: JoinHandle<T>) -> AbortHandle {
        let abort = task.abort_handle();
        self.tasks.push(task);
        abort
    }

    /// Waits for the next task to finish; `None` if the set is empty.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped before it is ready, no task was taken out of the set.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let mut set = giveway::task::JoinSet::new();
    ///     set.spawn(async { 1 });
    ///     assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
    ///     assert!(set.join_next().await.is_none());
    /// });
    /// ```
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// A task that has finished already, without waiting for one.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut set = giveway::task::JoinSet::<()>::new();
    /// assert!(set.try_join_next().is_none());
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let joiner = self.joiner.take();
        let mut cx = Context::from_waker(joiner.as_ref().unwrap_or(Waker::noop()));
        // Nothing is waited for, so there is nothing to give way at; and "none" must mean none.
        let joined = giveway_budget::unconstrained(&mut self.tasks).poll_next_unpin(&mut cx);
        self.joiner = joiner;
        match joined {
            Poll::Ready(joined) => joined,
            Poll::Pending => None,
        }
    }

    /// Polls for the next task to finish. Only the waker of the last call is woken.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let mut set = giveway::task::JoinSet::<()>::new();
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(matches!(set.poll_join_next(&mut cx), Poll::Ready(None)));
    /// ```
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        match &mut self.joiner {
            Some(joiner) => joiner.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        self.tasks.poll_next_unpin(cx)
    }

    /// Waits for every task, and returns the outputs in the order in which the tasks finished.
    ///
    /// # Panics
    ///
    /// If a task panicked or was aborted; the rest are aborted then. Use [`join_next`](Self::join_next) to handle
    /// that.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let mut set = giveway::task::JoinSet::new();
    ///     set.spawn(async { 7 });
    ///     assert_eq!(set.join_all().await, [7]);
    /// });
    /// ```
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.len());
        while let Some(output) = self.join_next().await {
            match output {
                Ok(output) => outputs.push(output),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => panic!("`JoinSet::join_all` met a task that was aborted: {error}"),
            }
        }
        outputs
    }

    /// Aborts every task; they stay in the set, to be joined.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let mut set = giveway::task::JoinSet::new();
    ///     set.spawn(std::future::pending::<()>());
    ///     set.abort_all();
    ///     assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
    /// });
    /// ```
    pub fn abort_all(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// Takes every task out of the set and lets it run on alone.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut set = giveway::task::JoinSet::new();
    /// set.spawn(async {});
    /// set.detach_all();
    /// assert!(set.is_empty());
    /// ```
    pub fn detach_all(&mut self) {
        self.tasks.clear();
    }

    /// Aborts every task and waits until all are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let mut set = giveway::task::JoinSet::new();
    ///     set.spawn(std::future::pending::<()>());
    ///     set.shutdown().await;
    ///     assert!(set.is_empty());
    /// });
    /// ```
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }
}

impl<T> UnwindSafe for JoinSet<T> {}
impl<T> RefUnwindSafe for JoinSet<T> {}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}

impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    /// Spawns every future onto the current runtime. If the iterator panics, the tasks spawned so far are aborted.
    /// Reports give this line as the place where they were spawned: nobody can ask `collect` for its caller.
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        futures.into_iter().for_each(|future| {
            set.spawn(future);
        });
        set
    }
}
