//! How soon is a request answered, or a woken task run, beside background work of every kind? And
//! how much of that work is done?
//!
//! `cargo run --release -p giveway-benches --bin wires [-- --row TEXT] [--arm TEXT] [--rounds N]
//! [--seconds N]`
//!
//! `--arm "giveway|two tokios"` runs the arms that have either text in their names.
//!
//! The loads are those of `requests.rs` and `wake.rs`, on two workers, beside jobs with yield
//! points, jobs whose polls are long and have none, and polls that never return. The arms are what
//! a user would take: tokio; two tokio runtimes, of which the second has threads at nice 19 or
//! under SCHED_IDLE; smol; and Giveway with either kind of background. Rounds are interleaved. Each
//! figure is a median over them, with the lowest and the highest in brackets.
//!
//! If the host of the machine took more than 20 ms in a round, the time is printed behind the row.
//!
//! Not isolated: the client and its kernel threads share the CPUs.

use giveway_benches::background::{Jobs, Load};
use giveway_benches::peers::{
    Giveway, GivewayBackground, GivewayPreemptible, Peer, Smol, Tokio, TwoTokios,
};
use giveway_benches::usage::machine;
use giveway_benches::work::{percentile, rounds_per_microsecond};
use giveway_benches::{requests, wake};
use std::time::Duration;

const WORKERS: usize = 2;

/// A round with more stolen time than this is marked.
const STOLEN: Duration = Duration::from_millis(20);

/// What is measured beside the jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Requests,
    WakeUps,
}

/// The arms that can run a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arms {
    All,
    /// Giveway alone: on the other arms nothing would run beside the jobs.
    Ours,
}

struct Row {
    name: String,
    what: What,
    jobs: Jobs,
    tasks: usize,
    /// The length of a chunk, in microseconds.
    chunk: u64,
    locked: bool,
    rate: u32,
    arms: Arms,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for locked in [false, true] {
        for rate in [2_000, 8_000, 16_000] {
            let lock = if locked { ", a shared lock" } else { "" };
            let name =
                format!("{rate} requests a second beside 512 jobs that yield every 20 µs{lock}");
            let (what, jobs) = (What::Requests, Jobs::Polite);
            rows.push(Row {
                name,
                what,
                jobs,
                tasks: 512,
                chunk: 20,
                locked,
                rate,
                arms: Arms::All,
            });
        }
    }
    for (what, which) in [(What::Requests, "requests"), (What::WakeUps, "wake-ups")] {
        for (tasks, chunk) in [(8, 1_000), (8, 10_000), (8, 100_000), (512, 10_000)] {
            let name = format!(
                "2000 {which} a second beside {tasks} jobs with polls of {} ms",
                chunk / 1_000
            );
            let (jobs, rate) = (Jobs::Stubborn, 2_000);
            rows.push(Row { name, what, jobs, tasks, chunk, locked: false, rate, arms: Arms::All });
        }
        // Background polls, on the arms where these do not stop everything else.
        let name = format!("2000 {which} a second beside 8 endless background polls");
        let (jobs, rate, arms) = (Jobs::Endless, 2_000, Arms::All);
        rows.push(Row { name, what, jobs, tasks: 8, chunk: 20, locked: false, rate, arms });
        for tasks in [1, 2] {
            let name = format!("2000 {which} a second beside {tasks} endless foreground polls");
            let (jobs, rate, arms) = (Jobs::PlainEndless, 2_000, Arms::Ours);
            rows.push(Row { name, what, jobs, tasks, chunk: 20, locked: false, rate, arms });
        }
    }
    rows
}

/// The median and the 99th percentile in µs, the CPUs of background work, and what the host took.
struct Sample {
    figures: [f64; 3],
    stolen: Duration,
}

