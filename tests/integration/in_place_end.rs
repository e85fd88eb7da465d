//! The end of a runtime while a task blocks in place: on its core, without one, or with its home
//! thread on the way back to the core.

use super::in_place::lose_core;
use futures::task::Spawn;
use giveway::task::{Builder, JoinHandle};
use giveway::time::Duration;
use giveway::{Runtime, block_in_place, spawn, yield_now};
use giveway_tests::{
    Alive, Drops, Gate, Wakers, each_runtime, eventually, hold, isolated, recv, runtime, watch,
};
use std::sync::{Arc, mpsc};
use std::thread;

/// Spawns a task that blocks in place until `gate` opens, on its core or after it has lost it.
/// Returns when the task blocks.
fn in_place(runtime: &Runtime, name: &str, lose: bool, gate: &Gate) -> JoinHandle<()> {
    let (entered, waits) = (Gate::new(), gate.clone());
    let enters = entered.clone();
    let task = async move {
        block_in_place(|| {
            if lose {
                lose_core_inside();
            }
            enters.open();
            waits.wait();
        });
    };
    let task = Builder::new().name(name).spawn_on(task, runtime.handle());
    entered.wait();
    task
}

/// Blocks, in a closure that is in place already, until another task has run. With one worker, that
/// task runs on another thread.
fn lose_core_inside() {
    let gate = Gate::new();
    let opens = gate.clone();
    spawn(async move { opens.open() });
    gate.wait();
}

/// tokio 2119: a racy deadlock at shutdown with `block_in_place`.
#[test]
fn a_drop_waits_for_a_task_in_place_and_drops_every_task_once() {
    for lose in [false, true] {
        each_runtime(1, |runtime| {
            let (drops, wakers, gate) = (Drops::of(40), Wakers::default(), Gate::new());
            let _waiting: Vec<_> =
                (0..20).map(|i| runtime.spawn(wakers.park(drops.counter(i)))).collect();
            eventually(|| wakers.len() == 20);
            let blocked = in_place(&runtime, "mule", lose, &gate);
            let _queued: Vec<_> = (20..40).map(|i| runtime.spawn(hold(drops.counter(i)))).collect();
            let handle = runtime.handle().clone();
            let dropper = thread::spawn(move || drop(runtime));
            eventually(|| handle.status().is_err());
            assert!(!dropper.is_finished() && !blocked.is_finished());
            gate.open();
            dropper.join().unwrap();
            drops.assert_each_once();
            futures::executor::block_on(blocked).expect("it had nothing left to wait for");
        });
    }
}

#[test]
fn a_shutdown_with_a_deadline_names_the_task_in_place_and_drops_the_rest() {
    for lose in [false, true] {
        each_runtime(1, |runtime| {
            let (alive, wakers, gate) = (Alive::default(), Wakers::default(), Gate::new());
            let _waiting: Vec<_> =
                (0..10).map(|_| runtime.spawn(wakers.park(alive.clone()))).collect();
            eventually(|| wakers.len() == 10);
            let blocked = in_place(&runtime, "mule", lose, &gate);
            let _queued: Vec<_> = (0..10).map(|_| runtime.spawn(hold(alive.clone()))).collect();
            let workers = runtime.handle().workers();
            let report = runtime.shutdown_timeout(Duration::from_millis(50));
            let named: Vec<_> =
                report.stuck_tasks().iter().filter(|task| task.id() == blocked.id()).collect();
            let [task] = named[..] else { panic!("the task is named once: {report}") };
            assert_eq!(task.name(), Some("mule"));
            assert!(!task.is_blocking_job());
            if lose && workers == 1 {
                assert_eq!(task.worker(), None, "{report}");
                assert!(task.to_string().contains("blocks in place"), "{task}");
            }
            eventually(|| Arc::strong_count(&alive) == 1);
            assert!(!blocked.is_finished());
            gate.open();
            futures::executor::block_on(blocked).unwrap();
        });
    }
}

#[test]
fn a_shutdown_in_the_background_lets_the_task_in_place_finish() {
    for lose in [false, true] {
        each_runtime(1, |runtime| {
            let (alive, wakers, gate) = (Alive::default(), Wakers::default(), Gate::new());
            let waiting = runtime.spawn(wakers.park(alive.clone()));
            eventually(|| wakers.len() == 1);
            let blocked = in_place(&runtime, "mule", lose, &gate);
            runtime.shutdown_background();
            assert!(!blocked.is_finished());
            gate.open();
            futures::executor::block_on(blocked).unwrap();
            assert!(futures::executor::block_on(waiting).unwrap_err().is_cancelled());
            eventually(|| Arc::strong_count(&alive) == 1);
        });
    }
}

