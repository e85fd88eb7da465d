//! How do polite jobs and jobs that never yield share the CPUs that requests leave?
//!
//! `cargo run --release -p giveway-benches --bin shares [-- ROUNDS]`
//!
//! Two workers, two jobs that reach a yield point every 20 µs, and two that compute for 5 ms at a
//! time without any: as tasks, or as blocking jobs. They run alone, and beside 2,000 requests a
//! second. The figures: the CPUs of work that each kind did, counted in rounds of arithmetic and
//! not by the clock; the share of the second kind; how soon requests were answered. Medians of
//! interleaved rounds of two seconds.
//!
//! Not isolated: the client of the requests shares the CPUs, and the host may take some. What it
//! took is printed below each table.

use giveway_benches::background::{Jobs, Load};
use giveway_benches::peers::{Giveway, GivewayPreemptible, Peer, Tokio, TwoTokios};
use giveway_benches::requests;
use giveway_benches::usage::machine;
use giveway_benches::work::{interleaved, percentile, rounds_per_microsecond, spin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const JOBS: usize = 2;
const TIME: Duration = Duration::from_secs(2);

/// Microseconds of work between two yield points.
const POLITE: u64 = 20;
/// Microseconds of work in a stretch without any.
const STUBBORN: u64 = 5_000;

/// A job of one kind. All jobs of the kind share the counter and the flag.
#[derive(Clone)]
struct Job {
    /// Rounds of [`spin`] in a chunk.
    rounds: u64,
    /// The chunks that are done.
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// Sends nothing: the receiver sees the end of the last job.
    _running: Sender<()>,
}

impl Job {
    /// Works for a chunk. Returns whether to go on.
    fn chunk(&self) -> bool {
        spin(self.rounds);
        self.done.fetch_add(1, Relaxed);
        !self.stop.load(Relaxed)
    }
}

/// A runtime, and its way to run a job that never yields.
trait Arm {
    const NAME: &'static str;
    type Peer: Peer;

    fn stubborn(job: Job);
}

fn as_task<P: Peer>(job: Job) {
    drop(P::spawn_background(async move {
        while job.chunk() {
            P::yield_now().await;
        }
    }));
}

struct Task;
struct Blocking;
struct TwoRuntimes;
struct OneTokio;

impl Arm for Task {
    const NAME: &'static str = "giveway, preemptible task";
    type Peer = Giveway;

    fn stubborn(job: Job) {
        as_task::<GivewayPreemptible>(job);
    }
}

impl Arm for Blocking {
    const NAME: &'static str = "giveway, background spawn_blocking";
    type Peer = Giveway;

    fn stubborn(job: Job) {
        let builder = giveway::task::Builder::new().class(giveway::task::Class::Background);
        drop(builder.spawn_blocking(move || while job.chunk() {}));
    }
}

impl Arm for TwoRuntimes {
    const NAME: &'static str = "two tokios, nice 19";
    type Peer = TwoTokios<false>;

    fn stubborn(job: Job) {
        as_task::<Self::Peer>(job);
    }
}

impl Arm for OneTokio {
    const NAME: &'static str = "tokio, spawn_blocking";
    type Peer = Tokio;

    fn stubborn(job: Job) {
        drop(tokio::task::spawn_blocking(move || while job.chunk() {}));
    }
}

/// The CPUs of the polite jobs and of the others, the share of the latter, and the median and 99th
/// percentile of requests in µs.
type Figures = [f64; 5];

fn run<A: Arm>(microsecond: u64, beside: bool) -> Figures {
    let (running, ended) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let new = |microseconds: u64| Job {
        rounds: microseconds * microsecond,
        done: Arc::default(),
        stop: stop.clone(),
        _running: running.clone(),
    };
    let (polite, stubborn) = (new(POLITE), new(STUBBORN));
    drop(running);
    A::Peer::block_on(async {
        for _ in 0..JOBS {
            let job = polite.clone();
            drop(A::Peer::spawn_background(async move {
                while job.chunk() {
                    A::Peer::polite_yield().await;
                }
            }));
            A::stubborn(stubborn.clone());
        }
    });
    // The jobs need some time to settle.
    std::thread::sleep(Duration::from_millis(200));
    let cpus = |job: &Job, microseconds| (job.done.load(Relaxed) * microseconds) as f64 / 1e6;
    let (before, start) = ([cpus(&polite, POLITE), cpus(&stubborn, STUBBORN)], Instant::now());
    let mut latencies = if beside {
        let work = 20 * microsecond;
        let load = Load {
            background: 0,
            chunk: 1,
            work,
            jobs: Jobs::Plain,
            locked: false,
            rate: 2_000,
            time: TIME,
        };
        requests::run::<A::Peer>(load).latencies
    } else {
        std::thread::sleep(TIME);
        vec![f64::NAN]
    };
    let seconds = start.elapsed().as_secs_f64();
    let [p, s] = [cpus(&polite, POLITE) - before[0], cpus(&stubborn, STUBBORN) - before[1]]
        .map(|cpus| cpus / seconds);
    stop.store(true, Relaxed);
    drop((polite, stubborn));
    // The channel ends when every job has dropped its sender.
    assert!(ended.recv().is_err(), "nothing is sent");
    let [p50, p99] = [0.5, 0.99].map(|part| percentile(&mut latencies, part));
    [p, s, s / (p + s), p50, p99]
}

fn main() {
    let rounds =
        std::env::args().nth(1).map_or(Some(3), |n| n.parse().ok().filter(|&n: &usize| n > 0));
    let Some(rounds) = rounds else {
        eprintln!("usage: shares [ROUNDS]");
        std::process::exit(2);
    };
    Giveway::start(WORKERS);
    Tokio::start(WORKERS);
    TwoTokios::<false>::start(WORKERS);
    let microsecond = rounds_per_microsecond(WORKERS);
    for beside in [false, true] {
        let stolen = machine().stolen;
        let arms: [fn(u64, bool) -> Figures; 4] =
            [run::<Task>, run::<Blocking>, run::<TwoRuntimes>, run::<OneTokio>];
        let samples = interleaved(rounds, arms.map(|arm| move || arm(microsecond, beside)));
        println!("\n{}\n", if beside { "Beside 2,000 requests a second" } else { "Alone" });
        println!(
            "| | polite, CPUs | never yield, CPUs | their part | p50, µs | p99, µs \
             |\n|---|---|---|---|---|---|"
        );
        for (name, samples) in
            [Task::NAME, Blocking::NAME, TwoRuntimes::NAME, OneTokio::NAME].iter().zip(samples)
        {
            let median = |figure: usize| {
                percentile(&mut samples.iter().map(|s| s[figure]).collect::<Vec<_>>(), 0.5)
            };
            let [p, s, part, p50, p99] = [0, 1, 2, 3, 4].map(median);
            println!("| {name} | {p:.2} | {s:.2} | {:.0} % | {p50:.0} | {p99:.0} |", 100.0 * part);
        }
        println!("\nstolen: {:?}", machine().stolen - stolen);
    }
}
