//! Shutting down with a deadline: the report names what is stuck, and everything else is dropped.

use giveway::task::Builder;
use giveway_tests::{
    Alive, Gate, Wakers, dawdle, each_runtime, eventually, hold, isolated, on_drop, recv, runtime,
    watch,
};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Spawns a task whose poll does not return before `gate` opens. Returns when the task is in that
/// poll.
fn spawn_stuck(
    runtime: &giveway::Runtime,
    name: &str,
    gate: &Gate,
) -> giveway::task::JoinHandle<()> {
    let (busy, gate) = (Gate::new(), gate.clone());
    let in_poll = busy.clone();
    let task = Builder::new().name(name).spawn_on(
        async move {
            in_poll.open();
            gate.wait();
        },
        runtime.handle(),
    );
    busy.wait();
    task
}

/// A shutdown with nothing stuck ends before its deadline.
#[test]
fn a_shutdown_that_comes_to_its_end_has_a_clean_report() {
    each_runtime(1, |runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let _tasks: Vec<_> = (0..20).map(|_| runtime.spawn(wakers.park(alive.clone()))).collect();
        let report = runtime.shutdown_timeout(giveway_tests::HANG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.stuck_threads(), 0);
        assert!(report.stuck_tasks().is_empty());
        assert_eq!(report.to_string(), "clean: every task and every thread has ended");
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

/// A deadline that the clock cannot express is no deadline.
#[test]
fn a_timeout_beyond_the_end_of_time_waits() {
    each_runtime(1, |runtime| {
        let wakers = Wakers::default();
        let _task = runtime.spawn(wakers.park(()));
        assert!(runtime.shutdown_timeout(Duration::MAX).is_clean());
    });
}

/// Every task but the stuck one is dropped, queued or waiting. This includes the case of a single
/// worker, which is then the stuck one.
#[test]
fn a_stuck_task_is_named_and_everything_else_is_gone() {
    each_runtime(1, |runtime| {
        let (gate, alive, wakers) = (Gate::new(), Alive::default(), Wakers::default());
        let waiting: Vec<_> = (0..10).map(|_| runtime.spawn(wakers.park(alive.clone()))).collect();
        eventually(|| wakers.len() == 10);
        let line = line!() + 1;
        let stuck = spawn_stuck(&runtime, "mule", &gate);
        let queued: Vec<_> = (0..10).map(|_| runtime.spawn(hold(alive.clone()))).collect();

        // With several workers, only one is kept in a poll, so the rest is dropped whatever the
        // timeout is. But after a short timeout the report may also name workers that are still
        // ending.
        let timeout = Duration::from_millis(100);
        let workers = runtime.handle().workers();
        let report = runtime.shutdown_timeout(timeout);
        assert!(!report.is_clean());
        assert!(report.stuck_threads() >= 1);
        let task = report
            .stuck_tasks()
            .iter()
            .find(|task| task.id() == stuck.id())
            .expect("the stuck task is named");
        assert_eq!(task.name(), Some("mule"));
        assert!(task.spawned_at().file().ends_with("shutdown_timeout.rs"));
        assert!(task.spawned_at().line() < line, "where it was spawned, in the helper above");
        assert!(task.worker().unwrap() < workers);
        for text in [report.to_string(), task.to_string()] {
            assert!(text.contains("\"mule\"") && text.contains("shutdown_timeout.rs"), "{text}");
            assert!(text.contains(&format!("on worker {}", task.worker().unwrap())), "{text}");
        }
        eventually(|| Arc::strong_count(&alive) == 1);
        for task in waiting.into_iter().chain(queued) {
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
        assert!(!stuck.is_finished());

        gate.open();
        futures::executor::block_on(stuck).expect("the poll that was going on came to its end");
    });
}

/// With a single worker, the thread that shuts down drops what the stuck worker cannot.
#[test]
fn what_waits_behind_a_single_stuck_worker_is_dropped_before_the_report() {
    let _watch = watch();
    let runtime = runtime(1);
    let (gate, alive, wakers) = (Gate::new(), Alive::default(), Wakers::default());
    let _waiting: Vec<_> = (0..10).map(|_| runtime.spawn(wakers.park(alive.clone()))).collect();
    eventually(|| wakers.len() == 10);
    let stuck = spawn_stuck(&runtime, "mule", &gate);
    let _queued: Vec<_> = (0..10).map(|_| runtime.spawn(hold(alive.clone()))).collect();
    let report = runtime.shutdown_timeout(Duration::ZERO);
    assert_eq!(Arc::strong_count(&alive), 1);
    assert_eq!(report.stuck_threads(), 1);
    assert_eq!(report.stuck_tasks().len(), 1);
    assert_eq!(report.stuck_tasks()[0].worker(), Some(0));
    gate.open();
    futures::executor::block_on(stuck).unwrap();
}

/// The thread that shuts down runs a task's destructor, which lets the stuck worker's poll return.
/// The worker then finds that task registered, and sleeps until it has ended: the thread that shuts
/// down has to wake the worker.
#[test]
fn a_worker_that_comes_back_while_others_drop_its_tasks_still_ends() {
    isolated(
        "shutdown_timeout::a_worker_that_comes_back_while_others_drop_its_tasks_still_ends",
        || {
            for _ in 0..20 {
                let _watch = watch();
                let (stopped, stops) = mpsc::channel();
                let hook = move || stopped.send(()).unwrap();
                let runtime = giveway::Builder::new()
                    .workers(1)
                    .max_spare_workers(0)
                    .on_thread_stop(hook)
                    .build()
                    .unwrap();
                let (gate, wakers) = (Gate::new(), Wakers::default());
                let let_go = gate.clone();
                let _waiting = runtime.spawn(wakers.park(on_drop(move || {
                    let_go.open();
                    // Mostly long enough for the worker to end its poll and find nothing left but
                    // this task.
                    dawdle(1_000);
                })));
                eventually(|| wakers.len() == 1);
                let stuck = spawn_stuck(&runtime, "mule", &gate);
                let _report = runtime.shutdown_timeout(Duration::ZERO);
                recv(&stops);
                drop(stuck);
            }
        },
    );
}

/// The runtime is shut down only when a worker is in the destructor (`entered`), which does not
/// return before the report is there (`gate`).
#[test]
fn a_destructor_that_does_not_return_is_reported() {
    each_runtime(1, |runtime| {
        let (gate, wakers) = (Gate::new(), Wakers::default());
        let (release, entered) = (gate.clone(), Gate::new());
        let in_drop = entered.clone();
        let future = wakers.park(on_drop(move || {
            in_drop.open();
            release.wait();
        }));
        let task = Builder::new().name("clinger").spawn_on(future, runtime.handle());
        eventually(|| wakers.len() == 1);
        // The abort makes a worker run the destructor, and not the thread that shuts down.
        task.abort();
        entered.wait();
        let report = runtime.shutdown_timeout(Duration::ZERO);
        let stuck = report
            .stuck_tasks()
            .iter()
            .find(|stuck| stuck.id() == task.id())
            .expect("it is reported");
        assert_eq!(stuck.name(), Some("clinger"));
        gate.open();
        assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
    });
}

/// The shutdown cannot wait for the poll that calls it, so it reports that poll as stuck.
#[test]
fn a_task_may_shut_its_own_runtime_down_and_finds_itself_in_the_report() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        let (sent, reports) = mpsc::channel();
        let task = handle.spawn(async move {
            let report = runtime.shutdown_timeout(giveway_tests::HANG);
            sent.send((giveway::task::try_id(), report)).unwrap();
        });
        let (id, report) = recv(&reports);
        assert_eq!(id, Some(task.id()));
        assert!(report.stuck_tasks().iter().any(|stuck| stuck.id() == task.id()), "{report}");
        futures::executor::block_on(task).unwrap();
    });
}

