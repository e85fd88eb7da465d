//! Aborting tasks, from every place and at every moment of a task's life.

use giveway::task::{AbortHandle, JoinHandle};
use giveway_tests::{
    Alive, Gate, Wakers, drain, each_runtime, eventually, hold, on_drop, recv, rounds,
    with_runtimes,
};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;

/// tokio 3157, 3662: aborting from outside the runtime panicked.
#[test]
fn a_waiting_task_is_aborted_from_outside() {
    with_runtimes(|runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let task = runtime.spawn(wakers.park(alive.clone()));
        eventually(|| wakers.len() == 1);
        thread::scope(|scope| _ = scope.spawn(|| task.abort()));
        let id = task.id();
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic());
        assert_eq!(error.id(), id);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("task {id}, spawned at {}:", file!()))
                && text.ends_with("was aborted"),
            "{text}"
        );
        assert!(error.try_into_panic().is_err());
        assert_eq!(Arc::strong_count(&alive), 1, "the future is gone when the handle says so");
    });
}

#[test]
fn a_waiting_task_is_aborted_by_another_task() {
    with_runtimes(|runtime| {
        let wakers = Wakers::default();
        let task = runtime.spawn(wakers.park(()));
        let abort = task.abort_handle();
        runtime.block_on(runtime.spawn(async move { abort.abort() })).unwrap();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}

/// All workers are in polls until the task has been aborted, so it is not polled before.
#[test]
fn a_task_aborted_before_its_first_poll_never_runs() {
    with_runtimes(|runtime| {
        let (gate, alive) = (Gate::new(), Alive::default());
        let (started, starts) = mpsc::channel();
        let workers = runtime.handle().workers();
        for _ in 0..workers {
            let (gate, started) = (gate.clone(), started.clone());
            runtime.spawn(async move {
                started.send(()).unwrap();
                gate.wait();
            });
        }
        (0..workers).for_each(|_| recv(&starts));
        let held = alive.clone();
        let task = runtime.spawn(async move {
            let _held = held;
            unreachable!("it was aborted while it was queued");
        });
        task.abort();
        assert!(!task.is_finished(), "no worker has come by");
        gate.open();
        assert!(runtime.block_on::<JoinHandle<()>>(task).unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

/// The abort comes while the task is in a poll, and takes effect when that poll returns.
#[test]
fn a_running_task_is_aborted_when_its_poll_returns() {
    with_runtimes(|runtime| {
        let (busy, gate) = (Gate::new(), Gate::new());
        let (in_poll, go) = (busy.clone(), gate.clone());
        let task = runtime.spawn(async move {
            in_poll.open();
            go.wait();
            std::future::pending::<()>().await;
        });
        busy.wait();
        task.abort();
        assert!(!task.is_finished());
        gate.open();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}

/// The abort comes during the task's last poll.
#[test]
fn a_running_task_that_finishes_in_the_same_poll_keeps_its_output() {
    with_runtimes(|runtime| {
        let (busy, gate) = (Gate::new(), Gate::new());
        let (in_poll, go) = (busy.clone(), gate.clone());
        let task = runtime.spawn(async move {
            in_poll.open();
            go.wait();
            "done"
        });
        busy.wait();
        task.abort();
        gate.open();
        assert_eq!(runtime.block_on(task).unwrap(), "done");
    });
}

#[test]
fn a_task_may_abort_itself() {
    with_runtimes(|runtime| {
        let (sender, receiver) = mpsc::channel::<AbortHandle>();
        let (alive, after) = (Alive::default(), Gate::new());
        let (held, reached) = (alive.clone(), after.clone());
        let task = runtime.spawn(async move {
            let _held = held;
            recv(&receiver).abort();
            reached.open();
            giveway::yield_now().await;
            unreachable!("an aborted task is not polled again");
        });
        sender.send(task.abort_handle()).unwrap();
        let outcome: Result<(), _> = runtime.block_on(task);
        assert!(outcome.unwrap_err().is_cancelled());
        assert!(after.is_open(), "the poll in which it aborted itself went on to its end");
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn aborting_twice_or_after_the_end_changes_nothing() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(hold(()));
        let abort = task.abort_handle();
        task.abort();
        task.abort();
        abort.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        abort.abort();

        let mut task = runtime.spawn(async { 5 });
        eventually(|| task.is_finished());
        let abort = task.abort_handle();
        task.abort();
        abort.abort();
        assert_eq!(runtime.block_on(&mut task).unwrap(), 5, "an output that is there stays there");
        task.abort();
        let after = task.abort_handle();
        assert_eq!(after.id(), task.id());
        after.abort();
        drop(task);
        after.abort();
        abort.abort();
    });
}

/// tokio 3964: a task is aborted, then its handle is dropped.
#[test]
fn an_aborted_task_whose_handle_is_dropped_is_dropped_by_a_worker() {
    with_runtimes(|runtime| {
        let (dropped, drops) = mpsc::channel();
        for i in 0..200 {
            let dropped = dropped.clone();
            let report =
                on_drop(move || dropped.send(thread::current().name().map(str::to_owned)).unwrap());
            let task = runtime.spawn(hold(report));
            if i % 2 == 0 {
                task.abort();
            } else {
                let abort = task.abort_handle();
                thread::scope(|scope| _ = scope.spawn(move || abort.abort()));
            }
            drop(task);
        }
        drop(dropped);
        let drops = drain(&drops);
        assert_eq!(drops.len(), 200);
        assert!(
            drops
                .iter()
                .all(|name| name.as_deref().is_some_and(|name| name.starts_with("giveway-")))
        );
    });
}

/// Threads abort tasks and drop their handles while the tasks run, wake themselves and end. Every
/// future is dropped once.
#[test]
fn aborts_race_everything() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        for round in rounds(200) {
            let held = alive.clone();
            let task = runtime.spawn(async move {
                for _ in 0..round % 7 {
                    giveway::yield_now().await;
                }
                held
            });
            let (first, second) = (task.abort_handle(), task.abort_handle());
            thread::scope(|scope| {
                scope.spawn(move || first.abort());
                if round % 2 == 0 {
                    second.abort();
                    drop(task);
                } else if let Err(error) = runtime.block_on(task) {
                    assert!(error.is_cancelled());
                }
            });
        }
        eventually(|| Arc::strong_count(&alive) == 1);
    });
}

#[test]
fn an_abort_handle_may_outlive_task_and_runtime() {
    each_runtime(1, |runtime| {
        let wakers = Wakers::default();
        let (waiting, done) = (runtime.spawn(wakers.park(())), runtime.spawn(async {}));
        let detached = {
            let task = runtime.spawn(wakers.park(()));
            task.abort_handle()
        };
        eventually(|| wakers.len() == 2 && done.is_finished());
        let handles = [waiting.abort_handle(), done.abort_handle(), detached];
        assert_eq!(handles[0].id(), waiting.id());
        drop(done);
        drop(runtime);
        handles.iter().for_each(AbortHandle::abort);
        drop(waiting);
        let copies = handles.clone();
        handles.iter().for_each(AbortHandle::abort);
        drop(handles);
        thread::spawn(move || copies.iter().for_each(AbortHandle::abort)).join().unwrap();
    });
}

/// The destructor that an abort runs may abort other tasks, and spawn new ones.
#[test]
fn the_destructor_of_an_aborted_task_may_abort_and_spawn() {
    with_runtimes(|runtime| {
        let (sent, spawned) = mpsc::channel();
        let other = runtime.spawn(hold(()));
        let abort_other = other.abort_handle();
        let task = runtime.spawn(hold(on_drop(move || {
            abort_other.abort();
            sent.send(giveway::spawn(async { 9 })).unwrap();
        })));
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        assert!(runtime.block_on(other).unwrap_err().is_cancelled());
        assert_eq!(runtime.block_on(recv(&spawned)).unwrap(), 9);
    });
}

/// Aborting a task wakes the task that awaits it, wherever that is.
#[test]
fn the_awaiter_of_an_aborted_task_is_woken() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(hold(()));
        let abort = task.abort_handle();
        let waits = Gate::new();
        let in_await = waits.clone();
        let awaiter = runtime.spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                let outcome = task.as_mut().poll(cx);
                in_await.open();
                outcome
            })
            .await
        });
        waits.wait();
        abort.abort();
        assert!(runtime.block_on(awaiter).unwrap().unwrap_err().is_cancelled());
    });
}

