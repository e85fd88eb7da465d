//! Spawning with settings: a name, a class, a worker, preemption.

use super::pinned;
use super::{AbortHandle, Class, JoinHandle, JoinSet};
use crate::blocking;
use crate::runtime::{Handle, context};
use std::future::Future;
use std::panic::Location;

/// Spawns a task with a name, or with a class other than its parent's.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let task = giveway::task::Builder::new().name("baker").spawn(async { "bread" });
///     assert_eq!(task.await.unwrap(), "bread");
/// });
/// ```
#[derive(Debug, Default)]
#[must_use = "a task builder does nothing until it spawns"]
pub struct Builder {
    name: Option<Box<str>>,
    /// The parent's class if not set.
    class: Option<Class>,
    /// The worker of a pinned task; chosen by the runtime if not set.
    worker: Option<usize>,
    /// Learnt from the task's polls if not set.
    preemptible: Option<bool>,
}

impl Builder {
    /// Returns a builder for a task without a name.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().spawn(async {});
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name by which reports call the task.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().name(format!("shard {}", 7)).spawn(async {});
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into_boxed_str());
        self
    }

    /// Sets whether the task belongs to the foreground or to the background. By default it has its
    /// parent's class: that of the task that spawns it, or the foreground if no task does.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{Builder, Class};
    ///
    /// giveway::spawn_background(async {
    ///     // A caller waits for this one:
    ///     Builder::new().class(Class::Foreground).spawn(async { println!("done") });
    /// });
    /// ```
    pub fn class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Sets whether the task is polled on threads of the lowest priority, which the OS preempts at
    /// any instruction when something else is to run. By default the runtime learns that of background tasks,
    /// [from their polls](crate::Builder::preempt_background).
    ///
    /// - `true` is for background work of which you know that its polls are long and that you
    ///   cannot cut: a compressor, a sort, a library that is not yours. The task is then a
    ///   [background](Class::Background) task, whatever its class says.
    /// - `false` is for tasks that must not lose their CPU, because they share a lock with the
    ///   foreground. Workers poll them, however long that takes.
    ///
    /// Of a blocking job only `true` changes anything: a background job runs on such threads
    /// anyway. A pinned task stays on its worker.
    ///
    /// A preemptible task never runs on a worker. Threads of the lowest priority poll such tasks,
    /// first come, first served. There are as many of these threads as workers, and more only if
    /// tasks wait and none of the running polls returns for a tenth of a second. Together with
    /// polite background tasks they share what the foreground leaves of the CPUs. A foreground task
    /// that becomes runnable does not wait for such a poll, not even for its next yield point: the
    /// kernel takes the CPU away.
    ///
    /// For the same reason **a lock that the task holds may stay taken while others go first**:
    /// whatever waits for the lock then waits for the background. A task that shares locks with the
    /// foreground is better off with yield points where it holds none
    /// ([`yield_now_if_busy`](crate::yield_now_if_busy)).
    ///
    /// Yield points in the task give way to other preemptible tasks, every 10 ms. A blocking job
    /// that a background task spawns ([`spawn_blocking`](crate::spawn_blocking)) runs at the lowest
    /// priority without this setting.
    ///
    /// # Not guaranteed
    ///
    /// That the system lowers the threads: it may refuse, and outside of Linux there is no such
    /// thing. [`Metrics::lowering_refused`](crate::metrics::Metrics::lowering_refused) tells. If
    /// the system does not even start a thread, workers poll the task.
    ///
    /// Nor any part of the CPUs while the foreground, or another process, wants all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// fn compress(text: &str) -> usize {
    ///     text.len() / 2 // after a second or two
    /// }
    ///
    /// let job =
    ///     giveway::task::Builder::new().preemptible(true).spawn(async { compress("a long text") });
    /// assert_eq!(giveway::block_on(job).unwrap(), 5);
    /// ```
    pub fn preemptible(mut self, preemptible: bool) -> Self {
        self.preemptible = Some(preemptible);
        self
    }

    /// Spawns a task onto the current runtime, like [`spawn`](super::spawn).
    ///
    /// # Panics
    ///
    /// Panics where [`spawn`](super::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().spawn(async {});
    /// ```
    #[inline]
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if let Some(lowered) = self.preemptible {
            let shared = context::current_or_default();
            return super::spawning::spawn_preemptible_or_not(
                &shared,
                self.name,
                self.class,
                lowered,
                Location::caller(),
                future,
            );
        }
        super::spawning::spawn(self.name, self.class, Location::caller(), future)
    }

    /// Spawns a task onto the runtime of `handle`.
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().workers(1).build()?;
    /// let task = giveway::task::Builder::new().name("guest").spawn_on(async { 1 }, runtime.handle());
    /// assert_eq!(runtime.block_on(task).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if let Some(lowered) = self.preemptible {
            return super::spawning::spawn_preemptible_or_not(
                &handle.shared,
                self.name,
                self.class,
                lowered,
                Location::caller(),
                future,
            );
        }
        super::spawning::spawn_on(&handle.shared, self.name, self.class, Location::caller(), future)
    }

    /// Runs a function on a thread where it may block, like
    /// [`spawn_blocking`](Self::spawn_blocking), in the runtime of `handle`.
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let job = giveway::task::Builder::new().name("index").spawn_blocking_on(|| 1, runtime.handle());
    /// assert_eq!(runtime.block_on(job).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_blocking_on<F, R>(self, f: F, handle: &Handle) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let class = self.class_of_job();
        blocking::spawn_on(&handle.shared, self.name, class, Location::caller(), f)
    }

    /// Sets the worker that a [pinned](Self::spawn_pinned) task stays on: one of
    /// [`Handle::workers`](crate::Handle::workers), from 0. By default that is one with few pinned
    /// tasks. Tasks that are not pinned move between workers, and ignore this setting.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{self, Builder};
    ///
    /// let runtime = giveway::Builder::new().workers(2).build()?;
    /// let pinned =
    ///     Builder::new().on_worker(1).spawn_pinned_on(|| async { task::worker() }, runtime.handle());
    /// assert_eq!(runtime.block_on(pinned).unwrap(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_worker(mut self, worker: usize) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Spawns a future that stays on one worker's thread, like
    /// [`spawn_pinned`](crate::spawn_pinned).
    ///
    /// # Panics
    ///
    /// Panics where [`spawn`](super::spawn) does, if the runtime does not have the worker that was
    /// chosen, and if the task is to be [preemptible](Self::preemptible) too.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().name("window").on_worker(0).spawn_pinned(|| async {});
    /// ```
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(self, f: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.refuse_to_pin();
        let shared = context::current_or_default();
        pinned::spawn_on(&shared, self.name, self.class, self.worker, Location::caller(), f)
    }

    /// Spawns a future that stays on one worker's thread, like
    /// [`spawn_pinned`](Self::spawn_pinned), in the runtime of `handle`. See
    /// [`on_worker`](Self::on_worker) for an example.
    ///
    /// # Panics
    ///
    /// Panics in the child of a `fork`, if the runtime does not have the worker that was chosen,
    /// and if the task is to be [preemptible](Self::preemptible) too.
    #[track_caller]
    pub fn spawn_pinned_on<F, Fut>(self, f: F, handle: &Handle) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.refuse_to_pin();
        pinned::spawn_on(&handle.shared, self.name, self.class, self.worker, Location::caller(), f)
    }

    /// Runs a function on a thread where it may block, like
    /// [`spawn_blocking`](crate::spawn_blocking).
    ///
    /// The job's name is in the report of a [shutdown](crate::ShutdownReport) that waits for the
    /// job.
    ///
    /// # Panics
    ///
    /// Panics where [`spawn`](super::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{Builder, Class};
    ///
    /// let job = Builder::new().name("index").class(Class::Background).spawn_blocking(|| 1);
    /// assert_eq!(giveway::block_on(job).unwrap(), 1);
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let class = self.class_of_job();
        blocking::spawn(self.name, class, Location::caller(), f)
    }

    /// Spawns a task onto the current runtime and adds it to a set.
    ///
    /// # Panics
    ///
    /// Panics where [`spawn`](super::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{Builder, JoinSet};
    ///
    /// let mut set = JoinSet::new();
    /// Builder::new().name("baker").spawn_in(async { "bread" }, &mut set);
    /// assert_eq!(set.len(), 1);
    /// ```
    #[track_caller]
    pub fn spawn_in<F>(self, future: F, set: &mut JoinSet<F::Output>) -> AbortHandle
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        set.add(self.spawn(future))
    }

    /// Returns the class of a blocking job: one that is to be preempted is of the background.
    fn class_of_job(&self) -> Option<Class> {
        if self.preemptible == Some(true) { Some(Class::Background) } else { self.class }
    }

    #[track_caller]
    fn refuse_to_pin(&self) {
        assert!(
            self.preemptible != Some(true),
            "a task cannot be both pinned and preemptible: a pinned one stays on a worker's \
             thread, which is not lowered"
        );
    }
}
