//! The dump shows every state, polls nothing, and lists each of many tasks once.

use giveway::metrics::{Dump, TaskDump, TaskState};
use giveway::task::{Builder, Class, Id};
use giveway::{Handle, spawn, spawn_background, spawn_blocking, yield_now};
use giveway_tests::{
    Gate, Wakers, block_in_place, eventually, occupy, on_one_worker, outside, recv, runtime, watch,
};
use giveway_tests::{with_runtimes, with_runtimes_of};
use std::collections::HashSet;
use std::sync::mpsc;
use std::time::Duration;

fn dump() -> Dump {
    Handle::current().dump()
}

#[track_caller]
fn find(dump: &Dump, id: Id) -> &TaskDump {
    dump.tasks()
        .iter()
        .find(|task| task.id == id)
        .unwrap_or_else(|| panic!("{id} is not in {dump}"))
}

fn state(dump: &Dump, id: Id) -> Option<TaskState> {
    dump.tasks().iter().find(|task| task.id == id).map(|task| task.state)
}

#[test]
fn every_task_of_a_worker_shows_what_it_is_doing() {
    on_one_worker(async {
        let (handle, wakers, to_wake) = (Handle::current(), Wakers::default(), Wakers::default());
        let waiting = spawn(wakers.park(()));
        let woken = spawn(to_wake.park(()));
        let line = line!() + 1;
        let named = Builder::new().name("clerk").spawn(wakers.park(()));
        yield_now().await;
        assert_eq!(wakers.len(), 2, "they are polled first");
        to_wake.wake_all();
        // A task in the slot, in the injector, in the inbox and in the yield queue, each without a
        // name and never polled. The deque holds `woken`.
        let (in_slot, injected) = (spawn(async {}), outside(|| handle.spawn(async {})));
        let pinned = giveway::spawn_pinned(|| async {});
        let background = spawn_background(async {});
        let dump = dump();

        let me = find(&dump, giveway::task::id());
        assert_eq!((me.state, me.waits), (TaskState::Running { worker: Some(0) }, None));
        assert_eq!(find(&dump, waiting.id()).state, TaskState::Waiting);
        assert!(
            find(&dump, waiting.id()).waits.is_some_and(|waits| waits < Duration::from_secs(3_600))
        );
        assert_eq!(
            find(&dump, woken.id()).state,
            TaskState::Queued,
            "it has waited, so it is listed"
        );
        let clerk = find(&dump, named.id());
        assert_eq!(
            (clerk.name.as_deref(), clerk.class, clerk.state),
            (Some("clerk"), Class::Foreground, TaskState::Waiting)
        );
        assert_eq!((clerk.spawned_at.file(), clerk.spawned_at.line()), (file!(), line));
        assert_eq!(find(&dump, injected.id()).state, TaskState::Queued);
        assert_eq!(find(&dump, pinned.id()).state, TaskState::Queued);
        let background = find(&dump, background.id());
        assert_eq!((background.state, background.class), (TaskState::GaveWay, Class::Background));
        assert_eq!((state(&dump, in_slot.id()), dump.unlisted()), (None, 1), "{dump}");
        assert_eq!(dump.tasks()[0].id, me.id, "those that run come first");
    });
}

