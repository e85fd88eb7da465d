//! The runtime: what its threads share, and the handles by which users hold it.

mod block_on;
mod builder;
pub(crate) mod context;
mod default;
mod fatal;
mod handle;
pub(crate) mod hint;
mod hooks;
pub(crate) mod host;
mod report;
mod shared;
mod shutdown;
#[cfg(feature = "tokio")]
pub(crate) mod tokio;
#[cfg(not(feature = "tokio"))]
#[path = "no_tokio.rs"]
pub(crate) mod tokio;
mod waiting;

pub use builder::{Builder, MAX_WORKERS};
pub use handle::{EnterGuard, Handle};
pub use hooks::{PanicPolicy, TaskMeta, TaskPanic};
pub use host::{should_yield, yield_now_if_busy};
pub use report::{ShutdownReport, StuckTask};

#[cfg(feature = "macros")]
pub(crate) use default::Lent;
pub(crate) use default::{default_runtime, default_runtime_for_io};
pub(crate) use fatal::{Fatal, Waiter};
pub(crate) use hooks::Hooks;
pub(crate) use shared::Shared;
pub(crate) use shutdown::{Gate, Phase, drop_injected, wait_while};

use crate::task::{self, Class, JoinHandle};
use std::fmt;
use std::future::Future;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::thread;
use std::time::Duration;

/// A multi-threaded runtime: a set of worker threads, and the tasks they run.
///
/// # Dropping
///
/// Dropping the runtime shuts it down: no further task is accepted, every task is dropped at its
/// next await point, each on a worker thread, and the threads are joined. A task that does not
/// return from a poll delays that; see [`shutdown_timeout`](Self::shutdown_timeout). A task's
/// destructor may do anything: wake, spawn (the new future is dropped at once), drop other handles.
///
/// [Blocking jobs](crate::spawn_blocking) that were accepted run, also those that wait for a
/// thread. The drop waits for them, so `spawn_blocking(flush)` right before it is safe. The tasks
/// and jobs that they spawn meanwhile are cancelled.
///
/// To let tasks finish instead, join them first.
///
/// A drop that has to wait says for what, on standard error and, with the feature `tracing`, as an
/// event: which task, where it was spawned, how long it has been in one poll, in a destructor or in
/// a blocking job. It says so first after a second, and then again after pauses that grow.
///
/// A runtime that is dropped by one of its own workers (a task owned the last reference) does not
/// wait for the threads: they finish by themselves. A drop in async code that *another* runtime
/// runs blocks that thread until they have finished; tokio panics there. Use
/// [`shutdown_background`](Self::shutdown_background) instead.
///
/// # Examples
///
/// ```
/// let runtime = giveway::Builder::new().workers(2).build()?;
/// let sum = runtime.block_on(async {
///     let a = giveway::spawn(async { 1 });
///     let b = giveway::spawn(async { 2 });
///     a.await.unwrap() + b.await.unwrap()
/// });
/// assert_eq!(sum, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    handle: Handle,
    /// The handles of the workers and of the monitor. `None` once the runtime was shut down.
    threads: Option<Vec<thread::JoinHandle<()>>>,
}

impl Runtime {
    /// Starts a runtime with the default settings: `Builder::new().build()`.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::build`].
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> std::io::Result<Self> {
        Builder::new().build()
    }

    /// Runs a future on the calling thread until it is done. Its tasks run on the workers
    /// meanwhile.
    ///
    /// # Panics
    ///
    /// Panics if the future panics, and
    ///
    /// - in the child of a `fork`;
    /// - on a worker thread outside of a task: in a thread hook, in a waker that the worker wakes,
    ///   in a destructor while its runtime is being shut down;
    /// - if the future is pending after a panic has ended the runtime ([`PanicPolicy::Shutdown`]).
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// assert_eq!(runtime.block_on(async { 5 }), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Spawns a future as a task; see [`giveway::spawn`](crate::spawn).
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let task = runtime.spawn(async { 5 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawning::spawn_on(&self.handle.shared, None, None, Location::caller(), future)
    }

    /// Spawns a future as a background task; see
    /// [`giveway::spawn_background`](crate::spawn_background).
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let task = runtime.spawn_background(async { 5 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_background<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawning::spawn_on(
            &self.handle.shared,
            None,
            Some(Class::Background),
            Location::caller(),
            future,
        )
    }

    /// Spawns a future that stays on one worker's thread; see
    /// [`giveway::spawn_pinned`](crate::spawn_pinned).
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let task = runtime.spawn_pinned(|| async { *std::rc::Rc::new(5) });
    /// assert_eq!(runtime.block_on(task).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(&self, f: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        task::pinned::spawn_on(&self.handle.shared, None, None, None, Location::caller(), f)
    }

    /// Runs a function on a thread where it may block; see
    /// [`giveway::spawn_blocking`](crate::spawn_blocking).
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let job = runtime.spawn_blocking(|| 5);
    /// assert_eq!(runtime.block_on(job).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        crate::blocking::spawn_on(&self.handle.shared, None, None, Location::caller(), f)
    }

