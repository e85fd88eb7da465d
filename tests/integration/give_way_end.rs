//! The end of a runtime in which a task or a thread is at a yield point, waits in the yield queue,
//! or never stops being polite.

use giveway::task::JoinHandle;
use giveway::{Runtime, budget, yield_now, yield_now_if_busy};
use giveway_tests::{
    Alive, Drops, Gate, each_runtime, eventually, hold, occupy, on_drop, recv, rounds, runtime,
    watch,
};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

/// Drops `runtime`, whose workers are all kept in a poll until `gate` opens. Opens the gate when
/// the runtime is closing.
fn drop_while_held(runtime: Runtime, gate: &Gate) {
    use futures::task::Spawn;
    let handle = runtime.handle().clone();
    let dropper = thread::spawn(move || drop(runtime));
    eventually(|| handle.status().is_err());
    gate.open();
    dropper.join().unwrap();
}

#[track_caller]
fn assert_cancelled<T>(task: JoinHandle<T>) {
    assert!(futures::executor::block_on(task).is_err_and(|error| error.is_cancelled()));
}

/// What an endless task owns: a value to drop, and a gate to open when it runs.
struct Life {
    _value: Box<dyn Send>,
    running: Gate,
}

impl Life {
    /// Goes on for ever, with no await point but `step`.
    async fn spend<F: Future<Output = ()>>(self, step: impl Fn() -> F) {
        loop {
            step().await;
            self.running.open();
        }
    }
}

/// Starts `tasks` endless tasks, drops the runtime while they run, and asserts that each is dropped
/// with it.
fn end_endless(runtime: Runtime, tasks: usize, spawn: impl Fn(&Runtime, Life) -> JoinHandle<()>) {
    let drops = Drops::of(tasks);
    let lives =
        (0..tasks).map(|i| Life { _value: Box::new(drops.counter(i)), running: Gate::new() });
    let started: Vec<_> = lives.map(|life| (life.running.clone(), spawn(&runtime, life))).collect();
    started.iter().for_each(|(running, _)| running.wait());
    drop(runtime);
    drops.assert_each_once();
    started.into_iter().for_each(|(_, task)| assert_cancelled(task));
}

#[test]
fn an_endless_polite_task_ends_with_its_runtime_while_other_workers_are_idle() {
    each_runtime(2, |runtime| {
        end_endless(runtime, 1, |runtime, life| runtime.spawn(life.spend(yield_now_if_busy)));
    });
}

#[test]
fn endless_polite_tasks_end_with_their_runtime_while_every_worker_is_busy() {
    each_runtime(1, |runtime| {
        let workers = runtime.handle().workers();
        end_endless(runtime, workers, |runtime, life| runtime.spawn(life.spend(yield_now_if_busy)));
    });
}

/// There are twice as many tasks as workers. Each spends its budget and waits for its next turn.
#[test]
fn endless_background_tasks_end_with_their_runtime() {
    each_runtime(1, |runtime| {
        let tasks = 2 * runtime.handle().workers();
        end_endless(runtime, tasks, |runtime, life| {
            runtime.spawn_background(life.spend(budget::consume))
        });
    });
}

/// The runtime closes just as a task gives way, again and again.
#[test]
fn a_runtime_may_end_at_any_moment_of_giving_way() {
    each_runtime(1, |first| {
        let workers = first.handle().workers();
        drop(first);
        for round in rounds(50) {
            let (runtime, alive) = (runtime(workers), Alive::default());
            let steps = Arc::new(AtomicUsize::new(0));
            for i in 0..4 {
                let (held, steps) = (alive.clone(), steps.clone());
                let endless = async move {
                    let _held = held;
                    loop {
                        steps.fetch_add(1, SeqCst);
                        match i {
                            0 => yield_now().await,
                            1 => budget::consume().await,
                            _ => yield_now_if_busy().await,
                        }
                    }
                };
                if i == 1 {
                    runtime.spawn_background(endless);
                } else {
                    runtime.spawn(endless);
                }
            }
            eventually(|| steps.load(SeqCst) > round);
            drop(runtime);
            assert_eq!(Arc::strong_count(&alive), 1);
        }
    });
}

/// The second task is queued before the polite one reaches its yield point, and then keeps the only
/// worker until the runtime closes.
#[test]
fn a_task_in_the_yield_queue_is_dropped_with_its_runtime() {
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let (running, go, dropped) = (Gate::new(), Gate::new(), Gate::new());
    let polite = runtime.spawn({
        let (running, go, dropped) = (running.clone(), go.clone(), dropped.clone());
        async move {
            let _value = on_drop(move || dropped.open());
            running.open();
            go.wait();
            yield_now_if_busy().await;
            unreachable!("the foreground never leaves a worker free");
        }
    });
    running.wait();
    let (started, starts) = mpsc::channel();
    runtime.spawn({
        let gate = gate.clone();
        async move {
            started.send(()).unwrap();
            gate.wait();
        }
    });
    go.open();
    recv(&starts);
    // The polite task has given way, or the other could not run.
    assert!(!dropped.is_open() && !polite.is_finished());
    drop_while_held(runtime, &gate);
    assert!(dropped.is_open());
    assert_cancelled(polite);
}

