//! Spare workers: the runtime goes on beside polls that do not return.

use giveway::task::JoinHandle;
use giveway::{Builder, Runtime};
use giveway_tests::{Endless, Gate, Patience, eventually, recv, watch, worker_counts};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Starts a runtime with as many spare workers as workers.
fn runtime(workers: usize) -> Runtime {
    Builder::new().workers(workers).build().unwrap()
}

/// Starts `polls` polls that do not return. Returns when each has begun, on a worker of its own.
fn endless(runtime: &Runtime, polls: usize) -> Endless {
    Endless::start(runtime, giveway::task::Builder::new, polls, polls)
}

/// Runs `test` with every worker of a runtime in a poll that does not return. Afterwards checks
/// that the spare workers retire and that the runtime goes on as before.
fn with_every_worker_held(test: impl Fn(&Runtime)) {
    for workers in worker_counts().into_iter().filter(|&workers| workers <= 8) {
        let watch = watch();
        let runtime = runtime(workers);
        let handle = runtime.handle().clone();
        watch.report(move || format!("{}\n{}", handle.dump(), handle.metrics()));
        let endless = endless(&runtime, workers);
        test(&runtime);
        assert!(runtime.metrics().spares_sent > 0);
        endless.end(&runtime);
        eventually(|| runtime.metrics().spares_at_work == 0);
        runtime.block_on(runtime.spawn(async { giveway::yield_now().await })).unwrap();
        assert_eq!(
            runtime.metrics().monitor_rescues,
            0,
            "wake-ups were lost\n{}",
            runtime.metrics()
        );
    }
}

/// L2 of the specification: no stuck condition persists.
#[test]
fn l2_tasks_go_on_with_every_worker_in_an_endless_poll() {
    with_every_worker_held(|runtime| {
        let sum: usize = runtime.block_on(async {
            let tasks: Vec<_> = (0..100).map(|n| giveway::spawn(async move { n })).collect();
            futures::future::join_all(tasks).await.into_iter().map(Result::unwrap).sum()
        });
        assert_eq!(sum, 4_950);
    });
}

#[test]
fn timers_and_background_tasks_go_on_with_every_worker_in_an_endless_poll() {
    with_every_worker_held(|runtime| {
        let sleeps = runtime.spawn_background(async {
            for _ in 0..3 {
                giveway::time::sleep(Duration::from_millis(1)).await;
            }
        });
        runtime.block_on(sleeps).unwrap();
        runtime.block_on(giveway::time::sleep(Duration::from_millis(1)));
    });
}

#[test]
fn sockets_go_on_with_every_worker_in_an_endless_poll() {
    with_every_worker_held(|runtime| {
        let (address, addresses) = mpsc::channel();
        let server = runtime.spawn(async move {
            let listener = giveway::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            address.send(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            futures::io::copy(&stream, &mut &stream).await.unwrap();
        });
        let mut client = std::net::TcpStream::connect(recv(&addresses)).unwrap();
        for byte in 0..10 {
            client.write_all(&[byte]).unwrap();
            let mut echo = [0];
            client.read_exact(&mut echo).unwrap();
            assert_eq!(echo, [byte]);
        }
        drop(client);
        runtime.block_on(server).unwrap();
    });
}

/// The tasks are queued behind the endless poll, on the only worker: only a spare worker can run
/// them.
#[test]
fn what_an_endless_poll_has_spawned_before_runs() {
    let _watch = watch();
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    let (send, children) = mpsc::channel();
    let task = runtime.spawn(async move {
        for child in 0..10 {
            let send = send.clone();
            giveway::spawn(async move { send.send(child).unwrap() });
        }
        while !stops.load(Relaxed) {
            thread::yield_now();
        }
    });
    let mut ran: Vec<_> = (0..10).map(|_| recv(&children)).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..10).collect::<Vec<_>>());
    stop.store(true, Relaxed);
    runtime.block_on(task).unwrap();
}

/// A spare worker is a worker: when it blocks in place, its core is lent, and another thread takes
/// the core. Twice as many tasks as there are spare workers block until the gate opens, and before
/// that a task runs beside them.
#[test]
fn a_blocking_call_on_a_spare_worker_leaves_its_core_to_others() {
    with_every_worker_held(|runtime| {
        let gate = Gate::new();
        let blocked: Vec<_> = (0..2 * runtime.handle().workers())
            .map(|_| {
                let gate = gate.clone();
                runtime.spawn(async move { giveway::block_in_place(|| gate.wait()) })
            })
            .collect();
        runtime.block_on(runtime.spawn(async { giveway::yield_now().await })).unwrap();
        gate.open();
        for task in blocked {
            runtime.block_on(task).unwrap();
        }
    });
}

