//! Many tasks with outputs of one type, joined in the order in which they finish.

use super::{AbortHandle, JoinError, JoinHandle};
use crate::runtime::Handle;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::task::{Context, Poll, Waker};

/// A set of tasks with outputs of one type. Dropping it aborts the tasks that have not finished.
///
/// A task costs nothing more in a set while it runs. When it finishes, it wakes the caller of
/// [`join_next`](Self::join_next). To give a task a name, add it with
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
    /// The waker of the last `poll_join_next`. `try_join_next` has to poll with a waker too, and
    /// passes this one, so that it does not put another in its place.
    joiner: Option<Waker>,
}

impl<T> JoinSet<T> {
    /// Returns an empty set.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(giveway::task::JoinSet::<()>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self { tasks: FuturesUnordered::new(), joiner: None }
    }

    /// Returns the number of tasks that have not been joined.
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

    /// Returns whether every task has been joined.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(giveway::task::JoinSet::<()>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Spawns a task onto the current runtime, as [`giveway::spawn`](crate::spawn) does, and adds
    /// it.
    ///
    /// # Panics
    ///
    /// Panics where [`giveway::spawn`](crate::spawn) does.
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

    /// Spawns a background task onto the current runtime, as
    /// [`giveway::spawn_background`](crate::spawn_background) does, and adds it.
    ///
    /// # Panics
    ///
    /// Panics where [`giveway::spawn`](crate::spawn) does.
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

    /// Runs a function that blocks on a thread of its own, as
    /// [`giveway::spawn_blocking`](crate::spawn_blocking) does, and adds the job.
    ///
    /// [`abort_all`](Self::abort_all) cancels a job only as long as it has not started.
    ///
    /// # Panics
    ///
    /// Panics where [`giveway::spawn`](crate::spawn) does.
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
    /// Panics in the child of a `fork`.
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

    /// Adds a task, and returns a handle that aborts it.
    pub(super) fn add(&mut self, task: JoinHandle<T>) -> AbortHandle {
        let abort = task.abort_handle();
        self.tasks.push(task);
        abort
    }

    /// Waits for the next task to finish and returns its output, or `None` if the set is empty.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped before it is ready, no task has been taken out of the
    /// set.
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

    /// Returns the output of a task that has finished already, without waiting for one.
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
        // Without a budget: this call waits for nothing, so there is nothing to give way at, and
        // `None` has to mean that no task has finished.
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
    /// Panics if a task panicked or was aborted; the other tasks are aborted then. Use
    /// [`join_next`](Self::join_next) to handle such a task.
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

    /// Aborts every task. The tasks stay in the set, to be joined.
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

    /// Takes every task out of the set and lets it run on detached.
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

    /// Aborts every task and waits until all of them are gone.
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
    /// Spawns every future onto the current runtime. If the iterator panics, the tasks spawned so
    /// far are aborted. Reports give this line as the place where the tasks were spawned: `collect`
    /// does not pass on its caller's location.
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        futures.into_iter().for_each(|future| {
            set.spawn(future);
        });
        set
    }
}
