//! Does Giveway keep what it promises, beside tokio and smol?
//!
//! `cargo run --release -p giveway-benches [-- --rounds N] [--workers N] [--row TEXT] [--into
//! PAGE]`
//!
//! Prints one table of everything that was promised: medians of interleaved rounds with their
//! spread, ratios to the best of the others, context switches. Then it lists what was lost.
//!
//! It takes some five minutes, and less with `--row yield` or `--row requests`.
//! `--into docs/benchmarks.md` puts the table where it belongs. The question that a line asks is at
//! its function: in `rows.rs`, `cost.rs`, `wake.rs`, `requests.rs`, `second_socket.rs`, or here.
//! Rounds are interleaved: every peer once, then every peer again, in rotating order. So a slow
//! minute of the machine affects all alike. On another machine only the ratios mean anything.
//!
//! Not isolated: all peers are in one process, and those that are not measured are asleep.

use giveway_benches::background::{Jobs, Load};
use giveway_benches::cost::{keep_others_busy, per_call, thread_time, wall_time};
use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use giveway_benches::report::{self, Goal, Line, Summary};
use giveway_benches::rows::{self, ROWS, Row};
use giveway_benches::usage::usage;
use giveway_benches::work::{interleaved, percentile, rounds_per_microsecond};
use giveway_benches::{requests, second_socket, wake};
use std::time::{Duration, Instant};

/// The number of rounds where a round takes seconds.
const LONG_ROUNDS: usize = 5;

/// Calls in a round, of a yield that does not give way.
const CALLS: u64 = 20_000_000;
/// Calls in a round, of a yield that gives way.
const SLOW_CALLS: u64 = 500_000;

/// One run of one row.
#[derive(Clone, Copy)]
struct Sample {
    time: Duration,
    switches: u64,
}

fn measure<P: Peer>(row: usize, workers: usize) -> Sample {
    let busy = rows::wants_busy(row).then(|| rows::keep_busy::<P>(workers));
    // The peer's own wake-ups of the run before end first.
    std::thread::sleep(Duration::from_millis(2));
    let (switches, start) = (usage().voluntary_switches, Instant::now());
    rows::run::<P>(row);
    let sample = Sample { time: start.elapsed(), switches: usage().voluntary_switches - switches };
    if let Some(busy) = busy {
        busy.end();
    }
    sample
}

struct Options {
    rounds: usize,
    workers: usize,
    row: String,
    into: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { rounds: 31, workers: 2, row: String::new(), into: None };
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
            "--rounds" => options.rounds = number()?,
            "--workers" => options.workers = number()?,
            "--row" => options.row = value,
            "--into" => options.into = Some(value),
            _ => {
                return Err(format!(
                    "{flag} is no option; there are --rounds, --workers, --row and --into"
                ));
            }
        }
    }
    if options.into.is_some() && !options.row.is_empty() {
        return Err("--into is for the whole table, --row for a part of it: one of them".to_owned());
    }
    Ok(options)
}

fn main() {
    let failed = match options() {
        Ok(options) => run(&options).err(),
        Err(error) => Some(error),
    };
    if let Some(error) = failed {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn run(options: &Options) -> Result<(), String> {
    Giveway::start(options.workers);
    Tokio::start(options.workers);
    Smol::start(options.workers);
    let mut table = Table { row: &options.row, lines: Vec::new() };
    let about = format!(
        "{}- {} workers each; median of {} interleaved rounds ({} of two seconds for wake-ups and \
         requests), in brackets the 10th and the 90th percentile; sw: voluntary context switches \
         of the process in 1,000 operations\n",
        report::provenance(),
        options.workers,
        options.rounds,
        LONG_ROUNDS,
    );
    println!("{about}\n{}", report::HEAD);
    for background in [0, 8, 512] {
        beside_requests(&mut table, options, background);
    }
    beside_wake_ups(&mut table, options, 512);
    beside_long_polls(&mut table, options);
    beside_an_idle_worker(&mut table);
    interval(&mut table);
    yield_calls(&mut table, options.workers);
    ROWS.iter().enumerate().for_each(|(index, row)| micro(&mut table, options, index, row));
    if table.lines.is_empty() {
        return Err(format!("--row {}: no line has that in its name", options.row));
    }
    let losses = report::losses(&table.lines);
    println!("\n{losses}");
    let lines: Vec<_> = table.lines.iter().map(Line::to_string).collect();
    match &options.into {
        Some(page) => report::put_into(
            page,
            &format!("{about}\n{}\n{}\n\n{losses}", report::HEAD, lines.join("\n")),
        ),
        None => Ok(()),
    }
}

/// The lines so far, and the text that the name of a line must contain.
struct Table<'a> {
    row: &'a str,
    lines: Vec<Line>,
}

impl Table<'_> {
    fn wants(&self, name: &str) -> bool {
        name.contains(self.row)
    }

    fn add(&mut self, name: String, peers: [Summary; 3], goal: Goal) {
        let line = Line { name, peers, goal };
        println!("{line}");
        self.lines.push(line);
    }

    /// Adds a line for each column of samples that has a name.
    fn add_columns<const N: usize>(
        &mut self,
        names: [(String, Goal); N],
        samples: [Vec<[f64; N]>; 3],
    ) {
        for (column, (name, goal)) in names.into_iter().enumerate() {
            let summary = |rounds: &Vec<[f64; N]>| {
                Summary::of(rounds.iter().map(|round| round[column]).collect())
            };
            self.add(name, samples.each_ref().map(summary), goal);
        }
    }
}

