//! What does the first overrun of a spawn location cost?
//!
//! `cargo run --release -p giveway-benches --bin first`
//!
//! Two workers, and as many background tasks as workers, which compute for 10 ms at a time and come to no yield point. They are
//! spawned at a place that the runtime has not seen before: one of 16 in each round. Meanwhile a real-time thread sends into a
//! channel every 200 µs, and a foreground task receives. How long the worst message of a round took, from when it was due: while the
//! place is new, and in the second tenth of a second, when it is known.
//!
//! What is not isolated: the sender's own lateness, and what the host takes; the stolen time is printed.

use futures::StreamExt;
use futures::channel::mpsc;
use giveway::{Builder, Runtime, spawn_background, yield_now};
use giveway_benches::usage::machine;
use giveway_benches::wake::ask_for_real_time;
use giveway_benches::work::{microseconds, percentile, rounds_per_microsecond, spin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const EVERY: Duration = Duration::from_micros(200);
/// A tenth of a second while the place is new, another when it is known.
const MESSAGES: usize = 1_000;

type Place = fn(u64, Arc<AtomicBool>) -> giveway::task::JoinHandle<()>;

async fn compute(rounds: u64, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        spin(rounds);
        yield_now().await;
    }
}

/// A line each: a place is a line and a column.
const PLACES: [Place; 16] = [
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
    |rounds, stop| spawn_background(compute(rounds, stop)),
];

fn main() {
    let rounds = 10_000 * rounds_per_microsecond(WORKERS);
    let runtime = Builder::new().workers(WORKERS).build().expect("the runtime starts");
    let before = machine().stolen;
    let (mut new, mut known): (Vec<f64>, Vec<f64>) = PLACES.iter().map(|place| round(&runtime, *place, rounds)).unzip();
    println!("The slowest wake-up beside background polls of 10 ms, in µs, over {} places\n", PLACES.len());
    println!("| | median | highest |\n|---|---|---|");
    for (what, figures) in [("the place is new", &mut new), ("the place is known", &mut known)] {
        println!("| {what} | {:.0} | {:.0} |", percentile(figures, 0.5), percentile(figures, 1.0));
    }
    println!("\nstolen: {:?}; overruns: {}", machine().stolen - before, runtime.metrics().overruns);
}

/// The slowest message while the place is new, and when it is known.
fn round(runtime: &Runtime, place: Place, rounds: u64) -> (f64, f64) {
    let (sender, mut receiver) = mpsc::unbounded::<Instant>();
    let receiving = runtime.spawn(async move {
        let mut latencies = Vec::with_capacity(MESSAGES);
        while let Some(due) = receiver.next().await {
            latencies.push(microseconds(due.elapsed()));
        }
        latencies
    });
    let stop = Arc::new(AtomicBool::new(false));
    let sending = std::thread::spawn(move || {
        ask_for_real_time();
        let start = Instant::now() + Duration::from_millis(10);
        for n in 0..MESSAGES as u32 {
            let due = start + EVERY * n;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            sender.unbounded_send(due).expect("the receiver is there");
        }
    });
    // The messages come every 200 µs before the first of the tasks is polled.
    std::thread::sleep(Duration::from_millis(20));
    let inside = runtime.enter();
    let tasks: Vec<_> = (0..WORKERS).map(|_| place(rounds, stop.clone())).collect();
    drop(inside);
    sending.join().expect("the sender does not panic");
    let latencies = runtime.block_on(receiving).expect("the receiver does not panic");
    stop.store(true, Relaxed);
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("it does not panic"));
    let (new, known) = latencies.split_at(MESSAGES / 2);
    let slowest = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    (slowest(new), slowest(known))
}
