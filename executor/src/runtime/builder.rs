//! The settings of a runtime, and its start.

#[cfg(feature = "tokio")]
use super::tokio;
use super::{Handle, Hooks, PanicPolicy, Runtime, Shared, TaskMeta, TaskPanic};
use crate::blocking::{Kind, PoolConfig};
use crate::elastic::{self, Elastic};
use crate::monitor::LongPoll;
use crate::monitor::deadlock::Watch;
use crate::os;
use crate::sched::Settings;
use crate::{monitor, worker};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The most workers a runtime may have.
///
/// Far beyond any machine, and low enough that a wrong count (a size in bytes, a negative number
/// that was cast) is an error at the start and does not exhaust the machine.
pub const MAX_WORKERS: usize = 4096;

/// The least [stack size](Builder::stack_size) in bytes: debug builds of the runtime need half of it.
const LEAST_STACK: usize = 64 << 10;

/// The environment variable that overrides the default number of workers.
const WORKERS_VARIABLE: &str = "GIVEWAY_WORKERS";

/// Settings for a [`Runtime`].
///
/// # Examples
///
/// ```
/// let runtime = giveway::Builder::new().workers(2).thread_name("kitchen").build()?;
/// runtime.block_on(async {
///     let name = giveway::spawn(async { std::thread::current().name().map(str::to_owned) });
///     assert!(name.await.unwrap().unwrap().starts_with("kitchen"));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    workers: Option<usize>,
    thread_name: String,
    stack_size: Option<usize>,
    settings: Settings,
    max_spare_workers: Option<usize>,
    preempt_background: bool,
    max_blocking_threads: usize,
    blocking_keep_alive: Duration,
    detect_deadlock: bool,
    elastic: elastic::Settings,
    #[cfg(feature = "tokio")]
    tokio: bool,
    hooks: Hooks,
}