fn micro(table: &mut Table<'_>, options: &Options, index: usize, row: &Row) {
    let name = format!("{}, ms", row.name);
    if !table.wants(&name) {
        return;
    }
    let peers = [measure::<Giveway>, measure::<Tokio>, measure::<Smol>];
    // The first two rounds warm allocators and caches, and do not count.
    interleaved(2, peers.map(|measure| move || measure(index, options.workers)));
    let samples =
        interleaved(options.rounds, peers.map(|measure| move || measure(index, options.workers)));
    let summary = |samples: Vec<Sample>| {
        let mut switches: Vec<_> = samples.iter().map(|sample| sample.switches as f64).collect();
        let switches = percentile(&mut switches, 0.5) * 1e3 / row.operations as f64;
        let times = samples.iter().map(|sample| sample.time.as_secs_f64() * 1e3).collect();
        Summary { switches: Some(switches), ..Summary::of(times) }
    };
    table.add(name, samples.map(summary), row.goal);
}

fn yield_calls(table: &mut Table<'_>, workers: usize) {
    fn idle<P: Peer>(calls: u64, clock: fn() -> f64) -> f64 {
        per_call::<P>(calls, clock)
    }
    fn busy<P: Peer>(calls: u64, clock: fn() -> f64, workers: usize) -> f64 {
        let others = keep_others_busy::<P>(workers);
        let cost = per_call::<P>(calls, clock);
        others.end();
        cost
    }
    let names = [
        ("one yield call, a worker idle, ns".to_owned(), Goal::AtMost(1.0)),
        ("one yield call, all busy, nobody waiting, ns".to_owned(), Goal::AtMost(3.0)),
    ];
    if names.iter().any(|(name, _)| table.wants(name)) {
        // Giveway's call does not give way, so the CPU clock of its thread is the right one. The
        // others' calls give way.
        let peers: [&dyn Fn() -> [f64; 2]; 3] = [
            &|| [idle::<Giveway>(CALLS, thread_time), busy::<Giveway>(CALLS, thread_time, workers)],
            &|| {
                [
                    idle::<Tokio>(SLOW_CALLS, wall_time),
                    busy::<Tokio>(SLOW_CALLS, wall_time, workers),
                ]
            },
            &|| [idle::<Smol>(SLOW_CALLS, wall_time), busy::<Smol>(SLOW_CALLS, wall_time, workers)],
        ];
        table.add_columns(names, interleaved(LONG_ROUNDS, peers));
    }
}

fn load(options: &Options, background: usize, rate: u32) -> Load {
    let chunk = 20 * rounds_per_microsecond(options.workers);
    Load {
        background,
        chunk,
        work: chunk,
        jobs: Jobs::Polite,
        locked: false,
        rate,
        time: Duration::from_secs(2),
    }
}

/// How long does a task wait that a thread or a socket wakes, beside foreground tasks whose polls
/// take 10 ms?
fn beside_long_polls(table: &mut Table<'_>, options: &Options) {
    fn wake_ups<P: Peer>(load: Load) -> [f64; 2] {
        percentiles(wake::run::<P>(load).latencies)
    }
    fn requests<P: Peer>(load: Load) -> [f64; 2] {
        percentiles(requests::run::<P>(load).latencies)
    }
    let name = |what, part| format!("{what} beside 8 tasks with polls of 10 ms, {part}, ms");
    let load = || {
        let load = load(options, 8, 2_000);
        Load { chunk: load.chunk * 500, jobs: Jobs::Plain, ..load }
    };
    let names = |what| [(name(what, "p50"), Goal::None), (name(what, "p99"), Goal::Ratio(1.0))];
    let wakes = names("wake-ups");
    if wakes.iter().any(|(name, _)| table.wants(name)) {
        let (load, peers) = (load(), [wake_ups::<Giveway>, wake_ups::<Tokio>, wake_ups::<Smol>]);
        table.add_columns(
            wakes,
            interleaved(LONG_ROUNDS, peers.map(|sample| move || sample(load).map(|us| us / 1e3))),
        );
    }
    let over_tcp = names("requests");
    if over_tcp.iter().any(|(name, _)| table.wants(name)) {
        let (load, peers) = (load(), [requests::<Giveway>, requests::<Tokio>, requests::<Smol>]);
        let samples =
            interleaved(LONG_ROUNDS, peers.map(|sample| move || sample(load).map(|us| us / 1e3)));
        table.add_columns(over_tcp, samples);
    }
}

