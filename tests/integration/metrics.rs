//! The figures: what is counted is exact, what is timed has samples, and tasks that wait for long
//! stop neither.

use giveway::metrics::Metrics;
use giveway::task::Class;
use giveway::{Handle, should_yield, spawn, spawn_background, yield_now, yield_now_if_busy};
use giveway_tests::{
    Gate, eventually, occupy, on_one_worker, outside, runtime, watch, with_runtimes,
    with_runtimes_of,
};
use std::time::Duration;

fn metrics() -> Metrics {
    Handle::current().metrics()
}

#[test]
fn every_poll_is_counted_once() {
    with_runtimes(|runtime| {
        let before = runtime.metrics();
        runtime.block_on(async {
            let yields = |times| async move {
                for _ in 0..times {
                    yield_now().await;
                }
            };
            let tasks: Vec<_> = (0..100).map(|times| spawn(yields(times))).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let polls = runtime.metrics().since(&before).polls();
        assert_eq!(polls, (0..100).map(|times| times + 1).sum::<u64>());
    });
}

/// Cores go from thread to thread meanwhile, and take their counts with them.
#[test]
fn every_poll_is_counted_once_while_tasks_block_in_place() {
    with_runtimes(|runtime| {
        let before = runtime.metrics().polls();
        runtime.block_on(async {
            let blocks = |long| async move {
                for round in 0..20 {
                    let pause = if long && round % 5 == 0 {
                        Duration::from_millis(1)
                    } else {
                        Duration::ZERO
                    };
                    giveway::block_in_place(|| std::thread::sleep(pause));
                    yield_now().await;
                }
            };
            let tasks: Vec<_> = (0..20).map(|i| spawn(blocks(i % 3 == 0))).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(runtime.metrics().polls() - before, 20 * 21);
    });
}

#[test]
fn each_class_has_its_latency_and_polls_are_timed() {
    with_runtimes(|runtime| {
        let before = runtime.metrics();
        let run = |class| {
            runtime.block_on(async {
                for _ in 0..200 {
                    giveway::task::Builder::new().class(class).spawn(async {}).await.unwrap();
                }
            });
            runtime.metrics().since(&before)
        };
        let after = run(Class::Foreground);
        let timed = after.foreground_latency.count();
        assert!((1..=200).contains(&timed), "{after}");
        assert_eq!(after.background_latency.count(), 0);
        let after = run(Class::Background);
        assert_eq!(after.scheduling_latency(Class::Foreground).count(), timed);
        assert!(
            (1..=200).contains(&after.scheduling_latency(Class::Background).count()),
            "{after}"
        );
        // A poll is timed when it is over, which may be after its task has been joined.
        eventually(|| runtime.metrics().since(&before).poll_time.count() >= timed);
    });
}

#[test]
fn a_wait_for_a_long_poll_shows_in_the_latency() {
    let _watch = watch();
    let runtime = runtime(1);
    let (gate, pause) = (Gate::new(), Duration::from_millis(20));
    let busy = occupy(runtime.handle(), 1, &gate);
    let tasks: Vec<_> = (0..100).map(|_| runtime.spawn(async {})).collect();
    std::thread::sleep(pause);
    gate.open();
    runtime.block_on(async {
        for task in busy.into_iter().chain(tasks) {
            task.await.unwrap();
        }
    });
    let metrics = runtime.metrics();
    assert!(metrics.foreground_latency.max() >= pause, "{metrics}");
    eventually(|| runtime.metrics().poll_time.max() >= pause);
}

#[test]
fn depths_say_what_is_where() {
    on_one_worker(async {
        let handle = Handle::current();
        (0..10).for_each(|_| drop(spawn(async {})));
        outside(|| (0..5).for_each(|_| drop(handle.spawn(async {}))));
        (0..3).for_each(|_| drop(spawn_background(async {})));
        (0..2).for_each(|_| drop(giveway::spawn_pinned(|| async {})));
        let depths = metrics();
        let worker = &depths.workers[0];
        assert_eq!((worker.slot, worker.deque, worker.inbox), (1, 9, 2), "{depths}");
        assert_eq!((depths.injector, depths.yield_queue), (5, 3), "{depths}");
        giveway::task::Builder::new().class(Class::Background).spawn(async {}).await.unwrap();
        let depths = metrics();
        let worker = &depths.workers[0];
        assert_eq!(
            (worker.slot, worker.deque, worker.inbox, depths.injector, depths.yield_queue),
            (0, 0, 0, 0, 0)
        );
    });
}

#[test]
fn yields_are_counted_as_they_are_answered() {
    on_one_worker(async {
        let before = metrics();
        assert!(!should_yield(), "nobody waits");
        let asked = metrics().since(&before);
        assert_eq!((asked.yields_taken, asked.yields_declined), (0, 1));
        // The first yield point of a poll asks.
        yield_now().await;
        yield_now_if_busy().await;
        let asked = metrics().since(&before);
        assert_eq!((asked.yields_taken, asked.yields_declined), (0, 2));
        for _ in 0..300 {
            let other = spawn(async {});
            yield_now_if_busy().await;
            assert!(other.is_finished());
        }
        let gave_way = metrics().since(&before);
        assert_eq!(gave_way.yields_taken, 300, "{gave_way}");
        assert!((1..=300).contains(&gave_way.yield_wait.count()), "{gave_way}");
    });
}

#[test]
fn the_future_of_block_on_gives_way_and_is_counted() {
    let _watch = watch();
    let runtime = runtime(1);
    let (gate, handle) = (Gate::new(), runtime.handle().clone());
    let busy = occupy(&handle, 1, &gate);
    let waits = handle.spawn(async {});
    runtime.block_on(async {
        let mut gave_way = std::pin::pin!(yield_now_if_busy());
        let opens = std::future::poll_fn(|cx| {
            let poll = gave_way.as_mut().poll(cx);
            gate.open();
            poll
        });
        opens.await;
        waits.await.unwrap();
    });
    assert_eq!(runtime.metrics().yields_taken, 1);
    drop(busy);
}

/// However fast tasks come, one in at most this many is timed.
const ONE_IS_TIMED: usize = 2_048;

/// Background tasks are timed by the queue that they wait in, and take no room from tasks that are
/// timed elsewhere.
#[test]
fn background_tasks_that_wait_do_not_keep_the_foreground_from_being_timed() {
    on_one_worker(async {
        let ended: Vec<_> = (0..2_000).map(|_| spawn_background(async {})).collect();
        let before = metrics();
        for _ in 0..ONE_IS_TIMED {
            spawn(async {}).await.unwrap();
        }
        let after = metrics().since(&before);
        assert!(after.foreground_latency.count() > 0, "{after}");
        assert_eq!((after.background_latency.count(), after.yield_queue), (0, 2_000), "{after}");
        for task in ended {
            task.await.unwrap();
        }
        let after = metrics().since(&before);
        assert!(after.background_latency.count() > 0, "{after}");
        assert!(after.yield_wait.count() >= after.background_latency.count(), "{after}");
    });
}

#[test]
fn tasks_that_are_aborted_while_queued_do_not_keep_others_from_being_timed() {
    on_one_worker(async {
        for _ in 0..20 {
            let tasks: Vec<_> = (0..100).map(|_| spawn(async {})).collect();
            tasks.iter().for_each(|task| task.abort());
            for task in tasks {
                assert!(task.await.unwrap_err().is_cancelled());
            }
        }
        let before = metrics();
        for _ in 0..ONE_IS_TIMED {
            spawn(async {}).await.unwrap();
        }
        assert!(metrics().since(&before).foreground_latency.count() > 0);
    });
}

#[test]
fn pinned_tasks_behind_a_stuck_worker_do_not_keep_others_from_being_timed() {
    let runtime = runtime(2);
    let (handle, gate) = (runtime.handle(), Gate::new());
    let _stuck = occupy(handle, 1, &gate);
    // The first task that a thread makes runnable is timed. These tasks never end, so every other
    // one goes to the worker that is stuck.
    for _ in 0..64 {
        outside(|| {
            drop(giveway::task::Builder::new().spawn_pinned_on(std::future::pending::<()>, handle))
        });
    }
    eventually(|| runtime.metrics().tasks >= 32);
    let before = runtime.metrics();
    for _ in 0..20 {
        runtime.block_on(outside(|| handle.spawn(async {}))).unwrap();
    }
    let after = runtime.metrics().since(&before);
    gate.open();
    assert!(after.foreground_latency.count() >= 20, "each was the first of its thread: {after}");
}

#[test]
fn what_is_stolen_is_counted_by_the_thief() {
    with_runtimes_of(2, |runtime| {
        let before = runtime.metrics();
        let spawner = runtime.spawn(async {
            let tasks: Vec<_> = (0..100).map(|_| spawn(async {})).collect();
            // This worker does not come to the tasks, and the last one is in its slot.
            eventually(|| tasks.iter().filter(|task| task.is_finished()).count() >= 99);
        });
        runtime.block_on(spawner).unwrap();
        let after = runtime.metrics().since(&before);
        assert!(after.steals() > 0 && after.stolen() >= after.steals(), "{after}");
    });
}

#[test]
fn workers_that_sleep_are_woken_and_say_so() {
    with_runtimes(|runtime| {
        let before = runtime.metrics();
        // No worker searches when all are parked. Then one is woken for the task.
        eventually(|| {
            runtime.block_on(runtime.spawn(async {})).unwrap();
            let lately = runtime.metrics().since(&before);
            lately.wake_ups() > 0 && lately.parks() > 0
        });
    });
}

#[test]
fn foreground_work_interrupts_a_polite_loop_and_is_counted() {
    on_one_worker(async {
        let handle = Handle::current();
        let before = metrics();
        // As a background task, it is polite from its start.
        let polite = spawn_background(async move {
            let foreground = outside(|| {
                giveway::task::Builder::new().class(Class::Foreground).spawn_on(async {}, &handle)
            });
            yield_now_if_busy().await;
            foreground.is_finished()
        });
        assert!(polite.await.unwrap());
        assert!(metrics().since(&before).interrupts > 0);
    });
}

#[test]
fn blocking_jobs_are_counted_where_they_are() {
    let _watch = watch();
    let runtime = giveway::Builder::new()
        .workers(1)
        .max_spare_workers(0)
        .max_blocking_threads(2)
        .build()
        .unwrap();
    let gate = Gate::new();
    let jobs: Vec<_> = (0..5)
        .map(|_| {
            let gate = gate.clone();
            runtime.spawn_blocking(move || gate.wait())
        })
        .collect();
    eventually(|| {
        let now = runtime.metrics();
        (now.blocking_queued, now.blocking_running, now.blocking_threads) == (3, 2, 2)
    });
    gate.open();
    runtime.block_on(async {
        for job in jobs {
            job.await.unwrap();
        }
    });
    eventually(|| runtime.metrics().blocking_running == 0);
    assert_eq!(runtime.metrics().blocking_queued, 0);
}

#[test]
fn tasks_that_wait_are_counted_until_they_end() {
    with_runtimes(|runtime| {
        let tasks: Vec<_> = (0..50).map(|_| runtime.spawn(std::future::pending::<()>())).collect();
        eventually(|| runtime.metrics().tasks == 50);
        tasks.iter().for_each(|task| task.abort());
        eventually(|| runtime.metrics().tasks == 0);
    });
}

#[test]
fn nobody_was_busy_for_longer_than_the_runtime_is_there() {
    with_runtimes(|runtime| {
        for _ in 0..20 {
            runtime.block_on(runtime.spawn(yield_now())).unwrap();
            let metrics = runtime.metrics();
            assert!(
                metrics.workers.iter().all(|worker| worker.busy <= metrics.uptime),
                "{metrics}"
            );
        }
    });
}

#[test]
fn the_table_has_a_line_for_each_worker() {
    with_runtimes(|runtime| {
        let table = runtime.metrics().to_string();
        let workers =
            table.lines().skip_while(|line| !line.contains("hand-offs  ")).skip(1).count();
        assert_eq!(workers, runtime.handle().workers(), "{table}");
        for figure in ["foreground latency", "yield wait", "steals", "injector", "blocking jobs"] {
            assert!(table.contains(figure), "{table}");
        }
    });
}