impl Builder {
    /// Returns the default settings.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self {
            workers: None,
            thread_name: "giveway".into(),
            stack_size: None,
            settings: Settings::default(),
            max_spare_workers: None,
            preempt_background: true,
            max_blocking_threads: 512,
            blocking_keep_alive: Duration::from_millis(500),
            detect_deadlock: false,
            elastic: elastic::Settings::new(),
            #[cfg(feature = "tokio")]
            tokio: false,
            hooks: Hooks::default(),
        }
    }

    /// Sets how many workers run tasks: at least one and at most [`MAX_WORKERS`], which
    /// [`build`](Self::build) checks.
    ///
    /// By default there are as many as `GIVEWAY_WORKERS` says. If that is unset or empty, there are
    /// as many as the process may use CPUs; its cgroup's quota and its affinity count. One more
    /// thread, the monitor, runs no tasks and calls no thread hooks.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().workers(3).build()?;
    /// assert_eq!(runtime.handle().workers(), 3);
    /// assert!(giveway::Builder::new().workers(0).build().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "worker_threads")]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets how many spare workers may stand beside polls that do not return. By default as many as
    /// there are workers; with zero there are none.
    ///
    /// A poll that has gone on for 10 ms is asked to return. A poll that does not, because it has
    /// no yield point and awaits nothing that spends the [budget](crate::budget), holds its worker,
    /// and gets a spare worker beside it. So tasks, timers and sockets go on, even while every
    /// worker is in a poll that never returns. Then there are more threads than workers, and the OS
    /// divides the CPUs between them. The spare worker retires when the poll has returned. Its
    /// thread is one of those that also run blocking jobs.
    ///
    /// Such polls are still worth fixing, and are [reported](Self::on_long_poll) all the same.
    ///
    /// # Not guaranteed
    ///
    /// That a spare worker comes: the OS may refuse a thread. Nor that tasks
    /// [pinned](crate::spawn_pinned) to a worker that is held go on: no other worker may run them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use std::time::Duration;
    ///
    /// static DONE: AtomicBool = AtomicBool::new(false);
    ///
    /// let runtime = giveway::Builder::new().workers(1).max_spare_workers(1).build()?;
    /// // The only worker, and its poll does not return:
    /// let stubborn = runtime.spawn(async { while !DONE.load(Relaxed) {} });
    /// let patient = runtime.spawn(async { giveway::time::sleep(Duration::from_millis(1)).await });
    /// runtime.block_on(patient).unwrap();
    /// DONE.store(true, Relaxed);
    /// runtime.block_on(stubborn).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_spare_workers(mut self, workers: usize) -> Self {
        self.max_spare_workers = Some(workers);
        self
    }

    /// Sets whether the OS preempts background polls that do not return in time. By default it
    /// does.
    ///
    /// A [background](crate::spawn_background) poll that keeps its worker for some hundred
    /// microseconds after it was asked to return is *overrun*: it has no yield point, and awaits
    /// nothing that spends the [budget](crate::budget). A [spare worker](Self::max_spare_workers)
    /// takes its place at once, and until the poll returns the OS prefers other threads to its
    /// thread.
    ///
    /// The runtime remembers where the task was spawned. Threads of the lowest priority make
    /// further polls of tasks from that place, as if these were
    /// [preemptible](crate::task::Builder::preemptible), until the polls have been short for a
    /// while. So foreground work waits for the first such poll, for less than a millisecond, and
    /// not for those after it.
    ///
    /// A thread that the OS preempts while it holds a lock keeps the lock. Background tasks that
    /// share locks with the foreground should have yield points where they hold none, or
    /// [say](crate::task::Builder::preemptible) that they are not to be preempted.
    ///
    /// A thread or process that such a poll starts inherits the thread's place behind others. Tasks
    /// that lowered threads poll do not wait in the yield queue, so
    /// [`yield_patience`](Self::yield_patience) does not apply to them. Their long polls are not
    /// [reported](Self::on_long_poll), since they delay no worker.
    ///
    /// # Not guaranteed
    ///
    /// - That foreground work waits for the first poll alone: on a machine without a CPU for the
    ///   monitor it may wait for several.
    /// - That an overrun poll is noticed that soon: if tasks from the same place have been short
    ///   for long, it may take some milliseconds.
    /// - That any of this happens where the system refuses to lower a thread
    ///   ([`Metrics::lowering_refused`](crate::metrics::Metrics::lowering_refused)).
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().preempt_background(false).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn preempt_background(mut self, preempt: bool) -> Self {
        self.preempt_background = preempt;
        self
    }

    /// Sets the name of the threads. A worker has its number behind the name, another thread what
    /// it is for. By default `giveway`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().thread_name("kitchen").build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets the stack size of the threads in bytes: at least 64 KiB, which [`build`](Self::build)
    /// checks. By default that of the standard library.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().stack_size(4 << 20).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "thread_stack_size")]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets how many threads may run foreground [blocking jobs](crate::spawn_blocking) at once: at
    /// least one, which [`build`](Self::build) checks. By default 512. As many tasks again may be
    /// in [`block_in_place`](crate::block_in_place) without keeping a worker; any more of them keep
    /// theirs.
    ///
    /// Background jobs have as many threads as there are workers. They get more only if jobs wait
    /// and none of those that run ends for a tenth of a second.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().max_blocking_threads(8).build()?;
    /// assert!(giveway::Builder::new().max_blocking_threads(0).build().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.max_blocking_threads = threads;
        self
    }

    /// Sets how long a thread for blocking jobs waits for the next job before it ends. By default
    /// half a second. The last thread waits twenty times as long.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().blocking_keep_alive(Duration::from_secs(10)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "thread_keep_alive")]
    pub fn blocking_keep_alive(mut self, keep_alive: Duration) -> Self {
        self.blocking_keep_alive = keep_alive;
        self
    }

    /// Sets how long a task may wait in the yield queue while other work goes first. By default
    /// there is no limit: on a machine whose foreground never leaves a worker free, a task that
    /// gave way waits for ever.
    ///
    /// A task that has waited for longer gets a turn: up to its next yield point, or until its
    /// budget is spent. However many tasks are overdue, seven turns out of eight are the
    /// foreground's. So the limit holds to within eight polls, and only as far as these turns
    /// suffice.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().yield_patience(Duration::from_millis(100)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn yield_patience(mut self, patience: Duration) -> Self {
        self.settings.yield_patience = Some(nanoseconds(patience));
        self
    }

    /// Sets the shortest time between two looks of a worker's yield points at the queues of all
    /// other workers. By default 0.1 ms. With zero every yield point looks.
    ///
    /// A yield point need not look in order to give way to a task that is queued: the thread that
    /// queues it interrupts up to two cores. The look finds tasks that no thread announced.
    ///
    /// No thread announces ready sockets and due timers. So a yield point asks the kernel for them
    /// if no worker has done so within a tenth of this interval.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().wide_look_interval(Duration::from_micros(250)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wide_look_interval(mut self, interval: Duration) -> Self {
        self.settings.wide_look_interval = nanoseconds(interval);
        self
    }

    /// Sets the limits between which [paced](crate::elastic) jobs are held, all of them together,
    /// and what makes the limits move. [`build`](Self::build) checks them.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::elastic::Settings;
    ///
    /// let runtime = giveway::Builder::new().elastic(Settings::new().maximum(0.5)).build()?;
    /// assert!(giveway::Builder::new().elastic(Settings::fixed(f64::NAN)).build().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn elastic(mut self, settings: elastic::Settings) -> Self {
        self.elastic = settings;
        self
    }

    /// Sets a function that each thread of the runtime but the monitor calls before it runs its
    /// first task or blocking job. A panic in it is contained.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().on_thread_start(|| println!("good morning")).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_thread_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_thread_start = Some(Arc::new(hook));
        self
    }

    /// Sets a function that each thread of the runtime but the monitor calls after its last task or
    /// job is gone. A panic in it is contained.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().on_thread_stop(|| println!("good night")).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_thread_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_thread_stop = Some(Arc::new(hook));
        self
    }

    /// Sets a function that is called for each task that is spawned onto the runtime, with the
    /// task's id, name, class and spawn location.
    ///
    /// The thread that spawns calls it, before the task is queued: the task is not polled before
    /// the function has returned. It is called however the task is spawned, and also if the runtime
    /// has been shut down and the task is cancelled at once. It is not called for blocking jobs,
    /// nor for the future of a [`block_on`](crate::block_on).
    ///
    /// The function is part of every spawn, so it should be short. It may do what the code that
    /// spawns may do: block in place, drop the runtime, or spawn, which calls it again for the new
    /// task. A panic in it is contained, and the task is spawned all the same. Without a function a
    /// spawn costs one branch more.
    ///
    /// # Not guaranteed
    ///
    /// That the task is ever polled: it may be aborted first, or the runtime may end.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    ///
    /// let spawned = Arc::new(AtomicUsize::new(0));
    /// let count = spawned.clone();
    /// let runtime = giveway::Builder::new()
    ///     .on_task_spawn(move |meta| {
    ///         println!("task {} from {}", meta.id(), meta.spawned_at());
    ///         count.fetch_add(1, Relaxed);
    ///     })
    ///     .build()?;
    /// runtime.block_on(async {
    ///     giveway::spawn(async { giveway::spawn(async {}).await }).await.unwrap().unwrap();
    /// });
    /// assert_eq!(spawned.load(Relaxed), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_task_spawn(mut self, hook: impl Fn(&TaskMeta<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_task_spawn = Some(Arc::new(hook));
        self
    }

    /// Sets a function that is called on the worker when a task has panicked, and that decides what
    /// happens next. A panic in the function itself is contained, and counts as
    /// [`PanicPolicy::Continue`]. With [`PanicPolicy::Shutdown`] the threads that wait in
    /// [`block_on`](crate::Runtime::block_on) are told.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::PanicPolicy;
    ///
    /// let runtime = giveway::Builder::new()
    ///     .on_task_panic(|panic| {
    ///         eprintln!("task {} from {} panicked", panic.id(), panic.spawned_at());
    ///         PanicPolicy::Continue
    ///     })
    ///     .build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_task_panic(
        mut self,
        hook: impl Fn(&TaskPanic<'_>) -> PanicPolicy + Send + Sync + 'static,
    ) -> Self {
        self.hooks.on_task_panic = Some(Arc::new(hook));
        self
    }

    /// Sets whether the runtime looks for deadlocks. By default it does not: then a deadlocked
    /// program waits for ever.
    ///
    /// In a deadlock every worker is idle and no timer, no socket and no blocking job can wake
    /// anything. Then each thread that waits in [`block_on`](crate::block_on) panics, with a list
    /// of the tasks that wait, their names and where they were spawned.
    ///
    /// # Not guaranteed
    ///
    /// - That what is called a deadlock is one: a thread that is not the runtime's may hold a
    ///   waker, and the runtime cannot tell it from a waker that a waiting task holds.
    ///   [`Handle::expect_wake`] tells the runtime of such a thread. The same goes for tasks of
    ///   another runtime, and for wakers that a signal handler or a C library keeps.
    /// - That every deadlock is found: while any task waits for a timer or a socket, other tasks
    ///   may wait for each other for ever. So may threads that block in a lock, or in a `block_on`
    ///   inside of a task: those count as blocking jobs. And if no thread waits in `block_on`,
    ///   there is none to tell.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::channel::oneshot;
    ///
    /// let runtime = giveway::Builder::new().detect_deadlock(true).build()?;
    /// let (fork, fork_is_free) = oneshot::channel::<()>();
    /// let (knife, knife_is_free) = oneshot::channel::<()>();
    /// let task = giveway::task::Builder::new();
    /// let dinner = task.name("kant").spawn_on(
    ///     async move {
    ///         fork_is_free.await.ok();
    ///         knife.send(()).ok();
    ///     },
    ///     runtime.handle(),
    /// );
    /// runtime.spawn(async move {
    ///     knife_is_free.await.ok();
    ///     fork.send(()).ok();
    /// });
    /// let panic = std::panic::catch_unwind(|| runtime.block_on(dinner)).unwrap_err();
    /// assert!(panic.downcast_ref::<String>().unwrap().contains("task \"kant\""));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn detect_deadlock(mut self, detect: bool) -> Self {
        self.detect_deadlock = detect;
        self
    }

    /// Sets a function that is called when a poll has gone on for too long. It is called once for
    /// each cause: the place where the task was spawned. (A helper of yours that spawns is one
    /// place for all its callers, unless it is `#[track_caller]`.)
    ///
    /// A long poll is a computation, a call that blocks, or a loop over a channel of another crate
    /// that always has something ([`budget::cooperative`](crate::budget::cooperative)). It delays
    /// the tasks that are queued behind it until another worker takes them, which a
    /// [spare one](Self::max_spare_workers) does if no other can. Tasks that are pinned to its
    /// worker are delayed until the poll returns.
    ///
    /// The report comes when the poll has returned, with its length, or after a second if it has
    /// not returned. Time that the thread had to wait for a CPU does not count, as far as the OS
    /// tells.
    ///
    /// The function runs on the monitor's thread. It should not block, and must not wait for
    /// anything of this runtime: while a poll goes on for too long, the monitor may be the only
    /// thread that looks at sockets and timers. A panic in the function is contained. With the
    /// feature `tracing` the report is also a `WARN` event of the target `giveway`, with or without
    /// a function.
    ///
    /// Without a function, debug builds write each report to standard error. Release builds without
    /// `tracing` write only the reports of polls that have not returned after a second: a server
    /// should set a function.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().on_long_poll(|poll| eprintln!("{poll}")).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_long_poll(mut self, hook: impl Fn(&LongPoll) + Send + Sync + 'static) -> Self {
        self.hooks.on_long_poll = Some(Arc::new(hook));
        self
    }

    /// Sets how long a poll has to go on to be [reported](Self::on_long_poll). By default 10 ms;
    /// less makes no difference. [`Duration::MAX`] turns the reports off.
    ///
    /// After 10 ms a poll is asked to return at its next yield point or budgeted operation. A poll
    /// that returns on this request is not reported. The monitor looks only now and then, so a poll
    /// that takes less than about 25 ms may go unnoticed, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime =
    ///     giveway::Builder::new().long_poll_threshold(Duration::from_millis(100)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn long_poll_threshold(mut self, threshold: Duration) -> Self {
        self.hooks.long_poll_threshold = threshold;
        self
    }

    /// Sets whether the [report](Self::on_long_poll) of a long poll says where in the program the
    /// poll was. Only on Linux; elsewhere it has no effect.
    ///
    /// The monitor interrupts the thread with the signal `SIGURG`, whose handler notes the return
    /// addresses on its stack. A system call that the poll is in may return early with `EINTR`, as
    /// with any signal. The standard library copes with that; a C library may not. A handler that
    /// the program has for this signal is called as well.
    ///
    /// The monitor looks up what the addresses mean, which in a debug build takes half a second the
    /// first time. The result is as good as the program's debug information
    /// (`debug = "line-tables-only"` in the profile is enough for lines).
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().sample_stacks(true).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "stack-samples")]
    pub fn sample_stacks(mut self, sample: bool) -> Self {
        self.hooks.sample_stacks = sample;
        self
    }

    /// Sets whether a tokio runtime runs beside this one, for libraries that need tokio's clock,
    /// sockets or `tokio::spawn`: axum's server, reqwest, tonic's server, sqlx with
    /// `runtime-tokio`. By default none does.
    ///
    /// Its context is there in every task, in every blocking job, and in
    /// [`block_on`](Runtime::block_on). One thread of its own drives its timers and sockets, and
    /// polls what `tokio::spawn` is given. In that code this runtime is the current one:
    /// [`spawn`](crate::spawn) and [`spawn_background`](crate::spawn_background) reach it, and
    /// [`yield_now_if_busy`](crate::yield_now_if_busy) gives way to its tasks.
    ///
    /// [`thread_name`](Self::thread_name), [`stack_size`](Self::stack_size),
    /// [`max_blocking_threads`](Self::max_blocking_threads),
    /// [`blocking_keep_alive`](Self::blocking_keep_alive) and the thread hooks hold for tokio's
    /// threads as well.
    ///
    /// # Shutdown
    ///
    /// When the runtime is shut down, its own tasks are dropped first, so that their destructors
    /// can use tokio. Then tokio is shut down: what it has spawned is dropped. Blocking jobs of both
    /// run to their end meanwhile; as with tokio alone, a job that uses tokio's clock or sockets
    /// finds them shut down.
    ///
    /// A drop of the runtime waits for both. [`shutdown_timeout`](Runtime::shutdown_timeout) counts
    /// threads of tokio's that are stuck. If a task of this runtime is stuck when the time is over,
    /// tokio is shut down all the same. After
    /// [`shutdown_background`](Runtime::shutdown_background) tokio is shut down when the last task
    /// is gone.
    ///
    /// # Not guaranteed
    ///
    /// - That what tokio polls has a priority: it runs on tokio's thread whatever the workers do,
    ///   and what it spawns here is foreground unless it says otherwise. A request handler with work
    ///   to do should [`spawn`](crate::spawn) it.
    /// - That a task of tokio's that does not return from its poll is
    ///   [reported](Self::on_long_poll), or that other tasks of tokio's go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) returns an error if tokio cannot be started, or if
    /// [`detect_deadlock`](Self::detect_deadlock) is set too, because a task may wait for something
    /// that only tokio knows.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().tokio(true).build()?;
    /// let served = runtime.block_on(async {
    ///     // A library that spawns by itself, and sleeps by tokio's clock:
    ///     let library = tokio::spawn(async {
    ///         tokio::time::sleep(Duration::from_millis(1)).await;
    ///         giveway::spawn(async { "served" }).await.unwrap()
    ///     });
    ///     library.await.unwrap()
    /// });
    /// assert_eq!(served, "served");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, on: bool) -> Self {
        self.tokio = on;
        self
    }

    /// Starts the runtime's threads.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if
    ///
    /// - the number of workers, given here or by `GIVEWAY_WORKERS`, is not between one and
    ///   [`MAX_WORKERS`];
    /// - there may be no blocking thread;
    /// - the elastic settings make no sense;
    /// - the thread name holds a NUL byte; or
    /// - the detection of deadlocks and a tokio (feature `tokio`) are both asked for.
    ///
    /// Otherwise the error of the OS when it refuses a thread, or a descriptor for tokio. The threads that were started before
    /// have ended by then.
    ///
    /// # Examples
    ///
    /// ```
    /// let error = giveway::Builder::new().workers(1_000_000).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        let workers = match self.workers {
            Some(workers) => check_workers(workers, "the builder")?,
            None => default_workers()?,
        };
        if self.thread_name.contains('\0') {
            return Err(invalid("a thread name must not hold a NUL byte".into()));
        }
        if let Some(bytes) = self.stack_size.filter(|bytes| *bytes < LEAST_STACK) {
            return Err(invalid(format!(
                "`stack_size` is {bytes}; the runtime's threads need at least {LEAST_STACK} bytes"
            )));
        }
        crate::io::serve_everybody();
        if self.max_blocking_threads == 0 {
            return Err(invalid(
                "`max_blocking_threads` is 0; blocking jobs need a thread to run on".into(),
            ));
        }
        self.elastic.check().map_err(|error| invalid(error.to_string()))?;
        let spares = self.max_spare_workers.unwrap_or(workers).min(MAX_WORKERS);
        let settings = Settings { spares, clock: os::now, ..self.settings };
        let mut shared = Shared::new(workers, settings, self.hooks.clone(), self.config(workers))?;
        shared.deadlocks = self.detect_deadlock.then(Watch::default);
        shared.preempts_background = self.preempt_background;
        shared.elastic = Elastic::new(self.elastic);
        let shared = Arc::new(shared);
        #[cfg(feature = "tokio")]
        self.start_tokio(&shared)?;
        let mut threads = Vec::with_capacity(workers + 1);
        for core in 0..workers {
            match self.start_worker(shared.clone(), core) {
                Ok(thread) => threads.push(thread),
                Err(error) => return Err(give_up(&shared, threads, error)),
            }
        }
        match self.start_monitor(shared.clone()) {
            Ok(thread) => threads.push(thread),
            Err(error) => return Err(give_up(&shared, threads, error)),
        }
        Ok(Runtime { handle: Handle { shared }, threads: Some(threads) })
    }

    fn config(&self, workers: usize) -> PoolConfig {
        PoolConfig {
            thread_name: self.thread_name.clone(),
            stack_size: self.stack_size,
            most: self.max_blocking_threads,
            most_with_relief: self.max_blocking_threads,
            prompt: 4 * workers,
            keep_alive: self.blocking_keep_alive,
            kind: Kind::Blocking,
        }
    }

    fn start_worker(&self, shared: Arc<Shared>, core: usize) -> io::Result<thread::JoinHandle<()>> {
        let name = format!("{}-{core}", self.thread_name);
        self.thread(name).spawn(move || worker::run(shared, core))
    }

    fn start_monitor(&self, shared: Arc<Shared>) -> io::Result<thread::JoinHandle<()>> {
        let name = format!("{}-monitor", self.thread_name);
        self.thread(name).spawn(move || monitor::run(&shared))
    }

    #[cfg(feature = "tokio")]
    fn start_tokio(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if !self.tokio {
            return Ok(());
        }
        if self.detect_deadlock {
            return Err(invalid(
                "`detect_deadlock` and `tokio` exclude each other: any task may wait for tokio, \
                 which only tokio knows"
                    .into(),
            ));
        }
        tokio::start(
            shared,
            &tokio::Common {
                thread_name: &self.thread_name,
                stack_size: self.stack_size,
                max_blocking_threads: self.max_blocking_threads,
                blocking_keep_alive: self.blocking_keep_alive,
            },
        )
    }

    fn thread(&self, name: String) -> thread::Builder {
        let thread = thread::Builder::new().name(name);
        match self.stack_size {
            Some(bytes) => thread.stack_size(bytes),
            None => thread,
        }
    }
}

