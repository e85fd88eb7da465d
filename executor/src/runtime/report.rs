//! What was left when a shutdown ran out of time.

use super::Shared;
use super::shared::CREWS;
use crate::blocking::{Kind, Left, Work};
use crate::task::{Id, describe};
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// The most tasks that the text of a report names.
const MOST: usize = 100;

/// What was left when a shutdown ran out of time; see
/// [`Runtime::shutdown_timeout`](super::Runtime::shutdown_timeout).
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let runtime = giveway::Builder::new().workers(1).build()?;
/// let (release, blocked) = mpsc::channel::<()>();
/// let (started, has_started) = mpsc::channel();
/// let task = giveway::task::Builder::new().name("slow cook").spawn_on(
///     async move {
///         started.send(()).unwrap();
///         blocked.recv().ok(); // blocks its worker: the poll does not return
///     },
///     runtime.handle(),
/// );
/// has_started.recv().unwrap();
///
/// let report = runtime.shutdown_timeout(Duration::from_millis(10));
/// assert!(!report.is_clean());
/// assert_eq!(report.stuck_threads(), 1);
/// let stuck = &report.stuck_tasks()[0];
/// assert_eq!((stuck.name(), stuck.worker()), (Some("slow cook"), Some(0)));
/// assert_eq!((stuck.id(), stuck.spawned_at().file()), (task.id(), file!()));
/// assert!(!stuck.is_blocking_job());
/// println!("{report}"); // ... task "slow cook" (1), spawned at src/main.rs:9:5, in one poll for 10 ms on worker 0
/// drop(release);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "the report says whether the shutdown came to its end"]
pub struct ShutdownReport {
    threads: usize,
    /// How many of the threads are those of the tokio runtime beside this one.
    threads_of_tokio: usize,
    tasks: Vec<StuckTask>,
}

impl ShutdownReport {
    pub(super) fn clean() -> Self {
        Self { threads: 0, threads_of_tokio: 0, tasks: Vec::new() }
    }

    /// Reports that `workers` have not ended, and what the pools have left. The shutdown began at
    /// `since`.
    pub(super) fn new(
        shared: &Shared,
        workers: &[usize],
        left: [Left; CREWS],
        since: Instant,
    ) -> Self {
        let running =
            workers.iter().filter_map(|&worker| StuckTask::on_worker(shared, worker, since));
        let mut tasks: Vec<_> = running.collect();
        let mut threads = workers.len();
        let mut not_started = Vec::new();
        for left in left {
            threads += left.threads;
            tasks.extend(left.going_on.into_iter().map(|work| {
                let place = match (work.worker, left.kind) {
                    (Some(_), _) => Place::Nowhere,
                    (None, Kind::Lowered) => Place::Lowered,
                    (None, _) => Place::Job,
                };
                StuckTask::new(work, place)
            }));
            not_started.extend(
                left.waiting.into_iter().map(|work| StuckTask::new(work, Place::NotStarted)),
            );
        }
        // A job has its name, and is not registered. For a task only the registry has it.
        for task in tasks.iter_mut().filter(|task| task.name.is_none()) {
            task.name = shared.registry.name_of(task.id);
        }
        tasks.extend(not_started);
        Self { threads, threads_of_tokio: 0, tasks }
    }

    /// Adds the threads of the tokio runtime beside this one, which has not ended. If the last of
    /// them is past its stop hook, counts that.
    pub(super) fn add_tokio(&mut self, shared: &Shared) {
        self.threads_of_tokio = shared.tokio.threads().max(1);
        self.threads += self.threads_of_tokio;
    }

    pub(super) fn threads_of_tokio(&self) -> usize {
        self.threads_of_tokio
    }

    /// Returns whether everything came to its end in time: every thread has ended, and every
    /// [blocking job](crate::spawn_blocking) that was accepted has run. See [`ShutdownReport`] for
    /// an example.
    pub fn is_clean(&self) -> bool {
        self.threads == 0 && self.tasks.is_empty()
    }

    /// Returns how many threads had not ended. These are more than the stuck tasks if some threads
    /// were in a hook, or are those of a tokio that runs beside the runtime (feature `tokio`). See [`ShutdownReport`] for an example.
    pub fn stuck_threads(&self) -> usize {
        self.threads
    }

