//! The figures of one moment.

use super::Histogram;
use crate::task::Class;
use std::fmt;
use std::time::Duration;

/// What a runtime has counted and timed since it was started, or between
/// [two moments](Self::since). From [`Handle::metrics`](crate::Handle::metrics).
///
/// The depths of queues, and the numbers of what waits, runs or is there, are of the moment.
/// Everything else is cumulative. `docs/looking_inside.md` in the repository says what to do about
/// a figure that is high.
///
/// # Not guaranteed
///
/// That all figures are of the same moment: no thread is stopped for them.
///
/// # Examples
///
/// ```
/// let runtime = giveway::Builder::new().workers(2).build()?;
/// runtime.block_on(async {
///     for _ in 0..100 {
///         giveway::spawn(async {}).await.unwrap();
///     }
/// });
/// let metrics = runtime.metrics();
/// assert_eq!(metrics.polls(), 100);
/// assert_eq!(metrics.workers.len(), 2);
/// assert!(metrics.foreground_latency.count() > 0, "some of them were timed");
/// assert_eq!(metrics.scheduling_latency(giveway::task::Class::Background).count(), 0);
/// assert!(metrics.hand_offs() <= metrics.polls() && metrics.steals() <= metrics.stolen());
/// println!("{} parks, {} wake-ups", metrics.parks(), metrics.wake_ups());
/// println!("{metrics}");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metrics {
    /// How long the runtime has existed, up to its end.
    pub uptime: Duration,
    /// How long foreground tasks waited for a worker: from when a task became runnable to when its
    /// poll began. Tasks that have given way are not in here, as they wait of their own will.
    ///
    /// A task that waits for a socket or a timer becomes runnable when the runtime notices the
    /// event. That is at once while a worker is idle, within some 10 µs while all are busy with
    /// work that has yield points, and within some milliseconds while all are in long polls. That
    /// time is not in here, nor in any other figure.
    pub foreground_latency: Histogram,
    /// How long background tasks waited for a worker, in the yield queue too: they wait as long as
    /// the foreground keeps every worker busy.
    pub background_latency: Histogram,
    /// How long polls took. A poll that has lost its worker's place in
    /// [`block_in_place`](crate::block_in_place) is not in here.
    pub poll_time: Histogram,
    /// How long what gave way had to wait: tasks and threads in the yield queue, and tasks that
    /// changed places with another.
    pub yield_wait: Histogram,
    /// How often a task, or a thread in [`block_on`](crate::block_on), has given way at a yield
    /// point.
    pub yields_taken: u64,
    /// How often a yield point or [`should_yield`](crate::should_yield) asked, and was told to go
    /// on. Most yield points never ask: the part of them that is inlined sees that nothing is new,
    /// and counts nothing.
    pub yields_declined: u64,
    /// How often a worker was asked to give way, for work that became runnable or for a poll that
    /// went on for too long.
    pub interrupts: u64,
    /// How often a worker queued work for others and woke none, because one was awake and
    /// searching: context switches avoided. Those that were not avoided are
    /// [`wake_ups`](Self::wake_ups). See also [`hand_offs`](Self::hand_offs).
    pub wake_ups_avoided: u64,
    /// How many wake-ups were lost: work was queued beside an idle worker, no worker searched, and
    /// no thread but the monitor was left to wake one. Expected to be zero. Anything else is a bug
    /// in this runtime: please report it.
    ///
    /// A thread that queues work and loses its CPU before it wakes a worker is not counted, however
    /// long that lasts, nor is a wake-up that was made good by the next one within 10 ms. Only
    /// Linux tells the two apart; elsewhere this stays zero.
    pub monitor_rescues: u64,
    /// Depth of the global queue: what was made runnable outside of the workers, or was too much
    /// for one of them.
    pub injector: usize,
    /// Depth of the yield queue: what has given way, and background tasks for which there is no
    /// worker.
    pub yield_queue: usize,
    /// [Blocking jobs](crate::spawn_blocking) that wait for a thread, of both classes.
    pub blocking_queued: usize,
    /// Blocking jobs that are being run.
    pub blocking_running: usize,
    /// Threads for blocking jobs, busy or not, and threads that stand in for workers.
    pub blocking_threads: usize,
    /// [Preemptible](crate::task::Builder::preemptible) tasks that wait for a lowered thread.
    pub lowered_queued: usize,
    /// Preemptible tasks that are being polled.
    pub lowered_running: usize,
    /// Lowered threads for preemptible tasks, busy or not. Those for background blocking jobs are
    /// among [`blocking_threads`](Self::blocking_threads).
    pub lowered_threads: usize,
    /// Whether the system has refused to lower a thread. If so, nothing is preempted for the
    /// foreground.
    pub lowering_refused: bool,
    /// How many workers leave the yield queue to the others at the moment. They do so if lowered
    /// threads want a part of the CPUs, of which polite tasks would take all. A worker that rests
    /// runs everything else.
    pub resting_workers: usize,
    /// How many background polls did not return in time on their worker: they were
    /// [overrun](crate::Builder::preempt_background). There are few, since tasks from the same
    /// place are polled on lowered threads afterwards.
    pub overruns: u64,
    /// How long polls on lowered threads had a CPU, all together.
    pub lowered_time: Duration,
    /// Tasks that have not ended, and have waited for something at least once or have a name. A
    /// task without a name that was never pending is not counted, since the runtime keeps no list
    /// of such tasks. Nor are blocking jobs.
    pub tasks: usize,
    /// The workers, by their numbers.
    pub workers: Vec<WorkerMetrics>,
    /// How often a [spare worker](crate::Builder::max_spare_workers) was put beside a poll that did
    /// not return.
    pub spares_sent: u64,
    /// How many spare workers there are at the moment.
    pub spares_at_work: usize,
    /// The spare workers that were ever at work. Sums over all workers include them.
    pub spare_workers: Vec<WorkerMetrics>,
}