/// A spare worker that waits in the reactor keeps other workers out of it. When it has retired, one
/// of them has to go there.
#[test]
fn a_timer_fires_though_the_spare_worker_in_the_reactor_has_retired() {
    for _ in 0..10 {
        let _watch = watch();
        let runtime = runtime(1);
        let endless = endless(&runtime, 1);
        // With short polls no second worker is wanted in the reactor.
        (0..100).for_each(|_| runtime.block_on(runtime.spawn(async {})).unwrap());
        let sleeps = runtime.spawn(async { giveway::time::sleep(Duration::from_millis(40)).await });
        // True once the spare worker has polled any task. Nothing orders its poll of `sleeps`,
        // after which it waits for the timer.
        eventually(|| runtime.metrics().spare_workers.iter().any(|spare| spare.polls > 0));
        endless.end(&runtime);
        runtime.block_on(sleeps).unwrap();
    }
}

/// One worker and two spare ones are in endless polls. A fourth task has no worker until these
/// return.
#[test]
fn there_are_no_more_spare_workers_than_allowed() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).max_spare_workers(2).build().unwrap();
    // The worker and both spare workers have one each.
    let endless = endless(&runtime, 3);
    let stuck = runtime.spawn(async {});
    // About the time that the monitor takes to notice the third poll. Nothing shows when it has: on
    // a slow machine the checks may come too early and miss a fault, but they never fail wrongly.
    thread::sleep(Duration::from_millis(50));
    let metrics = runtime.metrics();
    assert_eq!((metrics.spares_at_work, metrics.spares_sent), (2, 2), "{metrics}");
    assert!(!stuck.is_finished(), "nobody is left to run it");
    endless.end(&runtime);
    runtime.block_on(stuck).unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.spare_workers.len(), 2, "{metrics}");
    assert!(metrics.to_string().contains("spare 1"), "{metrics}");
}

#[test]
fn without_spare_workers_there_are_none() {
    let _watch = watch();
    let (report, reports) = mpsc::channel();
    let hook = move |_: &giveway::LongPoll| report.send(()).unwrap();
    let runtime =
        Builder::new().workers(1).max_spare_workers(0).on_long_poll(hook).build().unwrap();
    let endless = endless(&runtime, 1);
    // A poll is reported when it has ended or counts as hanging: by then it was asked to return,
    // and did not.
    let reported = Patience::new().keep_trying(|pause| reports.recv_timeout(pause).ok());
    assert!(reported.is_some(), "no long poll was reported");
    assert_eq!(runtime.metrics().spares_sent, 0);
    endless.end(&runtime);
}

/// A shutdown takes polls on spare workers into account, and its report names them. What a drop
/// prints meanwhile is tested in `shutdown_says.rs`.
#[test]
fn a_shutdown_names_the_polls_on_spare_workers_too() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).max_spare_workers(1).build().unwrap();
    let Endless { stop, .. } = endless(&runtime, 2);
    let report = runtime.shutdown_timeout(Duration::ZERO);
    assert_eq!(report.stuck_tasks().len(), 2, "{report}");
    stop.store(true, Relaxed);
}

/// The drop begins while the spare workers run tasks, or while they sleep.
#[test]
fn a_runtime_with_spare_workers_is_dropped_while_they_work_and_while_they_sleep() {
    for busy in [false, true] {
        let _watch = watch();
        let runtime = runtime(2);
        let Endless { stop, tasks } = endless(&runtime, 2);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        if busy {
            for _ in 0..10 {
                runtime.spawn(async {
                    loop {
                        giveway::yield_now_if_busy().await;
                        giveway::yield_now().await;
                    }
                });
            }
        }
        let dropper = thread::spawn(move || drop(runtime));
        stop.store(true, Relaxed);
        dropper.join().unwrap();
        assert!(tasks.iter().all(JoinHandle::is_finished));
    }
}

/// A task on a spare worker drops the runtime: the drop cannot wait for the thread that it runs on.
#[test]
fn a_runtime_is_dropped_on_its_own_spare_worker() {
    let _watch = watch();
    let runtime = runtime(1);
    let Endless { stop, .. } = endless(&runtime, 1);
    let (done, waits) = mpsc::channel();
    let handle = runtime.handle().clone();
    handle.spawn(async move {
        drop(runtime);
        done.send(()).unwrap();
    });
    recv(&waits);
    stop.store(true, Relaxed);
}
