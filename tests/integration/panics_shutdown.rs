//! A panic that shuts the runtime down also ends every `block_on` that waits in that runtime: each
//! panics and tells of the first panic, instead of waiting for ever.

use giveway::task::Builder;
use giveway::{PanicPolicy, Runtime, block_on, spawn_blocking, yield_now};
use giveway_tests::{Gate, isolated, on_drop, panic_of, recv, watch, worker_counts};
use std::future::pending;
use std::sync::mpsc;
use std::thread;

fn shut_down_by_panic(workers: usize) -> Runtime {
    giveway::Builder::new()
        .workers(workers)
        .max_spare_workers(0)
        .on_task_panic(|_| PanicPolicy::Shutdown)
        .build()
        .unwrap()
}

/// Spawns a task that panics when the gate opens. Returns its id.
fn bomb(runtime: &Runtime, gate: &Gate) -> giveway::task::Id {
    let waits = gate.clone();
    let job = async move {
        giveway::block_in_place(|| waits.wait());
        panic!("the last straw");
    };
    Builder::new().name("camel").spawn_on(job, runtime.handle()).id()
}

#[track_caller]
fn assert_tells(message: &str, id: giveway::task::Id) {
    let task = format!("task \"camel\" ({id}), spawned at tests/integration/panics_shutdown.rs:");
    for part in [
        &task,
        "panicked with message \"the last straw\"",
        "PanicPolicy::Shutdown",
        "`block_on` was called at",
    ] {
        assert!(message.contains(part), "{part:?} is missing: {message}");
    }
}

#[test]
fn a_block_on_that_waits_ends_with_the_panic_that_shut_its_runtime_down() {
    for workers in worker_counts() {
        let _watch = watch();
        let (runtime, gate) = (shut_down_by_panic(workers), Gate::new());
        let id = bomb(&runtime, &gate);
        let message = panic_of(|| {
            runtime.block_on(async {
                gate.open();
                pending::<()>().await;
            })
        });
        assert_tells(&message, id);
        drop(runtime);
    }
}

#[test]
fn every_thread_that_waits_in_block_on_is_told() {
    for workers in worker_counts() {
        let _watch = watch();
        let (runtime, gate, (wait, waits)) =
            (shut_down_by_panic(workers), Gate::new(), mpsc::channel());
        let id = bomb(&runtime, &gate);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (handle, wait) = (runtime.handle().clone(), wait.clone());
                thread::spawn(move || {
                    panic_of(|| {
                        handle.block_on(async {
                            wait.send(()).unwrap();
                            pending::<()>().await;
                        })
                    })
                })
            })
            .collect();
        (0..4).for_each(|_| recv(&waits));
        gate.open();
        threads.into_iter().for_each(|thread| assert_tells(&thread.join().unwrap(), id));
    }
}

/// Results that can still come do come: those of the handles of tasks and jobs.
#[test]
fn a_block_on_that_waits_for_handles_gets_their_results_first() {
    for workers in worker_counts() {
        let _watch = watch();
        let (runtime, gate, goes_on) = (shut_down_by_panic(workers), Gate::new(), Gate::new());
        let (waits, (begun, begins)) = (goes_on.clone(), mpsc::channel());
        let other = runtime.spawn(pending::<()>());
        let job = runtime.spawn_blocking(move || {
            begun.send(()).unwrap();
            waits.wait();
            5
        });
        recv(&begins);
        let id = bomb(&runtime, &gate);
        // On a machine so slow that the grace runs out first, the drop of the runtime waits for the
        // job. Then this lets the job go on.
        let opens = goes_on.clone();
        let _opened = on_drop(move || opens.open());
        let message = panic_of(|| {
            runtime.block_on(async {
                gate.open();
                assert!(other.await.unwrap_err().is_cancelled());
                goes_on.open();
                assert_eq!(job.await.unwrap(), 5);
                yield_now().await;
                pending::<()>().await;
            })
        });
        assert_tells(&message, id);
    }
}

#[test]
fn a_block_on_after_such_a_shutdown_panics_only_if_it_has_to_wait() {
    for workers in worker_counts() {
        let _watch = watch();
        let (runtime, gate) = (shut_down_by_panic(workers), Gate::new());
        let id = bomb(&runtime, &gate);
        gate.open();
        assert_tells(&panic_of(|| runtime.block_on(pending::<()>())), id);
        for _ in 0..3 {
            assert_eq!(runtime.block_on(async { 5 }), 5);
            runtime.block_on(async {
                for _ in 0..10 {
                    yield_now().await; // woken, so it does not wait
                }
            });
            assert!(runtime.block_on(runtime.spawn(async {})).unwrap_err().is_cancelled());
            assert_tells(&panic_of(|| runtime.block_on(pending::<()>())), id);
            // Inside of another `block_on`, which goes on.
            let message = runtime.block_on(async { panic_of(|| block_on(pending::<()>())) });
            assert_tells(&message, id);
        }
    }
}

/// The runtime does not end before such a poll or job does. `block_on` gives them some seconds.
#[test]
fn a_block_on_beside_a_poll_that_never_returns_ends_too_and_so_does_one_inside_a_task_or_a_job() {
    let test = "panics_shutdown::a_block_on_beside_a_poll_that_never_returns_ends_too_and_so_does_one_inside_a_task_or_a_job";
    isolated(test, || {
        let _watch = watch();
        // Beside a poll that never returns.
        let beside = thread::spawn(|| {
            let (runtime, gate, forever) = (shut_down_by_panic(2), Gate::new(), Gate::new());
            let (stuck, (begun, begins)) = (forever.clone(), mpsc::channel());
            let _open = on_drop(move || forever.open());
            runtime.spawn(async move {
                begun.send(()).unwrap();
                stuck.wait();
            });
            recv(&begins);
            let id = bomb(&runtime, &gate);
            gate.open();
            assert_tells(&panic_of(|| runtime.block_on(pending::<()>())), id);
            runtime.shutdown_background();
        });
        let inside = [false, true].map(|in_job| {
            thread::spawn(move || {
                let (runtime, gate) = (shut_down_by_panic(1), Gate::new());
                let (begun, begins) = mpsc::channel();
                let wait = move || {
                    panic_of(|| {
                        block_on(async {
                            begun.send(()).unwrap();
                            pending::<()>().await;
                        })
                    })
                };
                let inside = runtime.enter();
                let waits = if in_job {
                    spawn_blocking(wait)
                } else {
                    giveway::spawn(async move { wait() })
                };
                drop(inside);
                recv(&begins);
                let id = bomb(&runtime, &gate);
                gate.open();
                assert_tells(&futures::executor::block_on(waits).unwrap(), id);
            })
        });
        beside.join().unwrap();
        inside.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
