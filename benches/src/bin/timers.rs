//! How late do timers fire on a machine that has nothing else to do, and what does that cost?
//!
//! `cargo run --release -p giveway-benches --bin timers [-- SECONDS]`
//!
//! Two workers. Tasks tick at fixed times, evenly spread, and note how late each tick was. The CPU
//! time is that of the whole process meanwhile.
//!
//! Not isolated: the two other runtimes are in the process, asleep. And an interrupt delays the
//! thread that has the CPU, so look at the median before the 99th percentile.

use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use giveway_benches::usage::usage;
use giveway_benches::work::{interleaved, microseconds, percentile};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;

/// How many tasks tick, and the period of each, in microseconds.
const LOADS: [(u32, u64); 4] = [(1, 10_000), (1, 1_000), (10, 1_000), (1, 100)];

struct Round {
    late: Vec<f64>,
    cores: f64,
}

fn main() {
    let seconds =
        std::env::args().nth(1).map_or(Some(1.0), |n| n.parse().ok().filter(|&n: &f64| n > 0.0));
    let Some(seconds) = seconds else {
        eprintln!("usage: timers [SECONDS]");
        std::process::exit(2);
    };
    let time = Duration::from_secs_f64(seconds);
    println!(
        "Ticks of tasks, how late in µs; median of {ROUNDS} interleaved rounds of {seconds} s\n"
    );
    println!("| ticks | | late: p50 | p99 | % of a core |");
    println!("|---|---|---|---|---|");
    Giveway::start(2);
    Tokio::start(2);
    Smol::start(2);
    for (tasks, period) in LOADS {
        let period = Duration::from_micros(period);
        let peers: [&dyn Fn() -> Round; 3] = [
            &|| round::<Giveway>(tasks, period, time),
            &|| round::<Tokio>(tasks, period, time),
            &|| round::<Smol>(tasks, period, time),
        ];
        for (rounds, name) in
            interleaved(ROUNDS, peers).into_iter().zip([Giveway::NAME, Tokio::NAME, Smol::NAME])
        {
            print(&format!("{tasks} every {period:?}"), name, rounds);
        }
    }
}

fn print(load: &str, name: &str, mut rounds: Vec<Round>) {
    let mut middle = |of: &mut dyn FnMut(&mut Round) -> f64| {
        let mut samples: Vec<_> = rounds.iter_mut().map(of).collect();
        percentile(&mut samples, 0.5)
    };
    let (p50, p99) = (
        middle(&mut |r| percentile(&mut r.late, 0.5)),
        middle(&mut |r| percentile(&mut r.late, 0.99)),
    );
    println!("| {load} | {name} | {p50:.1} | {p99:.1} | {:.1} |", 100.0 * middle(&mut |r| r.cores));
}

fn round<P: Peer>(tasks: u32, period: Duration, time: Duration) -> Round {
    let (start, before) = (Instant::now(), usage().cpu);
    let late = P::block_on(async move {
        let ticker = |nth| {
            P::spawn(async move {
                let (mut next, mut late) = (start + period * nth / tasks, Vec::new());
                while next < start + time {
                    // Ticks that were missed are left out.
                    while next <= Instant::now() {
                        next += period;
                    }
                    P::sleep(next.saturating_duration_since(Instant::now())).await;
                    late.push(microseconds(next.elapsed()));
                }
                late
            })
        };
        let mut late = Vec::new();
        for ticker in (0..tasks).map(ticker).collect::<Vec<_>>() {
            late.extend(ticker.await);
        }
        late
    });
    Round { late, cores: (usage().cpu - before).as_secs_f64() / start.elapsed().as_secs_f64() }
}
