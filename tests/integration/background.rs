//! Background tasks: which tasks are of that class and what they wait for. In all else they are
//! tasks like others.

use giveway::task::{self, Builder, Class, JoinSet};
use giveway::{Handle, budget, spawn, spawn_background, yield_now, yield_now_if_busy};
use giveway_tests::{
    Alive, Gate, Log, Polls, eventually, hold, message, occupy, on_drop, on_one_worker, outside,
    recv,
};
use giveway_tests::{with_runtimes, with_runtimes_of};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;

async fn class() -> Class {
    task::class()
}

#[test]
fn children_inherit_the_class_however_they_are_spawned() {
    assert_eq!(task::class(), Class::Foreground, "outside");
    with_runtimes(|runtime| {
        for (inherited, parent) in [
            (Class::Foreground, runtime.spawn(children(runtime.handle().clone()))),
            (Class::Background, runtime.spawn_background(children(runtime.handle().clone()))),
        ] {
            assert_eq!(runtime.block_on(parent).unwrap(), [inherited; 7]);
        }
        assert_eq!(runtime.block_on(class()), Class::Foreground, "no task at all");
        assert_eq!(runtime.block_on(async { spawn(class()).await }).unwrap(), Class::Foreground);
    });

    async fn children(handle: Handle) -> [Class; 7] {
        let mut set = JoinSet::new();
        set.spawn(class());
        set.spawn_on(class(), &handle);
        Builder::new().name("in a set").spawn_in(class(), &mut set);
        let in_set = set.join_all().await;
        let grandchild = spawn(async { spawn(class()).await.unwrap() });
        [
            task::class(),
            spawn(class()).await.unwrap(),
            Builder::new().name("named").spawn(class()).await.unwrap(),
            grandchild.await.unwrap(),
            in_set[0],
            in_set[1],
            in_set[2],
        ]
    }
}

