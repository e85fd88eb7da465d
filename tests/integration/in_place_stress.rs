//! Many tasks that block in place, for times of every kind: no task is lost, and none runs twice.

use super::in_place::lose_core;
use super::io_common::Random;
use giveway::time::sleep;
use giveway::{block_in_place, budget, spawn, yield_now, yield_now_if_busy};
use giveway_tests::{Drops, Gate, each_runtime, eventually, on_one_worker, with_runtimes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Keeps the thread for `time`, without a system call if that is short.
fn spend(time: Duration) {
    if time >= Duration::from_millis(1) {
        std::thread::sleep(time);
    } else {
        let start = Instant::now();
        while start.elapsed() < time {}
    }
}

/// From nothing to what is long for a disk.
const TIMES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(1),
    Duration::from_micros(100),
    Duration::from_millis(2),
];

#[test]
fn tasks_that_block_for_mixed_times_all_finish_and_every_call_counts_once() {
    with_runtimes(|runtime| {
        const TASKS: usize = 40;
        const CALLS: usize = 25;
        let calls = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|seed| {
                let calls = calls.clone();
                let task = async move {
                    let mut random = Random(seed as u64);
                    let mut sum = 0;
                    for call in 0..CALLS {
                        let time = TIMES[random.below(TIMES.len())];
                        sum += block_in_place(|| {
                            spend(time);
                            calls.fetch_add(1, SeqCst);
                            call
                        });
                        match random.below(6) {
                            0 => yield_now().await,
                            1 => yield_now_if_busy().await,
                            2 => budget::consume().await,
                            3 => sleep(Duration::from_micros(50)).await,
                            4 => sum += spawn(async { 0 }).await.unwrap(),
                            _ => {}
                        }
                    }
                    sum
                };
                if seed % 4 == 0 { runtime.spawn_background(task) } else { runtime.spawn(task) }
            })
            .collect();
        for task in tasks {
            assert_eq!(runtime.block_on(task).unwrap(), CALLS * (CALLS - 1) / 2);
        }
        assert_eq!(calls.load(SeqCst), TASKS * CALLS);
    });
}

/// Blocks from a single place in the program, so that what was learnt of the place is wrong again
/// and again.
#[track_caller]
fn from_one_place(time: Duration) {
    block_in_place(|| spend(time));
}

#[test]
fn short_calls_from_a_place_that_was_long_and_long_ones_from_one_that_was_short() {
    with_runtimes(|runtime| {
        let tasks: Vec<_> = (0..2 * runtime.handle().workers())
            .map(|_| {
                runtime.spawn(async {
                    for round in 0..6 {
                        let (time, calls) =
                            if round % 2 == 0 { (TIMES[3], 3) } else { (TIMES[0], 40) };
                        for _ in 0..calls {
                            from_one_place(time);
                            // A task is queued after every call, and runs before the next.
                            spawn(async {}).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// If a place is trusted to be short, only the monitor, on its rounds, sends a thread for the core
/// of a call from there. (golang 28701: a monitor that compared with what it had seen too long ago
/// never took a core back again.)
#[test]
fn a_call_that_blocks_from_a_place_that_was_short_loses_its_core_too() {
    fn place(gate: Option<&Gate>) {
        block_in_place(|| gate.inspect(|gate| gate.wait()));
    }
    on_one_worker(async {
        for _ in 0..3 {
            for _ in 0..200 {
                place(None);
            }
            let gate = Gate::new();
            let opens = gate.clone();
            spawn(async move { opens.open() });
            place(Some(&gate));
            yield_now().await;
        }
    });
}

/// The core goes from one thread to the next and home again, while other tasks are spawned from
/// outside and wake each other.
#[test]
fn a_core_that_changes_hands_all_the_time_loses_no_task() {
    with_runtimes(|runtime| {
        const ROUNDS: usize = 150;
        let ran = Arc::new(AtomicUsize::new(0));
        let changers: Vec<_> = (0..3)
            .map(|_| {
                let ran = ran.clone();
                runtime.spawn(async move {
                    for _ in 0..ROUNDS {
                        let ran = ran.clone();
                        spawn(async move { ran.fetch_add(1, SeqCst) });
                        lose_core();
                        yield_now().await;
                    }
                })
            })
            .collect();
        let (ping, pong) = (async_channel::bounded(1), async_channel::bounded(1));
        let partner = runtime.spawn(async move {
            while let Ok(ball) = ping.1.recv().await {
                pong.0.send(ball + 1).await.unwrap();
            }
        });
        let player = runtime.spawn(async move {
            for ball in 0..ROUNDS {
                ping.0.send(ball).await.unwrap();
                assert_eq!(pong.1.recv().await.unwrap(), ball + 1);
            }
        });
        for _ in 0..ROUNDS {
            let ran = ran.clone();
            runtime.spawn(async move { ran.fetch_add(1, SeqCst) });
        }
        changers.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        runtime.block_on(player).unwrap();
        runtime.block_on(partner).unwrap();
        eventually(|| ran.load(SeqCst) == 4 * ROUNDS);
    });
}

/// Six hundred tasks behind a core that is lost again and again: each is dropped exactly once,
/// whether it ran or not.
#[test]
fn tasks_spawned_in_place_are_dropped_once_each() {
    each_runtime(1, |runtime| {
        const TASKS: usize = 600;
        let drops = Drops::of(TASKS);
        let counters: Vec<_> = (0..TASKS).map(|task| drops.counter(task)).collect();
        let task = runtime.spawn(async move {
            for (i, counter) in counters.into_iter().enumerate() {
                let child = block_in_place(|| {
                    spawn(async move {
                        let _counter = counter;
                        if i % 3 == 0 {
                            block_in_place(|| ());
                        }
                        if i % 2 == 0 {
                            std::future::pending::<()>().await;
                        }
                    })
                });
                if i % 50 == 0 {
                    lose_core();
                    yield_now().await;
                }
                drop(child);
            }
        });
        runtime.block_on(task).unwrap();
        drop(runtime);
        drops.assert_each_once();
    });
}
