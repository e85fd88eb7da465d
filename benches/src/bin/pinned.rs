//! What does a wake-up of a pinned task cost the thread that wakes it, and what does a spawn of one
//! cost?
//!
//! `cargo run --release -p giveway-benches --bin pinned [-- ROUNDS]`
//!
//! A pinned task waits to be woken, again and again: by another task of its worker, by a task on
//! another worker, or by a thread outside of the runtime. Its worker is awake: it runs the waking
//! task, or a loop that gives way when it is asked to. One more worker is idle, or no worker is.
//! The figures are medians of many wake-ups: the time of the waker's call alone, and the time until
//! the task has run.
//!
//! A spawn is of a function that returns an empty future, by a thread outside of the runtime, onto
//! workers that are asleep or about to be.
//!
//! Not isolated: the first figure contains two looks at the clock, some 50 ns; the time of an empty
//! measurement is printed. A spawn contains the wake-up of a worker. Therefore a spawn onto a
//! worker that is given by its number is printed beside one that has to choose.

use giveway::{Builder, Runtime, task};
use giveway_benches::work::percentile;
use std::future::{Future, poll_fn};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Instant;

/// The worker that the task is pinned to.
const HOME: usize = 0;

fn main() {
    let rounds =
        std::env::args().nth(1).map_or(Some(100_000), |n| n.parse().ok().filter(|&n: &u32| n > 0));
    let Some(rounds) = rounds else {
        eprintln!("usage: pinned [ROUNDS]");
        std::process::exit(2);
    };
    println!(
        "A wake-up of a pinned task, the middle of {rounds}, in ns (an empty measurement: {:.0})\n",
        empty(rounds)
    );
    println!("| woken from | a worker is idle | the call | until it has run |");
    println!("|---|---|---|---|");
    for idle in [false, true] {
        print("its own worker", idle, from_own(rounds, idle));
    }
    for idle in [false, true] {
        print("another worker", idle, from_another(rounds, idle));
    }
    for idle in [false, true] {
        print("outside", idle, from_outside(rounds, idle));
    }
    println!("\n| a spawn, ns | onto a worker with few | onto one by its number |\n|---|---|---|");
    for workers in [2, 64, 256] {
        let [chosen, named] = [false, true].map(|named| spawn(rounds / 10, workers, named));
        println!("| {workers} workers | {chosen:.0} | {named:.0} |");
    }
}

fn print(from: &str, idle: bool, (mut call, mut run): (Vec<f64>, Vec<f64>)) {
    let idle = if idle { "yes" } else { "no" };
    println!(
        "| {from} | {idle} | {:.0} | {:.0} |",
        percentile(&mut call, 0.5),
        percentile(&mut run, 0.5)
    );
}

fn ns(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64
}

fn empty(rounds: u32) -> f64 {
    percentile(&mut (0..rounds).map(|_| ns(Instant::now())).collect::<Vec<_>>(), 0.5)
}

/// A pinned task that counts its polls.
#[derive(Default)]
struct Sleeper {
    waker: Mutex<Option<Waker>>,
    polls: AtomicU64,
}

impl Sleeper {
    /// Starts a task, and waits until it was polled.
    fn start(runtime: &Runtime) -> (Arc<Self>, Waker) {
        let sleeper = Arc::<Self>::default();
        let this = sleeper.clone();
        let task = move || {
            poll_fn(move |cx| {
                if this.polls.load(Relaxed) == 0 {
                    *this.waker.lock().expect("nobody panics") = Some(cx.waker().clone());
                }
                // Ordering: release, partner of the acquire loads in `start` and `wake`: a thread
                // that sees the new count sees what this poll has done. Relaxed would not order
                // the poll before the end of the measurement in `wake`.
                this.polls.store(this.polls.load(Relaxed) + 1, Release);
                Poll::<()>::Pending
            })
        };
        drop(spawn_on(runtime, HOME, task));
        while sleeper.polls.load(Acquire) == 0 {
            std::thread::yield_now();
        }
        let waker = sleeper.waker.lock().expect("nobody panics").take().expect("it was polled");
        (sleeper, waker)
    }