/// Ends the threads that were started, after the OS refused one more. Returns the error to report.
fn give_up(
    shared: &Arc<Shared>,
    started: Vec<thread::JoinHandle<()>>,
    error: io::Error,
) -> io::Error {
    let (started_now, wanted) = (started.len(), shared.workers() + 1);
    // Before `and_join`, which would wait for these cores too.
    shared.gate.never_started(started_now.min(shared.workers())..shared.workers());
    shared.tokio.never_used();
    super::shutdown::and_join(shared, started);
    // None of the started workers may have been the last; see `shutdown.md`.
    super::shutdown::without_workers(shared);
    let stack =
        shared.pools()[0].stack_size().map(|bytes| format!(" with a stack of {bytes} bytes"));
    let stack = stack.unwrap_or_default();
    io::Error::new(
        error.kind(),
        format!("thread {} of {wanted} could not be started{stack}: {error}", started_now + 1),
    )
}

fn default_workers() -> io::Result<usize> {
    match std::env::var(WORKERS_VARIABLE) {
        // Some tools can only set a variable to nothing, and not unset it.
        Ok(text) if text.is_empty() => Ok(available_workers()),
        Ok(text) => match text.trim().parse() {
            Ok(workers) => check_workers(workers, WORKERS_VARIABLE),
            Err(_) => Err(invalid(format!(
                "{WORKERS_VARIABLE} is {text:?}, which is not a number of workers; set it to 1 to \
                 {MAX_WORKERS} or unset it"
            ))),
        },
        Err(std::env::VarError::NotPresent) => Ok(available_workers()),
        Err(error @ std::env::VarError::NotUnicode(_)) => {
            Err(invalid(format!("{WORKERS_VARIABLE}: {error}")))
        }
    }
}

fn available_workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS)
}

fn check_workers(workers: usize, source: &str) -> io::Result<usize> {
    if (1..=MAX_WORKERS).contains(&workers) {
        return Ok(workers);
    }
    Err(invalid(format!("{source} asks for {workers} workers; a runtime has 1 to {MAX_WORKERS}")))
}

/// Converts a duration to nanoseconds. More than five centuries count as for ever.
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut builder = f.debug_struct("Builder");
        builder
            .field("workers", &self.workers)
            .field("thread_name", &self.thread_name)
            .field("stack_size", &self.stack_size)
            .field("settings", &self.settings)
            .field("max_spare_workers", &self.max_spare_workers)
            .field("preempt_background", &self.preempt_background)
            .field("max_blocking_threads", &self.max_blocking_threads)
            .field("blocking_keep_alive", &self.blocking_keep_alive)
            .field("detect_deadlock", &self.detect_deadlock)
            .field("elastic", &self.elastic)
            .field("hooks", &self.hooks);
        #[cfg(feature = "tokio")]
        builder.field("tokio", &self.tokio);
        builder.finish()
    }
}
