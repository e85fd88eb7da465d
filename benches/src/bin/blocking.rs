//! What does blocking cost, which tasks does it delay, and what does the monitor cost that handles
//! it?
//!
//! `cargo run --release -p giveway-benches --bin blocking -- behind|place|monitor`
//!
//! - `behind`: a task wakes another, and then blocks its worker for 200 ms. When does the woken
//!   task run, with the second of two workers idle, and with it busy?
//! - `place`: `block_in_place` of a microsecond, compared with the bare call. And of 5 ms, on a
//!   runtime with one worker: when do the tasks start that were queued behind it?
//! - `monitor`: the CPU time of the monitor's thread while every worker is busy.
//!
//! Not isolated: the time that the system takes to wake a thread is part of every delay.

use futures::channel::oneshot;
use giveway_benches::crew::Crew;
use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use giveway_benches::usage::usage;
use giveway_benches::work::{microseconds, percentile, rounds_per_microsecond, spin};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("behind") => behind(),
        Some("place") => place(),
        Some("monitor") => monitor(),
        _ => {
            eprintln!("usage: blocking behind|place|monitor");
            std::process::exit(2);
        }
    }
}

fn start(workers: usize) {
    Giveway::start(workers);
    Tokio::start(workers);
    Smol::start(workers);
}

fn behind() {
    start(2);
    let rate = rounds_per_microsecond(2);
    println!(
        "A task is woken by one that then blocks its worker for 200 ms; it runs after, in \
         milliseconds\n"
    );
    println!("| | the other worker | median | max of {} |\n|---|---|---|---|", 4 * ROUNDS);
    for busy in [false, true] {
        let mut all = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            all[0].extend(woken_behind::<Giveway>(busy, rate));
            all[1].extend(woken_behind::<Tokio>(busy, rate));
            all[2].extend(woken_behind::<Smol>(busy, rate));
        }
        let other = if busy { "busy" } else { "idle" };
        for (name, mut took) in [Giveway::NAME, Tokio::NAME, Smol::NAME].into_iter().zip(all) {
            println!(
                "| {name} | {other} | {:.2} | {:.2} |",
                percentile(&mut took, 0.5),
                percentile(&mut took, 1.0)
            );
        }
    }
}

/// Returns how long each of four tasks, one after the other, waited behind one that blocks.
fn woken_behind<P: Peer>(busy: bool, rate: u64) -> Vec<f64> {
    // The other worker is busy with tasks that never block. It never searches: there is always
    // another one of them in its queue.
    let others = Crew::<P>::start(if busy { 8 } else { 0 }, |stop| {
        P::spawn(async move {
            while !stop.load(Relaxed) {
                spin(20 * rate);
                P::yield_now().await;
            }
        })
    });
    let took = P::block_on(async {
        let mut took = Vec::new();
        for _ in 0..4 {
            let (wake, woken) = oneshot::channel::<Instant>();
            let waiter =
                P::spawn(
                    async move { microseconds(woken.await.expect("it is sent").elapsed()) / 1e3 },
                );
            // Until the task waits.
            P::sleep(Duration::from_millis(5)).await;
            let blocker = P::spawn(async move {
                wake.send(Instant::now()).expect("somebody waits");
                std::thread::sleep(Duration::from_millis(200));
            });
            took.push(waiter.await);
            blocker.await;
        }
        took
    });
    others.end();
    took
}

fn place() {
    start(1);
    short_calls();
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        all[0].extend(queued_behind::<Giveway>());
        all[1].extend(queued_behind::<Tokio>());
    }
    println!(
        "\nTasks queued behind a `block_in_place` of 5 ms, one worker: they start after, in \
         microseconds\n"
    );
    println!("| | p50 | p99 | max |\n|---|---|---|---|");
    for (name, mut late) in [Giveway::NAME, Tokio::NAME].into_iter().zip(all) {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| percentile(&mut late, part));
        println!("| {name} | {p50:.0} | {p99:.0} | {max:.0} |");
    }
}

fn short_calls() {
    const CALLS: u32 = 20_000;
    let rate = rounds_per_microsecond(1);
    println!(
        "`block_in_place` of a microsecond, {CALLS} times, {ROUNDS} rounds: what it costs beyond \
         the call itself\n"
    );
    println!("| | calls | ns a call, median | context switches a call |\n|---|---|---|---|");
    for (calls, yields) in [("one after the other", false), ("once a poll", true)] {
        let mut all = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            all[0].push(calls_of::<Giveway>(CALLS, rate, yields));
            all[1].push(calls_of::<Tokio>(CALLS, rate, yields));
        }
        for (name, rounds) in [Giveway::NAME, Tokio::NAME].into_iter().zip(all) {
            let (mut cost, mut switches): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
            println!(
                "| {name} | {calls} | {:.0} | {:.3} |",
                percentile(&mut cost, 0.5),
                percentile(&mut switches, 0.5)
            );
        }
    }
    println!(
        "\n(A worker of tokio loses its core with the first call, and has none to lose until the \
         poll ends.)"
    );
}

