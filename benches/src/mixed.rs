//! What do foreground tasks feel of background jobs, and what do the jobs get done, if the jobs
//! have yield points, are paced, both, or neither?
//!
//! A cell is a foreground load, a kind of job and an arm, on a runtime of its own. A thread outside
//! of the runtime spawns foreground tasks at fixed times, whatever has become of the earlier ones.
//! Each task works for 50 µs. Its latency runs from the time at which it is due until it is done.
//! The thread asks for real-time priority. A job works in stretches: a fixed amount of arithmetic
//! between two points at which its worker can change to another task. What jobs get done is counted
//! in chunks of 20 µs of this arithmetic.
//!
//! Not isolated: the spawning thread shares the CPUs with the runtime, and the neighbour process
//! gets what the kernel gives it.

use crate::wake::ask_for_real_time;
use crate::work::{microseconds, percentile, spin};
use crossbeam_utils::CachePadded;
use giveway::elastic::{Pacer, Settings};
use giveway::{Builder, Handle, Runtime};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The work of a foreground task, in microseconds.
const TASK: u64 = 50;

/// The unit in which the work of jobs is counted, in microseconds.
const CHUNK: u64 = 20;

/// When foreground tasks come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreground {
    /// One every half millisecond.
    Steady,
    /// Two hundred at once, ten times a second.
    Bursty,
    /// One every half millisecond, while another process wants every CPU.
    Neighbour,
}

impl Foreground {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Steady, Self::Bursty, Self::Neighbour];

    /// Returns the name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Bursty => "bursty",
            Self::Neighbour => "neighbour",
        }
    }

    /// Returns how many tasks come at once, and the time from one such group to the next.
    const fn rhythm(self) -> (u32, Duration) {
        match self {
            Self::Steady | Self::Neighbour => (1, Duration::from_micros(500)),
            Self::Bursty => (200, Duration::from_millis(100)),
        }
    }
}

/// What jobs do between two stretches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// There are no jobs.
    Alone,
    /// They return to the queue like any other task: a plain `yield_now`.
    Neither,
    /// They give way to a task that waits: `yield_now_if_busy`.
    Yields,
    /// They wait for the pacer's slices, but do not give way at its yield point. Then they do as in
    /// [`Self::Neither`].
    Pacer,
    /// They call their pacer, which is a yield point too.
    Both,
}

impl Arm {
    /// Every arm that has jobs.
    pub const ALL: [Self; 4] = [Self::Neither, Self::Yields, Self::Pacer, Self::Both];

    /// Returns the name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "no jobs",
            Self::Neither => "neither",
            Self::Yields => "yields",
            Self::Pacer => "pacer",
            Self::Both => "both",
        }
    }

    /// Returns whether the jobs have pacers.
    pub const fn is_paced(self) -> bool {
        matches!(self, Self::Pacer | Self::Both)
    }
}

/// The parameters of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// When foreground tasks come.
    pub foreground: Foreground,
    /// How long a job works before its worker can change to another task.
    pub stretch: Duration,
    /// What jobs do between two stretches.
    pub arm: Arm,
    /// The number of jobs.
    pub jobs: usize,
    /// The number of workers.
    pub workers: usize,
    /// The rounds of [`spin`] that take a microsecond.
    pub rounds: u64,
    /// The settings of the pacers.
    pub settings: Settings,
    /// How long the load goes on before it is measured.
    pub settle: Duration,
    /// How long it is measured.
    pub time: Duration,
}

/// The figures of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The latency of foreground tasks, in microseconds: median and 99th percentile.
    pub latency: [f64; 2],
    /// CPU seconds of background work a second.
    pub cpus: f64,
    /// The pacer's limit at the beginning and at the end of the measurement, if the jobs are paced.
    pub limits: Option<[f64; 2]>,
}

/// The jobs of a cell, and what they have done.
struct Jobs {
    stop: AtomicBool,
    chunks: Vec<CachePadded<AtomicU64>>,
}

impl Jobs {
    fn start(cell: Cell, runtime: &Runtime) -> Arc<Self> {
        let count = if cell.arm == Arm::Alone { 0 } else { cell.jobs };
        let chunks = (0..count).map(|_| Default::default()).collect();
        let jobs = Arc::new(Self { stop: AtomicBool::new(false), chunks });
        for job in 0..count {
            drop(runtime.spawn(jobs.clone().run(cell, job)));
        }
        jobs
    }

    async fn run(self: Arc<Self>, cell: Cell, job: usize) {
        let chunks_a_stretch = (cell.stretch.as_micros() as u64 / CHUNK).max(1);
        let pacer = Pacer::new();
        while !self.stop.load(Relaxed) {
            for _ in 0..chunks_a_stretch {
                spin(CHUNK * cell.rounds);
                let done = &self.chunks[job];
                done.store(done.load(Relaxed) + 1, Relaxed);
            }
            match cell.arm {
                Arm::Alone | Arm::Neither => giveway::yield_now().await,
                Arm::Yields => giveway::yield_now_if_busy().await,
                Arm::Pacer => {
                    without_giving_way(&pacer).await;
                    giveway::yield_now().await;
                }
                Arm::Both => pacer.pace().await,
            }
        }
    }

