//! What do foreground tasks feel of background jobs with yield points, with a pacer, with both and
//! with neither, and what do the jobs get done? What a cell is, and what it does not isolate, is at
//! the head of `mixed.rs`.
//!
//! `cargo run --release -p giveway-benches --bin elastic [-- PART...] [--secs N] [--settle N]
//! [--delta N] [--fixed N] [--jobs N] [--again N]`
//!
//! A PART is the name of a load (steady, bursty, neighbour), of a stretch (20us, 1ms, 20ms) or of
//! an arm (neither, yields, pacer, both). Of each kind, only the named ones are run, or all if none
//! is named. All cells together take two minutes.
//!
//! The controller moves five times as fast as by default, unless `--delta` says otherwise, so that
//! a cell of some seconds shows where the limit goes. `--fixed` sets a limit that does not move.
//!
//! A cell says if other processes used more than a tenth of a CPU meanwhile. With `--again` such a
//! cell is run again, at most N times.

use giveway::elastic::Settings;
use giveway_benches::mixed::{self, Arm, Cell, Foreground};
use giveway_benches::usage::{machine, usage, usage_of_children};
use giveway_benches::work::rounds_per_microsecond;
use std::time::{Duration, Instant};

const WORKERS: usize = 2;

/// A cell in which other processes used more CPUs than this says so.
const DISTURBED: f64 = 0.1;

const STRETCHES: [(&str, Duration); 3] = [
    ("20us", Duration::from_micros(20)),
    ("1ms", Duration::from_millis(1)),
    ("20ms", Duration::from_millis(20)),
];

struct Options {
    parts: Vec<String>,
    secs: f64,
    settle: f64,
    delta: f64,
    fixed: Option<f64>,
    jobs: usize,
    again: usize,
}

impl Options {
    fn settings(&self) -> Settings {
        self.fixed.map_or(Settings::new().delta_per_second(self.delta), Settings::fixed)
    }

    /// Returns those of `all` that were named on the command line, or all if none was.
    fn of<T: Copy>(&self, all: &[T], name: impl Fn(T) -> &'static str) -> Vec<T> {
        let named = |&one: &T| self.parts.iter().any(|part| part == name(one));
        let some: Vec<T> = all.iter().copied().filter(named).collect();
        if some.is_empty() { all.to_vec() } else { some }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        parts: Vec::new(),
        secs: 1.5,
        settle: 2.5,
        delta: 0.05,
        fixed: None,
        jobs: 2 * WORKERS,
        again: 0,
    };
    let names = Foreground::ALL.map(Foreground::name).into_iter().chain(Arm::ALL.map(Arm::name));
    let names: Vec<_> = names.chain(STRETCHES.map(|(name, _)| name)).collect();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || {
            let value = args
                .next()
                .and_then(|value| value.parse::<f64>().ok())
                .filter(|&value| value > 0.0);
            value.ok_or(format!("{arg} needs a positive number"))
        };
        match arg.as_str() {
            "--secs" => options.secs = value()?,
            "--settle" => options.settle = value()?,
            "--delta" => options.delta = value()?,
            "--fixed" => options.fixed = Some(value()?),
            "--jobs" => options.jobs = value()? as usize,
            "--again" => options.again = value()? as usize,
            part if names.contains(&part) => options.parts.push(arg),
            _ => {
                return Err(format!(
                    "{arg}: there are {}, --secs, --settle, --delta, --fixed, --jobs and --again",
                    names.join(", ")
                ));
            }
        }
    }
    options.settings().check().map_err(|error| error.to_string())?;
    Ok(options)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, seconds] = arguments.as_slice()
        && what == "be-the-neighbour"
    {
        return mixed::neighbour(Duration::from_secs(
            seconds.parse().expect("a number of seconds"),
        ));
    }
    match options() {
        Ok(options) => table(&options),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}

fn table(options: &Options) {
    let rounds = rounds_per_microsecond(WORKERS);
    let (start, before) = (Instant::now(), so_far());
    println!(
        "{WORKERS} workers, {} jobs, {} s a cell, after {} s for what is paced; {:?}\n",
        options.jobs,
        options.secs,
        options.settle,
        options.settings()
    );
    println!(
        "| foreground | stretch | jobs have | foreground p50 ms | p99 ms | CPUs of background | \
         limit |"
    );
    println!("|---|---|---|---|---|---|---|");
    for foreground in options.of(&Foreground::ALL, Foreground::name) {
        let cell = |stretch, arm: Arm| Cell {
            foreground,
            stretch,
            arm,
            jobs: options.jobs,
            workers: WORKERS,
            rounds,
            settings: options.settings(),
            settle: Duration::from_secs_f64(if arm.is_paced() { options.settle } else { 0.2 }),
            time: Duration::from_secs_f64(options.secs),
        };
        row("–", cell(Duration::ZERO, Arm::Alone), options.again);
        for (name, stretch) in options.of(&STRETCHES, |(name, _)| name) {
            for arm in options.of(&Arm::ALL, Arm::name) {
                row(name, cell(stretch, arm), options.again);
            }
        }
    }
    let [others, stolen] =
        [0, 1].map(|n| (so_far()[n] - before[n]).max(0.0) / start.elapsed().as_secs_f64());
    println!(
        "\nMeanwhile other processes used {others:.2} CPUs, and the machine's host took \
         {stolen:.2} away."
    );
}

/// Returns the CPU seconds that other processes have used so far, and those that the host has taken
/// away.
fn so_far() -> [f64; 2] {
    let own = usage().cpu + usage_of_children().cpu;
    [machine().busy.as_secs_f64() - own.as_secs_f64(), machine().stolen.as_secs_f64()]
}

fn row(stretch: &str, cell: Cell, again: usize) {
    let attempt = |_| {
        let (start, before) = (Instant::now(), so_far());
        let outcome = mixed::run(cell);
        (outcome, (so_far()[0] - before[0]) / start.elapsed().as_secs_f64())
    };
    let mut attempts = (0..=again).map(attempt);
    let (mut outcome, mut others) = attempts.next().expect("there is one");
    while others > DISTURBED
        && let Some(next) = attempts.next()
    {
        (outcome, others) = next;
    }
    let [p50, p99] = outcome.latency.map(|time| time / 1e3);
    let limits =
        outcome.limits.map_or("–".into(), |[first, last]| format!("{first:.2} → {last:.2}"));
    let (foreground, arm) = (cell.foreground.name(), cell.arm.name());
    let disturbed =
        if others > DISTURBED { format!(" (others used {others:.2} CPUs)") } else { String::new() };
    println!(
        "| {foreground} | {stretch} | {arm} | {p50:.2} | {p99:.2} | {:.2} | {limits}{disturbed} |",
        outcome.cpus
    );
}
