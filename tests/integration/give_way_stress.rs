//! Mixed loads, seeded and bounded: all of their tasks come to their ends.

use futures::{FutureExt, select_biased};
use giveway::task::{Builder, Class, JoinHandle};
use giveway::{Handle, Runtime, budget, should_yield, yield_now, yield_now_if_busy};
use giveway_tests::{
    Alive, dawdle, eventually, on_drop, recv, rounds, watch, with_runtimes, worker_counts,
};
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Pseudo-random numbers, by Marsaglia's xorshift.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// tokio PR 6999: a worker went to sleep while a task that had yielded was queued. Here bursts of
/// tasks give way to each other, with idle times of all lengths in between.
#[test]
fn no_worker_sleeps_while_something_is_in_the_yield_queue() {
    const ROUNDS: usize = 300;
    with_runtimes(|runtime| {
        let (ran, runs) = mpsc::channel();
        let mut rng = Rng::new(6999);
        for _ in rounds(ROUNDS) {
            let tasks = 1 + rng.below(8);
            for i in 0..tasks {
                let (ran, points) = (ran.clone(), rng.below(20));
                let polite = async move {
                    for _ in 0..points {
                        yield_now_if_busy().await;
                    }
                    ran.send(()).unwrap();
                };
                if i % 4 == 3 {
                    runtime.spawn_background(polite)
                } else {
                    runtime.spawn(polite)
                };
            }
            if rng.below(4) == 0 {
                runtime.block_on(yield_now_if_busy());
            }
            (0..tasks).for_each(|_| recv(&runs));
            // This orders nothing: it varies whether the next burst finds workers that search, are
            // about to sleep, or sleep.
            dawdle(rng.below(40) as usize);
        }
    });
}

/// One background task at a time, from a thread that finds the workers busy, searching, about to
/// sleep or asleep.
#[test]
fn no_worker_sleeps_beside_a_background_task_from_outside() {
    const ROUNDS: usize = 20_000;
    with_runtimes(|runtime| {
        let ran = Arc::new(AtomicUsize::new(0));
        let mut rng = Rng::new(26);
        for round in rounds(ROUNDS) {
            let in_task = ran.clone();
            runtime.spawn_background(async move { _ = in_task.fetch_add(1, SeqCst) });
            // The thread stays awake. If it had to be woken, the worker would have been asleep for
            // long when the thread goes on.
            eventually(|| ran.load(SeqCst) > round);
            // This orders nothing: it varies what the worker is doing at the next spawn. A search
            // takes some tens of microseconds.
            (0..rng.below(3_000)).for_each(|_| std::hint::spin_loop());
        }
    });
}

/// What the tasks of the load share.
#[derive(Clone)]
struct Load {
    handle: Handle,
    done: Arc<AtomicUsize>,
    alive: Alive,
}

impl Load {
    fn counted(&self) -> impl Send + use<> {
        let (done, alive) = (self.done.clone(), self.alive.clone());
        on_drop(move || {
            done.fetch_add(1, SeqCst);
            drop(alive);
        })
    }

    /// Spawns a task with yield points of all kinds.
    fn polite(&self, seed: u64, operations: usize) -> JoinHandle<()> {
        let counted = self.counted();
        self.handle.spawn(async move {
            let (_counted, mut rng) = (counted, Rng::new(seed));
            for _ in 0..operations {
                match rng.below(8) {
                    0 => yield_now().await,
                    1 => select_biased! {
                        () = yield_now_if_busy().fuse() => {}
                        () = ready(()).fuse() => {}
                    },
                    2 => _ = futures::join!(yield_now_if_busy(), yield_now_if_busy()),
                    3 if should_yield() => yield_now_if_busy().await,
                    _ => yield_now_if_busy().await,
                }
            }
        })
    }

    /// Spawns a background task without yield points, but with budgeted operations, children of
    /// both classes, and a foreground task to wake.
    fn background(
        &self,
        seed: u64,
        operations: usize,
        wake: async_channel::Sender<()>,
    ) -> JoinHandle<()> {
        let (counted, this) = (self.counted(), self.clone());
        self.handle.spawn_background(async move {
            let (_counted, mut rng) = (counted, Rng::new(seed));
            let mut children = Vec::new();
            for _ in 0..operations {
                match rng.below(16) {
                    0 => wake.send(()).await.unwrap(),
                    1 => children.push(giveway::spawn(short(this.counted()))),
                    2 => children
                        .push(Builder::new().class(Class::Foreground).spawn(short(this.counted()))),
                    _ => budget::consume().await,
                }
                if children.len() == 10 {
                    for child in children.drain(..) {
                        child.await.unwrap();
                    }
                }
            }
        })
    }