/// The figures of one worker: a part of [`Metrics`].
///
/// A worker is a place, not a thread: if its thread blocks in a task, another thread takes over,
/// and the figures go on.
///
/// # Examples
///
/// ```
/// let runtime = giveway::Builder::new().workers(2).build()?;
/// let metrics = runtime.metrics();
/// for worker in &metrics.workers {
///     println!("{:?} of {:?}", worker.busy, metrics.uptime);
///     assert!(worker.busy <= metrics.uptime);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Depth of the worker's own queue.
    pub deque: usize,
    /// Whether the worker's slot, which holds the task to run next, is full: one or zero.
    pub slot: usize,
    /// Depth of the worker's queue of [pinned](crate::spawn_pinned) tasks.
    pub inbox: usize,
    /// For how long the worker was not parked: in polls, searching, or waiting for a CPU of the
    /// machine.
    pub busy: Duration,
    /// How many polls the worker has made.
    pub polls: u64,
    /// How many of the worker's polls were of a task that the task before had woken or spawned. No
    /// other worker had to be woken for it.
    pub hand_offs: u64,
    /// How often the worker has parked for lack of work.
    pub parks: u64,
    /// How often the worker was woken for work that another thread had.
    pub wake_ups: u64,
    /// How often the worker has stolen from another.
    pub steals: u64,
    /// About how many tasks the worker has stolen: tasks that a third worker takes away at the same
    /// moment are missed.
    pub stolen: u64,
}

impl Metrics {
    /// Returns the scheduling latency of a class. See [`Metrics`] for an example.
    pub fn scheduling_latency(&self, class: Class) -> &Histogram {
        match class {
            Class::Foreground => &self.foreground_latency,
            Class::Background => &self.background_latency,
        }
    }

    fn sum(&self, figure: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().chain(&self.spare_workers).map(figure).sum()
    }

    /// Returns the number of polls of all workers. See [`Metrics`] for an example.
    pub fn polls(&self) -> u64 {
        self.sum(|worker| worker.polls)
    }

    /// Returns the number of [hand-offs](WorkerMetrics::hand_offs) of all workers. See [`Metrics`]
    /// for an example.
    pub fn hand_offs(&self) -> u64 {
        self.sum(|worker| worker.hand_offs)
    }

    /// Returns how often any worker has parked. See [`Metrics`] for an example.
    pub fn parks(&self) -> u64 {
        self.sum(|worker| worker.parks)
    }

    /// Returns how often any worker was woken. See [`Metrics`] for an example.
    pub fn wake_ups(&self) -> u64 {
        self.sum(|worker| worker.wake_ups)
    }

    /// Returns how often any worker has stolen from another. See [`Metrics`] for an example.
    pub fn steals(&self) -> u64 {
        self.sum(|worker| worker.steals)
    }

    /// Returns how many tasks were stolen. See [`Metrics`] for an example.
    pub fn stolen(&self) -> u64 {
        self.sum(|worker| worker.stolen)
    }

    /// Returns what has come since `earlier`, of the same runtime. Figures of the moment are those
    /// of `self`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Runtime::new()?;
    /// let before = runtime.metrics();
    /// runtime.block_on(async { giveway::spawn(async {}).await.unwrap() });
    /// assert_eq!(runtime.metrics().since(&before).polls(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            uptime: self.uptime.saturating_sub(earlier.uptime),
            foreground_latency: self.foreground_latency.since(&earlier.foreground_latency),
            background_latency: self.background_latency.since(&earlier.background_latency),
            poll_time: self.poll_time.since(&earlier.poll_time),
            yield_wait: self.yield_wait.since(&earlier.yield_wait),
            yields_taken: self.yields_taken.saturating_sub(earlier.yields_taken),
            yields_declined: self.yields_declined.saturating_sub(earlier.yields_declined),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            wake_ups_avoided: self.wake_ups_avoided.saturating_sub(earlier.wake_ups_avoided),
            monitor_rescues: self.monitor_rescues.saturating_sub(earlier.monitor_rescues),
            workers: each_since(&self.workers, &earlier.workers),
            spares_sent: self.spares_sent.saturating_sub(earlier.spares_sent),
            spare_workers: each_since(&self.spare_workers, &earlier.spare_workers),
            overruns: self.overruns.saturating_sub(earlier.overruns),
            lowered_time: self.lowered_time.saturating_sub(earlier.lowered_time),
            ..*self
        }
    }
}