/// The task may hold a lock that the destructors take.
#[test]
fn a_task_that_shuts_its_own_runtime_down_does_not_run_the_destructors_of_others() {
    let _watch = watch();
    let runtime = runtime(1);
    let lock = Arc::new(Mutex::new(()));
    let (wakers, dropped) = (Wakers::default(), Gate::new());
    let takes_lock = on_drop({
        let (lock, dropped) = (lock.clone(), dropped.clone());
        move || {
            // With `lock` this would be a deadlock on the thread that holds the lock.
            drop(lock.try_lock().expect("nobody holds the lock when this runs"));
            dropped.open();
        }
    });
    let _waiting = runtime.spawn(wakers.park(takes_lock));
    eventually(|| wakers.len() == 1);
    let handle = runtime.handle().clone();
    handle.spawn(async move {
        let _held = lock.lock().unwrap();
        let report = runtime.shutdown_timeout(Duration::from_millis(1));
        assert_eq!(report.stuck_tasks().len(), 1, "{report}");
    });
    dropped.wait();
}

/// `shutdown_background` returns while the task is in its poll. With several workers another worker
/// drops the waiting task meanwhile; a single worker drops it after its poll.
#[test]
fn shutdown_in_the_background_does_not_wait_for_a_stuck_task() {
    each_runtime(1, |runtime| {
        let (gate, alive, wakers) = (Gate::new(), Alive::default(), Wakers::default());
        let waiting = runtime.spawn(wakers.park(alive.clone()));
        eventually(|| wakers.len() == 1);
        let stuck = spawn_stuck(&runtime, "mule", &gate);
        let workers = runtime.handle().workers();
        runtime.shutdown_background();
        // Another worker drops `waiting`; if there is none, the stuck worker does after its poll.
        if workers == 1 {
            assert!(!waiting.is_finished());
            gate.open();
        }
        assert!(futures::executor::block_on(waiting).unwrap_err().is_cancelled());
        eventually(|| Arc::strong_count(&alive) == 1);
        gate.open();
        futures::executor::block_on(stuck).unwrap();
    });
}

