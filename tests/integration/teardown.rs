//! What user code may do while a runtime ends: destructors that use the runtime, and threads that
//! know nothing of its end.

use futures::task::Spawn;
use giveway::task::{AbortHandle, Builder, JoinHandle};
use giveway_tests::{
    Alive, Gate, Wakers, dawdle, drain, each_runtime, eventually, hold, isolated, on_drop, recv,
    rounds, runtime, watch, worker_counts,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

type Task = (JoinHandle<()>, AbortHandle);

/// tokio PR 2082: a lock was held while tasks were dropped whose destructors wake other tasks.
#[test]
fn destructors_may_wake_every_other_task() {
    each_runtime(1, |runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (alive, others) = (alive.clone(), wakers.clone());
                runtime.spawn(wakers.park(on_drop(move || {
                    let _alive = alive;
                    others.wake_all();
                })))
            })
            .collect();
        eventually(|| wakers.len() == tasks.len());
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

/// compio PR 502: a destructor spawned while the list of tasks was being cleared. Here the spawned
/// futures are dropped too, and their handles get a cancelled error.
#[test]
fn destructors_may_spawn() {
    each_runtime(1, |runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let (outcome, outcomes) = mpsc::channel();
        let tasks: Vec<_> = (0..50)
            .map(|i| {
                let (alive, outcome) = (alive.clone(), outcome.clone());
                runtime.spawn(wakers.park(on_drop(move || {
                    let name = if i % 2 == 0 { "even" } else { "odd" };
                    let (a, b) = (alive.clone(), alive);
                    outcome.send(giveway::spawn(hold(a))).unwrap();
                    outcome.send(Builder::new().name(name).spawn(hold(b))).unwrap();
                })))
            })
            .collect();
        eventually(|| wakers.len() == tasks.len());
        drop((runtime, outcome));
        assert_eq!(Arc::strong_count(&alive), 1);
        let outcomes = drain(&outcomes);
        assert_eq!(outcomes.len(), 100);
        outcomes.into_iter().for_each(|task| {
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled())
        });
    });
}

