//! What the tasks of a runtime are doing.
//!
//! A dump is put together from what is known anyway: the registry (tasks that have waited, or have
//! a name), what each worker says that it polls, the queues that can be looked into, and what the
//! blocking threads do. The workers' own deques and slots cannot be looked into, so a task in there
//! that has never waited and has no name is only counted.

use crate::blocking::{Kind, Work};
use crate::runtime::Shared;
use crate::sched::Yielded;
use crate::task::registry::Visit;
use crate::task::{Class, Id, Mark, Meta, Place};
use giveway_io::driver::on_behalf;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// At most this many tasks of each queue are looked at: a look holds the queue's lock, which other
/// threads want.
const MOST: usize = 1_000;

/// What the tasks of a runtime are doing: from [`Handle::dump`](crate::Handle::dump).
///
/// A dump lists [blocking jobs](crate::spawn_blocking), and tasks that have waited for something at
/// least once, have a name, are running, or are among the first thousand in a global queue. It does
/// not list the future of [`block_on`](crate::block_on), which is no task. A task without a name
/// that has never waited and is in the queue of a worker is only [counted](Self::unlisted).
///
/// Of a task that waits, the dump says where it was spawned and for how long it has waited, but not
/// what for: a runtime does not know what holds a waker.
///
/// # Not guaranteed
///
/// That a dump is of one moment: a task that runs while the dump is made may be shown where it was
/// before, or not at all.
///
/// # Examples
///
/// ```
/// let runtime = giveway::Runtime::new()?;
/// runtime.block_on(async {
///     let dump = giveway::spawn(async { giveway::Handle::current().dump() }).await.unwrap();
///     assert_eq!((dump.tasks().len(), dump.unlisted()), (1, 0), "the task that asked");
///     println!("{dump}");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a dump is to be looked at"]
pub struct Dump {
    tasks: Vec<TaskDump>,
    unlisted: usize,
}

/// A task or a blocking job: a part of a [`Dump`].
///
/// # Examples
///
/// ```
/// use giveway::metrics::TaskState;
///
/// let runtime = giveway::Runtime::new()?;
/// let task = runtime.spawn(async { giveway::Handle::current().dump() });
/// let dump = runtime.block_on(task).unwrap();
/// let asked = &dump.tasks()[0];
/// assert!(matches!(asked.state, TaskState::Running { worker: Some(_) }));
/// assert!(asked.spawned_at.file().ends_with(".rs"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskDump {
    /// The task's number.
    pub id: Id,
    /// The task's name, if it was given one.
    pub name: Option<String>,
    /// The task's class.
    pub class: Class,
    /// What the task is doing.
    pub state: TaskState,
    /// Where the task was spawned.
    pub spawned_at: &'static Location<'static>,
    /// For how long the task has been in that state, where that is known.
    ///
    /// - For a task that [waits](TaskState::Waiting) it is known to the second or so. The figure
    ///   starts again from zero after nine hours and three quarters.
    /// - For a task that is queued or has given way it is known only if the task is one of those
    ///   that are timed.
    /// - For a task that runs, and for jobs, it is never known.
    pub waits: Option<Duration>,
    /// Whether the task is in a background poll that did not return in time, and is [preempted for
    /// others](crate::Builder::preempt_background): on a worker with a spare one beside it.
    pub overrun: bool,
}

/// What a task is doing: see [`TaskDump`].
///
/// # Examples
///
/// ```
/// use giveway::metrics::TaskState;
///
/// assert_eq!(TaskState::Running { worker: Some(1) }.to_string(), "on worker 1");
/// assert_eq!(TaskState::GaveWay.to_string(), "given way");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// The task is being polled.
    Running {
        /// The worker. Numbers from [`Handle::workers`](crate::Handle::workers) on are [spare
        /// workers](crate::Builder::max_spare_workers).
        ///
        /// `None` if the task has lost its worker's place, in
        /// [`block_in_place`](crate::block_in_place); if it is
        /// [preemptible](crate::task::Builder::preemptible) and so has no worker; or if it is on
        /// its way from a queue to a worker.
        worker: Option<usize>,
    },
    /// A blocking job that is being run.
    RunningJob,
    /// A blocking job that waits for a thread.
    QueuedJob,
    /// The task is runnable, and waits for a worker.
    Queued,
    /// The task is runnable, and waits until nothing else is: it has given way, or is of the
    /// background.
    GaveWay,
    /// The task waits to be woken.
    Waiting,
}