    fn done(&self) -> u64 {
        self.chunks.iter().map(|done| done.load(Relaxed)).sum()
    }
}

/// Calls a pacer, and waits for a slice but not at its yield point. A call that gives way there is
/// woken at once. Such a call is dropped, and the job goes on.
async fn without_giving_way(pacer: &Pacer) {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let mut call = pin!(pacer.pace());
    let first = poll_fn(|_| {
        let woken = Arc::<Woken>::default();
        let pending =
            call.as_mut().poll(&mut Context::from_waker(&Waker::from(woken.clone()))).is_pending();
        Poll::Ready((pending, woken.0.load(Relaxed)))
    });
    if first.await == (true, false) {
        call.await;
    }
}

/// Runs a cell.
///
/// # Panics
///
/// If a runtime, a thread or the neighbour cannot be started, or a task is lost.
pub fn run(cell: Cell) -> Outcome {
    let runtime = Builder::new()
        .workers(cell.workers)
        .elastic(cell.settings)
        .build()
        .expect("a runtime starts");
    let neighbour = (cell.foreground == Foreground::Neighbour)
        .then(|| Neighbour::start(cell.settle + cell.time));
    let jobs = Jobs::start(cell, &runtime);
    send(cell, cell.settle, runtime.handle().clone());
    let first = limit(cell, &runtime);
    let (before, start) = (jobs.done(), Instant::now());
    let mut latencies = send(cell, cell.time, runtime.handle().clone());
    let cpus = (jobs.done() - before) as f64 * CHUNK as f64 * 1e-6 / start.elapsed().as_secs_f64();
    let last = limit(cell, &runtime);
    jobs.stop.store(true, Relaxed);
    drop(neighbour);
    drop(runtime);
    let latency = [0.5, 0.99].map(|part| percentile(&mut latencies, part));
    Outcome { latency, cpus, limits: first.zip(last).map(|(first, last)| [first, last]) }
}

/// Returns the limit at this moment, if the jobs are paced.
fn limit(cell: Cell, runtime: &Runtime) -> Option<f64> {
    let ask = async {
        let pacer = Pacer::with_slice(Duration::from_nanos(1));
        // A pacer belongs to a runtime once a call of it was polled there. The call need not be
        // served.
        let mut call = pin!(pacer.pace());
        poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        pacer.limit()
    };
    if cell.arm.is_paced() { runtime.block_on(ask) } else { None }
}

/// Spawns foreground tasks for `time`. Returns, for each, the microseconds from when it was due
/// until it was done.
fn send(cell: Cell, time: Duration, handle: Handle) -> Vec<f64> {
    let (at_once, every) = cell.foreground.rhythm();
    let times = (time.as_secs_f64() / every.as_secs_f64()).round().max(1.0) as u32;
    let done: Arc<[AtomicU64]> = (0..times * at_once).map(|_| AtomicU64::new(0)).collect();
    let sending = std::thread::spawn({
        let done = done.clone();
        move || {
            ask_for_real_time();
            let start = Instant::now() + Duration::from_millis(1);
            for n in 0..times {
                let due = start + every * n;
                // A sleep and not a spin, which would take a CPU from the background.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                for task in 0..at_once {
                    let done = done.clone();
                    drop(handle.spawn(async move {
                        spin(TASK * cell.rounds);
                        // Ordering: relaxed. The load is in `took` below, and nothing else is
                        // published by the store.
                        done[(n * at_once + task) as usize]
                            .store(due.elapsed().as_nanos() as u64, Relaxed);
                    }));
                }
            }
        }
    });
    sending.join().expect("the sender does not panic");
    let took = |done: &AtomicU64| {
        // Waits for some tens of seconds at most. A load that takes longer is too much for the
        // machine, and not worth a measurement.
        let took = (0..30_000).find_map(|_| match done.load(Relaxed) {
            0 => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
            took => Some(took),
        });
        microseconds(Duration::from_nanos(
            took.expect("a foreground task is done within half a minute"),
        ))
    };
    done.iter().map(took).collect()
}

/// A process that wants every CPU.
struct Neighbour(Child);

impl Neighbour {
    /// Starts this program anew, to call [`neighbour`]. If it is not ended before, it ends after
    /// twice `time` and a minute.
    fn start(time: Duration) -> Self {
        let bound = 2 * time + Duration::from_secs(60);
        let child = Command::new(std::env::current_exe().expect("it has a path"))
            .args(["be-the-neighbour", &bound.as_secs().to_string()])
            .stdin(Stdio::null())
            .spawn()
            .expect("runs itself");
        // It needs some time to start.
        std::thread::sleep(Duration::from_millis(50));
        Self(child)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It may have ended by itself. Then there is nothing to end.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Keeps every CPU busy for `time`: what the neighbour process does.
///
/// # Panics
///
/// If a thread cannot be started.
pub fn neighbour(time: Duration) {
    let end = Instant::now() + time;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| {
                while Instant::now() < end {
                    spin(100_000);
                }
            });
        }
    });
}
