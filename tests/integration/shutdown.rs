//! Dropping a runtime, on every thread and in every place where one can be dropped: each task is
//! dropped exactly once, on a worker or on the dropping thread.

use futures::task::{FutureObj, Spawn};
use giveway::task::JoinHandle;
use giveway::{Handle, Runtime};
use giveway_tests::{
    Drops, Gate, Wakers, drain, each_runtime, eventually, hold, on_drop, recv, rounds, runtime,
    watch,
};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

/// Spawns a task for each of `values`, which owns the value and waits for ever. Returns when all
/// tasks wait, with the handle of every second task. The others have no handle, only a waker.
fn spawn_waiting(
    handle: &Handle,
    wakers: &Wakers,
    values: impl Iterator<Item: Send + 'static>,
) -> Vec<JoinHandle<()>> {
    let mut handles = Vec::new();
    for (i, value) in values.enumerate() {
        let before = wakers.len();
        let task = handle.spawn(wakers.park(value));
        eventually(|| wakers.len() > before);
        if i % 2 == 0 {
            handles.push(task);
        }
    }
    handles
}

/// Tasks that wait when the runtime is dropped, some of them without a handle.
#[test]
fn tasks_that_wait_are_dropped_once_each() {
    each_runtime(1, |runtime| {
        let (drops, wakers) = (Drops::of(100), Wakers::default());
        let handles = spawn_waiting(runtime.handle(), &wakers, (0..100).map(|i| drops.counter(i)));
        drop(runtime);
        drops.assert_each_once();
        assert!(handles.iter().all(JoinHandle::is_finished));
    });
}

/// Every worker is kept in a poll while tasks queue up in the injector and in slots. Then the
/// runtime is closed, and only after that do the polls return (`gate`).
#[test]
fn tasks_that_are_queued_or_running_are_dropped_once_each() {
    each_runtime(1, |runtime| {
        let workers = runtime.handle().workers();
        let (drops, gate) = (Drops::of(2 * workers + 10), Gate::new());
        let (started, starts) = mpsc::channel();
        for worker in 0..workers {
            let (running, queued) = (drops.counter(2 * worker), drops.counter(2 * worker + 1));
            let (gate, started) = (gate.clone(), started.clone());
            runtime.spawn(async move {
                let _running = running;
                let _queued = giveway::spawn(hold(queued));
                started.send(()).unwrap();
                gate.wait();
                giveway::yield_now().await;
                unreachable!("a task is not polled after shutdown");
            });
        }
        (0..workers).for_each(|_| recv(&starts));
        let _handles: Vec<_> =
            (0..10).map(|i| runtime.spawn(hold(drops.counter(2 * workers + i)))).collect();

        let handle = runtime.handle().clone();
        let dropper = thread::spawn(move || drop(runtime));
        eventually(|| handle.status().is_err());
        gate.open();
        dropper.join().unwrap();
        drops.assert_each_once();
    });
}

/// Spawns the tasks of a test that drops a runtime: twenty that wait. Returns handles of them, and
/// a channel that gets the number of each task when the task is dropped.
fn waiting_tasks(handle: &Handle) -> (Vec<JoinHandle<()>>, mpsc::Receiver<usize>) {
    let (dropped, drops) = mpsc::channel();
    let value = |i| {
        let dropped = dropped.clone();
        on_drop(move || dropped.send(i).unwrap())
    };
    let wakers = Wakers::default();
    let handles = spawn_waiting(handle, &wakers, (0..20).map(value));
    // Tasks without a handle stay alive: each future owns a clone of `wakers`, and so the wakers of
    // all.
    (handles, drops)
}

#[track_caller]
fn assert_all_dropped(drops: &mpsc::Receiver<usize>) {
    let mut dropped = drain(drops);
    dropped.sort_unstable();
    assert_eq!(dropped, (0..20).collect::<Vec<_>>());
}

/// iroh-blobs 260: the runtime is dropped on one of its own workers.
#[test]
fn a_task_may_drop_its_own_runtime() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        let (_handles, drops) = waiting_tasks(&handle);
        let (after, went_on) = mpsc::channel();
        handle.spawn(async move {
            drop(runtime);
            after.send(()).unwrap();
        });
        recv(&went_on);
        assert_all_dropped(&drops);
    });
}

