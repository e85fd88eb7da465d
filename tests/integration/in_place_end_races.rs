//! The end of a runtime at any moment of a hand-off: threads that wait are released, tasks whose
//! threads are away are named in the report, and no task is forgotten.

use super::in_place::lose_core;
use super::io_common::Random;
use giveway::task::Builder;
use giveway::time::{Duration, sleep};
use giveway::{block_in_place, block_on, spawn, spawn_blocking, yield_now};
use giveway_tests::{
    Drops, Gate, HANG, each_runtime, eventually, hold, isolated, on_drop, recv, rounds, runtime,
    watch,
};
use std::sync::mpsc;
use std::thread;

/// tokio 6463: the call hung, because no thread was left to serve timers. Here the timer is served
/// until the call has returned.
#[test]
fn a_nested_block_on_that_waits_for_a_timer_returns_while_its_runtime_is_dropped() {
    each_runtime(1, |first| {
        let workers = first.handle().workers();
        drop(first);
        for round in 0..30 {
            let (runtime, entered) = (runtime(workers), Gate::new());
            let enters = entered.clone();
            let task = runtime.spawn(async move {
                enters.open();
                block_on(sleep(Duration::from_micros(100 * round)));
                3
            });
            entered.wait();
            drop(runtime);
            // If the runtime closed before `block_on` began to block, `block_on` panics and says
            // so.
            match futures::executor::block_on(task) {
                Ok(three) => assert_eq!(three, 3),
                Err(error) => assert!(
                    error.to_string().contains("while the runtime is being shut down"),
                    "{error}"
                ),
            }
        }
    });
}

/// The nested `block_on` waits for a task that is queued on the core that its own thread has lent,
/// or is about to lend. At the end of the runtime that task is dropped, whichever thread does it,
/// and the wait is over.
#[test]
fn a_nested_block_on_that_waits_for_a_task_returns_while_its_runtime_is_dropped() {
    isolated(
        "in_place_end_races::a_nested_block_on_that_waits_for_a_task_returns_while_its_runtime_is_dropped",
        || {
            for round in rounds(300) {
                let _watch = watch();
                let (runtime, entered) = (runtime(1 + round % 2), Gate::new());
                let enters = entered.clone();
                let task = runtime.spawn(async move {
                    let other = spawn(std::future::pending::<()>());
                    enters.open();
                    drop(block_on(other));
                });
                entered.wait();
                (0..round % 50 * 100).for_each(|_| std::hint::spin_loop());
                drop(runtime);
                if let Err(error) = futures::executor::block_on(task) {
                    assert!(
                        error.to_string().contains("while the runtime is being shut down"),
                        "{error}"
                    );
                }
            }
        },
    );
}

/// What is queued behind a task in `block_in_place` is dropped, although the runtime closes before
/// any thread has come for the core.
#[test]
fn what_is_queued_behind_a_task_in_place_is_dropped_while_the_runtime_closes() {
    isolated(
        "in_place_end_races::what_is_queued_behind_a_task_in_place_is_dropped_while_the_runtime_closes",
        || {
            for round in rounds(100) {
                let _watch = watch();
                let (runtime, entered, dropped) = (runtime(1), Gate::new(), Gate::new());
                let (enters, drops) = (entered.clone(), dropped.clone());
                let task = runtime.spawn(async move {
                    let queued = spawn(hold(on_drop(move || drops.open())));
                    block_in_place(|| {
                        enters.open();
                        dropped.wait();
                    });
                    drop(queued);
                });
                entered.wait();
                (0..round * 50).for_each(|_| std::hint::spin_loop());
                drop(runtime);
                futures::executor::block_on(task).unwrap();
            }
        },
    );
}