/// A hundred spawns, each in the destructor of the one before: shutdown refuses each.
#[test]
fn destructors_may_spawn_futures_whose_destructors_spawn() {
    struct Chain(u32, Alive);
    impl Drop for Chain {
        fn drop(&mut self) {
            if self.0 > 0 {
                giveway::spawn(hold(Chain(self.0 - 1, self.1.clone())));
            }
        }
    }
    each_runtime(1, |runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let _task = runtime.spawn(wakers.park(Chain(100, alive.clone())));
        eventually(|| wakers.len() == 1);
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn destructors_may_drop_and_abort_other_tasks_and_drop_handles() {
    each_runtime(1, |runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let others: Arc<Mutex<Vec<Task>>> = Arc::default();
        for i in 0..60 {
            let (alive, others_of_it, handle) =
                (alive.clone(), others.clone(), runtime.handle().clone());
            let task = runtime.spawn(wakers.park(on_drop(move || {
                let _alive = alive;
                let other = others_of_it.lock().unwrap().pop();
                if let Some((task, abort)) = other {
                    if i % 2 == 0 {
                        task.abort();
                    }
                    drop(task);
                    abort.abort();
                }
                drop(handle);
            })));
            let abort = task.abort_handle();
            others.lock().unwrap().push((task, abort));
        }
        eventually(|| wakers.len() == 60);
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

/// The outer task owns a second runtime and a handle of a task there; that task owns a handle of
/// the first runtime.
#[test]
fn a_destructor_may_drop_another_runtime_and_that_one_this_ones_handles() {
    each_runtime(1, |first| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let second = runtime(2);
        let inner = second.spawn(wakers.park((alive.clone(), first.handle().clone())));
        let outer = first.spawn(wakers.park((alive.clone(), inner, second)));
        eventually(|| wakers.len() == 2);
        drop(first);
        assert_eq!(Arc::strong_count(&alive), 1);
        drop(outer);
    });
}

/// Threads that act on a runtime while it is dropped.
struct Storm {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Storm {
    fn start(threads: usize, act: impl FnMut(u64) + Clone + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (started, starts) = mpsc::channel();
        let thread = |_| {
            let (stop, started, mut act) = (stop.clone(), started.clone(), act.clone());
            thread::spawn(move || {
                act(0);
                started.send(()).unwrap();
                // A bound, in case the drop takes long: then the storm ends before it, and the test
                // goes on.
                (1..20_000).take_while(|_| !stop.load(Relaxed)).for_each(&mut act);
            })
        };
        let threads: Vec<_> = (0..threads).map(thread).collect();
        threads.iter().for_each(|_| recv(&starts));
        Self { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// The most storms that are raised for each worker count.
const STORMS: usize = 60;

fn storms(storm: impl Fn(giveway::Runtime)) {
    for workers in worker_counts() {
        let _watch = watch();
        rounds(STORMS).for_each(|_| storm(runtime(workers)));
    }
}

/// async-executor 163: a waker pushed the task, and then notified a worker through state that
/// another thread may free after the push.
#[test]
fn threads_may_wake_while_the_runtime_is_dropped() {
    storms(|runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let tasks: Vec<_> = (0..16).map(|_| runtime.spawn(wakers.park(alive.clone()))).collect();
        eventually(|| wakers.len() == tasks.len());
        let kept = wakers.all();
        let storm = Storm::start(3, move |i| {
            let waker = &kept[i as usize % kept.len()];
            if i % 3 == 0 {
                let copy = waker.clone();
                copy.wake();
            } else {
                waker.wake_by_ref();
            }
        });
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1, "all are dropped by now, whoever woke them");
        storm.end();
    });
}

/// async-executor 163, at the drop of a waker: a waker that is the last reference to its task
/// pushes the task when it is dropped, and then notifies a worker through the same state.
#[test]
fn threads_may_drop_the_last_waker_while_the_runtime_is_dropped() {
    isolated("teardown::threads_may_drop_the_last_waker_while_the_runtime_is_dropped", || {
        storms(|runtime| {
            let (alive, wakers) = (Alive::default(), Wakers::default());
            (0..64).for_each(|_| drop(runtime.spawn(wakers.park(alive.clone()))));
            eventually(|| wakers.len() == 64);
            let mut kept = wakers.take();
            let (left, right) = (kept.split_off(32), kept);
            let threads =
                [left, right].map(|wakers| thread::spawn(|| wakers.into_iter().for_each(drop)));
            drop(runtime);
            assert_eq!(Arc::strong_count(&alive), 1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    });
}

#[test]
fn threads_may_spawn_while_the_runtime_is_dropped() {
    storms(|runtime| {
        let alive = Alive::default();
        let (handle, held) = (runtime.handle().clone(), alive.clone());
        // Keeps the queues alive: a task that shutdown has left in one of them is not dropped with
        // the queue, so the count shows it.
        let _kept = handle.clone();
        let storm = Storm::start(2, move |i| {
            let held = held.clone();
            let task = handle.spawn(async move {
                let _held = held;
                giveway::yield_now().await;
            });
            match i % 3 {
                0 => drop(task),
                1 => task.abort(),
                _ => _ = futures::executor::block_on(task),
            }
        });
        drop(runtime);
        storm.end();
        assert_eq!(
            Arc::strong_count(&alive),
            1,
            "what was spawned into the closing runtime was dropped too"
        );
    });
}

/// A named task is registered before it is queued. Shutdown waits for registered tasks, so it must
/// not wait for one that is refused and never queued.
#[test]
fn threads_may_spawn_named_tasks_while_the_runtime_is_dropped() {
    isolated("teardown::threads_may_spawn_named_tasks_while_the_runtime_is_dropped", || {
        storms(|runtime| {
            let alive = Alive::default();
            let (handle, held) = (runtime.handle().clone(), alive.clone());
            let storm = Storm::start(2, move |_| {
                let held = held.clone();
                drop(Builder::new().name("late").spawn_on(async move { drop(held) }, &handle));
            });
            drop(runtime);
            storm.end();
            assert_eq!(Arc::strong_count(&alive), 1);
        });
    });
}

/// A named task is registered from its spawn on, but not if it is refused. The last worker waits
/// for everything that is registered, and no thread would tell it of the end of a refused task.
#[test]
fn a_refused_named_task_with_a_slow_destructor_does_not_hold_up_shutdown_for_ever() {
    isolated(
        "teardown::a_refused_named_task_with_a_slow_destructor_does_not_hold_up_shutdown_for_ever",
        || {
            each_runtime(1, |runtime| {
                let (busy, gate) = (Gate::new(), Gate::new());
                runtime.spawn({
                    let (busy, gate) = (busy.clone(), gate.clone());
                    async move {
                        busy.open();
                        gate.wait();
                    }
                });
                busy.wait();
                let handle = runtime.handle().clone();
                let dropper = thread::spawn(move || drop(runtime));
                eventually(|| handle.status().is_err());
                // This task is refused, so this destructor runs on this thread, in the spawn. It
                // lets the last worker's poll return, and then gives that worker time to find
                // nothing left but this task.
                let refused = on_drop(move || {
                    gate.open();
                    dawdle(2_000);
                });
                let task = Builder::new().name("refused").spawn_on(hold(refused), &handle);
                assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
                dropper.join().unwrap();
            });
        },
    );
}

/// A thread-stop hook runs after its worker has left. It may wake tasks that other workers have not
/// dropped yet, and spawn.
#[test]
fn a_thread_stop_hook_may_wake_and_spawn() {
    isolated("teardown::a_thread_stop_hook_may_wake_and_spawn", || {
        for workers in worker_counts() {
            let _watch = watch();
            for _ in 0..20 {
                let wakers = Wakers::default();
                let of_hook = wakers.clone();
                let runtime = giveway::Builder::new()
                    .workers(workers)
                    .on_thread_stop(move || {
                        of_hook.wake_all();
                        giveway::spawn(async {});
                        Builder::new().name("late").spawn(async {});
                    })
                    .build()
                    .unwrap();
                let tasks: Vec<_> = (0..16).map(|_| runtime.spawn(wakers.park(()))).collect();
                eventually(|| wakers.len() == tasks.len());
                drop(runtime);
            }
        }
    });
}

/// The tasks are detached before their first poll, and then wait without storing a waker. Only the
/// runtime refers to such a task. It must not lose the task, whose destructor has to run, nor look
/// for it in memory that was freed.
///
/// In a process of its own, because a fault would be a use after free.
#[test]
fn a_detached_task_that_nobody_can_wake_is_dropped_at_the_latest_with_the_runtime() {
    isolated(
        "teardown::a_detached_task_that_nobody_can_wake_is_dropped_at_the_latest_with_the_runtime",
        || {
            each_runtime(1, |runtime| {
                let (done, all_polled) = mpsc::channel();
                let (alive, held) = (Alive::default(), Alive::default());
                let (of_tasks, of_churn) = (alive.clone(), held.clone());
                runtime.spawn(async move {
                    for _ in 0..200 {
                        let (held, done) = (of_tasks.clone(), done.clone());
                        drop(giveway::spawn(async move {
                            let _held = held;
                            done.send(()).unwrap();
                            std::future::pending::<()>().await;
                        }));
                    }
                    drop(of_churn);
                });
                (0..200).for_each(|_| recv(&all_polled));
                // Overwrites memory that may have been freed, so that a use after free does not
                // find the old contents.
                let churn: Vec<_> = (0..2_000).map(|_| vec![0x55_u8; 160]).collect();
                assert!(runtime.handle().status().is_ok());
                drop(runtime);
                assert_eq!(Arc::strong_count(&alive), 1, "their destructors ran");
                drop((churn, held));
            });
        },
    );
}
