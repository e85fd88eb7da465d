//! `block_on` inside of a task: what it waits for may be queued on the very worker that it blocks.

use super::in_place::lose_core;
use super::io_common::{echo_server, round_trips};
use giveway::net::TcpStream;
use giveway::task::{self, Class};
use giveway::time::{Duration, sleep};
use giveway::{
    Handle, block_in_place, block_on, spawn, spawn_blocking, yield_now, yield_now_if_busy,
};
use giveway_tests::{
    Gate, Wakers, each_runtime, eventually, hold, message, on_drop, on_one_worker, recv, runtime,
};
use giveway_tests::{watch, with_runtimes};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

const NAP: Duration = Duration::from_millis(2);

#[test]
fn it_waits_for_a_task_of_the_same_worker() {
    on_one_worker(async {
        for i in 0..50 {
            assert_eq!(block_on(spawn(async move { i })).unwrap(), i);
            if i % 3 == 0 {
                yield_now().await;
            }
        }
    });
}

/// Ten tasks deep, each waits for the next. Every one of them blocks a thread, and the last one
/// still finds a core.
#[test]
fn it_nests_as_deep_as_there_are_threads() {
    fn descend(depth: usize) -> usize {
        if depth == 0 { 0 } else { 1 + block_on(spawn(async move { descend(depth - 1) })).unwrap() }
    }
    with_runtimes(|runtime| {
        assert_eq!(runtime.block_on(runtime.spawn(async { descend(10) })).unwrap(), 10)
    });
}

#[test]
fn it_nests_in_itself_within_one_task() {
    on_one_worker(async {
        let sum = block_on(async {
            let inner = block_on(async {
                let first = spawn(async { 1 }).await.unwrap();
                first + block_on(spawn(async { 2 })).unwrap()
            });
            inner + spawn(async { 4 }).await.unwrap()
        });
        assert_eq!(sum, 7);
    });
}

/// tokio 5239: `block_in_place` with a `block_on` between it and another `block_in_place` panicked,
/// because it had taken a core that was not its own.
#[test]
fn it_nests_with_blocking_in_place_in_turn() {
    on_one_worker(async {
        let id = task::id();
        for lose in [false, true, false] {
            let sum = block_in_place(|| {
                1 + block_on(async {
                    let inner = block_in_place(|| {
                        if lose {
                            lose_core();
                        }
                        block_on(async { spawn(async { 2 }).await.unwrap() })
                    });
                    yield_now().await;
                    inner + block_in_place(|| 4)
                })
            });
            assert_eq!((sum, task::id()), (7, id));
            spawn(async {}).await.unwrap();
        }
    });
}

