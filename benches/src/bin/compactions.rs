//! How soon is a request answered beside as many compactions as there are workers? Is the answer
//! the same in each run, and if not, where does the time go?
//!
//! `cargo run --release -p giveway-benches --bin compactions [-- RUNS [SECONDS]]`
//!
//! Two workers and two jobs, so no worker is ever idle. A job works in chunks of a fixed amount of
//! arithmetic, with the politest yield of its runtime after each. Some jobs have a thread for
//! blocking jobs do each chunk, or hold a mutex, which both jobs share, during each chunk. Beside
//! them come 1,500 requests a second, as in `requests.rs`. The client has real-time priority, or is
//! a thread like any other, as in a service that is tried out on one machine.
//!
//! Each run is a process of its own. A column has the 99th percentile of a part of the way, in µs:
//! the median of all runs, and the worst of them.
//!
//! Not isolated: other users of the machine. The last two columns show what its host and other
//! processes took in the worst run.

use giveway_benches::background::{Jobs, Load};
use giveway_benches::peers::{Giveway, Peer, Tokio};
use giveway_benches::requests::{Point, Stamps, client, serve};
use giveway_benches::usage::{machine, usage};
use giveway_benches::work::{percentile, rounds_per_microsecond, spin};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const JOBS: usize = 2;
const RATE: u32 = 1_500;

/// The cells: runtime, kind of job, microseconds of a chunk, client.
const CELLS: [[&str; 4]; 14] = [
    ["giveway", "spawn", "20", "real-time"],
    ["giveway", "spawn", "100", "real-time"],
    ["giveway", "spawn", "300", "real-time"],
    ["giveway", "spawn", "1000", "real-time"],
    ["giveway", "background", "300", "real-time"],
    ["giveway", "blocking", "300", "real-time"],
    ["giveway", "mutex", "300", "real-time"],
    ["tokio", "spawn", "300", "real-time"],
    ["giveway", "spawn", "20", "plain"],
    ["giveway", "spawn", "100", "plain"],
    ["giveway", "spawn", "300", "plain"],
    ["giveway", "spawn", "1000", "plain"],
    ["giveway", "background", "300", "plain"],
    ["tokio", "spawn", "300", "plain"],
];

const PARTS: [(&str, Point, Point); 4] = [
    ("all", Point::Due, Point::Answered),
    ("sent late", Point::Due, Point::Sent),
    ("until the server has it", Point::Sent, Point::Read),
    ("until the client has the answer", Point::Worked, Point::Answered),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [one, runtime, kind, chunk, client, seconds] = &args[..]
        && one == "one"
    {
        let number = |text: &str| text.parse().expect("a number");
        let run = Run {
            kind,
            chunk: number(chunk) as u64,
            real_time: client == "real-time",
            seconds: number(seconds),
        };
        let figures = if runtime == "tokio" { run.on::<Tokio>() } else { run.on::<Giveway>() };
        return println!("{}", figures.map(|figure| figure.to_string()).join(" "));
    }
    let mut args = args.iter().map(|arg| arg.parse().ok().filter(|&n: &f64| n > 0.0));
    let (Some(runs), Some(seconds)) =
        (args.next().unwrap_or(Some(10.0)), args.next().unwrap_or(Some(0.6)))
    else {
        eprintln!("usage: compactions [RUNS [SECONDS]]");
        std::process::exit(2);
    };
    println!(
        "{JOBS} jobs on {WORKERS} workers, {RATE} requests a second of 20 µs each, {runs} runs of \
         {seconds} s\n"
    );
    let titles = PARTS.map(|(title, ..)| format!("{title}: p99, worst")).join(" | ");
    println!("| | job | chunk, µs | client | {titles} | host took, % | other processes, CPUs |");
    println!("|{}", "---|".repeat(6 + PARTS.len()));
    for cell in CELLS {
        let mut runs: Vec<_> = (0..runs as usize).map(|_| one(cell, seconds)).collect();
        runs.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let column = |n: usize| runs.iter().map(|run| run[n]).collect::<Vec<_>>();
        let parts = (0..PARTS.len()).map(|n| {
            let mut p99 = column(n);
            format!("{:.0}, {:.0}", percentile(&mut p99, 0.5), percentile(&mut p99, 1.0))
        });
        let worst = &runs[runs.len() - 1];
        let parts = parts.collect::<Vec<_>>().join(" | ");
        println!(
            "| {} | {parts} | {:.1} | {:.2} |",
            cell.join(" | "),
            worst[PARTS.len()],
            worst[PARTS.len() + 1]
        );
    }
}

/// Makes a run in a process of its own. Returns the 99th percentiles of its parts, and what others
/// took of the machine.
fn one(cell: [&str; 4], seconds: f64) -> Vec<f64> {
    let program = std::env::current_exe().expect("it has a path");
    let output = Command::new(program)
        .arg("one")
        .args(cell)
        .arg(seconds.to_string())
        .output()
        .expect("runs itself");
    let output = String::from_utf8(output.stdout).expect("it prints numbers");
    let figures: Vec<_> =
        output.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    assert_eq!(figures.len(), PARTS.len() + 2, "a run has failed: {cell:?}");
    figures
}

struct Run<'a> {
    kind: &'a str,
    chunk: u64,
    real_time: bool,
    seconds: f64,
}

impl Run<'_> {
    fn on<P: Peer>(&self) -> [f64; PARTS.len() + 2] {
        let rounds = rounds_per_microsecond(WORKERS);
        P::start(WORKERS);
        let load = Load {
            background: JOBS,
            chunk: self.chunk * rounds,
            work: 20 * rounds,
            jobs: Jobs::Polite,
            locked: false,
            rate: RATE,
            time: Duration::from_secs_f64(self.seconds),
        };
        let stamps = Stamps::new(load.events());
        let address = serve::<P>(spin, load.work, stamps.clone());
        P::block_on(async { (0..JOBS).for_each(|_| start::<P>(self.kind, load.chunk)) });
        // The jobs need some time to settle.
        std::thread::sleep(Duration::from_millis(100));
        let (process, all, start) = (usage(), machine(), Instant::now());
        client(address, load, &stamps, self.real_time);
        let took = start.elapsed().as_secs_f64();
        let (stolen, busy) = (machine().stolen - all.stolen, machine().busy - all.busy);
        let others = busy.as_secs_f64() - (usage().cpu - process.cpu).as_secs_f64();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let p99 = PARTS.map(|(_, from, to)| percentile(&mut stamps.between(from, to), 0.99));
        let [all, late, server, answer] = p99;
        [
            all,
            late,
            server,
            answer,
            100.0 * stolen.as_secs_f64() / took / cpus,
            (others / took).max(0.0),
        ]
    }
}

/// Starts a job that ends with the process.
fn start<P: Peer>(kind: &str, chunk: u64) {
    static SHARED: Mutex<()> = Mutex::new(());
    let polite = async move {
        loop {
            spin(chunk);
            P::polite_yield().await;
        }
    };
    match kind {
        "background" => drop(giveway::spawn_background(polite)),
        "mutex" => P::spawn_detached(async move {
            loop {
                let held = SHARED.lock().expect("nobody panics");
                spin(chunk);
                drop(held);
                P::polite_yield().await;
            }
        }),
        "blocking" => P::spawn_detached(async move {
            while giveway::spawn_blocking(move || spin(chunk)).await.is_ok() {
                P::polite_yield().await;
            }
        }),
        _ => P::spawn_detached(polite),
    }
}