fn sample<P: Peer>(what: What, load: Load, microseconds: f64) -> Sample {
    let before = machine().stolen;
    let (mut latencies, chunks) = match what {
        What::Requests => {
            let outcome = requests::run::<P>(load);
            (outcome.latencies, outcome.beside)
        }
        What::WakeUps => {
            let outcome = wake::run::<P>(load);
            (outcome.latencies, outcome.beside)
        }
    };
    let [p50, p99] = [0.5, 0.99].map(|part| percentile(&mut latencies, part));
    Sample { figures: [p50, p99, chunks * microseconds / 1e6], stolen: machine().stolen - before }
}

type Arm = (&'static str, fn(What, Load, f64) -> Sample);

fn arm<P: Peer>() -> Arm {
    (P::NAME, sample::<P>)
}

fn arms(row: &Row) -> Vec<Arm> {
    let ours = [arm::<GivewayBackground>()];
    if row.arms == Arms::Ours {
        return ours.to_vec();
    }
    let mut arms = vec![arm::<TwoTokios<false>>(), arm::<TwoTokios<true>>()];
    // On one tokio or smol runtime, this many endless polls keep every worker.
    if row.jobs != Jobs::Endless {
        arms.extend([arm::<Tokio>(), arm::<Smol>()]);
    }
    if row.jobs == Jobs::Polite {
        arms.push(arm::<Giveway>());
    }
    arms.extend(ours);
    arms.push(arm::<GivewayPreemptible>());
    arms
}

struct Options {
    row: String,
    arm: String,
    rounds: usize,
    seconds: u64,
}

fn options() -> Result<Options, String> {
    let mut options = Options { row: String::new(), arm: String::new(), rounds: 3, seconds: 2 };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let number = || {
            value
                .parse()
                .ok()
                .filter(|&n| n > 0)
                .ok_or(format!("{flag} {value}: not a positive number"))
        };
        match flag.as_str() {
            "--row" => options.row = value,
            "--arm" => options.arm = value,
            "--rounds" => options.rounds = number()? as usize,
            "--seconds" => options.seconds = number()?,
            _ => {
                return Err(format!(
                    "{flag} is no option; there are --row, --arm, --rounds and --seconds"
                ));
            }
        }
    }
    Ok(options)
}

fn main() {
    let options = options().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    Giveway::start(WORKERS);
    Tokio::start(WORKERS);
    TwoTokios::<false>::start(WORKERS);
    TwoTokios::<true>::start(WORKERS);
    Smol::start(WORKERS);
    for row in rows().iter().filter(|row| row.name.contains(&options.row)) {
        run(row, &options);
    }
}

fn run(row: &Row, options: &Options) {
    let mut arms = arms(row);
    arms.retain(|(name, _)| options.arm.split('|').any(|part| name.contains(part)));
    let microsecond = rounds_per_microsecond(WORKERS);
    let load = Load {
        background: row.tasks,
        chunk: row.chunk * microsecond,
        work: 20 * microsecond,
        jobs: row.jobs,
        locked: row.locked,
        rate: row.rate,
        time: Duration::from_secs(options.seconds),
    };
    let mut samples: Vec<Vec<Sample>> = arms.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        for turn in 0..arms.len() {
            let arm = (round + turn) % arms.len();
            samples[arm].push(arms[arm].1(row.what, load, row.chunk as f64));
        }
    }
    println!("\n{}\n", row.name);
    println!("| | p50, µs | p99, µs | background, CPUs |\n|---|---|---|---|");
    for ((name, _), samples) in arms.iter().zip(&samples) {
        let column = |column: usize| {
            let mut figures: Vec<_> = samples.iter().map(|sample| sample.figures[column]).collect();
            let middle = percentile(&mut figures, 0.5);
            let digits = if column == 2 { 2 } else { 0 };
            format!(
                "{middle:.digits$} ({:.digits$}–{:.digits$})",
                figures[0],
                figures[figures.len() - 1]
            )
        };
        let stolen: Vec<_> =
            samples.iter().filter(|sample| sample.stolen > STOLEN).map(|s| s.stolen).collect();
        let stolen = if stolen.is_empty() { String::new() } else { format!(" stolen: {stolen:?}") };
        println!("| {name} | {} | {} | {} |{stolen}", column(0), column(1), column(2));
    }
}