impl Dump {
    /// Returns the tasks: first those that run, by worker, then blocking jobs, then those that are
    /// queued, then those that wait, the longest first. See [`Dump`] for an example.
    pub fn tasks(&self) -> &[TaskDump] {
        &self.tasks
    }

    /// Returns about how many tasks are not listed: those that are in the queues of workers, never
    /// polled and without a name, and those that are far back in a global queue. See [`Dump`] for
    /// an example.
    pub fn unlisted(&self) -> usize {
        self.unlisted
    }
}

impl TaskState {
    /// Returns what a dump is sorted by.
    fn rank(self) -> (u8, usize) {
        match self {
            Self::Running { worker } => (0, worker.unwrap_or(usize::MAX)),
            Self::RunningJob => (1, 0),
            Self::QueuedJob => (2, 0),
            Self::Queued => (3, 0),
            Self::GaveWay => (4, 0),
            Self::Waiting => (5, 0),
        }
    }
}

impl TaskDump {
    /// Returns what the metadata of a task says of it.
    fn of(meta: &Meta, shared: &Shared, now: u64) -> Self {
        let since =
            |since: u64| (since != 0).then(|| Duration::from_nanos(now.saturating_sub(since)));
        let (state, waits) = match meta.mark().place() {
            Place::Running => (TaskState::Running { worker: None }, None),
            Place::Queued(number) => (
                TaskState::Queued,
                number.and_then(|number| since(shared.meter.stamps.look(number))),
            ),
            Place::Yielded => (TaskState::GaveWay, None),
            Place::Waiting(tick) => (TaskState::Waiting, Some(Mark::waited(tick, now))),
        };
        let class = meta.class();
        let name = meta.name().map(str::to_owned);
        Self { id: meta.id, name, class, state, spawned_at: meta.location(), waits, overrun: false }
    }

    /// Returns what a pool says of a job, or of a poll without a core.
    fn of_work(work: Work, class: Class, state: TaskState) -> Self {
        Self {
            id: work.id,
            name: work.name,
            class,
            state,
            spawned_at: work.spawned_at,
            waits: None,
            overrun: false,
        }
    }
}