/// How long does a socket wait that becomes ready while one worker is idle and another is in a
/// poll? The figure is a multiple of the wait beside no poll, in the same round.
fn beside_an_idle_worker(table: &mut Table<'_>) {
    const POLLS: [(u64, &str); 4] = [(100, "0.1"), (500, "0.5"), (2_000, "2"), (5_000, "5")];
    const TRIPS: usize = 100;
    fn sample<P: Peer>(rounds_per_microsecond: u64) -> [f64; 2 * POLLS.len()] {
        let waits = |poll| {
            let mut waits = second_socket::run::<P>(TRIPS, poll, rounds_per_microsecond);
            [0.5, 0.9].map(|part| percentile(&mut waits, part))
        };
        let alone = waits(0);
        let beside = POLLS.map(|(poll, _)| waits(poll));
        std::array::from_fn(|column| beside[column / 2][column % 2] / alone[column % 2])
    }
    let names: [_; 2 * POLLS.len()] = std::array::from_fn(|column| {
        let (poll, part) = (POLLS[column / 2].1, ["p50", "p90"][column % 2]);
        let name = format!(
            "ready socket beside a poll of {poll} ms and an idle worker, {part}, times the wait \
             beside none"
        );
        (name, Goal::AtMost(1.5))
    });
    if names.iter().any(|(name, _)| table.wants(name)) {
        let rounds = rounds_per_microsecond(1);
        let peers = [sample::<Giveway>, sample::<Tokio>, sample::<Smol>];
        table.add_columns(
            names,
            interleaved(LONG_ROUNDS, peers.map(|sample| move || sample(rounds))),
        );
    }
}

/// What does a task cost that ticks a thousand times a second and does nothing else? The figure is
/// the CPU time of the whole process, in two seconds.
fn interval(table: &mut Table<'_>) {
    fn sample<P: Peer>() -> [f64; 1] {
        let (start, before) = (Instant::now(), usage().cpu);
        P::block_on(async { P::spawn(P::ticks(Duration::from_millis(1), 2_000)).await });
        [100.0 * (usage().cpu - before).as_secs_f64() / start.elapsed().as_secs_f64()]
    }
    let name = "1 kHz interval, % of a core".to_owned();
    if table.wants(&name) {
        let peers = [sample::<Giveway>, sample::<Tokio>, sample::<Smol>];
        table.add_columns([(name, Goal::Ratio(1.0))], interleaved(LONG_ROUNDS, peers));
    }
}

/// Returns the median and the 99th percentile.
fn percentiles(mut samples: Vec<f64>) -> [f64; 2] {
    [0.5, 0.99].map(|part| percentile(&mut samples, part))
}

fn beside_wake_ups(table: &mut Table<'_>, options: &Options, background: usize) {
    fn sample<P: Peer>(load: Load) -> [f64; 2] {
        percentiles(wake::run::<P>(load).latencies)
    }
    let name = |part| format!("wake-ups beside {background} background tasks, {part}, µs");
    let names = [(name("p50"), Goal::None), (name("p99"), Goal::AtMost(60.0))];
    if names.iter().any(|(name, _)| table.wants(name)) {
        let load = load(options, background, 1_000);
        let peers = [sample::<Giveway>, sample::<Tokio>, sample::<Smol>];
        table
            .add_columns(names, interleaved(LONG_ROUNDS, peers.map(|sample| move || sample(load))));
    }
}

fn beside_requests(table: &mut Table<'_>, options: &Options, background: usize) {
    fn sample<P: Peer>(load: Load) -> [f64; 3] {
        let outcome = requests::run::<P>(load);
        let [p50, p99] = percentiles(outcome.latencies);
        [p50, p99, outcome.beside * 20e-6]
    }
    let name = |part| match background {
        0 => format!("requests over TCP, {part}"),
        _ => format!("requests beside {background} background tasks, {part}"),
    };
    let goals = match background {
        512 => [Goal::AtMost(110.0), Goal::AtMost(200.0), Goal::AtLeast(1.75)],
        _ => [Goal::None; 3],
    };
    let names = [name("p50, µs"), name("p99, µs"), name("background work, CPUs")];
    if !names.iter().any(|name| table.wants(name)) {
        return;
    }
    let load = load(options, background, 2_000);
    let peers = [sample::<Giveway>, sample::<Tokio>, sample::<Smol>];
    let samples = interleaved(LONG_ROUNDS, peers.map(|sample| move || sample(load)));
    let names: Vec<_> = names.into_iter().zip(goals).collect();
    let latencies =
        samples.each_ref().map(|rounds| rounds.iter().map(|&[p50, p99, _]| [p50, p99]).collect());
    table.add_columns([names[0].clone(), names[1].clone()], latencies);
    if background == 512 {
        let work = samples.map(|rounds| rounds.into_iter().map(|[.., work]| [work]).collect());
        table.add_columns([names[2].clone()], work);
    }
}
