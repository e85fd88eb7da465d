//! What do other tasks feel of a task that blocks its worker for 200 ms, again and again?
//!
//! `cargo run --release -p giveway-benches --bin stall [-- SECONDS]`
//!
//! Two workers; one is blocked for nine tenths of the time. Beside that a task sleeps for a
//! millisecond, again and again (how much longer was each sleep?), and pairs of tasks echo over TCP
//! (how long did each answer take?). There is one pair that sends every millisecond, so that the
//! other worker is mostly idle; or there are eight without a pause, so that it never is.
//!
//! Not isolated: both ends of each connection are tasks of the same two workers.

use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use giveway_benches::work::{microseconds, percentile};
use std::time::{Duration, Instant};

const BLOCK: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(20);
const EVERY: Duration = Duration::from_millis(1);

fn main() {
    let seconds =
        std::env::args().nth(1).map_or(Some(5.0), |n| n.parse().ok().filter(|&n: &f64| n > 0.0));
    let Some(seconds) = seconds else {
        eprintln!("usage: stall [SECONDS]");
        std::process::exit(2);
    };
    let time = Duration::from_secs_f64(seconds);
    println!(
        "A task blocks one of two workers for 200 ms of each 220, for {seconds} s; milliseconds\n"
    );
    println!(
        "| | pairs | 1 ms sleeps, too late by: p50 | p99 | max | echoes took: p50 | p99 | max | \
         echoes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    Giveway::start(2);
    Tokio::start(2);
    Smol::start(2);
    for (pairs, every) in [(1, EVERY), (8, Duration::ZERO)] {
        run::<Giveway>(time, pairs, every);
        run::<Tokio>(time, pairs, every);
        run::<Smol>(time, pairs, every);
    }
}

fn run<P: Peer>(time: Duration, pairs: usize, every: Duration) {
    let end = Instant::now() + time;
    let (mut late, mut took) = P::block_on(async move {
        let blocker = P::spawn(async move {
            while Instant::now() < end {
                std::thread::sleep(BLOCK);
                P::sleep(PAUSE).await;
            }
        });
        let sleeper = P::spawn(async move {
            let mut late = Vec::new();
            while Instant::now() < end {
                let start = Instant::now();
                P::sleep(EVERY).await;
                late.push(microseconds(start.elapsed() - EVERY) / 1e3);
            }
            late
        });
        let mut took = Vec::new();
        for pair in (0..pairs).map(|_| P::spawn(echo::<P>(end, every))).collect::<Vec<_>>() {
            took.extend(pair.await);
        }
        blocker.await;
        (sleeper.await, took)
    });
    let parts = |samples: &mut [f64]| {
        [0.5, 0.99, 1.0].map(|part| format!("{:.2}", percentile(samples, part))).join(" | ")
    };
    println!(
        "| {} | {pairs} | {} | {} | {} |",
        P::NAME,
        parts(&mut late),
        parts(&mut took),
        took.len()
    );
}

async fn echo<P: Peer>(end: Instant, every: Duration) -> Vec<f64> {
    let (listener, address) = P::listen().await.expect("listens on loopback");
    let (client, server) = futures::join!(P::connect(address), P::accept(&listener));
    let (mut client, mut server) = (client.expect("connects"), server.expect("accepts"));
    P::spawn_detached(async move {
        let mut buffer = [0; 64];
        while let Ok(read @ 1..) = P::read(&mut server, &mut buffer).await {
            P::write_all(&mut server, &buffer[..read]).await.expect("the client reads");
        }
    });
    let mut took = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        P::write_all(&mut client, b"x").await.expect("the server reads");
        P::read(&mut client, &mut [0; 64]).await.expect("the server answers");
        took.push(microseconds(start.elapsed()) / 1e3);
        if !every.is_zero() {
            P::sleep(every).await;
        }
    }
    took
}