impl Shared {
    pub(crate) fn dump(&self) -> Dump {
        if self.process.in_forked_child() {
            // In the child of a fork nothing runs, and a thread that does not exist there may hold
            // any lock.
            return Dump { tasks: Vec::new(), unlisted: 0 };
        }
        let now = self.meter.now(self.now());
        // With room for all tasks: a map that grows is copied, and that would be under the lock of
        // a shard.
        let mut tasks = HashMap::with_capacity(on_behalf(|| self.registry.len()) + MOST);
        self.registry.for_each_patiently(|meta| match tasks.entry(meta.id) {
            Entry::Occupied(_) => Visit::Again,
            Entry::Vacant(place) => {
                place.insert(TaskDump::of(meta, self, now));
                Visit::First
            }
        });
        let mut threads = 0;
        let mut found = Vec::new();
        on_behalf(|| {
            self.scheduler
                .injector
                .look_at(MOST, |task| found.push(TaskDump::of(task.metadata(), self, now)));
            for core in self.scheduler.cores() {
                core.look_at_inbox(MOST, |task| {
                    found.push(TaskDump::of(task.metadata(), self, now))
                });
            }
            self.scheduler.yielded.look_at(MOST, |yielded, since| match yielded {
                Yielded::Task(task) => {
                    let waits =
                        (since != 0).then(|| Duration::from_nanos(now.saturating_sub(since)));
                    found.push(TaskDump { waits, ..TaskDump::of(task.metadata(), self, now) });
                }
                Yielded::Thread(_) => threads += 1,
            });
        });
        tasks.extend(found.into_iter().map(|task| (task.id, task)));

        for (worker, post) in self.posts.iter().enumerate() {
            if let Some((id, class, spawned_at)) = post.running_class() {
                let state = TaskState::Running { worker: Some(worker) };
                let overrun = post.is_overrun(self.scheduler.core(worker).polling());
                let new =
                    TaskDump { id, name: None, class, state, spawned_at, waits: None, overrun };
                tasks
                    .entry(id)
                    .and_modify(|task| {
                        (task.state, task.waits, task.overrun) = (state, None, overrun)
                    })
                    .or_insert(new);
            }
        }
        let mut unlisted = 0;
        for pool in self.pools() {
            let (going_on, queued, more) = on_behalf(|| pool.look_at(MOST));
            let polls = pool.kind() == Kind::Lowered;
            unlisted += if polls { 0 } else { more };
            for work in going_on {
                // A poll that has lost its worker, or has none, is a task, and may be listed
                // already.
                let away = TaskState::Running { worker: None };
                let state =
                    if polls || work.worker.is_some() { away } else { TaskState::RunningJob };
                let new = TaskDump::of_work(work, pool.class(), state);
                tasks
                    .entry(new.id)
                    .and_modify(|task| (task.state, task.waits) = (state, None))
                    .or_insert(new);
            }
            let waits = if polls { TaskState::Queued } else { TaskState::QueuedJob };
            let queued = queued.into_iter().map(|job| TaskDump::of_work(job, pool.class(), waits));
            tasks.extend(queued.map(|job| (job.id, job)));
        }

        let mut tasks: Vec<_> = tasks.into_values().collect();
        tasks.sort_by_key(|task| (task.state.rank(), Reverse(task.waits), task.id));
        let is_queued =
            |task: &&TaskDump| matches!(task.state, TaskState::Queued | TaskState::GaveWay);
        let listed = tasks.iter().filter(is_queued).count() + threads;
        unlisted += self.queued().saturating_sub(listed);
        Dump { tasks, unlisted }
    }

    /// Returns how many tasks are queued, in all queues.
    fn queued(&self) -> usize {
        let (scheduler, slot) = (&self.scheduler, |full: bool| usize::from(full));
        let cores = scheduler.cores().iter();
        let local = cores
            .map(|core| core.deque_len() + core.inbox_len() + slot(!core.slot.is_empty_relaxed()));
        let lowered = self.pool_of(Kind::Lowered).queued().load(Relaxed);
        scheduler.injector.len() + scheduler.yielded.len() + lowered + local.sum::<usize>()
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running { worker: Some(worker) } => return f.pad(&format!("on worker {worker}")),
            Self::Running { worker: None } => "running",
            Self::RunningJob => "blocking job",
            Self::QueuedJob => "queued job",
            Self::Queued => "queued",
            Self::GaveWay => "given way",
            Self::Waiting => "waiting",
        })
    }
}

/// A row of the table.
impl fmt::Display for TaskDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = self.waits.map_or(String::from("-"), |waits| match waits.as_secs() {
            0 if self.state == TaskState::Waiting => String::from("< 2 s"),
            0 => format!("{waits:.0?}"),
            seconds => format!("{seconds} s"),
        });
        let class = if self.class == Class::Background { "bg" } else { "fg" };
        write!(
            f,
            "{:>8} {:<14} {waits:>9} {class} {}",
            self.id.get(),
            self.state,
            self.spawned_at
        )?;
        // As a literal, so that a name cannot spoil the table.
        self.name.iter().try_for_each(|name| write!(f, " {name:?}"))?;
        if self.overrun { f.write_str(" (overrun)") } else { Ok(()) }
    }
}

/// A table for people: one task a line.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} task{}", self.tasks.len(), if self.tasks.len() == 1 { "" } else { "s" })?;
        if self.unlisted > 0 {
            write!(f, ", and about {} more in queues", self.unlisted)?;
        }
        if !self.tasks.is_empty() {
            write!(f, "\n{:>8} {:<14} {:>9}    spawned at", "id", "state", "for")?;
        }
        self.tasks.iter().try_for_each(|task| write!(f, "\n{task}"))
    }
}