/// Everything at once, at most two hundred times, each time with the end at another random moment.
#[test]
fn a_runtime_may_end_at_any_moment_of_a_hand_off() {
    isolated("in_place_end_races::a_runtime_may_end_at_any_moment_of_a_hand_off", || {
        let mut random = Random(1);
        for round in rounds(200) {
            let _watch = watch();
            let (runtime, drops) = (runtime([1, 2, 8][round % 3]), Drops::of(13));
            let (begun, begins) = mpsc::channel();
            for i in 0..12 {
                let (counter, begun) = (drops.counter(i), begun.clone());
                let pause = Duration::from_micros(random.below(300) as u64);
                let task = async move {
                    let _counter = counter;
                    loop {
                        // The receiver may be gone: the round is over then.
                        let _ = begun.send(());
                        match i % 4 {
                            0 => block_in_place(|| thread::sleep(pause)),
                            1 => block_in_place(|| ()),
                            2 => block_in_place(|| _ = block_on(spawn_blocking(|| ()))),
                            _ => sleep(pause).await,
                        }
                        yield_now().await;
                    }
                };
                if i % 3 == 0 {
                    runtime.spawn_background(task)
                } else {
                    runtime.spawn(task)
                };
            }
            drop(runtime.spawn(hold(drops.counter(12))));
            (0..random.below(60)).for_each(|_| recv(&begins));
            (0..random.below(5_000)).for_each(|_| std::hint::spin_loop());
            match random.below(4) {
                0 => {
                    let report = runtime.shutdown_timeout(HANG);
                    assert!(report.is_clean(), "{report}");
                }
                1 => {
                    let handle = runtime.handle().clone();
                    // On one of the runtime's own threads.
                    drop(handle.spawn_blocking(move || drop(runtime)));
                    drop(begun);
                    while begins.recv().is_ok() {}
                }
                _ => drop(runtime),
            }
            eventually(|| drops.all_once());
            drops.assert_each_once();
        }
    });
}

/// The report tells what goes on at that moment. A task that lost its core in one call, and is in
/// place once more without a core, is named all the same. It is named as well after several tasks
/// or polls have lent the same core, one after the other.
#[test]
fn the_report_names_the_task_however_often_the_core_has_changed_hands() {
    isolated(
        "in_place_end_races::the_report_names_the_task_however_often_the_core_has_changed_hands",
        || {
            for round in 0..60 {
                let _watch = watch();
                let (runtime, gate, entered) = (runtime(1), Gate::new(), Gate::new());
                let (waits, enters) = (gate.clone(), entered.clone());
                let blocked = Builder::new().name("mule").spawn_on(
                    async move {
                        for _ in 0..round % 10 {
                            lose_core();
                            yield_now().await;
                        }
                        lose_core();
                        block_in_place(|| {
                            enters.open();
                            waits.wait();
                        });
                    },
                    runtime.handle(),
                );
                entered.wait();
                let report = runtime.shutdown_timeout(Duration::from_millis(1));
                assert!(
                    report.stuck_tasks().iter().any(|task| task.id() == blocked.id()),
                    "{report}"
                );
                assert!(report.to_string().contains("\"mule\""), "{report}");
                gate.open();
                futures::executor::block_on(blocked).unwrap();
            }
        },
    );
}

/// A single place in the program. After its first calls it is known to block for long.
fn from_one_place(gate: &Gate) {
    block_in_place(|| gate.wait());
}

/// A task blocks on a core whose home thread comes back at that moment. The home thread and the
/// thread that was sent for the core both come for it, and one of them fails. That one must not
/// remove the entry of the thread that is away.
#[test]
fn a_thread_that_comes_in_vain_for_a_core_leaves_the_report_as_it_was() {
    isolated(
        "in_place_end_races::a_thread_that_comes_in_vain_for_a_core_leaves_the_report_as_it_was",
        || {
            for round in rounds(100) {
                let _watch = watch();
                let runtime = runtime(1);
                let (home, gate, entered) = (Gate::new(), Gate::new(), Gate::new());
                // These jobs leave idle threads in the crew, so that one comes for the core soon.
                let jobs: Vec<_> = (0..3).map(|_| runtime.spawn_blocking(|| ())).collect();
                jobs.into_iter().for_each(|job| runtime.block_on(job).unwrap());
                let (opens, waits, enters) = (home.clone(), gate.clone(), entered.clone());
                let first = runtime.spawn(async move {
                    let second = Builder::new().name("second").spawn(async move {
                        // The home thread is on its way to the core, and this thread is about to
                        // lend it.
                        opens.open();
                        (0..round * 20).for_each(|_| std::hint::spin_loop());
                        enters.open();
                        from_one_place(&waits);
                    });
                    from_one_place(&home);
                    (second,)
                });
                let (second,) = runtime.block_on(first).unwrap();
                entered.wait();
                // These tasks run, so another thread holds the core: `second` has lost it.
                (0..20).for_each(|_| runtime.block_on(runtime.spawn(async {})).unwrap());
                let report = runtime.shutdown_timeout(Duration::from_millis(1));
                assert!(
                    report.stuck_tasks().iter().any(|task| task.id() == second.id()),
                    "round {round}: {report}"
                );
                gate.open();
                futures::executor::block_on(second).unwrap();
            }
        },
    );
}