/// tokio 4780: a panic plus an uncooperative task blocked shutdown for ever.
#[test]
fn a_panic_beside_an_uncooperative_task_does_not_block_shutdown() {
    each_runtime(2, |runtime| {
        let gate = Gate::new();
        let stuck = spawn_stuck(&runtime, "mule", &gate);
        let panicked = runtime.spawn(async { panic!("beside the mule") });
        assert!(runtime.block_on(panicked).unwrap_err().is_panic());
        let report = runtime.shutdown_timeout(Duration::from_millis(10));
        assert!(report.stuck_tasks().iter().any(|task| task.id() == stuck.id()));
        gate.open();
        futures::executor::block_on(stuck).unwrap();
    });
}

/// A stuck poll goes on after the report, although the `Runtime` is gone. It may still wake tasks
/// and spawn.
#[test]
fn a_stuck_task_may_go_on_to_wake_and_spawn() {
    each_runtime(1, |runtime| {
        let (gate, busy) = (Gate::new(), Gate::new());
        let (wakers, entered) = (Wakers::default(), busy.clone());
        let waiting = runtime.spawn(wakers.park(()));
        eventually(|| wakers.len() == 1);
        let (go, all) = (gate.clone(), wakers.clone());
        let stuck = runtime.spawn(async move {
            entered.open();
            go.wait();
            all.wake_all();
            giveway::spawn(async { 1 }).await
        });
        busy.wait();
        let _report = runtime.shutdown_timeout(Duration::ZERO);
        gate.open();
        // The task is dropped where it awaits, or is done before that: the handle of the refused
        // task is ready at once.
        match futures::executor::block_on(stuck) {
            Ok(refused) => assert!(refused.unwrap_err().is_cancelled()),
            Err(error) => assert!(error.is_cancelled()),
        }
        assert!(futures::executor::block_on(waiting).unwrap_err().is_cancelled());
    });
}

/// A task is not finished before its future is dropped: awaiting its handle would wait. The
/// shutdown is in the destructor (`entered`) while `is_finished` is called, and the destructor
/// returns after that (`gate`).
#[test]
fn a_task_is_not_finished_while_shutdown_is_in_its_destructor() {
    each_runtime(1, |runtime| {
        let (wakers, entered, gate) = (Wakers::default(), Gate::new(), Gate::new());
        let (in_drop, release) = (entered.clone(), gate.clone());
        let task = runtime.spawn(wakers.park(on_drop(move || {
            in_drop.open();
            release.wait();
        })));
        eventually(|| wakers.len() == 1);
        let dropper = std::thread::spawn(move || drop(runtime));
        entered.wait();
        let finished = task.is_finished();
        gate.open();
        dropper.join().unwrap();
        assert!(!finished, "its destructor had not returned");
        assert!(task.is_finished());
    });
}

/// The caller holds a lock that destructors of tasks take, so it must not run them itself.
#[test]
fn shutdown_in_the_background_runs_no_destructor_on_the_caller() {
    each_runtime(2, |runtime| {
        let (wakers, lock) = (Wakers::default(), Arc::new(Mutex::new(())));
        let tasks = 100;
        let (dropped, drops) = mpsc::channel();
        for _ in 0..tasks {
            let (lock, dropped) = (lock.clone(), dropped.clone());
            runtime.spawn(wakers.park(on_drop(move || {
                drop(lock.lock());
                dropped.send(thread::current().id()).unwrap();
            })));
        }
        eventually(|| wakers.len() == tasks);
        let held = lock.lock().unwrap();
        runtime.shutdown_background();
        drop(held);
        (0..tasks).for_each(|_| assert_ne!(recv(&drops), thread::current().id()));
    });
}

/// The caller drops the waiting tasks when every worker is in a poll. It does so inside the
/// runtime, so that a spawn in a destructor goes to this runtime, and is refused.
#[test]
fn a_destructor_that_runs_on_the_caller_spawns_onto_the_runtime_that_refuses_it() {
    let runtime = giveway_tests::runtime(1);
    let (wakers, gate) = (Wakers::default(), Gate::new());
    let (spawned, spawns) = mpsc::channel();
    runtime.spawn(wakers.park(on_drop(move || {
        spawned.send((giveway::Handle::current().workers(), giveway::spawn(async {}))).unwrap();
    })));
    eventually(|| wakers.len() == 1);
    let _stuck = spawn_stuck(&runtime, "mule", &gate);
    let report = runtime.shutdown_timeout(Duration::from_millis(1));
    assert_eq!(report.stuck_threads(), 1);
    let (workers, task) = recv(&spawns);
    assert_eq!(workers, 1);
    assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
    gate.open();
}

/// A handle whose `is_finished` returned true is ready when it is polled.
#[test]
fn a_handle_that_is_finished_is_ready_also_during_shutdown() {
    each_runtime(2, |runtime| {
        let wakers = Wakers::default();
        let mut tasks: Vec<_> = (0..200).map(|_| runtime.spawn(wakers.park(()))).collect();
        eventually(|| wakers.len() == 200);
        let dropper = thread::spawn(move || drop(runtime));
        while !tasks.is_empty() {
            tasks.retain_mut(|task| {
                let finished = task.is_finished();
                let joined = futures::FutureExt::now_or_never(task);
                assert!(!finished || joined.is_some(), "finished, and not ready");
                joined.is_none()
            });
        }
        dropper.join().unwrap();
    });
}
