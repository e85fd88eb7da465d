//! Polls that go on for too long: they are asked to return, and reported once for each cause.

use futures::future::join_all;
use giveway::budget::{consume, cooperative};
use giveway::task::{Builder, Id, JoinHandle};
use giveway::{LongPoll, Runtime};
use giveway_tests::{Gate, Patience, each_runtime, recv, watch, worker_counts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `test` with a runtime of each worker count that reports long polls to the receiver.
fn with_reports(test: impl Fn(&Runtime, &Receiver<LongPoll>)) {
    for workers in worker_counts() {
        let _watch = watch();
        let (report, reports) = mpsc::channel();
        let hook = move |poll: &LongPoll| report.send(poll.clone()).unwrap();
        let runtime = giveway::Builder::new()
            .workers(workers)
            .max_spare_workers(0)
            .on_long_poll(hook)
            .build()
            .unwrap();
        test(&runtime, &reports);
    }
}

/// Runs a task with a long poll until one is reported: on a busy machine the monitor may come too
/// late for the first. Returns the report; the tasks, any of which it may be about, since a report
/// may be late too; and how long they took at most.
#[track_caller]
fn reported<T>(
    runtime: &Runtime,
    reports: &Receiver<T>,
    spawn: impl Fn() -> JoinHandle<()>,
) -> (T, Vec<Id>, Duration) {
    let (start, mut tasks) = (Instant::now(), Vec::new());
    let reported = Patience::new().keep_trying(|_| {
        let task = spawn();
        tasks.push(task.id());
        runtime.block_on(task).unwrap();
        reports.recv_timeout(Duration::from_millis(50)).ok()
    });
    // The time is read last: the thread that joins a task is woken before the poll is quite over.
    (reported.expect("no long poll was reported"), tasks, start.elapsed())
}

#[test]
fn a_long_poll_is_reported_with_name_place_and_length() {
    with_reports(|runtime, reports| {
        let line = line!() + 2;
        let mule = || {
            Builder::new().name("mule").spawn_on(
                async {
                    giveway::yield_now().await;
                    thread::sleep(Duration::from_millis(100));
                },
                runtime.handle(),
            )
        };
        let (poll, tasks, most) = reported(runtime, reports, mule);
        assert!(tasks.contains(&poll.id()), "{poll}");
        assert_eq!(poll.name(), Some("mule"));
        assert_eq!((poll.spawned_at().file(), poll.spawned_at().line()), (file!(), line));
        assert!(poll.worker() < runtime.handle().workers());
        assert!(poll.has_ended());
        // The monitor knows the beginning to within one of its looks, which may be late on a busy
        // machine.
        assert!(poll.length() <= most && poll.length() >= Duration::from_millis(10), "{poll}");
        assert!(
            poll.to_string().contains("\"mule\"") && poll.to_string().contains(" ms on worker "),
            "{poll}"
        );
    });
}

/// Twenty tasks from one place, with twenty names, then some from another place.
#[test]
fn many_of_one_cause_are_reported_once() {
    with_reports(|runtime, reports| {
        let number = AtomicUsize::new(0);
        let mule = || {
            let name = format!("mule {}", number.fetch_add(1, Relaxed));
            Builder::new()
                .name(name)
                .spawn_on(async { thread::sleep(Duration::from_millis(60)) }, runtime.handle())
        };
        let (first, ..) = reported(runtime, reports, mule);
        assert!(first.name().unwrap().starts_with("mule "));
        runtime.block_on(join_all((0..20).map(|_| mule())));
        let other = || runtime.spawn(async { thread::sleep(Duration::from_millis(100)) });
        let (second, ..) = reported(runtime, reports, other);
        assert_ne!(second.spawned_at(), first.spawned_at());
        runtime.block_on(other()).unwrap();
        assert!(reports.recv_timeout(Duration::from_millis(50)).is_err(), "each cause once");
    });
}

/// The poll returns whenever it is asked to, and delays no other task.
#[test]
fn a_polite_loop_is_no_long_poll() {
    with_reports(|runtime, reports| {
        let start = Instant::now();
        let polite = runtime.spawn(async move {
            while start.elapsed() < Duration::from_millis(150) {
                giveway::yield_now_if_busy().await;
            }
        });
        runtime.block_on(polite).unwrap();
        assert_eq!(
            reports.recv_timeout(Duration::from_millis(50)).ok().map(|poll| poll.to_string()),
            None
        );
    });
}

#[test]
fn one_that_does_not_return_is_reported_all_the_same_and_once() {
    with_reports(|runtime, reports| {
        let gate = Gate::new();
        let stuck = runtime.spawn({
            let gate = gate.clone();
            async move { gate.wait() }
        });
        let poll = recv(reports);
        assert_eq!(poll.id(), stuck.id());
        assert!(!poll.has_ended());
        gate.open();
        runtime.block_on(stuck).unwrap();
        assert_eq!(
            reports.recv_timeout(Duration::from_millis(50)).ok().map(|poll| poll.id()),
            None
        );
    });
}

/// tokio's channels spend tokio's budget, which nothing sets here. So such a loop is one poll.
#[test]
fn a_loop_over_a_channel_that_is_never_empty_is_named_in_the_report() {
    with_reports(|runtime, reports| {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let hangs = runtime.spawn(async move {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            sender.send(()).unwrap();
            while let Some(()) = receiver.recv().await {
                if is_over.load(Relaxed) {
                    break;
                }
                sender.send(()).unwrap();
            }
        });
        let poll = recv(reports);
        over.store(true, Relaxed);
        runtime.block_on(hangs).unwrap();
        assert!(!poll.has_ended());
        assert!(
            poll.to_string().contains("a loop over a channel or stream that is always ready"),
            "{poll}"
        );
    });
}

/// The loop does what the porting page advises.
#[test]
fn a_cooperative_loop_over_a_channel_that_is_never_empty_lets_others_run() {
    each_runtime(1, |runtime| {
        let over = Arc::new(AtomicBool::new(false));
        let loops: Vec<_> = (0..runtime.handle().workers())
            .map(|_| {
                let is_over = over.clone();
                runtime.spawn(async move {
                    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
                    sender.send(()).unwrap();
                    while let Some(()) = cooperative(receiver.recv()).await {
                        if is_over.load(Relaxed) {
                            break;
                        }
                        sender.send(()).unwrap();
                    }
                })
            })
            .collect();
        runtime.block_on(runtime.spawn(async {})).unwrap();
        over.store(true, Relaxed);
        loops.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// A worker that blocks in place delays no other task.
#[test]
fn blocking_in_place_is_no_long_poll() {
    with_reports(|runtime, reports| {
        let task = runtime.spawn(async {
            for _ in 0..3 {
                giveway::block_in_place(|| thread::sleep(Duration::from_millis(30)));
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(
            reports.recv_timeout(Duration::from_millis(50)).ok().map(|poll| poll.to_string()),
            None
        );
    });
}

#[test]
fn with_a_higher_threshold_shorter_ones_are_not_reported() {
    for threshold in [Duration::from_secs(10), Duration::MAX] {
        let _watch = watch();
        let (report, reports) = mpsc::channel();
        let builder =
            giveway::Builder::new().workers(2).max_spare_workers(0).long_poll_threshold(threshold);
        let runtime = builder
            .on_long_poll(move |poll| report.send(poll.to_string()).unwrap())
            .build()
            .unwrap();
        runtime
            .block_on(runtime.spawn(async { thread::sleep(Duration::from_millis(50)) }))
            .unwrap();
        assert!(reports.recv_timeout(Duration::from_millis(50)).is_err());
    }
}

#[test]
fn a_hook_that_panics_is_contained() {
    let _watch = watch();
    let (called, calls) = mpsc::channel();
    let hook = move |_: &LongPoll| {
        called.send(()).unwrap();
        panic!("in the hook");
    };
    let runtime =
        giveway::Builder::new().workers(1).max_spare_workers(0).on_long_poll(hook).build().unwrap();
    reported(&runtime, &calls, || {
        runtime.spawn(async { thread::sleep(Duration::from_millis(50)) })
    });
    // The monitor goes on.
    reported(&runtime, &calls, || {
        runtime.spawn(async { thread::sleep(Duration::from_millis(50)) })
    });
}

/// The budget of operations is bounded by time, too: the task gives way after far fewer than 128
/// operations.
#[test]
fn a_poll_of_ten_milliseconds_gives_way_at_its_next_operation() {
    each_runtime(1, |runtime| {
        let task = runtime.spawn(async {
            let mut polls = 0;
            let mut operations = Box::pin(async {
                // Each takes longer than the 10 ms after which a poll is asked to return, and none
                // waits for anything.
                for _ in 0..20 {
                    thread::sleep(Duration::from_millis(15));
                    consume().await;
                }
            });
            std::future::poll_fn(|cx| {
                polls += 1;
                operations.as_mut().poll(cx)
            })
            .await;
            polls
        });
        let polls = runtime.block_on(task).unwrap();
        assert!(polls > 3, "20 operations of 15 ms in {polls} polls");
    });
}

/// Needs the feature `stack-samples`, which the tests are built with.
#[test]
#[cfg(target_os = "linux")]
fn the_stack_says_where_it_was() {
    #[inline(never)]
    fn grinding_flour(stop: &AtomicBool) -> u64 {
        let mut ground = 0_u64;
        while !stop.load(Relaxed) {
            ground = std::hint::black_box(ground.wrapping_add(1));
        }
        ground
    }

    let _watch = watch();
    // A cause is reported once, and without a stack if the thread has no CPU to answer with. Then
    // the test tries once more.
    let sampled = Patience::new().keep_trying(|_| {
        let (report, reports) = mpsc::channel();
        let hook = move |poll: &LongPoll| report.send(poll.clone()).unwrap();
        let runtime = giveway::Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .sample_stacks(true)
            .on_long_poll(hook)
            .build()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let grinds = stop.clone();
        let grinder = runtime.spawn(async move { _ = grinding_flour(&grinds) });
        // The poll goes on until it is reported, so the function was running whenever the sample
        // was taken.
        let poll = recv(&reports);
        stop.store(true, Relaxed);
        runtime.block_on(grinder).unwrap();
        poll.stack().is_some().then_some(poll)
    });
    let poll = sampled.expect("no stack was sampled");
    let stack = poll.stack().expect("it was asked for");
    assert!(stack.contains("grinding_flour"), "{stack}");
    assert!(!stack.contains("run_tasks"), "it ends at the poll: {stack}");
    assert!(poll.to_string().contains("grinding_flour"), "{poll}");
}

/// The monitor ends before the poll does, and reports the length that it knows by then.
#[test]
fn a_poll_that_is_going_on_when_its_runtime_is_dropped_is_not_called_over() {
    let _watch = watch();
    let reported = Patience::new().keep_trying(|_| {
        let (report, reports) = mpsc::channel();
        let hook = move |poll: &LongPoll| report.send(poll.clone()).unwrap();
        let runtime = giveway::Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .on_long_poll(hook)
            .build()
            .unwrap();
        let (gate, begun) = (Gate::new(), Gate::new());
        let (waits, begins) = (gate.clone(), begun.clone());
        runtime.spawn(async move {
            begins.open();
            waits.wait();
        });
        begun.wait();
        // The monitor takes notice of the poll in this time. If it does not, the test tries once
        // more.
        thread::sleep(Duration::from_millis(100));
        let dropper = thread::spawn(move || drop(runtime));
        let report = reports.recv_timeout(Duration::from_millis(500)).ok();
        gate.open();
        dropper.join().unwrap();
        report
    });
    let poll = reported.expect("no long poll was reported");
    assert!(!poll.has_ended() && poll.to_string().contains("has been in one poll for"), "{poll}");
}