#[test]
fn a_task_that_runs_for_the_first_time_is_listed_with_its_class() {
    with_runtimes_of(2, |runtime| {
        let (gate, (tell, told)) = (Gate::new(), mpsc::channel());
        let task = runtime.spawn_background({
            let gate = gate.clone();
            async move {
                tell.send(()).unwrap();
                gate.wait();
            }
        });
        recv(&told);
        let dump = runtime.dump();
        let running = find(&dump, task.id());
        assert!(matches!(running.state, TaskState::Running { worker: Some(_) }), "{dump}");
        assert_eq!((running.class, running.name.as_deref()), (Class::Background, None));
        gate.open();
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn a_task_that_blocks_without_a_worker_shows() {
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let tasks = block_in_place(runtime.handle(), 3, &gate);
    // At least two of them have lost the only worker.
    let dump = runtime.dump();
    let away = tasks
        .iter()
        .filter(|task| state(&dump, task.id()) == Some(TaskState::Running { worker: None }));
    assert!(away.count() >= 2, "{dump}");
    assert_eq!(dump.tasks().len(), 3, "{dump}");
    gate.open();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn blocking_jobs_are_listed_with_their_names() {
    let _watch = watch();
    let runtime = giveway::Builder::new()
        .workers(1)
        .max_spare_workers(0)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let (gate, (tell, told)) = (Gate::new(), mpsc::channel());
    let wait = gate.clone();
    let job = move || {
        tell.send(()).unwrap();
        wait.wait();
    };
    let running = Builder::new().name("digger").spawn_blocking_on(job, runtime.handle());
    recv(&told);
    let queued = runtime.spawn_blocking(|| ());
    let dump = runtime.dump();
    let digger = find(&dump, running.id());
    assert_eq!((digger.name.as_deref(), digger.state), (Some("digger"), TaskState::RunningJob));
    assert_eq!(find(&dump, queued.id()).state, TaskState::QueuedJob);
    gate.open();
    runtime.block_on(async { (running.await.unwrap(), queued.await.unwrap()) });
}

#[test]
fn what_is_queued_and_cannot_be_listed_is_counted() {
    on_one_worker(async {
        let handle = Handle::current();
        let (tasks, more): (Vec<_>, Vec<_>) =
            (0..100).map(|_| (spawn(async {}), spawn_background(async {}))).unzip();
        outside(|| (0..1_500).for_each(|_| drop(handle.spawn(async {}))));
        let dump = dump();
        assert_eq!(
            dump.tasks().len(),
            1 + 1_000 + 100,
            "this one, a thousand of the injector, the yield queue"
        );
        assert_eq!(dump.unlisted(), 100 + 500);
        assert!(dump.to_string().starts_with("1101 tasks, and about 600 more in queues\n"));
        for task in tasks.into_iter().chain(more) {
            task.await.unwrap();
        }
    });
}

#[test]
fn nothing_is_polled_for_a_dump() {
    with_runtimes(|runtime| {
        let wakers = Wakers::default();
        let tasks: Vec<_> = (0..20).map(|_| runtime.spawn(wakers.park(()))).collect();
        // A task whose first poll is just returning may be missed.
        eventually(|| wakers.len() == 20 && runtime.dump().tasks().len() == 20);
        let before = runtime.metrics().polls();
        (0..50).for_each(|_| assert_eq!(runtime.dump().tasks().len(), 20));
        assert_eq!((before, runtime.metrics().polls()), (20, 20));
        drop(tasks);
    });
}

/// More tasks wait than are looked at under one lock.
#[test]
fn ten_thousand_that_wait_are_listed_once_each_time_after_time() {
    with_runtimes(|runtime| {
        let wakers = Wakers::default();
        let tasks: Vec<_> = (0..10_000).map(|_| runtime.spawn(wakers.park(()))).collect();
        eventually(|| wakers.len() == tasks.len());
        let listed = || {
            let dump = runtime.dump();
            let ids: HashSet<_> = dump.tasks().iter().map(|task| task.id).collect();
            assert_eq!(ids.len(), dump.tasks().len(), "each once");
            ids
        };
        let all: HashSet<_> = tasks.iter().map(|task| task.id()).collect();
        // A task whose first poll is just returning may be missed.
        eventually(|| listed() == all);
        (0..3).for_each(|_| assert!(listed() == all));
        // Every other task is aborted, in lists that the dumps have turned.
        tasks.iter().step_by(2).for_each(|task| task.abort());
        let left: HashSet<_> = tasks.iter().skip(1).step_by(2).map(|task| task.id()).collect();
        eventually(|| listed() == left);
        (0..3).for_each(|_| assert!(listed() == left));
    });
}

#[test]
fn dumps_at_the_same_time_take_no_tasks_from_each_other() {
    with_runtimes(|runtime| {
        let (wakers, count) = (Wakers::default(), 3_000);
        let tasks: Vec<_> = (0..count).map(|_| runtime.spawn(wakers.park(()))).collect();
        eventually(|| wakers.len() == count && runtime.dump().tasks().len() == count);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..10).for_each(|_| assert_eq!(runtime.dump().tasks().len(), count))
                });
            }
        });
        drop(tasks);
    });
}

#[test]
fn names_cannot_spoil_the_table() {
    with_runtimes(|runtime| {
        let task = Builder::new()
            .name("two\nlines \u{1b}[31m")
            .spawn_on(std::future::pending::<()>(), runtime.handle());
        eventually(|| state(&runtime.dump(), task.id()) == Some(TaskState::Waiting));
        let table = runtime.dump().to_string();
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.ends_with(r#""two\nlines \u{1b}[31m""#), "{table}");
    });
}

#[test]
fn a_worker_may_dump_while_others_are_stuck_and_jobs_wait() {
    with_runtimes_of(2, |runtime| {
        let gate = Gate::new();
        let busy = occupy(runtime.handle(), runtime.handle().workers() - 1, &gate);
        let dump = runtime.block_on(runtime.spawn(async {
            let job = spawn_blocking(dump);
            (dump(), job.await.unwrap())
        }));
        let (here, there) = dump.unwrap();
        for stuck in &busy {
            assert!(
                matches!(state(&here, stuck.id()), Some(TaskState::Running { worker: Some(_) })),
                "{here}"
            );
            assert!(state(&there, stuck.id()).is_some(), "{there}");
        }
        gate.open();
    });
}
