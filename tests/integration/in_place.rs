//! `block_in_place`: where it may be called, what runs while it blocks, and the context that its
//! closure finds.

use giveway::task::{self, Builder, Class};
use giveway::{Handle, block_in_place, spawn};
use giveway_tests::{
    Gate, each_runtime, isolated, on_drop, on_one_worker, outside, recv, runtime, watch,
    with_runtimes,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// Blocks in place until another task of this runtime has run. With a single worker, only a thread
/// that has taken the core can run that task, so the caller continues without a core.
#[track_caller]
pub(crate) fn lose_core() {
    let gate = Gate::new();
    let opens = gate.clone();
    spawn(async move { opens.open() });
    block_in_place(|| gate.wait());
}

#[test]
fn it_returns_what_the_closure_does_wherever_it_is_called() {
    isolated("in_place::it_returns_what_the_closure_does_wherever_it_is_called", || {
        let _watch = watch();
        assert_eq!(block_in_place(|| 1), 1, "outside of any runtime");
        assert!(Handle::try_current().is_none(), "no runtime was started for it");
        assert_eq!(thread::spawn(|| block_in_place(|| 2)).join().unwrap(), 2);
        assert_eq!(giveway::block_on(async { block_in_place(|| 3) }), 3, "in block_on's future");
        let runtime = runtime(2);
        assert_eq!(runtime.block_on(runtime.spawn(async { block_in_place(|| 4) })).unwrap(), 4);
        assert_eq!(runtime.block_on(runtime.spawn_blocking(|| block_in_place(|| 5))).unwrap(), 5);
        let _inside = runtime.enter();
        assert_eq!(block_in_place(|| 6), 6);
    });
}

#[test]
fn it_may_be_called_in_thread_hooks() {
    let _watch = watch();
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = |calls: Arc<AtomicUsize>| move || block_in_place(|| _ = calls.fetch_add(1, SeqCst));
    let builder = giveway::Builder::new().workers(2).max_spare_workers(0);
    let runtime = builder
        .on_thread_start(hook(calls.clone()))
        .on_thread_stop(hook(calls.clone()))
        .build()
        .expect("it starts");
    runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
    drop(runtime);
    assert_eq!(
        calls.load(SeqCst),
        6,
        "two workers and a blocking thread, each at its start and its end"
    );
}

/// Destructors may block in place: in a poll, when their task is aborted, and when the runtime
/// drops their task.
#[test]
fn it_may_be_called_in_destructors() {
    each_runtime(1, |runtime| {
        let (dropped, drops) = mpsc::channel();
        let in_destructor = |name: &'static str| {
            let dropped = dropped.clone();
            on_drop(move || dropped.send(block_in_place(|| name)).unwrap())
        };
        let value = in_destructor("in a poll");
        runtime.block_on(runtime.spawn(async move { drop(value) })).unwrap();
        assert_eq!(recv(&drops), "in a poll");
        let aborted = runtime.spawn(giveway_tests::hold(in_destructor("aborted")));
        aborted.abort();
        assert!(runtime.block_on(aborted).unwrap_err().is_cancelled());
        assert_eq!(recv(&drops), "aborted");
        let _left = runtime.spawn(giveway_tests::hold(in_destructor("left")));
        drop(runtime);
        assert_eq!(recv(&drops), "left");
    });
}

/// The destructor of a task's value runs in the middle of the poll. When it returns, the task has
/// lost its core.
#[test]
fn a_destructor_that_blocks_until_another_task_has_run_does_not_hang() {
    on_one_worker(async {
        drop(on_drop(lose_core));
        giveway::yield_now().await;
        drop(on_drop(lose_core));
    });
}

#[test]
fn it_nests_in_itself() {
    on_one_worker(async {
        let id = task::id();
        let sum = block_in_place(|| {
            lose_core();
            1 + block_in_place(|| {
                lose_core();
                2 + block_in_place(|| 4)
            })
        });
        assert_eq!((sum, task::id()), (7, id));
        // It nests as well after the core was lost.
        lose_core();
        assert_eq!(block_in_place(|| block_in_place(|| 1)), 1);
    });
}