/// Returns the nanoseconds that a call costs beyond itself, and its context switches. With `yields`
/// the task yields after each call.
fn calls_of<P: Peer>(calls: u32, rate: u64, yields: bool) -> (f64, f64) {
    async fn time<P: Peer>(calls: u32, yields: bool, call: impl Fn()) -> f64 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
            if yields {
                P::yield_now().await;
            }
        }
        microseconds(start.elapsed()) * 1e3 / f64::from(calls)
    }
    in_task::<P, _>(async move {
        let in_place = || P::block_in_place(|| spin(rate));
        // The runtime learns how long calls from this place take.
        (0..100).for_each(|_| in_place());
        let bare = time::<P>(calls, yields, || spin(rate)).await;
        let before = context_switches();
        let placed = time::<P>(calls, yields, in_place).await;
        (placed - bare, (context_switches() - before) as f64 / f64::from(calls))
    })
}

fn in_task<P: Peer, T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    P::block_on(async { P::spawn(task).await })
}

fn context_switches() -> u64 {
    let usage = usage();
    usage.voluntary_switches + usage.involuntary_switches
}

/// Returns how long each of sixteen tasks waited that were queued just before a call of 5 ms, two
/// hundred times.
fn queued_behind<P: Peer>() -> Vec<f64> {
    in_task::<P, _>(async {
        let mut late = Vec::new();
        for _ in 0..200 {
            let tasks: Vec<_> = (0..16).map(|_| P::spawn(async { Instant::now() })).collect();
            let start = Instant::now();
            P::block_in_place(|| std::thread::sleep(Duration::from_millis(5)));
            for task in tasks {
                late.push(microseconds(task.await.saturating_duration_since(start)));
            }
            P::sleep(Duration::from_millis(1)).await;
        }
        late
    })
}

fn monitor() {
    const SECONDS: u64 = 3;
    Giveway::start(2);
    let rate = rounds_per_microsecond(2);
    println!("CPU time of the monitor in {SECONDS} s, as a part of one core\n");
    println!("| every worker is busy with | percent | wake-ups a second |\n|---|---|---|");
    let load = |name: &str, tasks: usize, waits_for_io: bool, chunk: u64, polite: bool| {
        let listening = Giveway::block_on(Giveway::listen()).expect("listens on loopback");
        let waiter = waits_for_io.then(|| {
            Giveway::spawn(async move {
                let _never = Giveway::accept(&listening.0).await;
            })
        });
        let crew = Crew::<Giveway>::start(tasks, |stop| {
            Giveway::spawn(async move {
                while !stop.load(Relaxed) {
                    spin(chunk * rate);
                    if polite { Giveway::polite_yield().await } else { Giveway::yield_now().await }
                }
            })
        });
        std::thread::sleep(Duration::from_millis(100));
        let before = monitor_time();
        std::thread::sleep(Duration::from_secs(SECONDS));
        let after = monitor_time();
        crew.end();
        drop(waiter);
        let percent = 100.0 * (after.0 - before.0) as f64 / (SECONDS * 1_000_000_000) as f64;
        println!("| {name} | {percent:.2} | {:.0} |", (after.1 - before.1) as f64 / SECONDS as f64);
    };
    load("2 polite loops of 20 µs", 2, false, 20, true);
    load("512 polite loops of 20 µs, and somebody waits for a connection", 512, true, 20, true);
    load("64 tasks that yield every 20 µs", 64, false, 20, false);
    load(
        "64 tasks that yield every 20 µs, and somebody waits for a connection",
        64,
        true,
        20,
        false,
    );
    load(
        "2 tasks that yield every 5 ms, and somebody waits for a connection",
        2,
        true,
        5_000,
        false,
    );
    load("nothing", 0, false, 20, false);
}

/// Returns the nanoseconds of CPU time that the monitor has had, and how often it was put on a CPU.
fn monitor_time() -> (u64, u64) {
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim() == "giveway-monitor" {
            let stat = read("schedstat");
            let mut numbers =
                stat.split_ascii_whitespace().map(|number| number.parse().expect("a number"));
            return (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0));
        }
    }
    (0, 0)
}