    /// Returns the tasks that had not returned from a poll or a destructor, the
    /// [blocking jobs](crate::spawn_blocking) that had not ended, and those that had not started
    /// and are cancelled. See [`ShutdownReport`] for an example.
    pub fn stuck_tasks(&self) -> &[StuckTask] {
        &self.tasks
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("clean: every task and every thread has ended");
        }
        match self.threads {
            1 => f.write_str("1 thread has not ended")?,
            threads => write!(f, "{threads} threads have not ended")?,
        }
        if self.threads_of_tokio > 0 {
            write!(f, ", {} of them of tokio", self.threads_of_tokio)?;
        }
        self.tasks.iter().take(MOST).try_for_each(|task| write!(f, "; {task}"))?;
        match self.tasks.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A task or blocking job that held up a shutdown, or that the shutdown gave up on. See
/// [`ShutdownReport`] for an example.
#[derive(Debug, Clone)]
pub struct StuckTask {
    id: Id,
    name: Option<String>,
    spawned_at: &'static Location<'static>,
    place: Place,
    /// How long it has been there, at least.
    length: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In a poll.
    Worker(usize),
    /// In its destructor.
    Destructor(usize),
    /// In `block_in_place`, while another thread has its worker's place.
    Nowhere,
    /// In a poll on a lowered thread.
    Lowered,
    /// A blocking job that a thread has taken.
    Job,
    /// A blocking job that no thread has taken.
    NotStarted,
}

impl StuckTask {
    fn new(Work { id, name, spawned_at, since, .. }: Work, place: Place) -> Self {
        Self {
            id,
            name,
            spawned_at,
            place,
            length: since.map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }

    /// Returns what a worker that has not ended is in. It has been in there at least since
    /// `closed`.
    fn on_worker(shared: &Shared, worker: usize, closed: Instant) -> Option<Self> {
        let post = &shared.posts[worker];
        let (id, spawned_at) = post.running()?;
        let since_closed = closed.elapsed();
        let (place, length) = if post.is_dropping() {
            (Place::Destructor(worker), since_closed)
        } else {
            let seen = post.seen_since(shared.scheduler.core(worker).polling());
            let since_seen =
                seen.map(|seen| Duration::from_nanos(shared.now().saturating_sub(seen)));
            (Place::Worker(worker), since_seen.unwrap_or(since_closed).max(since_closed))
        };
        Some(Self { id, name: None, spawned_at, place, length })
    }

    /// Returns the task's number. See [`ShutdownReport`] for an example.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the task's name, if it was given one. See [`ShutdownReport`] for an example.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the place where the task was spawned. See [`ShutdownReport`] for an example.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned_at
    }

    /// Returns the number of the worker that it keeps. The numbers of
    /// [spare workers](crate::Builder::max_spare_workers) begin at
    /// [`Handle::workers`](crate::Handle::workers).
    ///
    /// Returns `None` for a blocking job, for a task that blocks [in place](crate::block_in_place)
    /// without keeping a worker, and for a task that is
    /// [preemptible](crate::task::Builder::preemptible). See [`ShutdownReport`] for an example.
    pub fn worker(&self) -> Option<usize> {
        match self.place {
            Place::Worker(worker) | Place::Destructor(worker) => Some(worker),
            Place::Nowhere | Place::Lowered | Place::Job | Place::NotStarted => None,
        }
    }

    /// Returns whether it is a [blocking job](crate::spawn_blocking). See [`ShutdownReport`] for an
    /// example.
    pub fn is_blocking_job(&self) -> bool {
        matches!(self.place, Place::Job | Place::NotStarted)
    }

    /// Returns whether it has started, and goes on after the shutdown has given up on it. A
    /// [blocking job](crate::spawn_blocking) that has not started is cancelled: it never runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let runtime = giveway::Builder::new().max_blocking_threads(1).build()?;
    /// let (release, blocked) = mpsc::channel::<()>();
    /// runtime.spawn_blocking(move || blocked.recv());
    /// runtime.spawn_blocking(|| println!("next, please")); // waits for the only thread
    ///
    /// let report = runtime.shutdown_timeout(Duration::from_millis(10));
    /// let started: Vec<_> = report.stuck_tasks().iter().map(|job| job.has_started()).collect();
    /// assert_eq!(started, [true, false]);
    /// drop(release);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_started(&self) -> bool {
        !matches!(self.place, Place::NotStarted)
    }
}

impl fmt::Display for StuckTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.id, self.name(), self.spawned_at)?;
        let length = Rounded(self.length);
        match self.place {
            Place::Worker(worker) => write!(f, ", in one poll for {length} on worker {worker}"),
            Place::Destructor(worker) => {
                write!(f, ", in its destructor for {length} on worker {worker}")
            }
            Place::Nowhere => write!(f, ", blocks in place for {length}"),
            Place::Lowered => write!(f, ", in one poll for {length} on a lowered thread"),
            Place::Job => write!(f, ", is a blocking job that has not ended after {length}"),
            Place::NotStarted => {
                f.write_str(", is a blocking job that had not started, and is cancelled")
            }
        }
    }
}

/// Shows a duration for people: in whole seconds, or in milliseconds if it is less than one second.
pub(super) struct Rounded(pub(super) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.as_millis()),
            seconds => write!(f, "{seconds} s"),
        }
    }
}