/// The runtime is owned by the future of one of its tasks, and dropped when that task is done.
#[test]
fn a_task_that_ends_may_own_its_runtime() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        let (_handles, drops) = waiting_tasks(&handle);
        handle.spawn(async move {
            let _runtime = runtime;
            giveway::yield_now().await;
        });
        assert_all_dropped(&drops);
    });
}

/// The runtime is owned by a task that is aborted: the worker that drops the future drops the
/// runtime.
#[test]
fn the_destructor_of_an_aborted_task_may_drop_its_runtime() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        let (_handles, drops) = waiting_tasks(&handle);
        let owner = handle.spawn(hold(runtime));
        owner.abort();
        assert_all_dropped(&drops);
        assert!(futures::executor::block_on(owner).unwrap_err().is_cancelled());
    });
}

/// The runtime is the output of one of its tasks. The handle is dropped before the poll returns
/// (`gate`), so the worker drops the output.
#[test]
fn an_output_may_own_the_runtime_and_be_dropped_by_the_worker() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        let (_handles, drops) = waiting_tasks(&handle);
        let gate = Gate::new();
        let task = handle.spawn({
            let gate = gate.clone();
            async move {
                gate.wait();
                runtime
            }
        });
        drop(task);
        gate.open();
        assert_all_dropped(&drops);
    });
}

#[test]
fn a_worker_of_another_runtime_may_drop_it() {
    each_runtime(1, |runtime_to_drop| {
        let (_handles, drops) = waiting_tasks(runtime_to_drop.handle());
        let other = runtime(2);
        let task = other.spawn(async move { drop(runtime_to_drop) });
        other.block_on(task).unwrap();
        assert_all_dropped(&drops);
    });
}

#[test]
fn its_own_block_on_may_drop_it() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        let (_handles, drops) = waiting_tasks(&handle);
        let late = handle.block_on(async move {
            drop(runtime);
            giveway::spawn(async { 1 }).await
        });
        assert!(
            late.unwrap_err().is_cancelled(),
            "what is spawned into the closed runtime is cancelled"
        );
        assert_all_dropped(&drops);
    });
}

/// The last of several `Arc`s of the runtime is dropped on another thread, in a task, or here.
#[test]
fn the_last_arc_may_go_on_any_thread() {
    each_runtime(1, |runtime| {
        let (_handles, drops) = waiting_tasks(runtime.handle());
        let runtime = Arc::new(runtime);
        let users: Vec<_> = (0..4)
            .map(|_| {
                let runtime = runtime.clone();
                thread::spawn(move || runtime.block_on(runtime.spawn(async { 1 })).unwrap())
            })
            .collect();
        let in_a_task = runtime.clone();
        runtime.spawn(async move { drop(in_a_task) });
        drop(runtime);
        users.into_iter().for_each(|user| assert_eq!(user.join().unwrap(), 1));
        assert_all_dropped(&drops);
    });
}

/// compio PR 514: state was dropped on another thread, through an upgraded `Arc`. Here destructors
/// run on workers or on the thread that drops the runtime, and not on the monitor.
#[test]
fn tasks_are_dropped_on_a_worker_or_on_the_dropping_thread() {
    each_runtime(1, |runtime| {
        let (dropped, drops) = mpsc::channel::<(ThreadId, Option<String>)>();
        let report = |_| {
            let dropped = dropped.clone();
            on_drop(move || {
                let thread = thread::current();
                dropped.send((thread.id(), thread.name().map(str::to_owned))).unwrap();
            })
        };
        let wakers = Wakers::default();
        let _handles = spawn_waiting(runtime.handle(), &wakers, (0..50).map(report));
        let dropper = thread::spawn(move || drop(runtime));
        let dropping_thread = dropper.thread().id();
        dropper.join().unwrap();
        drop(dropped);
        let drops = drain(&drops);
        assert_eq!(drops.len(), 50);
        for (id, name) in drops {
            let on_worker =
                name.is_some_and(|name| name.starts_with("giveway-") && !name.contains("monitor"));
            assert!(on_worker || id == dropping_thread);
        }
    });
}

