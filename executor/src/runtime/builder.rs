//! Settings of a runtime, and its start.

use super::{Handle, Hooks, PanicPolicy, Runtime, Shared, TaskPanic};
use crate::blocking::{Articles, Kind};
use crate::deadlock::Watch;
use crate::elastic::{self, Elastic};
use crate::monitor::LongPoll;
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
/// Far beyond any machine, and low enough that a count gone wrong (a size in bytes, a negative number cast) is an
/// error at the start and not an exhausted machine.
pub const MAX_WORKERS: usize = 4096;

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
    hooks: Hooks,
}

impl Builder {
    /// The default settings.
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
            hooks: Hooks::default(),
        }
    }

    /// How many workers run tasks: at least one, at most [`MAX_WORKERS`], which [`build`](Self::build) checks.
    ///
    /// By default as many as `GIVEWAY_WORKERS` says, or, if that is unset or empty, as many CPUs as this process may use, with its cgroup's
    /// quota and its affinity taken into account. One more thread, the monitor, runs no tasks and calls no hooks.
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

    /// How many spare workers may stand beside polls that do not return. By default as many as there are workers; with
    /// zero there are none.
    ///
    /// A poll that has gone on for 10 ms is asked to return. One that does not, because it has no yield point and awaits
    /// nothing that spends the [budget](crate::budget), holds its worker, and gets a spare one beside it: so tasks, timers
    /// and sockets go on, even while every worker is in a poll that never returns. Then there are more threads than
    /// workers, and the OS divides the CPUs between them. The spare worker retires when the poll has returned. Its thread
    /// is one of those that also run blocking jobs.
    ///
    /// Such polls are still worth mending, and are [reported](Self::on_long_poll) as before.
    ///
    /// # Not guaranteed
    ///
    /// That a spare worker comes: the OS may refuse a thread. Nor that tasks
    /// [pinned](crate::spawn_pinned) to a worker that is held go on: they have no other.
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
    /// // The only worker there is, and it does not come back:
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

    /// Whether the OS is to preempt background polls that do not return in time. By default it is.
    ///
    /// A [background](crate::spawn_background) poll that keeps its worker for some hundred microseconds after it was asked to
    /// return is *overrun*: it has no yield point, and awaits nothing that spends the [budget](crate::budget). A
    /// [spare worker](Self::max_spare_workers) takes its place at once, and until the poll returns the OS prefers other threads to
    /// it. Where the task was spawned is remembered: further polls of tasks from there are made by threads of the lowest
    /// priority, as if they were [preemptible](crate::task::Builder::preemptible), until they have been short for a while.
    /// So foreground work waits for the first such poll, for less than a millisecond, and not for those after it.
    ///
    /// What the OS preempts in the middle of a lock keeps it: background tasks that share locks with the foreground should have
    /// yield points where they hold none, or [say](crate::task::Builder::preemptible) that they are not to be preempted.
    ///
    /// # Not guaranteed
    ///
    /// That it is the first poll alone: on a machine without a CPU for the monitor it may be some of them. That it is noticed that
    /// soon, if tasks from the same place have been short for long: then it may take some
    /// milliseconds. Nor any of this where the system refuses to lower a thread
    /// ([`Metrics::lowering_refused`](crate::metrics::Metrics::lowering_refused)). A thread or process that such a poll starts
    /// inherits the thread's place behind others. What is polled on lowered threads does not wait in the yield queue, so
    /// [`yield_patience`](Self::yield_patience) says nothing of it, and its long polls are not
    /// [reported](Self::on_long_poll): they hold up nothing.
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

    /// The name of the threads; each worker gets its number after it, other threads what they are for. By default `giveway`.
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

    /// The stack size of the threads in bytes. By default that of the standard library.
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

    /// How many threads may run [blocking jobs](crate::spawn_blocking) of the foreground at once: at least one, which
    /// [`build`](Self::build) checks. By default 512. Jobs of the background have as many as there are workers, and more
    /// only if some wait and none of those that run comes to its end for a tenth of a second.
    ///
    /// The same number again may be in [`block_in_place`](crate::block_in_place) without keeping a worker; beyond that
    /// they keep theirs.
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

    /// How long a thread for blocking jobs waits for the next before it ends. By default half a second. The last one waits
    /// twenty times as long.
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

    /// How long a task may wait in the yield queue while other work goes first. By default there is no limit: on a
    /// machine whose foreground never leaves a worker free, what gave way waits for ever.
    ///
    /// A task that has waited for longer gets a turn: up to its next yield point, or until its budget is spent. However
    /// many are overdue, seven turns out of eight are the foreground's; so the limit holds as far as the turns suffice,
    /// and to within eight polls.
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

    /// How often the yield points of a worker look at every other worker's queue, at most. By default 0.1 ms.
    ///
    /// They need not, to give way to what is queued: whoever queues it interrupts two of them. The look finds what
    /// nobody was there to announce. Zero is at every yield point.
    ///
    /// Ready sockets and due timers nobody announces: so at a tenth of this interval a yield point asks the kernel, if no
    /// worker has.
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

    /// Between which limits [paced](crate::elastic) jobs are held, all of them together, and what makes the limits move.
    /// [`build`](Self::build) checks them.
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

    /// Called by each thread of the runtime but the monitor, before it runs its first task or blocking job. A panic in it is
    /// contained.
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

    /// Called by each thread of the runtime but the monitor, after its last task or job is gone. A panic in it is contained.
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

    /// Called on the worker when a task has panicked, and decides what happens next. A panic in the hook itself is
    /// contained, and counts as [`PanicPolicy::Continue`]. With [`PanicPolicy::Shutdown`] those who wait in
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
    pub fn on_task_panic(mut self, hook: impl Fn(&TaskPanic<'_>) -> PanicPolicy + Send + Sync + 'static) -> Self {
        self.hooks.on_task_panic = Some(Arc::new(hook));
        self
    }

    /// Looks for deadlocks: when every worker is idle and no timer, no socket and no blocking job can wake anything, whoever
    /// waits in [`block_on`](crate::block_on) panics, with a list of the tasks that wait, their names and where they were
    /// spawned. By default off: then such a program waits for ever.
    ///
    /// # Not guaranteed
    ///
    /// - That what is called a deadlock is one: a thread that is not the runtime's may hold a waker, and the runtime cannot
    ///   tell it from one that a waiting task holds. It has to be told: [`Handle::expect_wake`]. The same goes for tasks of
    ///   another runtime, and for wakers that a signal handler or a C library keeps.
    /// - That every deadlock is found: while anything waits for a timer or a socket, some of the tasks may wait for each
    ///   other in vain. So may threads that block, in a lock say, or in a `block_on` inside of a task: those count as
    ///   blocking jobs. And there is no one to tell if no thread waits in `block_on`.
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

    /// Called when a poll has gone on for too long, once a cause: the place where its task was spawned. (A helper of yours that
    /// spawns is one place for all its callers, unless it is `#[track_caller]`.)
    ///
    /// A task that computes or blocks for long in one poll, or loops over a channel of another crate that always has something
    /// ([`budget::cooperative`](crate::budget::cooperative)), holds up what is queued behind it: until another worker takes that,
    /// a [spare one](Self::max_spare_workers) at the latest, and until its end what is pinned to its worker. The report comes when the
    /// poll has returned, with its length; or after a second, if it has not. Time that the thread had to wait for a CPU
    /// does not count, as far as the OS tells.
    ///
    /// The hook runs on the monitor's thread. It should not block, and must not wait for anything of this runtime: while a
    /// poll goes on for too long the monitor may be the only one to hear of sockets and timers. A panic in it is
    /// contained. With the feature `tracing` the report is a `WARN` event of the target `giveway`, hook or not.
    ///
    /// Without a hook, debug builds write each report to standard error. Release builds without `tracing` write only those of
    /// polls that have not returned after a second: a server should have a hook.
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

    /// How long a poll has to go on to be [reported](Self::on_long_poll). By default 10 ms; less makes no difference. One that
    /// returns when it is asked to, which it is after 10 ms, at its next yield point or budgeted operation, is not
    /// reported; nor, for that, is every poll that takes less than some 25 ms. [`Duration::MAX`] turns the reports off.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().long_poll_threshold(Duration::from_millis(100)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn long_poll_threshold(mut self, threshold: Duration) -> Self {
        self.hooks.long_poll_threshold = threshold;
        self
    }

    /// Has the [report](Self::on_long_poll) of a long poll say where in the program it was. Only on Linux; elsewhere
    /// nothing happens.
    ///
    /// The monitor interrupts the thread with the signal `SIGURG`, whose handler notes the return addresses on its stack. A
    /// system call that the poll is in may return early with `EINTR`, as with any signal; the standard library copes, a C
    /// library may not. A handler that the program has for this signal is called as well.
    ///
    /// What the addresses mean is looked up by the monitor, in a debug build for half a second the first time, and as well as
    /// the program has debug information (`debug = "line-tables-only"` in the profile is enough for lines).
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

    /// Starts the runtime's threads.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the number of workers, given here or by `GIVEWAY_WORKERS`, is
    /// not one to [`MAX_WORKERS`], if there may be no blocking thread, if the elastic settings make no sense, or if a thread name holds a NUL byte; otherwise what the OS says when it refuses a
    /// thread. Threads already started have ended by then.
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
        crate::io::serve_everybody();
        if self.max_blocking_threads == 0 {
            return Err(invalid("`max_blocking_threads` is 0; blocking jobs need a thread to run on".into()));
        }
        self.elastic.check().map_err(|error| invalid(error.to_string()))?;
        let spares = self.max_spare_workers.unwrap_or(workers).min(MAX_WORKERS);
        let settings = Settings { spares, clock: os::now, ..self.settings };
        let mut shared = Shared::new(workers, settings, self.hooks.clone(), self.articles(workers))?;
        shared.deadlocks = self.detect_deadlock.then(Watch::default);
        shared.preempts_background = self.preempt_background;
        shared.elastic = Elastic::new(self.elastic);
        let shared = Arc::new(shared);
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

    fn articles(&self, workers: usize) -> Articles {
        Articles {
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

    fn thread(&self, name: String) -> thread::Builder {
        let thread = thread::Builder::new().name(name);
        match self.stack_size {
            Some(bytes) => thread.stack_size(bytes),
            None => thread,
        }
    }
}

/// Ends the threads that were started, after the OS refused one more.
fn give_up(shared: &Arc<Shared>, started: Vec<thread::JoinHandle<()>>, error: io::Error) -> io::Error {
    let (started_now, wanted) = (started.len(), shared.workers() + 1);
    shared.gate.never_started(started_now.min(shared.workers())..shared.workers());
    super::shutdown::and_join(shared, started);
    super::shutdown::without_workers(shared);
    io::Error::new(error.kind(), format!("thread {} of {wanted} could not be started: {error}", started_now + 1))
}

fn default_workers() -> io::Result<usize> {
    match std::env::var(WORKERS_VARIABLE) {
        // Some tools can only set a variable to nothing, not unset it.
        Ok(text) if text.is_empty() => Ok(available_workers()),
        Ok(text) => match text.trim().parse() {
            Ok(workers) => check_workers(workers, WORKERS_VARIABLE),
            Err(_) => Err(invalid(format!(
                "{WORKERS_VARIABLE} is {text:?}, which is not a number of workers; set it to 1 to {MAX_WORKERS} or unset it"
            ))),
        },
        Err(std::env::VarError::NotPresent) => Ok(available_workers()),
        Err(error @ std::env::VarError::NotUnicode(_)) => Err(invalid(format!("{WORKERS_VARIABLE}: {error}"))),
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

/// More than five centuries are as good as for ever.
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
        f.debug_struct("Builder")
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
            .field("hooks", &self.hooks)
            .finish()
    }
}