fn each_since(workers: &[WorkerMetrics], earlier: &[WorkerMetrics]) -> Vec<WorkerMetrics> {
    let since = |(i, now): (usize, &WorkerMetrics)| {
        earlier.get(i).map_or_else(|| now.clone(), |before| now.since(before))
    };
    workers.iter().enumerate().map(since).collect()
}

impl WorkerMetrics {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            polls: self.polls.saturating_sub(earlier.polls),
            hand_offs: self.hand_offs.saturating_sub(earlier.hand_offs),
            parks: self.parks.saturating_sub(earlier.parks),
            wake_ups: self.wake_ups.saturating_sub(earlier.wake_ups),
            steals: self.steals.saturating_sub(earlier.steals),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            ..*self
        }
    }
}

/// A table, for people.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tasks known: {}, {} polls in {:.3?}", self.tasks, self.polls(), self.uptime)?;
        let timed = [
            ("foreground latency", &self.foreground_latency),
            ("background latency", &self.background_latency),
            ("poll time", &self.poll_time),
            ("yield wait", &self.yield_wait),
        ];
        for (name, histogram) in timed {
            writeln!(f, "{name:<19} {histogram}")?;
        }
        let (steals, stolen, taken, declined) =
            (self.steals(), self.stolen(), self.yields_taken, self.yields_declined);
        writeln!(
            f,
            "yields              {taken} taken, {declined} declined, {} interrupts",
            self.interrupts
        )?;
        writeln!(f, "steals              {steals} of {stolen} tasks")?;
        let (made, avoided) = (self.wake_ups(), self.wake_ups_avoided);
        writeln!(
            f,
            "wake-ups            {made} made, {avoided} avoided, {} hand-offs",
            self.hand_offs()
        )?;
        if self.monitor_rescues > 0 {
            writeln!(
                f,
                "lost wake-ups       {}, made good by the monitor: a bug",
                self.monitor_rescues
            )?;
        }
        writeln!(
            f,
            "global queues       injector {}, yield queue {}",
            self.injector, self.yield_queue
        )?;
        let (queued, running, threads) =
            (self.blocking_queued, self.blocking_running, self.blocking_threads);
        writeln!(f, "blocking jobs       {queued} queued, {running} running, threads {threads}")?;
        if self.lowered_threads > 0 || self.lowered_queued > 0 {
            let (queued, running, threads) =
                (self.lowered_queued, self.lowered_running, self.lowered_threads);
            let refused =
                if self.lowering_refused { ", which the system refuses to lower" } else { "" };
            let time = self.lowered_time;
            writeln!(
                f,
                "lowered polls       {queued} queued, {running} running, {time:.1?}, threads \
                 {threads}{refused}"
            )?;
        }
        if self.overruns > 0 {
            writeln!(f, "overrun polls       {}", self.overruns)?;
        }
        if self.resting_workers > 0 {
            writeln!(f, "resting workers     {}, for lowered threads", self.resting_workers)?;
        }
        if self.spares_sent > 0 {
            writeln!(
                f,
                "spare workers       {} at work, {} sent",
                self.spares_at_work, self.spares_sent
            )?;
        }
        write!(f, "{:>7} {:>6} {:>5} {:>6} {:>7}", "worker", "deque", "slot", "inbox", "busy")?;
        write!(
            f,
            " {:>12} {:>10} {:>10} {:>10} {:>10}",
            "polls", "hand-offs", "parks", "wake-ups", "steals"
        )?;
        let spares =
            self.spare_workers.iter().enumerate().map(|(n, worker)| (format!("spare {n}"), worker));
        let workers = self.workers.iter().enumerate().map(|(n, worker)| (n.to_string(), worker));
        for (number, worker) in workers.chain(spares) {
            let busy = 100.0 * worker.busy.as_secs_f64()
                / self.uptime.as_secs_f64().max(f64::MIN_POSITIVE);
            let WorkerMetrics {
                deque, slot, inbox, polls, hand_offs, parks, wake_ups, steals, ..
            } = worker;
            write!(f, "\n{number:>7} {deque:>6} {slot:>5} {inbox:>6} {busy:>6.1}%")?;
            write!(f, " {polls:>12} {hand_offs:>10} {parks:>10} {wake_ups:>10} {steals:>10}")?;
        }
        Ok(())
    }
}