    /// Spawns two tasks that wake each other.
    fn ping_pong(&self, trips: usize) -> [JoinHandle<()>; 2] {
        let (there, arrivals) = async_channel::bounded::<()>(1);
        let (back, returns) = async_channel::bounded::<()>(1);
        let (ping, pong) = (self.counted(), self.counted());
        [
            self.handle.spawn(async move {
                let _counted = ping;
                for _ in 0..trips {
                    there.send(()).await.unwrap();
                    returns.recv().await.unwrap();
                }
            }),
            self.handle.spawn(async move {
                let _counted = pong;
                while arrivals.recv().await.is_ok() {
                    back.send(()).await.unwrap();
                }
            }),
        ]
    }

    /// Starts a thread that spawns into the runtime, and waits for some of the tasks, with yield
    /// points.
    fn spawner(&self, seed: u64, tasks: usize) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || {
            let mut rng = Rng::new(seed);
            for _ in 0..tasks {
                let class = if rng.below(2) == 0 { Class::Foreground } else { Class::Background };
                let task =
                    Builder::new().class(class).spawn_on(short(this.counted()), &this.handle);
                if rng.below(4) == 0 {
                    this.handle.block_on(async {
                        yield_now_if_busy().await;
                        // The task is cancelled if the runtime ends before it.
                        let _outcome = task.await;
                    });
                }
            }
        })
    }
}

async fn short(counted: impl Send) {
    yield_now_if_busy().await;
    budget::consume().await;
    drop(counted);
}

/// Starts the load. Returns it with its tasks and its thread.
fn start(
    runtime: &Runtime,
    seed: u64,
    operations: usize,
) -> (Load, Vec<JoinHandle<()>>, thread::JoinHandle<()>) {
    let load =
        Load { handle: runtime.handle().clone(), done: Arc::default(), alive: Alive::default() };
    let (wake, wakes) = async_channel::bounded(1);
    let counted = load.counted();
    let mut tasks = vec![runtime.spawn(async move {
        let _counted = counted;
        while wakes.recv().await.is_ok() {}
    })];
    for i in 0..4 {
        tasks.push(load.polite(seed + i, operations));
        tasks.push(load.background(seed + 10 + i, operations / 4, wake.clone()));
    }
    drop(wake);
    (0..2).for_each(|_| tasks.extend(load.ping_pong(operations / 4)));
    let spawner = load.spawner(seed + 20, 400);
    (load, tasks, spawner)
}

/// Returns builders for three runtimes: with the default settings, with a wide look at every yield
/// point, and with no timed wide look, so that only interrupts and patience keep the tasks going.
fn builders(workers: usize) -> [giveway::Builder; 3] {
    let builder = || giveway::Builder::new().workers(workers);
    [
        builder(),
        builder().wide_look_interval(Duration::ZERO),
        builder()
            .wide_look_interval(Duration::from_secs(3600))
            .yield_patience(Duration::from_micros(50)),
    ]
}

#[test]
fn a_mixed_load_comes_to_its_end() {
    for workers in worker_counts() {
        for (seed, builder) in builders(workers).into_iter().enumerate() {
            let _watch = watch();
            let runtime = builder.build().unwrap();
            let (load, tasks, spawner) = start(&runtime, 100 * seed as u64, 4_000);
            spawner.join().unwrap();
            runtime.block_on(async {
                for task in tasks {
                    yield_now_if_busy().await;
                    task.await.unwrap();
                }
            });
            // Tasks without a handle may still be running. The drop ends them.
            drop(runtime);
            assert_eq!(Arc::strong_count(&load.alive), 1);
        }
    }
}

/// The same load in a runtime that is dropped in the middle of it: everything that was started is
/// dropped.
#[test]
fn a_mixed_load_is_dropped_with_its_runtime() {
    for workers in worker_counts() {
        for (seed, builder) in builders(workers).into_iter().cycle().take(9).enumerate() {
            let _watch = watch();
            let runtime = builder.build().unwrap();
            let (load, tasks, spawner) = start(&runtime, 7 + 100 * seed as u64, 20_000);
            eventually(|| load.done.load(SeqCst) > 20 * seed);
            drop(runtime);
            spawner.join().unwrap();
            assert_eq!(Arc::strong_count(&load.alive), 1, "everything was dropped");
            drop(tasks);
        }
    }
}