    /// Wakes the task, and waits until it was polled. Returns the nanoseconds of the call, and
    /// until the poll.
    fn wake(&self, waker: &Waker) -> (f64, f64) {
        let (before, start) = (self.polls.load(Acquire), Instant::now());
        waker.wake_by_ref();
        let call = ns(start);
        while self.polls.load(Acquire) == before {
            std::hint::spin_loop();
        }
        (call, ns(start))
    }
}

fn spawn_on<Fut>(
    runtime: &Runtime,
    worker: usize,
    f: impl FnOnce() -> Fut + Send + 'static,
) -> task::JoinHandle<Fut::Output>
where
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    task::Builder::new().on_worker(worker).spawn_pinned_on(f, runtime.handle())
}

fn runtime(workers: usize) -> Runtime {
    Builder::new().workers(workers).build().expect("a runtime starts")
}

/// Starts a loop on a worker that gives way when it is asked to. Returns when the loop runs, with
/// the flag that stops it.
fn keep_awake(runtime: &Runtime, worker: usize) -> Arc<AtomicBool> {
    let (stop, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (until, here) = (stop.clone(), runs.clone());
    drop(spawn_on(runtime, worker, move || async move {
        here.store(true, Relaxed);
        while !until.load(Relaxed) {
            giveway::yield_now_if_busy().await;
        }
    }));
    while !runs.load(Relaxed) {
        std::thread::yield_now();
    }
    stop
}

fn from_own(rounds: u32, idle: bool) -> (Vec<f64>, Vec<f64>) {
    let runtime = runtime(2);
    let (sleeper, waker) = Sleeper::start(&runtime);
    let stop = (!idle).then(|| keep_awake(&runtime, 1));
    let task = spawn_on(&runtime, HOME, move || async move {
        let mut took = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (before, start) = (sleeper.polls.load(Relaxed), Instant::now());
            waker.wake_by_ref();
            took.0.push(ns(start));
            while sleeper.polls.load(Relaxed) == before {
                giveway::yield_now().await;
            }
            took.1.push(ns(start));
        }
        took
    });
    let took = runtime.block_on(task).expect("it does not panic");
    stop.inspect(|stop| stop.store(true, Relaxed));
    took
}

fn from_another(rounds: u32, idle: bool) -> (Vec<f64>, Vec<f64>) {
    let runtime = runtime(2 + usize::from(idle));
    let (sleeper, waker) = Sleeper::start(&runtime);
    let stop = keep_awake(&runtime, HOME);
    let task =
        spawn_on(
            &runtime,
            1,
            move || async move { (0..rounds).map(|_| sleeper.wake(&waker)).unzip() },
        );
    let took = runtime.block_on(task).expect("it does not panic");
    stop.store(true, Relaxed);
    took
}

fn from_outside(rounds: u32, idle: bool) -> (Vec<f64>, Vec<f64>) {
    let runtime = runtime(1 + usize::from(idle));
    let (sleeper, waker) = Sleeper::start(&runtime);
    let stop = keep_awake(&runtime, HOME);
    let took = (0..rounds).map(|_| sleeper.wake(&waker)).unzip();
    stop.store(true, Relaxed);
    took
}

fn spawn(rounds: u32, workers: usize, named: bool) -> f64 {
    let runtime = runtime(workers);
    let mut took: Vec<_> = (0..rounds)
        .map(|round| {
            let (start, named) = (Instant::now(), named.then_some(round as usize * 7 % workers));
            let task = match named {
                Some(worker) => spawn_on(&runtime, worker, || async {}),
                None => runtime.spawn_pinned(|| async {}),
            };
            let took = ns(start);
            runtime.block_on(task).expect("it does not panic");
            took
        })
        .collect();
    percentile(&mut took, 0.5)
}