/// zed PR 60693: the awaiter of a task that was dropped while scheduled panicked. Every worker is
/// kept in a poll while one task waits, is woken and thus queued, and another is queued since its
/// spawn. The polls return only after the runtime is closed (`gate`).
#[test]
fn whoever_awaits_a_task_dropped_by_shutdown_gets_a_cancelled_error() {
    each_runtime(1, |runtime| {
        let wakers = Wakers::default();
        let waiting = runtime.spawn(wakers.park(()));
        eventually(|| wakers.len() == 1);
        let gate = Gate::new();
        let (started, starts) = mpsc::channel();
        let blockers: Vec<_> = (0..runtime.handle().workers())
            .map(|_| {
                let (gate, started) = (gate.clone(), started.clone());
                runtime.spawn(async move {
                    started.send(()).unwrap();
                    gate.wait();
                })
            })
            .collect();
        blockers.iter().for_each(|_| recv(&starts));
        let queued = runtime.spawn(async {});
        wakers.wake_all();

        let awaiter =
            thread::spawn(|| futures::executor::block_on(async { (waiting.await, queued.await) }));
        let handle = runtime.handle().clone();
        let dropper = thread::spawn(move || drop(runtime));
        eventually(|| handle.status().is_err());
        gate.open();
        dropper.join().unwrap();
        let (waiting, queued) = awaiter.join().unwrap();
        assert!(waiting.unwrap_err().is_cancelled());
        assert!(queued.unwrap_err().is_cancelled());
    });
}

/// However the spawn is made: the future is dropped before the spawn returns, and the handle is
/// finished.
#[test]
fn spawning_after_shutdown_drops_the_future_and_gives_a_cancelled_error() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        assert!(handle.status().is_ok());
        drop(runtime);
        let drops = Drops::of(4);
        let tasks = [
            handle.spawn(hold(drops.counter(0))),
            giveway::task::Builder::new().name("late").spawn_on(hold(drops.counter(1)), &handle),
            {
                let _inside = handle.enter();
                giveway::spawn(hold(drops.counter(2)))
            },
            handle.block_on(std::future::poll_fn(|_| {
                Poll::Ready(giveway::spawn(hold(drops.counter(3))))
            })),
        ];
        drops.assert_each_once();
        for task in tasks {
            assert!(task.is_finished());
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
        assert!(handle.status().unwrap_err().is_shutdown());
        assert!(handle.spawn_obj(FutureObj::new(Box::new(async {}))).unwrap_err().is_shutdown());
        assert!(handle.spawn(async {}).abort_handle().id() != handle.spawn(async {}).id());
    });
}

/// A waker may be called, cloned and dropped after its runtime has ended.
#[test]
fn wakers_may_outlive_the_runtime() {
    each_runtime(1, |runtime| {
        let wakers = Wakers::default();
        let tasks: Vec<_> = (0..10).map(|_| runtime.spawn(wakers.park(()))).collect();
        eventually(|| wakers.len() == 10);
        drop(runtime);
        let kept = wakers.take();
        let copies = kept.clone();
        kept.iter().for_each(Waker::wake_by_ref);
        kept.into_iter().for_each(Waker::wake);
        let elsewhere = thread::spawn(|| drop(copies));
        drop(tasks);
        elsewhere.join().unwrap();
    });
}

#[test]
fn a_thousand_runtimes_come_and_go() {
    let _watch = watch();
    for i in rounds(1_000) {
        let runtime = runtime(1 + i % 3);
        if i % 2 == 0 {
            runtime.spawn(async {});
        }
        if i % 5 == 0 {
            assert_eq!(runtime.block_on(runtime.spawn(async move { i })).unwrap(), i);
        }
    }
}

/// The drop comes while workers have not reached their loop yet.
#[test]
fn a_runtime_may_be_dropped_while_its_workers_are_just_starting() {
    let _watch = watch();
    for workers in [1, 2, 8, 64] {
        for _ in 0..10 {
            let drops = Drops::of(8);
            let runtime: Runtime = runtime(workers);
            let _handles: Vec<_> = (0..8).map(|i| runtime.spawn(hold(drops.counter(i)))).collect();
            drop(runtime);
            drops.assert_each_once();
        }
    }
}