#[test]
fn a_thousand_tasks_in_the_yield_queue_are_dropped_with_their_runtime() {
    const TASKS: usize = 1_000;
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let (drops, alive) = (Drops::of(TASKS), Alive::default());
    let steps = Arc::new(AtomicUsize::new(0));
    let (started, starts) = mpsc::channel();
    runtime.spawn({
        let (drops, alive, steps, gate) =
            (drops.clone(), alive.clone(), steps.clone(), gate.clone());
        async move {
            for i in 0..TASKS {
                let (steps, values) = (steps.clone(), (drops.counter(i), alive.clone()));
                let polite = async move {
                    let _values = values;
                    loop {
                        steps.fetch_add(1, SeqCst);
                        yield_now_if_busy().await;
                    }
                };
                if i % 3 == 0 {
                    giveway::spawn_background(polite)
                } else {
                    giveway::spawn(polite)
                };
            }
            drop((drops, alive));
            // If no other task takes a step in two hundred turns in a row, with looks at the
            // injector among them, all the others are in the yield queue.
            let (mut in_a_row, mut seen) = (0, 0);
            while in_a_row < 200 {
                yield_now().await;
                let now = steps.load(SeqCst);
                in_a_row = if now == seen { in_a_row + 1 } else { 0 };
                seen = now;
            }
            started.send(()).unwrap();
            gate.wait();
        }
    });
    recv(&starts);
    assert_eq!(Arc::strong_count(&alive), 1 + TASKS);
    drop_while_held(runtime, &gate);
    drops.assert_each_once();
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// There are more tasks than any deque holds, and none of them ever ran.
#[test]
fn thousands_of_queued_background_tasks_are_dropped_once_each() {
    each_runtime(1, |runtime| {
        const TASKS: usize = 5_000;
        let (drops, gate) = (Drops::of(TASKS), Gate::new());
        let workers = runtime.handle().workers();
        occupy(runtime.handle(), workers, &gate);
        let mut kept = Vec::new();
        for i in 0..TASKS {
            let task = runtime.spawn_background(hold(drops.counter(i)));
            if i % 2 == 0 {
                kept.push(task);
            }
        }
        drop_while_held(runtime, &gate);
        drops.assert_each_once();
        kept.into_iter().for_each(assert_cancelled);
    });
}

/// The thread waits in the yield queue, or is about to, when the last worker ends.
#[test]
fn block_on_at_a_yield_point_survives_the_end_of_its_runtime() {
    use futures::task::Spawn;
    let _watch = watch();
    for round in 0..50 {
        let (runtime, gate) = (runtime(1 + round % 2), Gate::new());
        let handle = runtime.handle().clone();
        occupy(&handle, handle.workers(), &gate);
        // The yield points below give way to this task until the end.
        let queued = runtime.spawn(async {});
        let (started, starts) = mpsc::channel();
        let thread = thread::spawn({
            let handle = handle.clone();
            move || {
                handle.block_on(async {
                    while handle.status().is_ok() {
                        started.send(()).unwrap();
                        yield_now_if_busy().await;
                    }
                    // None of these yield points waits: the runtime is closed.
                    for _ in 0..100 {
                        yield_now_if_busy().await;
                    }
                });
            }
        });
        if round % 3 > 0 {
            recv(&starts);
        }
        if round % 5 == 0 {
            gate.open();
        }
        drop_while_held(runtime, &gate);
        thread.join().unwrap();
        drop(queued);
    }
}

/// The future gives way while the runtime is open, and waits in the yield queue when no worker is
/// left to take it out.
#[test]
fn block_on_may_end_its_runtime_in_the_poll_in_which_it_gives_way() {
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let handle = runtime.handle().clone();
    occupy(&handle, 1, &gate);
    let queued = runtime.spawn(async {});
    handle.block_on(async {
        futures::join!(yield_now_if_busy(), async { drop_while_held(runtime, &gate) })
    });
    assert_cancelled(queued);
}

/// Returns a runtime whose only worker is in a poll until the gate opens, with one more task
/// queued. A yield point outside of the worker gives way to that task, and no worker comes.
fn held_up() -> (Runtime, Gate) {
    let (runtime, gate) = (runtime(1), Gate::new());
    drop(occupy(runtime.handle(), 1, &gate));
    runtime.spawn(async {});
    (runtime, gate)
}

#[test]
fn closing_releases_a_block_on_that_has_given_way_though_no_worker_comes() {
    let _watch = watch();
    let (runtime, gate) = held_up();
    let (handle, giving_way) = (runtime.handle().clone(), Gate::new());
    let closer = thread::spawn({
        let giving_way = giving_way.clone();
        move || {
            giving_way.wait();
            runtime.shutdown_background();
        }
    });
    handle.block_on(async {
        futures::join!(yield_now_if_busy(), async { giving_way.open() });
    });
    gate.open();
    closer.join().unwrap();
}

#[test]
fn a_block_on_that_closes_its_runtime_in_the_poll_in_which_it_gives_way_goes_on() {
    let _watch = watch();
    let (runtime, gate) = held_up();
    let handle = runtime.handle().clone();
    handle.block_on(async {
        futures::join!(yield_now_if_busy(), async { runtime.shutdown_background() });
    });
    gate.open();
}
