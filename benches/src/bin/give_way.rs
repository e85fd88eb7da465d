//! What does giving way cost, and what does it give? Prints the cost of one yield call, that of a
//! loop that calls it every microsecond, and the latency of foreground wake-ups and of requests
//! over TCP beside background work. What these do not isolate is at the heads of `cost.rs`,
//! `wake.rs` and `requests.rs`.
//!
//! `cargo run --release -p giveway-benches --bin give_way [-- cost|loop|wake|requests]
//! [--rounds N] [--secs N] [--rate N] [--background N]`
//!
//! `calls-idle N` and `calls-busy N` make N calls and print nothing, for counting instructions from
//! outside, as `benches/instructions` does.

use giveway_benches::background::{Jobs, Load};
use giveway_benches::cost::{empty_loop, keep_others_busy, per_call, thread_time, wall_time};
use giveway_benches::peers::{Giveway, GivewayBackground, Peer, Smol, Tokio};
use giveway_benches::work::{interleaved, percentile, rounds_per_microsecond, spin};
use giveway_benches::{requests, wake};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const WORKERS: usize = 2;

struct Options {
    what: String,
    count: u64,
    rounds: usize,
    secs: f64,
    rate: Option<u32>,
    background: Vec<usize>,
}

fn options() -> Result<Options, String> {
    let background = vec![0, 8, 512];
    let mut options =
        Options { what: "all".into(), count: 1_000, rounds: 5, secs: 2.0, rate: None, background };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value =
            || args.next().and_then(|value| value.parse::<f64>().ok()).filter(|&value| value > 0.0);
        let missing = format!("{arg} needs a positive number");
        match arg.as_str() {
            "cost" | "loop" | "wake" | "requests" => options.what = arg,
            "calls-idle" | "calls-busy" => {
                (options.count, options.what) = (value().ok_or(missing)? as u64, arg)
            }
            "--rounds" => options.rounds = value().ok_or(missing)? as usize,
            "--secs" => options.secs = value().ok_or(missing)?,
            "--rate" => options.rate = Some(value().ok_or(missing)? as u32),
            "--background" => options.background = vec![value().ok_or(missing)? as usize],
            _ => {
                let known = "cost, loop, wake, requests, --rounds, --secs, --rate and --background";
                return Err(format!("{arg}: there are {known}"));
            }
        }
    }
    Ok(options)
}

fn main() {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };
    Giveway::start(WORKERS);
    let all = options.what == "all";
    match options.what.as_str() {
        "calls-idle" => {
            per_call::<Giveway>(options.count, thread_time);
        }
        "calls-busy" => {
            let others = keep_others_busy::<Giveway>(WORKERS);
            per_call::<Giveway>(options.count, thread_time);
            others.end();
        }
        _ => {
            Tokio::start(WORKERS);
            Smol::start(WORKERS);
        }
    }
    if all || options.what == "cost" {
        cost(options.rounds);
    }
    if all || options.what == "loop" {
        polite_loop(options.rounds);
    }
    if all || options.what == "wake" {
        options.background.iter().for_each(|&background| wake_rows(&options, background));
    }
    if all || options.what == "requests" {
        options.background.iter().for_each(|&background| request_rows(&options, background));
    }
}

fn median(rounds: usize, mut sample: impl FnMut() -> f64) -> f64 {
    percentile(&mut (0..rounds).map(|_| sample()).collect::<Vec<_>>(), 0.5)
}

fn cost(rounds: usize) {
    println!("\n## One yield call, with nobody to yield to (ns, median of {rounds})\n");
    println!("| | a worker idle | all busy, nobody waiting |\n|---|---|---|");
    let (calls, slow_calls) = (20_000_000, 500_000);
    let empty = median(rounds, || empty_loop::<Giveway>(calls));
    println!("| the loop without a call | {empty:.2} | |");
    let row = |name, idle, busy| println!("| {name} | {idle:.2} | {busy:.2} |");
    fn both<P: Peer>(rounds: usize, calls: u64, clock: fn() -> f64) -> (f64, f64) {
        let idle = median(rounds, || per_call::<P>(calls, clock));
        let others = keep_others_busy::<P>(WORKERS);
        let busy = median(rounds, || per_call::<P>(calls, clock));
        others.end();
        (idle, busy)
    }
    let (idle, busy) = both::<Giveway>(rounds, calls, thread_time);
    row("giveway `yield_now_if_busy`", idle, busy);
    let (idle, busy) = both::<Tokio>(rounds, slow_calls, wall_time);
    row("tokio `yield_now`", idle, busy);
    let (idle, busy) = both::<Smol>(rounds, slow_calls, wall_time);
    row("smol `yield_now`", idle, busy);
}

