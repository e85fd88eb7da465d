//! What was left when a shutdown ran out of time.

use super::Shared;
use crate::blocking::Work;
use crate::task::{Id, describe};
use std::fmt;
use std::panic::Location;

/// What was left when a shutdown ran out of time; see [`Runtime::shutdown_timeout`](super::Runtime::shutdown_timeout).
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
/// println!("{report}"); // ... task "slow cook" (1), spawned at src/main.rs:9:5, keeps worker 0
/// drop(release);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "the report says whether the shutdown came to its end"]
pub struct ShutdownReport {
    threads: usize,
    tasks: Vec<StuckTask>,
}

impl ShutdownReport {
    pub(super) fn clean() -> Self {
        Self { threads: 0, tasks: Vec::new() }
    }

    /// `workers` have not ended; nor have so many threads of the crews, which do this.
    pub(super) fn new(shared: &Shared, workers: &[usize], blocked: [(usize, Vec<Work>); 2]) -> Self {
        let running = workers.iter().filter_map(|&worker| {
            let (id, spawned_at) = shared.posts[worker].running()?;
            Some(StuckTask { id, name: None, spawned_at, place: Place::Worker(worker) })
        });
        let mut tasks: Vec<_> = running.collect();
        let mut threads = workers.len();
        for (blocked, work) in blocked {
            threads += blocked;
            tasks.extend(work.into_iter().map(|Work { id, name, spawned_at, worker }| {
                let place = if worker.is_some() { Place::Nowhere } else { Place::Job };
                StuckTask { id, name, spawned_at, place }
            }));
        }
        // A job knows its own, and is not registered.
        for task in tasks.iter_mut().filter(|task| task.name.is_none()) {
            task.name = shared.registry.name_of(task.id);
        }
        Self { threads, tasks }
    }

    /// Whether everything came to its end in time.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn is_clean(&self) -> bool {
        self.threads == 0
    }

    /// How many threads had not ended. More than there are stuck tasks if some were in a hook.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn stuck_threads(&self) -> usize {
        self.threads
    }

    /// The tasks that had not returned from a poll or a destructor, and the [blocking jobs](crate::spawn_blocking) that had
    /// not ended.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
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
        self.tasks.iter().try_for_each(|task| write!(f, "; {task}"))
    }
}

/// A task or blocking job that held up a shutdown. An example is at [`ShutdownReport`].
#[derive(Debug, Clone)]
pub struct StuckTask {
    id: Id,
    name: Option<String>,
    spawned_at: &'static Location<'static>,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Worker(usize),
    /// In `block_in_place`, its worker's place taken by another.
    Nowhere,
    Job,
}

impl StuckTask {
    /// The task's number.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn id(&self) -> Id {
        self.id
    }

    /// The task's name, if it was given one.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Where the task was spawned.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned_at
    }

    /// The number of the worker that it keeps. None for a blocking job, and for a task that blocks
    /// [in place](crate::block_in_place) without keeping a worker.
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn worker(&self) -> Option<usize> {
        match self.place {
            Place::Worker(worker) => Some(worker),
            Place::Nowhere | Place::Job => None,
        }
    }

    /// Whether it is a [blocking job](crate::spawn_blocking).
    ///
    /// # Examples
    ///
    /// See [`ShutdownReport`].
    pub fn is_blocking_job(&self) -> bool {
        matches!(self.place, Place::Job)
    }
}

impl fmt::Display for StuckTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.id, self.name(), self.spawned_at)?;
        match self.place {
            Place::Worker(worker) => write!(f, ", keeps worker {worker}"),
            Place::Nowhere => f.write_str(", blocks in place"),
            Place::Job => f.write_str(", is a blocking job that has not ended"),
        }
    }
}