    /// Returns what the runtime has counted and timed since it was started; see
    /// [`Handle::metrics`].
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// println!("{}", runtime.metrics());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> crate::metrics::Metrics {
        self.handle.metrics()
    }

    /// Returns what the tasks of the runtime are doing at this moment; see [`Handle::dump`].
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// println!("{}", runtime.dump());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump(&self) -> crate::metrics::Dump {
        self.handle.dump()
    }

    /// Returns a handle to the runtime, which may be cloned and sent to other threads.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let handle = runtime.handle().clone();
    /// std::thread::spawn(move || handle.spawn(async {})).join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Makes this the current runtime of the calling thread; see [`Handle::enter`].
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let _inside = runtime.enter();
    /// giveway::spawn(async {}); // onto `runtime`
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Shuts down and waits for at most `timeout`. Returns what was stuck by then.
    ///
    /// Tasks do not get the time to finish: each is dropped at its next await point. To let them
    /// finish, join them first. The time is for polls and destructors that do not return.
    ///
    /// A task is stuck if its poll or its destructor has not returned. Its thread is left to
    /// itself: when the poll returns, the task is dropped and the thread ends. Tasks that merely
    /// wait are dropped on a worker. If every worker is held up when the time is over, the calling
    /// thread drops them; then a destructor that blocks also blocks the calling thread. So does the
    /// destructor of a thread-local of a worker's thread.
    ///
    /// [Blocking jobs](crate::spawn_blocking) run meanwhile. When the time is over, a job that a
    /// thread has taken is left to itself, even if the thread is only about to begin it. A job that
    /// still waits for a thread is cancelled. The report names both, and [`StuckTask::has_started`]
    /// tells them apart.
    ///
    /// On one of the runtime's own workers this function does not wait, and its report names at
    /// least the calling task.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Runtime::new()?;
    /// runtime.spawn(std::future::pending::<()>());
    /// let report = runtime.shutdown_timeout(Duration::from_secs(5));
    /// assert!(report.is_clean(), "stuck: {report}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(mut self, timeout: Duration) -> ShutdownReport {
        let threads = self.threads.take().unwrap_or_default();
        shutdown::with_timeout(&self.handle.shared, threads, timeout)
    }

    /// Shuts down without waiting. The threads finish by themselves. No destructor runs on the
    /// calling thread, unless the OS refuses a thread.
    ///
    /// [Blocking jobs](crate::spawn_blocking) that have a thread run to their end, as long as the
    /// process does. Jobs that wait for a thread are cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// runtime.shutdown_background();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_background(mut self) {
        let threads = self.threads.take().unwrap_or_default();
        shutdown::and_give_up(&self.handle.shared, threads);
    }
}

// All that is behind a `Runtime` is locks, atomics and rules of this crate. A panic in user code
// can leave none of them half-done.
impl UnwindSafe for Runtime {}
impl RefUnwindSafe for Runtime {}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            shutdown::and_join(&self.handle.shared, threads);
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("workers", &self.handle.workers()).finish()
    }
}

/// Runs a future on the calling thread until it is done.
///
/// Inside of a runtime (one that the thread has [entered](Handle::enter), or whose `block_on` is
/// further up the stack) that runtime serves the future. Anywhere else the default runtime does:
/// the runtime of a function with the attribute `giveway::main`, as long as one runs, and otherwise
/// one that is started at first use and lives as long as the process.
///
/// The latter has as many workers as `GIVEWAY_WORKERS` says, or as the process may use CPUs (cgroup
/// limits and affinity count). It is never shut down: tasks that are there when `main` returns are
/// not dropped, and blocking jobs end with the process. If they matter, use the attribute, or a
/// [`Runtime`].
///
/// Unlike tokio's, this function may be nested, also inside of a task. The outer future makes no
/// progress meanwhile. On a worker thread the tasks that are queued behind go on elsewhere as soon
/// as the inner future has to wait, as with [`block_in_place`](crate::block_in_place). That costs a
/// thread for as long as it waits: use `.await` where you can. In a [pinned](crate::spawn_pinned)
/// task it must not wait for another task of the same worker, which no other worker may run.
///
/// # Panics
///
/// Panics if the future panics, and
///
/// - in the child of a `fork`;
/// - if the default runtime cannot be started;
/// - on a worker thread outside of a task: in a thread hook, in a waker that the worker wakes, in a
///   destructor while its runtime is being shut down;
/// - if the future is pending after a panic has ended the runtime ([`PanicPolicy::Shutdown`]).
///
/// # Examples
///
/// ```
/// let bread = giveway::block_on(async {
///     let baking = giveway::spawn(async { "bread" });
///     baking.await.unwrap()
/// });
/// assert_eq!(bread, "bread");
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    match Handle::try_current() {
        Some(handle) => handle.block_on(future),
        None => Handle { shared: default_runtime() }.block_on(future),
    }
}