/// Compares the time of a loop of one-microsecond chunks, on every worker at once, with and without
/// a yield point in each chunk.
fn polite_loop(rounds: usize) {
    const CHUNKS: u64 = 200_000;
    let chunk = rounds_per_microsecond(WORKERS);
    fn run(polite: bool, chunk: u64) -> f64 {
        Giveway::block_on(async move {
            let start = Instant::now();
            let work = |_| {
                Giveway::spawn(async move {
                    for _ in 0..CHUNKS {
                        spin(chunk);
                        if polite {
                            Giveway::polite_yield().await;
                        }
                    }
                })
            };
            for task in (0..WORKERS).map(work).collect::<Vec<_>>() {
                task.await;
            }
            start.elapsed().as_secs_f64()
        })
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(5) * 3 {
        without.push(run(false, chunk));
        with.push(run(true, chunk));
    }
    let lost = percentile(&mut with, 0.5) / percentile(&mut without, 0.5) - 1.0;
    println!("\n## A yield point every microsecond, on every worker, alone on the machine\n");
    println!(
        "loses {:.2} % against the same loop without one (median of {})",
        lost * 1e2,
        with.len()
    );
}

fn load(options: &Options, background: usize, rate: u32) -> Load {
    let chunk = 20 * rounds_per_microsecond(WORKERS);
    Load {
        background,
        chunk,
        work: chunk,
        jobs: Jobs::Polite,
        locked: false,
        rate: options.rate.unwrap_or(rate),
        time: Duration::from_secs_f64(options.secs),
    }
}

/// A peer, and a function that makes one run on it.
type Sampled<const N: usize> = (&'static str, fn(Load) -> [f64; N]);

/// Runs every peer in turn, `options.rounds` times. Returns the median of each column.
fn medians<const N: usize>(options: &Options, load: Load, peers: [Sampled<N>; 4]) -> [[f64; N]; 4] {
    let samples = interleaved(options.rounds, peers.map(|(_, sample)| move || sample(load)));
    let column = |rows: &[[f64; N]], n: usize| {
        percentile(&mut rows.iter().map(|row| row[n]).collect::<Vec<_>>(), 0.5)
    };
    samples.map(|rows| std::array::from_fn(|n| column(&rows, n)))
}

fn wake_rows(options: &Options, background: usize) {
    fn sample<P: Peer>(load: Load) -> [f64; 6] {
        let mut outcome = wake::run::<P>(load);
        let [p50, p99, p999] = PARTS.map(|part| percentile(&mut outcome.latencies, part));
        let late = percentile(&mut outcome.lateness, 0.5);
        [p50, p99, p999, late, outcome.beside, outcome.beside / outcome.alone.max(1.0)]
    }
    let load = load(options, background, 1_000);
    let peers: [Sampled<6>; 4] = [
        (Giveway::NAME, sample::<Giveway>),
        (GivewayBackground::NAME, sample::<GivewayBackground>),
        (Tokio::NAME, sample::<Tokio>),
        (Smol::NAME, sample::<Smol>),
    ];
    let rows = medians(options, load, peers);
    heading("Foreground wake-ups", options, load);
    println!(
        "| | p50 µs | p99 µs | p99.9 µs | the sender's part of p50 | background chunks/s | of \
         what it does alone |"
    );
    println!("|---|---|---|---|---|---|---|");
    for ((name, _), [p50, p99, p999, late, chunks, part]) in peers.iter().zip(rows) {
        println!(
            "| {name} | {p50:.1} | {p99:.1} | {p999:.1} | {late:.1} | {chunks:.0} | {:.1} % |",
            part * 1e2
        );
    }
}

fn request_rows(options: &Options, background: usize) {
    fn sample<P: Peer>(load: Load) -> [f64; 4] {
        let mut outcome = requests::run::<P>(load);
        let [p50, p99, p999] = PARTS.map(|part| percentile(&mut outcome.latencies, part));
        [p50, p99, p999, outcome.beside * 20e-6]
    }
    let load = load(options, background, 2_000);
    let peers: [Sampled<4>; 4] = [
        (Giveway::NAME, sample::<Giveway>),
        (GivewayBackground::NAME, sample::<GivewayBackground>),
        (Tokio::NAME, sample::<Tokio>),
        (Smol::NAME, sample::<Smol>),
    ];
    let rows = medians(options, load, peers);
    heading("Requests over TCP of 20 µs each", options, load);
    println!("| | p50 µs | p99 µs | p99.9 µs | CPUs of background work |\n|---|---|---|---|---|");
    for ((name, _), [p50, p99, p999, cpus]) in peers.iter().zip(rows) {
        println!("| {name} | {p50:.1} | {p99:.1} | {p999:.1} | {cpus:.2} |");
    }
}

const PARTS: [f64; 3] = [0.5, 0.99, 0.999];

fn heading(what: &str, options: &Options, load: Load) {
    println!(
        "\n## {what} beside {} background tasks of 20 µs chunks, {}/s, {} rounds of {} s{}\n",
        load.background,
        load.rate,
        options.rounds,
        options.secs,
        if real_time() { "" } else { "; the other side was refused real-time priority" },
    );
}

/// Returns whether a thread of this process gets real-time priority.
fn real_time() -> bool {
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || answer.send(wake::ask_for_real_time()));
    answered.recv().unwrap_or(false)
}
