//! `Builder::detect_deadlock`: which waiting threads are told of a deadlock, and which are not
//! accused.

use futures::channel::oneshot;
use futures::future::{Either, pending, select};
use giveway::Runtime;
use giveway::task::Builder;
use giveway_tests::{Gate, panic_of, watch, worker_counts};
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Long enough for the monitor to accuse wrongly many times, which takes two looks each.
const A_WHILE: Duration = Duration::from_millis(150);

fn with_detection(test: impl Fn(&Runtime)) {
    for workers in worker_counts() {
        let _watch = watch();
        test(
            &giveway::Builder::new()
                .workers(workers)
                .max_spare_workers(0)
                .detect_deadlock(true)
                .build()
                .unwrap(),
        );
    }
}

#[test]
fn two_tasks_that_wait_for_each_other_are_both_named_with_their_places() {
    with_detection(|runtime| {
        let (to_first, first) = oneshot::channel::<()>();
        let (to_second, second) = oneshot::channel::<()>();
        let line = line!() + 1;
        let one = Builder::new().name("hegel").spawn_on(
            async move {
                first.await.ok();
                to_second.send(()).ok();
            },
            runtime.handle(),
        );
        let other = runtime.spawn(async move {
            second.await.ok();
            to_first.send(()).ok();
        });
        let (first_id, second_id) = (one.id(), other.id());
        let message = panic_of(|| runtime.block_on(one));
        assert!(message.starts_with("deadlock: every worker is idle"), "{message}");
        assert!(message.contains("2 tasks wait:"), "{message}");
        let file = file!();
        assert!(
            message.contains(&format!("task \"hegel\" ({first_id}), spawned at {file}:{line}")),
            "{message}"
        );
        assert!(
            message.contains(&format!("task {second_id}, spawned at {file}:{}", line + 7)),
            "{message}"
        );
        // The runtime goes on.
        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
        other.abort();
        assert!(runtime.block_on(other).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_future_that_waits_for_nothing_is_found_without_any_task() {
    with_detection(|runtime| {
        let message = panic_of(|| runtime.block_on(pending::<()>()));
        assert!(message.contains("No task waits but the future of `block_on` itself"), "{message}");
    });
}

#[test]
fn each_thread_that_waits_is_told() {
    with_detection(|runtime| {
        let handles: Vec<_> = (0..3).map(|_| runtime.handle().clone()).collect();
        let threads: Vec<_> = handles
            .into_iter()
            .map(|handle| thread::spawn(move || panic_of(|| handle.block_on(pending::<()>()))))
            .collect();
        for thread in threads {
            assert!(thread.join().unwrap().starts_with("deadlock"));
        }
    });
}

#[test]
fn many_tasks_are_counted_and_some_are_named() {
    with_detection(|runtime| {
        let tasks: Vec<_> = (0..250).map(|_| runtime.spawn(pending::<()>())).collect();
        let message = panic_of(|| runtime.block_on(pending::<()>()));
        assert!(
            message.contains("250 tasks wait:") && message.contains("and 150 more"),
            "{message}"
        );
        drop(tasks);
    });
}

#[test]
fn who_waits_for_a_timer_is_not_accused() {
    with_detection(|runtime| {
        runtime.block_on(giveway::time::sleep(A_WHILE));
        runtime.block_on(runtime.spawn(giveway::time::sleep(A_WHILE))).unwrap();
        // Beside a task that nothing will wake.
        let stuck = runtime.spawn(pending::<()>());
        runtime.block_on(runtime.spawn(giveway::time::sleep(A_WHILE))).unwrap();
        stuck.abort();
    });
}

/// A timer that was dropped cannot wake anything.
#[test]
fn a_timer_that_was_dropped_does_not_hide_a_deadlock() {
    with_detection(|runtime| {
        let task = runtime.spawn(async {
            let far = Box::pin(giveway::time::sleep(Duration::from_secs(3600)));
            let near = Box::pin(giveway::time::sleep(Duration::from_millis(1)));
            assert!(matches!(select(far, near).await, Either::Right(_)));
            pending::<()>().await;
        });
        assert!(panic_of(|| runtime.block_on(task)).contains("One task waits"));
    });
}

#[test]
fn who_waits_for_a_socket_is_not_accused() {
    with_detection(|runtime| {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let reading = runtime.spawn(async move {
            use futures::AsyncReadExt;
            let mut stream = giveway::net::UnixStream::from_std(ours).unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            byte[0]
        });
        let writer = thread::spawn(move || {
            thread::sleep(A_WHILE);
            (&theirs).write_all(&[7]).unwrap();
        });
        assert_eq!(runtime.block_on(reading).unwrap(), 7);
        writer.join().unwrap();
        assert!(
            panic_of(|| runtime.block_on(pending::<()>())).starts_with("deadlock"),
            "now nobody waits for one"
        );
    });
}

#[test]
fn who_waits_for_a_blocking_job_is_not_accused_until_it_is_done() {
    with_detection(|runtime| {
        runtime.block_on(runtime.spawn_blocking(|| thread::sleep(A_WHILE))).unwrap();
        let in_place = runtime.spawn(async { giveway::block_in_place(|| thread::sleep(A_WHILE)) });
        runtime.block_on(in_place).unwrap();
        // No thread waits for this job. Until it is done it might wake a task; after that nothing
        // can.
        let job = runtime.spawn_blocking(|| thread::sleep(A_WHILE));
        let message = panic_of(|| runtime.block_on(pending::<()>()));
        assert!(job.is_finished(), "{message}");
    });
}

#[test]
fn who_waits_for_an_expected_wake_is_not_accused_until_it_is_given_up() {
    with_detection(|runtime| {
        let (answer, question) = oneshot::channel();
        let expected = runtime.handle().expect_wake();
        let thread = thread::spawn(move || {
            thread::sleep(A_WHILE);
            answer.send(42).unwrap();
            drop(expected);
        });
        let asking = runtime.spawn(question);
        assert_eq!(runtime.block_on(asking).unwrap(), Ok(42));
        thread.join().unwrap();

        let expected = runtime.handle().expect_wake();
        let thread = thread::spawn(move || {
            thread::sleep(A_WHILE);
            drop(expected);
        });
        assert!(panic_of(|| runtime.block_on(pending::<()>())).starts_with("deadlock"));
        thread.join().unwrap();
    });
}

/// A thread in `block_on` that computes may wake the others.
#[test]
fn while_one_thread_in_block_on_is_busy_the_others_are_not_accused() {
    with_detection(|runtime| {
        let (answer, question) = oneshot::channel();
        let started = Gate::new();
        let busy = thread::spawn({
            let (handle, started) = (runtime.handle().clone(), started.clone());
            move || {
                handle.block_on(async move {
                    started.open();
                    thread::sleep(A_WHILE);
                    answer.send(1).unwrap();
                });
            }
        });
        started.wait();
        assert_eq!(runtime.block_on(question), Ok(1));
        busy.join().unwrap();
    });
}

#[test]
fn a_busy_runtime_is_not_accused() {
    with_detection(|runtime| {
        let (sender, receiver) = async_channel::bounded::<u32>(1);
        let sum = runtime.spawn(async move {
            let mut sum = 0;
            while let Ok(number) = receiver.recv().await {
                sum += number;
            }
            sum
        });
        for number in 0..200 {
            runtime.block_on(sender.send(number)).unwrap();
            if number % 20 == 0 {
                thread::sleep(Duration::from_millis(12));
            }
        }
        drop(sender);
        assert_eq!(runtime.block_on(sum).unwrap(), 19_900);
    });
}

/// With detection, no thread is told unless one is in `block_on`. Without detection, which is the
/// default, a thread that waits is not told.
#[test]
fn nothing_happens_without_a_thread_that_waits_or_without_being_asked_for() {
    let _watch = watch();
    let runtime = giveway::Builder::new()
        .workers(2)
        .max_spare_workers(0)
        .detect_deadlock(true)
        .build()
        .unwrap();
    let alive = Arc::new(());
    let held = alive.clone();
    runtime.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    thread::sleep(A_WHILE);
    assert_eq!(Arc::strong_count(&alive), 2);

    let runtime = giveway_tests::runtime(2);
    let (answer, question) = oneshot::channel();
    let thread = thread::spawn(move || {
        thread::sleep(A_WHILE);
        answer.send(1).unwrap();
    });
    assert_eq!(runtime.block_on(question), Ok(1));
    thread.join().unwrap();
}