#[test]
fn it_waits_for_a_timer() {
    with_runtimes(|runtime| {
        let all = 2 * runtime.handle().workers();
        let tasks: Vec<_> = (0..all)
            .map(|_| {
                runtime.spawn(async {
                    for _ in 0..3 {
                        block_on(sleep(NAP));
                        sleep(NAP).await;
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

#[test]
fn it_waits_for_a_socket() {
    with_runtimes(|runtime| {
        let address = runtime.block_on(echo_server());
        let task = runtime.spawn(async move {
            let mut stream = block_on(TcpStream::connect(address)).unwrap();
            block_on(round_trips(&mut stream, 1, 20));
            round_trips(&mut stream, 2, 20).await;
            block_on(round_trips(&mut stream, 3, 20));
        });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn it_waits_for_a_blocking_job() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(async {
            // The job itself waits for a task of the same runtime.
            block_on(spawn_blocking(|| block_on(spawn(async { 5 })).unwrap())).unwrap()
        });
        assert_eq!(runtime.block_on(task).unwrap(), 5);
    });
}

/// `there` serves the future. The thread of `here` has lent its core for that time.
#[test]
fn it_blocks_on_another_runtime_which_waits_for_this_one() {
    let _watch = watch();
    let (here, there) = (runtime(1), runtime(1));
    let (left, right) = (here.handle().clone(), there.handle().clone());
    let task = here.spawn(async move {
        let answer = right.block_on(async {
            assert!(spawn(async { task::try_id().is_some() }).await.unwrap());
            sleep(NAP).await;
            // Queued on the core that this very thread has lent.
            left.spawn(async { 3 }).await.unwrap()
        });
        let other = right.spawn(async move { left.block_on(left.spawn(async { 4 })).unwrap() });
        answer + block_on(other).unwrap()
    });
    assert_eq!(here.block_on(task).unwrap(), 7);
}

#[test]
fn a_task_of_another_runtime_is_waited_for() {
    let _watch = watch();
    let (here, there) = (runtime(1), runtime(2));
    let elsewhere = there.spawn(async {
        sleep(NAP).await;
        6
    });
    let task = here.spawn(async move { block_on(elsewhere).unwrap() });
    assert_eq!(here.block_on(task).unwrap(), 6);
}

#[test]
fn the_task_is_who_it_was_inside_and_after() {
    let _watch = watch();
    let runtime = runtime(1);
    let task = runtime.spawn_background(async {
        let whoami = || (task::id(), task::class(), Handle::current().workers());
        let me = whoami();
        assert_eq!(me.1, Class::Background);
        block_on(async {
            assert_eq!(whoami(), me);
            assert_eq!(
                spawn(async { task::class() }).await.unwrap(),
                Class::Background,
                "inherited"
            );
            assert_eq!(whoami(), me);
        });
        assert_eq!(whoami(), me);
        yield_now().await;
        assert_eq!(whoami(), me);
    });
    runtime.block_on(task).unwrap();
}

/// The task waits in the yield queue, which is served by the core that its thread has lent.
#[test]
fn a_yield_point_in_it_gives_way_and_comes_back() {
    on_one_worker(async {
        for _ in 0..20 {
            let (ran, runs) = mpsc::channel();
            let handle = Handle::current();
            giveway_tests::outside(|| handle.spawn(async move { ran.send(()).unwrap() }));
            block_on(async {
                yield_now_if_busy().await;
                yield_now().await;
            });
            block_in_place(|| recv(&runs));
        }
    });
}

#[test]
fn a_panic_in_it_is_the_task_s() {
    with_runtimes(|runtime| {
        for wait in [false, true] {
            let task = runtime.spawn(async move {
                block_on(async {
                    if wait {
                        spawn(async {}).await.unwrap();
                    }
                    panic!("nested")
                })
            });
            assert_eq!(message(&*runtime.block_on(task).unwrap_err().into_panic()), "nested");
        }
        runtime.block_on(runtime.spawn(async { block_on(spawn(async {})).unwrap() })).unwrap();
    });
}

/// A `block_on` that no thread would serve panics and says so. One that is ready, or served after
/// all, returns. None hangs.
#[test]
fn in_a_destructor_during_shutdown_it_panics_clearly_or_returns() {
    each_runtime(1, |runtime| {
        const TASKS: usize = 12;
        let (ended, ends) = mpsc::channel();
        let wakers = Wakers::default();
        for i in 0..TASKS {
            let ended = ended.clone();
            runtime.spawn(wakers.park(on_drop(move || {
                let end = catch_unwind(AssertUnwindSafe(|| match i % 4 {
                    0 => block_on(async {}),
                    1 => block_on(sleep(NAP)),
                    2 => assert!(block_on(spawn(async {})).unwrap_err().is_cancelled()),
                    _ => assert!(block_on(spawn_blocking(|| ())).unwrap_err().is_cancelled()),
                }));
                ended.send(end.map_err(|panic| message(&*panic))).unwrap();
            })));
        }
        drop(ended);
        eventually(|| wakers.len() == TASKS);
        drop(runtime);
        let ends = giveway_tests::drain(&ends);
        assert_eq!(ends.len(), TASKS);
        for panic in ends.into_iter().filter_map(Result::err) {
            assert!(panic.contains("a destructor during shutdown"), "{panic}");
        }
    });
}

/// The call is made in the poll that has dropped the runtime, with and without a core.
#[test]
fn in_the_task_that_shuts_its_runtime_down_it_panics_clearly_or_returns() {
    for lose in [false, true] {
        each_runtime(1, |runtime| {
            let handle = runtime.handle().clone();
            let task = handle.spawn(async move {
                if lose {
                    lose_core();
                }
                drop(runtime);
                catch_unwind(|| block_on(async { sleep(NAP).await }))
                    .map_err(|panic| message(&*panic))
            });
            if let Err(panic) = futures::executor::block_on(task).unwrap() {
                assert!(panic.contains("a destructor during shutdown"), "{panic}");
            }
        });
    }
}

/// The task that blocks drops its own runtime. The drop does not wait for that task.
#[test]
fn the_runtime_is_dropped_inside_of_it() {
    for wait in [false, true] {
        each_runtime(1, |runtime| {
            let handle = runtime.handle().clone();
            let waiting = handle.spawn(hold(()));
            let task = handle.spawn(async move {
                block_on(async {
                    if wait {
                        // With a single worker, another thread has the core by now.
                        spawn(async {}).await.unwrap();
                    }
                    drop(runtime);
                    sleep(NAP).await;
                    assert!(spawn(async {}).await.unwrap_err().is_cancelled());
                    8
                })
            });
            assert_eq!(futures::executor::block_on(task).unwrap(), 8);
            assert!(futures::executor::block_on(waiting).unwrap_err().is_cancelled());
        });
    }
}

/// A second runtime lives and ends within a task of the first.
#[test]
fn a_runtime_is_made_used_and_dropped_inside_of_a_task() {
    on_one_worker(async {
        for workers in 1..3 {
            let inner = runtime(workers);
            assert_eq!(
                inner
                    .block_on(inner.spawn(async { block_on(spawn(async { 9 })).unwrap() }))
                    .unwrap(),
                9
            );
            let gate = Gate::new();
            let opens = gate.clone();
            let job = inner.spawn_blocking(move || opens.open());
            block_in_place(|| gate.wait());
            drop(inner);
            job.await.unwrap();
        }
    });
}
