//! The runtime: what its threads share, and the handles by which users hold it.

mod builder;
pub(crate) mod context;
mod handle;
mod hooks;
mod report;
mod shared;
mod shutdown;

pub use builder::{Builder, MAX_WORKERS};
pub use handle::{EnterGuard, Handle};
pub use hooks::{PanicPolicy, TaskPanic};
pub use report::{ShutdownReport, StuckTask};

pub(crate) use hooks::Hooks;
pub(crate) use shared::{Post, Shared};
pub(crate) use shutdown::{Gate, Phase, drop_injected, wait_while};

use crate::task::{Class, JoinHandle};
use std::fmt;
use std::future::Future;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// A multi-threaded runtime: a set of worker threads, and the tasks they run.
///
/// # Dropping
///
/// Dropping the runtime shuts it down: no further task is taken, every task is dropped at its next await point, each
/// on a worker thread, and the threads are joined. A task that does not come back from a poll holds that up; see
/// [`shutdown_timeout`](Self::shutdown_timeout). A task's destructor may do whatever it likes: wake, spawn (the new
/// future is dropped at once), drop other handles.
///
/// [Blocking jobs](crate::spawn_blocking) that have started are waited for, those that have not are cancelled.
///
/// To let tasks finish instead, join them first.
///
/// Dropped by one of its own workers (a task owned the last reference), it does not wait for the threads: they finish
/// by themselves. Dropped in async code that *another* runtime runs, it blocks that thread until they have; tokio
/// panics there. Use [`shutdown_background`](Self::shutdown_background).
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
    // The workers' threads and the monitor's. None once it was shut down.
    threads: Option<Vec<thread::JoinHandle<()>>>,
}

impl Runtime {
    /// A runtime with the default settings: `Builder::new().build()`.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
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

    /// Runs a future on the calling thread until it is done; its tasks run on the workers meanwhile.
    ///
    /// # Panics
    ///
    /// Panics if the future does; in the child of a `fork`; and on a worker thread outside of a task: in a thread hook, in a
    /// waker that the worker wakes, in a destructor while its runtime is being shut down.
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
    /// In the child of a `fork`.
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
        context::spawn_on(&self.handle.shared, None, None, Location::caller(), future)
    }

    /// Spawns a future as a background task; see [`giveway::spawn_background`](crate::spawn_background).
    ///
    /// # Panics
    ///
    /// In the child of a `fork`.
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
        context::spawn_on(&self.handle.shared, None, Some(Class::Background), Location::caller(), future)
    }

    /// Spawns a future that stays on one worker's thread; see [`giveway::spawn_pinned`](crate::spawn_pinned).
    ///
    /// # Panics
    ///
    /// In the child of a `fork`.
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
        crate::pinned::spawn_on(&self.handle.shared, None, None, None, Location::caller(), f)
    }

    /// Runs a function on a thread where it may block; see [`giveway::spawn_blocking`](crate::spawn_blocking).
    ///
    /// # Panics
    ///
    /// In the child of a `fork`.
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

    /// What the runtime has counted and timed since it was started; see [`Handle::metrics`].
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

    /// What the tasks of the runtime are doing at this moment; see [`Handle::dump`].
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

    /// A handle to the runtime, to be cloned and sent about.
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

    /// Shuts down, and waits for at most `timeout`. Returns what was stuck by then.
    ///
    /// Tasks are not given the time to finish: each is dropped at its next await point. To let them finish, join them
    /// first. The time is for polls and destructors that do not return.
    ///
    /// What is stuck is a task that has not returned from its poll, or a destructor that has not returned. Its thread
    /// is left to itself: when the poll returns, the task is dropped and the thread ends. Tasks that merely wait are
    /// dropped on a worker. If every worker is held up when the time is over, the calling thread drops them, and a
    /// destructor that blocks then blocks it; as does a thread-local one of a worker's thread.
    ///
    /// On one of the runtime's own workers it does not wait, and its report names at least the calling task.
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

    /// Shuts down without waiting for anything. The threads finish by themselves; no destructor runs here.
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
        drop(shutdown::in_background(&self.handle.shared, threads));
    }
}

// What is behind them is locks, atomics and rules of our own, none of which a panic in user code can leave half-done.
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

/// The runtime that serves whoever is in no other. Lives as long as the process.
#[track_caller]
pub(crate) fn default_runtime() -> &'static Runtime {
    try_default_runtime().unwrap_or_else(|error| panic!("the default runtime could not be started: {error}"))
}

/// The default runtime, or why it cannot be started.
pub(crate) fn try_default_runtime() -> std::io::Result<&'static Runtime> {
    static DEFAULT: OnceLock<Runtime> = OnceLock::new();
    // Not `get_or_init` with a panic inside: a failed start must not stop a later try.
    if let Some(runtime) = DEFAULT.get() {
        return Ok(runtime);
    }
    // Another thread may be faster. Its runtime is the one; ours, never used, is dropped.
    let runtime = Builder::new().build()?;
    Ok(DEFAULT.get_or_init(|| runtime))
}

/// Runs a future on the calling thread until it is done.
///
/// Inside a runtime (one that the thread has [entered](Handle::enter), or whose `block_on` is further up the stack)
/// that one serves the future; anywhere else the default runtime does, which is started at first use and lives as
/// long as the process. It has as many workers as the process may use CPUs (cgroup limits and affinity count), or
/// `GIVEWAY_WORKERS`. It is never shut down: tasks that are there when `main` returns are not dropped. If their
/// destructors matter, use a [`Runtime`].
///
/// Unlike tokio's, it may be nested, also inside of a task; the outer future makes no progress meanwhile. On a worker
/// thread the tasks that are queued behind go on elsewhere as soon as the inner future has to wait, as with
/// [`block_in_place`](crate::block_in_place). It costs a thread for as long as it waits: use `.await` where you can. In a
/// [pinned](crate::spawn_pinned) task it must not wait for another of the same worker, which nobody else may run.
///
/// # Panics
///
/// Panics if the future does; in the child of a `fork`; if the default runtime cannot be started; and on a worker thread
/// outside of a task: in a thread hook, in a waker that the worker wakes, in a destructor while its runtime is being shut
/// down.
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
        None => default_runtime().block_on(future),
    }
}