/// Dropping a future that awaits a handle by reference does not lose the output.
#[test]
fn giving_up_on_a_handle_is_cancel_safe() {
    with_runtimes(|runtime| {
        let gate = Gate::new();
        let go = gate.clone();
        let mut task = runtime.spawn(async move {
            go.wait();
            3
        });
        {
            let mut cx = Context::from_waker(Waker::noop());
            let waiting = pin!(&mut task);
            assert!(matches!(waiting.poll(&mut cx), Poll::Pending));
        }
        gate.open();
        assert_eq!(runtime.block_on(&mut task).unwrap(), 3);
    });
}

#[test]
fn an_error_says_why_there_is_no_output() {
    let runtime = giveway_tests::runtime(1);
    let name = |name: &str| giveway::task::Builder::new().name(name);
    let aborted = name("aborted").spawn_on(std::future::pending::<()>(), runtime.handle());
    let cancelled = name("cancelled").spawn_on(std::future::pending::<()>(), runtime.handle());
    aborted.abort();
    let error = runtime.block_on(aborted).unwrap_err().to_string();
    assert!(error.starts_with("task \"aborted\" (") && error.ends_with("was aborted"), "{error}");
    drop(runtime);
    let error = futures::executor::block_on(cancelled).unwrap_err().to_string();
    assert!(
        error.starts_with("task \"cancelled\" (") && error.ends_with("its runtime was shut down"),
        "{error}"
    );
}

/// `futures::select!` asks whether a handle was joined.
#[test]
fn a_handle_is_terminated_once_its_output_was_taken() {
    use futures::future::FusedFuture;
    let runtime = giveway_tests::runtime(1);
    let mut task = runtime.spawn(async { 7 });
    assert!(!task.is_terminated());
    assert_eq!(runtime.block_on(&mut task).unwrap(), 7);
    assert!(task.is_terminated());
    assert!(task.abort_handle().is_finished());
    task.abort();
}
