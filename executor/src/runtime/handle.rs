//! Handles, by which a runtime is used from any thread.

use super::block_on;
use super::{Shared, context, hint};
use crate::blocking;
use crate::handoff::on_any_thread;
use crate::metrics::{Dump, Metrics};
use crate::monitor::deadlock::ExpectedWake;
use crate::task::{self, Class, JoinHandle};
use futures_task::{FutureObj, SpawnError};
use giveway_io::driver::on_behalf;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// A handle to a runtime. It is cheap to clone, may be sent to any thread, and does not keep the
/// runtime running.
///
/// Once the runtime has been shut down, a future that is spawned through a handle is dropped at
/// once, and its [`JoinHandle`] yields a [cancelled](crate::task::JoinError::is_cancelled) error.
///
/// # Examples
///
/// ```
/// let runtime = giveway::Runtime::new()?;
/// let handle = runtime.handle().clone();
/// let task = std::thread::spawn(move || handle.spawn(async { 1 })).join().unwrap();
/// assert_eq!(runtime.block_on(task).unwrap(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    /// Returns the current runtime of this thread.
    ///
    /// # Panics
    ///
    /// Panics outside of any runtime. See [`try_current`](Self::try_current) for a variant that
    /// does not.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     giveway::Handle::current().spawn(async {});
    /// });
    /// ```
    #[track_caller]
    pub fn current() -> Self {
        Self::try_current().expect(
            "no Giveway runtime is current on this thread; call this from a task, from within \
             `block_on`, or after `Handle::enter` (`giveway::spawn` would use the default runtime \
             here, `Handle::current` does not)",
        )
    }

    /// Returns the current runtime of this thread, if it is in one.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(giveway::Handle::try_current().is_none());
    /// giveway::block_on(async { assert!(giveway::Handle::try_current().is_some()) });
    /// ```
    pub fn try_current() -> Option<Self> {
        context::current_shared().map(|shared| Self { shared })
    }

    /// Spawns a future as a task of this runtime; see [`giveway::spawn`](crate::spawn).
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let task = runtime.handle().spawn(async { 1 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawning::spawn_on(&self.shared, None, None, Location::caller(), future)
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
    /// let task = runtime.handle().spawn_background(async { 5 });
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
            &self.shared,
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
        task::pinned::spawn_on(&self.shared, None, None, None, Location::caller(), f)
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
    /// let job = runtime.handle().spawn_blocking(|| 5);
    /// assert_eq!(runtime.block_on(job).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        blocking::spawn_on(&self.shared, None, None, Location::caller(), f)
    }

    /// Runs a future on the calling thread until it is done, with this as its current runtime.
    ///
    /// The future goes on being polled even if the runtime is shut down meanwhile. What it spawns
    /// then is cancelled. If a panic has shut the runtime down, the polls end some time later: see
    /// [`PanicPolicy::Shutdown`](crate::PanicPolicy::Shutdown).
    ///
    /// # Panics
    ///
    /// Panics where [`Runtime::block_on`](super::Runtime::block_on) does.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// assert_eq!(runtime.handle().block_on(async { 5 }), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared.refuse_in_forked_child();
        let place = Location::caller();
        on_any_thread(|| {
            let _inside = self.enter();
            let _tokio = self.shared.tokio.enter();
            hint::around(&self.shared, || block_on::block_on(&self.shared, place, future))
        })
    }

    /// Makes this the current runtime of the calling thread until the guard is dropped.
    ///
    /// [`giveway::spawn`](crate::spawn) then goes to this runtime, also on a worker thread of
    /// another. Of several guards the one that was made last counts. They may be dropped in any
    /// order.
    ///
    /// A guard that is made in a task counts in that task alone. Only a
    /// [pinned](crate::spawn_pinned) task can hold one across an await. After the await it is in
    /// the same runtime again. Other tasks of its thread are not affected.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let inside = runtime.handle().enter();
    /// let task = giveway::spawn(async { 1 });
    /// drop(inside);
    /// assert_eq!(runtime.block_on(task).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn enter(&self) -> EnterGuard<'_> {
        EnterGuard { _entered: context::Entered::new(self.shared.clone()), handle: PhantomData }
    }

    /// Says that something outside of this runtime is going to wake one of its tasks: a thread of
    /// yours that will send into a channel, a callback of a C library, a task of another runtime.
    /// Until the guard is dropped the runtime is not taken for
    /// [deadlocked](crate::Builder::detect_deadlock). Where the runtime does not look for
    /// deadlocks, the guard has no effect.
    ///
    /// Make the guard before the task waits, and let the code that will wake the task keep it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().detect_deadlock(true).build()?;
    /// let (answer, question) = futures::channel::oneshot::channel();
    /// let expected = runtime.handle().expect_wake();
    /// std::thread::spawn(move || {
    ///     std::thread::sleep(Duration::from_millis(50)); // thinking
    ///     answer.send(42).unwrap();
    ///     drop(expected);
    /// });
    /// assert_eq!(runtime.block_on(question), Ok(42));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn expect_wake(&self) -> ExpectedWake {
        ExpectedWake::new(self)
    }

    /// Returns what the runtime has counted and timed since it was started; see
    /// [`metrics`](crate::metrics).
    ///
    /// May be called on any thread, at any time, also in a task or a hook. It hardly disturbs a
    /// worker, because it reads what each core has counted for itself. Once the runtime has been
    /// shut down it returns the last figures, and so it does in the child of a `fork`. It takes
    /// some microseconds, and more with many workers: call it every few seconds, and not for each
    /// request.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().workers(2).build()?;
    /// runtime.block_on(async { giveway::spawn(async {}).await.unwrap() });
    /// let metrics = runtime.handle().metrics();
    /// assert_eq!(metrics.polls(), 1);
    /// println!("{metrics}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        on_behalf(|| self.shared.metrics())
    }

    /// Returns what the tasks of the runtime are doing at this moment; see [`Dump`].
    ///
    /// It is passive: no task is polled, no thread is stopped, and no lock is held for long,
    /// however many tasks there are. May be called on any thread, at any time, also in a task or a
    /// hook. Once the runtime has been shut down there are no tasks, except for those that
    /// [`shutdown_timeout`](crate::Runtime::shutdown_timeout) had to leave behind. There are none
    /// in the child of a `fork`.
    ///
    /// # Not guaranteed
    ///
    /// That all of it is of one moment, or that every task is listed: see [`Dump`].
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::metrics::TaskState;
    ///
    /// let runtime = giveway::Runtime::new()?;
    /// let waits = giveway::task::Builder::new()
    ///     .name("idler")
    ///     .spawn_on(std::future::pending::<()>(), runtime.handle());
    /// let idler = loop {
    ///     let dump = runtime.handle().dump();
    ///     let idler = dump.tasks().iter().find(|task| task.id == waits.id()).cloned();
    ///     match idler {
    ///         Some(idler) if idler.state == TaskState::Waiting => break idler,
    ///         _ => std::thread::yield_now(), // it has not been polled yet
    ///     }
    /// };
    /// assert_eq!(idler.name.as_deref(), Some("idler"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump(&self) -> Dump {
        self.shared.dump()
    }

    /// Returns how many workers the runtime has.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().workers(3).build()?;
    /// assert_eq!(runtime.handle().workers(), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn workers(&self) -> usize {
        self.shared.workers()
    }
}

impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("workers", &self.workers())
            .field("shut_down", &(self.shared.gate.phase() != super::Phase::Open))
            .finish()
    }
}

/// Lets libraries that spawn through the `futures` traits use a handle.
impl futures_task::Spawn for Handle {
    #[track_caller]
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.status()?;
        self.spawn(future);
        Ok(())
    }

    fn status(&self) -> Result<(), SpawnError> {
        if self.shared.gate.phase() == super::Phase::Open {
            Ok(())
        } else {
            Err(SpawnError::shutdown())
        }
    }
}

/// Leaves the runtime on drop; see [`Handle::enter`].
#[must_use = "the runtime is left again when the guard is dropped"]
pub struct EnterGuard<'a> {
    _entered: context::Entered,
    handle: PhantomData<&'a Handle>,
}

impl fmt::Debug for EnterGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnterGuard")
    }
}
