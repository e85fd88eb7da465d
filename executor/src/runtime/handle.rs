//! Holding a runtime from anywhere.

use super::{Shared, context};
use crate::block_on;
use crate::blocking::{self, on_any_thread};
use crate::deadlock::ExpectedWake;
use crate::metrics::{Dump, Metrics};
use crate::task::{Class, JoinHandle};
use futures_task::{FutureObj, SpawnError};
use giveway_io::driver::on_behalf;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// A handle to a runtime: cheap to clone, may be sent anywhere, and does not keep the runtime running.
///
/// Once the runtime has been shut down, what is spawned through a handle is dropped at once, and its
/// [`JoinHandle`] yields a [cancelled](crate::task::JoinError::is_cancelled) error.
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
    /// The current runtime of this thread.
    ///
    /// # Panics
    ///
    /// Outside any runtime. See [`try_current`](Self::try_current).
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
            "no Giveway runtime is current on this thread; call this from a task, from within `block_on`, \
             or after `Handle::enter` (`giveway::spawn` would use the default runtime here, `Handle::current` does not)",
        )
    }

    /// The current runtime of this thread, if it is in one.
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
    /// In the child of a `fork`.
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
        context::spawn_on(&self.shared, None, None, Location::caller(), future)
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
        context::spawn_on(&self.shared, None, Some(Class::Background), Location::caller(), future)
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
        crate::pinned::spawn_on(&self.shared, None, None, None, Location::caller(), f)
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
    /// The future goes on being polled even if the runtime is shut down meanwhile; what it spawns then is cancelled. (Not for
    /// ever, if a panic has shut it down: see [`PanicPolicy::Shutdown`](crate::PanicPolicy::Shutdown).)
    ///
    /// # Panics
    ///
    /// Where [`Runtime::block_on`](super::Runtime::block_on) does.
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
            block_on::block_on(&self.shared, place, future)
        })
    }

    /// Makes this the current runtime of the calling thread until the guard is dropped.
    ///
    /// [`giveway::spawn`](crate::spawn) goes to it, also on a worker thread of another runtime. Of several guards the
    /// one made last counts; they may be dropped in any order.
    ///
    /// A guard that is made in a task counts in that task alone. Only a [pinned](crate::spawn_pinned) task can hold one across
    /// an await, and finds itself in the same runtime after it; other tasks of its thread are not concerned.
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

    /// Says that something outside of this runtime is going to wake a task of it: a thread of yours that will send into a
    /// channel, a callback of a C library, a task of another runtime. Until the guard is dropped the runtime is not taken
    /// for [deadlocked](crate::Builder::detect_deadlock); where deadlocks are not looked for, it does nothing.
    ///
    /// Make it before the task waits, and let whoever will do the waking keep it.
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

    /// What the runtime has counted and timed since it was started; see [`metrics`](crate::metrics).
    ///
    /// From any thread, at any time, also in a task or a hook. It hardly disturbs a worker: what it reads, each core has counted for
    /// itself. Once the runtime has been shut down it gives the last figures, and so it does in the child of a `fork`. It takes
    /// some microseconds, and more with many workers: a matter of seconds, not of requests.
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

    /// What the tasks of the runtime are doing at this moment; see [`Dump`].
    ///
    /// Passive: nothing is polled, nobody is stopped, and no lock is held for long, however many tasks there are. From any
    /// thread, at any time, also in a task or a hook. Once the runtime has been shut down there are no tasks, but for those that
    /// [`shutdown_timeout`](crate::Runtime::shutdown_timeout) had to leave behind; and none in the child of a `fork`.
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
    /// let waits = giveway::task::Builder::new().name("idler").spawn_on(std::future::pending::<()>(), runtime.handle());
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

    /// How many workers the runtime has.
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

/// So that libraries which spawn through the `futures` traits can be given a handle.
impl futures_task::Spawn for Handle {
    #[track_caller]
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.status()?;
        self.spawn(future);
        Ok(())
    }

    fn status(&self) -> Result<(), SpawnError> {
        if self.shared.gate.phase() == super::Phase::Open { Ok(()) } else { Err(SpawnError::shutdown()) }
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