/// A task has its own class in every poll, not that of the task that ran on the worker before, or
/// that woke it.
#[test]
fn a_task_keeps_its_class_when_it_goes_on() {
    with_runtimes(|runtime| {
        let tasks: Vec<_> = (0..100)
            .map(|i| {
                let expected = if i % 2 == 0 { Class::Foreground } else { Class::Background };
                let task = async move {
                    for _ in 0..20 {
                        assert_eq!(task::class(), expected);
                        yield_now().await;
                        assert_eq!(spawn(class()).await.unwrap(), expected);
                    }
                };
                Builder::new().class(expected).spawn_on(task, runtime.handle())
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

#[test]
fn a_builder_may_choose_another_class_and_its_children_inherit_that() {
    with_runtimes(|runtime| {
        let other = |class: Class| Builder::new().class(class);
        let task = runtime.spawn_background(async move {
            let family = async { (task::class(), spawn(class()).await.unwrap()) };
            other(Class::Foreground).spawn(family).await.unwrap()
        });
        assert_eq!(runtime.block_on(task).unwrap(), (Class::Foreground, Class::Foreground));
        let task = other(Class::Background).spawn_on(class(), runtime.handle());
        assert_eq!(runtime.block_on(task).unwrap(), Class::Background);
    });
}

#[test]
fn background_tasks_may_be_spawned_from_everywhere() {
    with_runtimes(|runtime| {
        let inside = runtime.enter();
        let spawn_here = || poll_fn(|_| Poll::Ready(giveway::spawn_background(class())));
        let tasks = [
            runtime.spawn_background(class()),
            runtime.handle().spawn_background(class()),
            giveway::spawn_background(class()),
            runtime.block_on(spawn_here()),
            runtime.block_on(runtime.spawn(spawn_here())).unwrap(),
        ];
        drop(inside);
        for task in tasks {
            assert_eq!(runtime.block_on(task).unwrap(), Class::Background);
        }
    });
}

/// Spawns five foreground tasks, each of which spawns another.
fn foreground(handle: &Handle, log: &Log) {
    for _ in 0..5 {
        let log = log.clone();
        handle.spawn(async move {
            yield_now().await;
            let child = log.clone();
            spawn(async move { child.add("foreground") });
            log.add("foreground");
        });
    }
}

#[test]
fn a_background_task_waits_for_foreground_work_that_is_queued_after_it() {
    for from_outside in [false, true] {
        on_one_worker(async move {
            let (handle, log) = (Handle::current(), Log::default());
            let background = {
                let log = log.clone();
                async move { log.add("background") }
            };
            let background = if from_outside {
                let background = outside(|| handle.spawn_background(background));
                outside(|| foreground(&handle, &log));
                background
            } else {
                let background = spawn_background(background);
                foreground(&handle, &log);
                background
            };
            background.await.unwrap();
            let all = log.all();
            assert_eq!(all.iter().position(|event| event == "background"), Some(10), "{all:?}");
        });
    }
}

/// A background task waits each time it becomes runnable, not only when it is new, and whether a
/// task or another thread wakes it.
#[test]
fn a_background_task_that_is_woken_waits_for_foreground_work_that_is_queued_after_it() {
    for from_outside in [false, true] {
        on_one_worker(async move {
            let (handle, log) = (Handle::current(), Log::default());
            let (send, receive) = async_channel::bounded::<()>(1);
            let background = spawn_background({
                let log = log.clone();
                async move {
                    log.add("waits");
                    receive.recv().await.unwrap();
                    log.add("background");
                }
            });
            while !log.has("waits") {
                // This one is behind the first task in the yield queue, so the first is polled
                // before it.
                spawn_background(async {}).await.unwrap();
            }
            if from_outside {
                outside(|| send.send_blocking(()).unwrap());
                outside(|| foreground(&handle, &log));
            } else {
                send.try_send(()).unwrap();
                foreground(&handle, &log);
            }
            background.await.unwrap();
            let all = log.all();
            assert_eq!(all.iter().position(|event| event == "background"), Some(11), "{all:?}");
        });
    }
}

/// Neither task has a yield point. Each takes its turn when the other's budget is spent.
#[test]
fn a_background_task_whose_budget_is_spent_goes_to_the_back_of_the_yield_queue() {
    on_one_worker(async {
        let turn = Arc::new(AtomicBool::new(false));
        let tasks = [false, true].map(|mine| {
            let turn = turn.clone();
            spawn_background(Polls::default().at_most(1_000, async move {
                for _ in 0..10 {
                    while turn.load(SeqCst) != mine {
                        budget::consume().await;
                    }
                    turn.store(!mine, SeqCst);
                }
            }))
        });
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// The background task has no yield points, and nearly all of its budget is left.
#[test]
fn a_background_task_gives_way_to_what_it_wakes_at_its_next_operation() {
    on_one_worker(async {
        let log = Log::default();
        let (send, receive) = async_channel::bounded::<()>(1);
        let woken = spawn({
            let log = log.clone();
            async move {
                receive.recv().await.unwrap();
                log.add("woken");
            }
        });
        let background = spawn_background({
            let log = log.clone();
            async move {
                budget::consume().await;
                send.try_send(()).unwrap();
                log.add("sent");
                budget::consume().await;
                log.add("background");
            }
        });
        background.await.unwrap();
        woken.await.unwrap();
        log.assert(&["sent", "woken", "background"]);
    });
}

#[test]
fn a_background_task_gives_way_to_a_foreground_child_at_its_next_operation() {
    on_one_worker(async {
        let log = Log::default();
        let background = spawn_background({
            let log = log.clone();
            async move {
                let child = log.clone();
                Builder::new().class(Class::Foreground).spawn(async move { child.add("child") });
                budget::consume().await;
                log.add("background");
            }
        });
        background.await.unwrap();
        log.assert(&["child", "background"]);
    });
}

/// A child of the same class is no reason to give way. (After 10 ms the task returns from its poll
/// all the same, and goes on before its children.)
#[test]
fn a_background_task_does_not_give_way_to_its_background_children() {
    on_one_worker(async {
        let ran = Arc::new(AtomicUsize::new(0));
        let child = |ran: Arc<AtomicUsize>| async move {
            ran.fetch_add(1, SeqCst);
            class().await
        };
        let background = spawn_background(async move {
            let children: Vec<_> = (0..10).map(|_| spawn(child(ran.clone()))).collect();
            for _ in 0..100 {
                budget::consume().await;
                yield_now_if_busy().await;
            }
            assert_eq!(ran.load(SeqCst), 0);
            children
        });
        for child in background.await.unwrap() {
            assert_eq!(child.await.unwrap(), Class::Background);
        }
    });
}

/// Every worker but one is kept in a poll. Background tasks run on the last one, however long that
/// lasts. After that, a foreground task blocks its worker until its background children have run on
/// others.
#[test]
fn a_background_task_runs_beside_a_held_up_foreground() {
    with_runtimes_of(2, |runtime| {
        let gate = Gate::new();
        let held = occupy(runtime.handle(), runtime.handle().workers() - 1, &gate);
        for _ in 0..50 {
            assert_eq!(
                runtime.block_on(runtime.spawn_background(class())).unwrap(),
                Class::Background
            );
        }
        gate.open();
        held.into_iter().for_each(|task| runtime.block_on(task).unwrap());

        let rogue = runtime.spawn(async {
            let (ran, runs) = mpsc::channel();
            (0..10).for_each(|i| {
                let ran = ran.clone();
                spawn_background(async move { ran.send(i).unwrap() });
            });
            (0..10).for_each(|_| _ = recv(&runs));
        });
        runtime.block_on(rogue).unwrap();
    });
}

#[test]
fn a_panic_in_the_background_goes_to_the_handle() {
    with_runtimes(|runtime| {
        let task = runtime.spawn_background(async {
            budget::consume().await;
            panic!("in the background");
        });
        let error = runtime.block_on::<task::JoinHandle<()>>(task).unwrap_err();
        assert_eq!(message(&*error.into_panic()), "in the background");
        assert_eq!(
            runtime.block_on(runtime.spawn_background(async { 3 })).unwrap(),
            3,
            "its worker survives"
        );
    });
}

#[test]
fn a_background_task_is_aborted_wherever_it_is() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        // One task waits, one runs for ever, and one is in the yield queue before its first poll.
        let waiting = runtime.spawn_background(hold(alive.clone()));
        let (running, held) = (Gate::new(), alive.clone());
        let looping = runtime.spawn_background({
            let running = running.clone();
            async move {
                let _held = held;
                loop {
                    running.open();
                    budget::consume().await;
                }
            }
        });
        running.wait();
        looping.abort();
        assert!(runtime.block_on(looping).unwrap_err().is_cancelled());
        let gate = Gate::new();
        let blockers = occupy(runtime.handle(), runtime.handle().workers(), &gate);
        let never_ran = Gate::new();
        let queued = runtime.spawn_background({
            let (never_ran, held) = (never_ran.clone(), alive.clone());
            async move {
                let _held = held;
                never_ran.open();
            }
        });
        waiting.abort();
        queued.abort();
        gate.open();
        for task in [waiting, queued] {
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        }
        assert!(!never_ran.is_open());
        assert_eq!(Arc::strong_count(&alive), 1);
        blockers.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

#[test]
fn a_detached_background_task_runs_on() {
    with_runtimes(|runtime| {
        let (dropped, drops) = mpsc::channel();
        for i in 0..100 {
            let report = on_drop({
                let dropped = dropped.clone();
                move || dropped.send(i).unwrap()
            });
            drop(runtime.spawn_background(async move {
                let _report = report;
                yield_now().await;
            }));
        }
        (0..100).for_each(|_| _ = recv(&drops));
        let done = runtime.spawn_background(async {});
        eventually(|| done.is_finished());
    });
}
