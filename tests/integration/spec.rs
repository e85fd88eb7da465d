//! The clauses of the work-stealing specification that need threads. The clauses about the plain
//! data are tested in the executor's `sched/spec_tests.rs`, under the same names.

use giveway_tests::{Gate, recv, with_runtimes, with_runtimes_of};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[test]
fn l1_work_queued_on_a_worker_that_is_held_up_is_taken_by_an_idle_one() {
    with_runtimes_of(2, |runtime| {
        let gate = Gate::new();
        let (done, finished) = mpsc::channel();
        let holder = runtime.spawn({
            let gate = gate.clone();
            async move {
                // Each spawn goes into the slot and displaces the one before into the deque: only
                // the last stays in the slot.
                for _ in 0..100 {
                    let done = done.clone();
                    giveway::spawn(async move { done.send(()).unwrap() });
                }
                gate.wait();
            }
        });
        // All hundred run while their worker is in its poll, the one in the slot too.
        (0..100).for_each(|_| recv(&finished));
        gate.open();
        runtime.block_on(holder).unwrap();
    });
}

#[test]
fn l2_the_monitor_frees_a_task_in_the_slot_of_a_worker_that_is_stuck() {
    with_runtimes_of(2, |runtime| {
        let (done, finished) = mpsc::channel();
        let holder = runtime.spawn(async move {
            giveway::spawn(async move { done.send(()).unwrap() });
            // The poll ends only when the task in its worker's slot has run.
            recv(&finished);
        });
        runtime.block_on(holder).unwrap();
    });
}

#[test]
fn l4_f3_a_task_from_outside_runs_though_every_worker_has_endless_work_of_its_own() {
    tasks_from_outside_run_beside(|| {}, 1);
}

#[test]
fn l4_f3_a_task_from_outside_runs_though_every_poll_is_long_and_every_worker_is_helped() {
    // Long enough for the monitor to see each poll. Other workers then take what waits behind it.
    tasks_from_outside_run_beside(|| std::thread::sleep(Duration::from_millis(12)), 3);
}

/// Runs `tasks` tasks from outside, one after the other. Meanwhile four tasks for each worker are
/// always runnable: each of their polls does `work` and yields.
fn tasks_from_outside_run_beside(work: fn(), tasks: usize) {
    with_runtimes(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..4 * runtime.handle().workers())
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn(async move {
                    while !stop.load(SeqCst) {
                        work();
                        giveway::yield_now().await;
                    }
                })
            })
            .collect();
        for _ in 0..tasks {
            runtime.block_on(runtime.spawn(async {})).unwrap();
        }
        stop.store(true, SeqCst);
        runtime.block_on(async {
            for task in busy {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn s1_no_task_is_polled_by_two_workers_at_once() {
    with_runtimes(|runtime| {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                runtime.spawn(async {
                    let inside = Arc::new(AtomicBool::new(false));
                    for _ in 0..200 {
                        // Tasks that other workers may run call the waker, so that it is also
                        // called during the poll.
                        let mut polls = 0;
                        futures::future::poll_fn(|cx| {
                            assert!(!inside.swap(true, SeqCst), "two polls at once");
                            let waker = cx.waker().clone();
                            giveway::spawn(async move { waker.wake() });
                            polls += 1;
                            assert!(inside.swap(false, SeqCst));
                            if polls == 3 {
                                std::task::Poll::Ready(())
                            } else {
                                std::task::Poll::Pending
                            }
                        })
                        .await;
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn s2_no_task_is_lost_between_overflow_injector_and_thieves() {
    with_runtimes(|runtime| {
        let ran = Arc::new(AtomicUsize::new(0));
        let spawners: Vec<_> = (0..8)
            .map(|_| {
                let ran = ran.clone();
                runtime.spawn(async move {
                    // Far more than a deque holds.
                    let children: Vec<_> = (0..2_000)
                        .map(|_| {
                            let ran = ran.clone();
                            giveway::spawn(async move {
                                giveway::yield_now().await;
                                ran.fetch_add(1, SeqCst);
                            })
                        })
                        .collect();
                    for child in children {
                        child.await.unwrap();
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for spawner in spawners {
                spawner.await.unwrap();
            }
        });
        assert_eq!(ran.load(SeqCst), 16_000);
    });
}

#[test]
fn f1_an_idle_worker_helps_every_busy_one() {
    with_runtimes_of(2, |runtime| {
        // Every worker but one is kept in a poll of a task that has left work in its worker's
        // deque.
        let gate = Gate::new();
        let (done, finished) = mpsc::channel();
        let holders: Vec<_> = (1..runtime.handle().workers())
            .map(|_| {
                let (gate, done) = (gate.clone(), done.clone());
                runtime.spawn(async move {
                    for _ in 0..20 {
                        let done = done.clone();
                        giveway::spawn(async move { done.send(()).unwrap() });
                    }
                    gate.wait();
                })
            })
            .collect();
        (0..20 * holders.len()).for_each(|_| recv(&finished));
        gate.open();
        runtime.block_on(async {
            for holder in holders {
                holder.await.unwrap();
            }
        });
    });
}

/// No operation of these tasks ever waits, so each task would stay in one poll until all have
/// started. With four tasks for each worker, not all can start before some poll ends.
#[test]
fn f2_tasks_that_never_wait_all_get_their_turns() {
    with_runtimes(|runtime| {
        let tasks = 4 * runtime.handle().workers();
        let started = Arc::new(AtomicUsize::new(0));
        let endless: Vec<_> = (0..tasks)
            .map(|_| {
                let started = started.clone();
                runtime.spawn(async move {
                    started.fetch_add(1, SeqCst);
                    while started.load(SeqCst) < tasks {
                        // Operations that are so long that the time limit of a poll ends it, and
                        // not their number.
                        let operation = Instant::now();
                        while operation.elapsed() < Duration::from_micros(200) {}
                        giveway::budget::consume().await;
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in endless {
                task.await.unwrap();
            }
        });
    });
}

/// tokio PR 5686: two tasks that hand each other the slot must not starve the queue.
#[test]
fn f4_a_ping_pong_through_the_slot_does_not_starve_the_deque() {
    let runtime = giveway_tests::runtime(1);
    runtime
        .block_on(runtime.spawn(async {
            let (there, arrivals) = async_channel::bounded::<()>(1);
            let (back, returns) = async_channel::bounded::<()>(1);
            let stop = Arc::new(AtomicBool::new(false));
            let pong = giveway::spawn(async move {
                while arrivals.recv().await.is_ok() && back.send(()).await.is_ok() {}
            });
            let ping = giveway::spawn({
                let stop = stop.clone();
                async move {
                    let mut trips = 0_u64;
                    while !stop.load(SeqCst) {
                        there.send(()).await.unwrap();
                        returns.recv().await.unwrap();
                        trips += 1;
                        assert!(trips < 1_000_000, "a task in the deque starves");
                    }
                }
            });
            // Each yield puts this task at the back of the only worker's deque, beside the
            // ping-pong.
            for _ in 0..100 {
                giveway::yield_now().await;
            }
            stop.store(true, SeqCst);
            ping.await.unwrap();
            pong.await.unwrap();
        }))
        .unwrap();
}