/// Such a task ends at its next await.
#[test]
fn a_task_that_is_in_place_again_and_again_ends_with_its_runtime() {
    each_runtime(1, |runtime| {
        let tasks = 2 * runtime.handle().workers();
        let drops = Drops::of(tasks);
        let gates: Vec<_> = (0..tasks).map(|_| Gate::new()).collect();
        for (i, gate) in gates.iter().enumerate() {
            let (counter, gate) = (drops.counter(i), gate.clone());
            runtime.spawn(async move {
                let _counter = counter;
                loop {
                    block_in_place(|| thread::sleep(Duration::from_micros(50)));
                    yield_now().await;
                    gate.open();
                }
            });
        }
        gates.iter().for_each(Gate::wait);
        drop(runtime);
        drops.assert_each_once();
    });
}

/// tokio 6596: a task that was woken into the slot just before the call was stranded there for as
/// long as the call took. Here the runtime ends during the call.
#[test]
fn a_task_in_the_slot_behind_a_task_in_place_is_dropped_at_shutdown() {
    each_runtime(1, |runtime| {
        let (drops, entered, gate) = (Drops::of(2), Gate::new(), Gate::new());
        let (counters, enters, waits) =
            ((drops.counter(0), drops.counter(1)), entered.clone(), gate.clone());
        let blocked = runtime.spawn(async move {
            let (wake, woken) = async_channel::bounded::<()>(1);
            let waiting = spawn(async move {
                let _counter = counters.0;
                woken.recv().await.unwrap();
                std::future::pending::<()>().await;
            });
            yield_now().await;
            wake.try_send(()).unwrap();
            let spawned = spawn(hold(counters.1));
            block_in_place(|| {
                enters.open();
                waits.wait();
            });
            (waiting, spawned)
        });
        entered.wait();
        let handle = runtime.handle().clone();
        let dropper = thread::spawn(move || drop(runtime));
        eventually(|| handle.status().is_err());
        gate.open();
        dropper.join().unwrap();
        drops.assert_each_once();
        if let Ok((waiting, spawned)) = futures::executor::block_on(blocked) {
            assert!(futures::executor::block_on(waiting).unwrap_err().is_cancelled());
            assert!(futures::executor::block_on(spawned).unwrap_err().is_cancelled());
        }
    });
}

/// tokio 6596 without the end of the runtime: the woken task runs, although its worker stays in
/// place.
#[test]
fn a_task_woken_into_the_slot_just_before_runs_while_the_other_is_in_place() {
    each_runtime(1, |runtime| {
        for _ in 0..20 {
            let task = runtime.spawn(async {
                let ((wake, woken), (ran, runs)) =
                    (async_channel::bounded::<()>(1), mpsc::channel());
                spawn(async move {
                    woken.recv().await.unwrap();
                    ran.send(()).unwrap();
                });
                yield_now().await;
                wake.try_send(()).unwrap();
                block_in_place(|| recv(&runs));
            });
            runtime.block_on(task).unwrap();
        }
    });
}

#[test]
fn in_place_in_a_runtime_that_closes_is_just_a_call() {
    for lose in [false, true] {
        each_runtime(1, |runtime| {
            let handle = runtime.handle().clone();
            let task = handle.spawn(async move {
                if lose {
                    lose_core();
                }
                drop(runtime);
                let sum = block_in_place(|| 1 + block_in_place(|| 2));
                // The runtime closes, so this poll is the last. The task finishes in it.
                (sum, giveway::task::id(), block_in_place(|| spawn(async {})).is_finished())
            });
            let id = task.id();
            assert_eq!(futures::executor::block_on(task).unwrap(), (3, id, true));
        });
    }
}

/// The home thread has returned from its poll and waits for its core. The core's holder is in a
/// poll that does not return.
#[test]
fn a_runtime_ends_while_a_home_thread_waits_for_its_core() {
    isolated("in_place_end::a_runtime_ends_while_a_home_thread_waits_for_its_core", || {
        for end in 0..3 {
            let _watch = watch();
            let (runtime, held, gate) = (runtime(1), Gate::new(), Gate::new());
            let drops = Drops::of(2);
            let (holds, waits, counter) = (held.clone(), gate.clone(), drops.counter(0));
            let first = runtime.spawn(async move {
                let stuck = Builder::new().name("holder").spawn(async move {
                    let _counter = counter;
                    holds.open();
                    waits.wait();
                });
                block_in_place(|| held.wait());
                (stuck,)
            });
            let (stuck,) = runtime.block_on(first).unwrap();
            let queued = runtime.spawn(hold(drops.counter(1)));
            let handle = runtime.handle().clone();
            let ender = thread::spawn(move || match end {
                0 => drop(runtime),
                1 => {
                    let report = runtime.shutdown_timeout(Duration::from_millis(30));
                    assert!(report.to_string().contains("\"holder\""), "{report}");
                }
                _ => runtime.shutdown_background(),
            });
            eventually(|| handle.status().is_err());
            if end > 0 {
                ender.join().unwrap();
                gate.open();
            } else {
                gate.open();
                ender.join().unwrap();
            }
            futures::executor::block_on(stuck).unwrap();
            assert!(futures::executor::block_on(queued).unwrap_err().is_cancelled());
            eventually(|| drops.all_once());
        }
    });
}
