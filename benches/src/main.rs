//! Prints the table: medians of interleaved rounds, ratios to the best peer, context switches per operation.
//!
//! `cargo run --release -p giveway-benches [-- --rounds N] [--workers N] [--row TEXT]`
//!
//! The question each row asks is at its function in `rows.rs`. Rounds are interleaved (every peer once, then every
//! peer again, in rotating order), so that a slow minute of the machine hits all alike; only ratios mean anything on
//! another machine. What is not isolated: all peers are alive in one process, the idle ones asleep.

use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use giveway_benches::rows::{self, ROWS};
use std::time::{Duration, Instant};

/// One run of one row.
#[derive(Clone, Copy)]
struct Sample {
    time: Duration,
    switches: u64,
}

fn measure<P: Peer>(row: usize, workers: usize) -> Sample {
    let busy = rows::wants_busy(row).then(|| rows::keep_busy::<P>(workers));
    // Let the peer's own wake-ups of the run before settle.
    std::thread::sleep(Duration::from_millis(2));
    let (switches, start) = (voluntary_switches(), Instant::now());
    rows::run::<P>(row);
    let sample = Sample { time: start.elapsed(), switches: voluntary_switches() - switches };
    if let Some(busy) = busy {
        busy.end();
    }
    sample
}

fn voluntary_switches() -> u64 {
    // SAFETY: an all-zero `rusage` is a valid value of a plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a writable `rusage`.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    assert_eq!(failed, 0, "getrusage of the own process cannot fail");
    u64::try_from(usage.ru_nvcsw).expect("a count")
}

/// How one peer is measured: by row and number of workers.
type Measure = fn(usize, usize) -> Sample;

const PEERS: [(&str, Measure); 3] =
    [(Giveway::NAME, measure::<Giveway>), (Tokio::NAME, measure::<Tokio>), (Smol::NAME, measure::<Smol>)];

struct Options {
    rounds: usize,
    workers: usize,
    row: String,
}

fn options() -> Result<Options, String> {
    let mut options = Options { rounds: 31, workers: 2, row: String::new() };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let number = || value.parse().ok().filter(|&n| n > 0).ok_or(format!("{flag} {value}: not a positive number"));
        match flag.as_str() {
            "--rounds" => options.rounds = number()?,
            "--workers" => options.workers = number()?,
            "--row" => options.row = value,
            _ => return Err(format!("{flag} is no option; there are --rounds, --workers and --row")),
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
    Giveway::start(options.workers);
    Tokio::start(options.workers);
    Smol::start(options.workers);

    println!("{} workers each, median of {} interleaved rounds, spread p10..p90", options.workers, options.rounds);
    println!("| workload | {} | ratio to the best other | at most |", PEERS.map(|(name, _)| name).join(" | "));
    println!("|---|---|---|---|---|---|");
    for (index, row) in ROWS.iter().enumerate().filter(|(_, row)| row.name.contains(&options.row)) {
        let mut samples = PEERS.map(|_| Vec::with_capacity(options.rounds));
        for round in 0..options.rounds + 2 {
            for turn in 0..PEERS.len() {
                let peer = (round + turn) % PEERS.len();
                let sample = PEERS[peer].1(index, options.workers);
                // The first two rounds warm allocators and caches.
                if round >= 2 {
                    samples[peer].push(sample);
                }
            }
        }
        let medians = samples.map(|samples| Summary::of(&samples, row.operations));
        let best = medians[1].median.min(medians[2].median);
        let fewest = medians[1].switches.min(medians[2].switches);
        let ratio = medians[0].median / best;
        let verdict = if ratio <= row.must_reach { "" } else { " ✗" };
        let switchy = if medians[0].switches <= fewest { "" } else { " ✗ switches" };
        let cells = medians.map(|summary| summary.to_string()).join(" | ");
        println!("| {} | {cells} | {ratio:.2}{verdict}{switchy} | {:.1} |", row.name, row.must_reach);
    }
    println!(
        "\nms (spread), voluntary context switches per 1,000 operations; lower is better, ✗ where the goal is missed"
    );
}

struct Summary {
    median: f64,
    low: f64,
    high: f64,
    /// Per thousand operations.
    switches: f64,
}

impl Summary {
    fn of(samples: &[Sample], operations: usize) -> Self {
        let mut times: Vec<f64> = samples.iter().map(|sample| sample.time.as_secs_f64() * 1e3).collect();
        let mut switches: Vec<u64> = samples.iter().map(|sample| sample.switches).collect();
        times.sort_by(f64::total_cmp);
        switches.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
        let switches = switches[switches.len() / 2] as f64 * 1e3 / operations as f64;
        Self { median: at(0.5), low: at(0.1), high: at(0.9), switches }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2}), {:.2} sw", self.median, self.low, self.high, self.switches)
    }
}