/// Every place that a woken or spawned task can be in: the slot, the deque behind it, and the
/// injector.
#[test]
fn whatever_is_queued_on_the_worker_runs_while_the_closure_blocks() {
    with_runtimes(|runtime| {
        const TASKS: usize = 50;
        let (sent, ran) = mpsc::channel();
        let task = runtime.spawn(async move {
            let handle = Handle::current();
            for i in 0..TASKS {
                let sent = sent.clone();
                spawn(async move { sent.send(i).unwrap() });
            }
            let from_outside = sent.clone();
            outside(|| handle.spawn(async move { from_outside.send(TASKS).unwrap() }));
            drop(sent);
            block_in_place(|| giveway_tests::drain(&ran))
        });
        let mut all = runtime.block_on(task).unwrap();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..=TASKS));
    });
}

/// After the core has gone to another thread, that thread runs what is woken.
#[test]
fn whatever_is_woken_while_the_closure_blocks_runs() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(async {
            for _ in 0..20 {
                let (wake, woken) = async_channel::bounded(1);
                let (answer, answers) = mpsc::channel();
                let waits = spawn(async move { answer.send(woken.recv().await.unwrap()).unwrap() });
                block_in_place(|| {
                    wake.try_send(7).unwrap();
                    assert_eq!(recv(&answers), 7);
                });
                waits.await.unwrap();
            }
        });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn every_worker_may_be_blocked_in_place_at_once() {
    with_runtimes(|runtime| {
        let all = 3 * runtime.handle().workers();
        let gate = Gate::new();
        // There are more tasks than workers, so cores are taken over, some of them twice.
        let blocked = giveway_tests::block_in_place(runtime.handle(), all, &gate);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        gate.open();
        blocked.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// The thread that took the core runs a task that wants the lock of the blocked task. If the
/// blocked task waited for a core in the middle of its poll, it would never release the lock.
#[test]
fn a_lock_held_across_it_and_wanted_by_the_task_that_runs_meanwhile_is_no_deadlock() {
    on_one_worker(async {
        for _ in 0..20 {
            let (lock, wants) = (Arc::new(Mutex::new(0)), Gate::new());
            let held = lock.lock().unwrap();
            let other = spawn({
                let (lock, wants) = (lock.clone(), wants.clone());
                async move {
                    wants.open();
                    *lock.lock().unwrap() += 1;
                }
            });
            block_in_place(|| wants.wait());
            // The other task is in its poll, on the core that this task lost, and waits for this
            // lock.
            drop(held);
            other.await.unwrap();
            assert_eq!(*lock.lock().unwrap(), 1);
        }
    });
}

#[test]
fn a_panic_in_the_closure_goes_to_the_handle_and_the_worker_survives() {
    each_runtime(1, |runtime| {
        for lose in [false, true] {
            let task = runtime.spawn(async move {
                block_in_place(|| {
                    if lose {
                        lose_core();
                    }
                    panic!("in place")
                })
            });
            let panic = runtime.block_on(task).unwrap_err().into_panic();
            assert_eq!(giveway_tests::message(&*panic), "in place");
            assert!(runtime.block_on(runtime.spawn(async { task::try_id().is_some() })).unwrap());
        }
    });
}

#[test]
fn a_panic_in_the_closure_that_the_task_catches_leaves_its_context_as_it_was() {
    on_one_worker(async {
        let id = task::id();
        for lose in [false, true, false] {
            let message = giveway_tests::panic_of(|| {
                block_in_place(|| {
                    if lose {
                        lose_core();
                    }
                    panic!("caught")
                })
            });
            assert_eq!(
                (message.as_str(), task::id(), Handle::current().workers()),
                ("caught", id, 1)
            );
            spawn(async {}).await.unwrap();
            assert_eq!(task::id(), id);
        }
    });
}

#[test]
fn the_task_is_who_it_was_inside_and_after_with_its_core_kept_and_lost() {
    for class in [Class::Foreground, Class::Background] {
        let _watch = watch();
        // The number of workers tells this runtime from the default one.
        let runtime = giveway::Builder::new().workers(1).max_spare_workers(0).build().unwrap();
        let whoami = || (task::id(), task::class(), Handle::current().workers());
        let task = Builder::new().class(class).spawn_on(
            async move {
                let me = whoami();
                assert_eq!(me.1, class);
                assert_eq!(block_in_place(whoami), me);
                assert_eq!(whoami(), me);
                let gate = Gate::new();
                let opens = gate.clone();
                Builder::new().class(Class::Foreground).spawn(async move { opens.open() });
                block_in_place(|| {
                    gate.wait();
                    assert_eq!(whoami(), me, "inside, the core is lost");
                });
                assert_eq!(whoami(), me, "after, without a core");
                giveway::yield_now().await;
                assert_eq!(whoami(), me, "on a core again");
            },
            runtime.handle(),
        );
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn what_is_spawned_inside_goes_to_this_runtime_and_inherits_the_class() {
    for class in [Class::Foreground, Class::Background] {
        let _watch = watch();
        let runtime = giveway::Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .thread_name("inherits")
            .build()
            .unwrap();
        let child = || (task::class(), thread::current().name().unwrap().starts_with("inherits-"));
        let children = Builder::new().class(class).spawn_on(
            async move {
                let mut children = block_in_place(|| {
                    vec![spawn(async move { child() }), giveway::spawn_blocking(child)]
                });
                lose_core_to_foreground();
                children.extend([spawn(async move { child() }), giveway::spawn_blocking(child)]);
                children
            },
            runtime.handle(),
        );
        for child in runtime.block_on(children).unwrap() {
            assert_eq!(runtime.block_on(child).unwrap(), (class, true));
        }
    }
}

/// Like [`lose_core`], with a child of the foreground. A background task's child would inherit its
/// class and wait in the yield queue: that works too, but is slower.
fn lose_core_to_foreground() {
    let gate = Gate::new();
    let opens = gate.clone();
    Builder::new().class(Class::Foreground).spawn(async move { opens.open() });
    block_in_place(|| gate.wait());
}

#[test]
fn the_guard_of_another_runtime_is_held_across_it() {
    let _watch = watch();
    let (here, there) = (runtime(1), runtime(3));
    let other = there.handle().clone();
    let task = here.spawn(async move {
        let gate = Gate::new();
        let opens = gate.clone();
        spawn(async move { opens.open() });
        {
            let _inside = other.enter();
            block_in_place(|| {
                gate.wait();
                assert_eq!(Handle::current().workers(), 3);
            });
            assert_eq!(Handle::current().workers(), 3);
        }
        assert_eq!(Handle::current().workers(), 1, "without a core");
        let elsewhere = block_in_place(|| {
            let _inside = other.enter();
            spawn(async { Handle::current().workers() })
        });
        assert_eq!(elsewhere.await.unwrap(), 3);
        assert_eq!(spawn(async { Handle::current().workers() }).await.unwrap(), 1);
    });
    here.block_on(task).unwrap();
}

#[test]
fn tasks_of_two_runtimes_block_on_each_other() {
    let _watch = watch();
    let (here, there) = (runtime(1), runtime(1));
    let (left, right) = (here.handle().clone(), there.handle().clone());
    let task = here.spawn(async move {
        let (sent, received) = mpsc::channel();
        let other = right.spawn(async move {
            // On the worker of `there`, this task waits for a task of `here`, whose only worker
            // waits for this task.
            let (sent_back, back) = mpsc::channel();
            left.spawn(async move { sent_back.send(1).unwrap() });
            sent.send(block_in_place(|| recv(&back)) + 1).unwrap();
        });
        assert_eq!(block_in_place(|| recv(&received)), 2);
        other.await.unwrap();
    });
    here.block_on(task).unwrap();
}
