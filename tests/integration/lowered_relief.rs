//! Lowered polls that wait for a thread, and none is to be had: what else the runtime then does.

use futures::channel::oneshot;
use giveway::task;
use giveway::{Builder, yield_now};
use giveway_tests::{Endless, isolated, watch};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// For longer than the monitor waits before it lets one more lowered poll run.
const LONG: Duration = Duration::from_millis(300);

/// Computes, which no yield point interrupts.
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// One lowered poll blocks, and waits for a task that gives way on the thread that was started
/// because of it. By then the monitor may sleep, because nothing was queued any more.
#[test]
fn a_task_that_gives_way_on_a_relief_thread_is_not_forgotten() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).build().unwrap();
    let (done, awaited) = mpsc::channel();
    let spawn = || task::Builder::new().preemptible(true);
    let first = spawn().spawn_on(async move { awaited.recv().unwrap() }, runtime.handle());
    let second = spawn().spawn_on(
        async move {
            compute(LONG);
            yield_now().await;
            done.send(7).unwrap();
        },
        runtime.handle(),
    );
    assert_eq!(futures::executor::block_on(first).unwrap(), 7);
    futures::executor::block_on(second).unwrap();
}

/// As above, and a third task waits behind the two.
#[test]
fn tasks_that_take_turns_on_a_relief_thread_all_go_on() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).build().unwrap();
    let (done, awaited) = mpsc::channel();
    let spawn = || task::Builder::new().preemptible(true);
    let blocked =
        spawn().spawn_on(async move { awaited.iter().take(2).sum::<u32>() }, runtime.handle());
    for _ in 0..2 {
        let done = done.clone();
        spawn().spawn_on(
            async move {
                compute(LONG);
                yield_now().await;
                done.send(7).unwrap();
            },
            runtime.handle(),
        );
    }
    assert_eq!(futures::executor::block_on(blocked).unwrap(), 14);
}

/// Jobs that were accepted run, also while the runtime is dropped: a background job that waits for
/// another one gets it a thread.
#[test]
fn background_jobs_that_wait_for_each_other_end_while_the_runtime_is_dropped() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).build().unwrap();
    let (done, awaited) = mpsc::channel();
    let (began, beginning) = oneshot::channel();
    let job = || task::Builder::new().class(task::Class::Background);
    let first = job().spawn_blocking_on(
        move || {
            began.send(()).unwrap();
            awaited.recv().unwrap()
        },
        runtime.handle(),
    );
    futures::executor::block_on(beginning).unwrap();
    let second = job().spawn_blocking_on(move || done.send(7).unwrap(), runtime.handle());
    drop(runtime);
    assert_eq!(futures::executor::block_on(first).unwrap(), 7);
    futures::executor::block_on(second).unwrap();
}

/// All workers rest, and a lowered poll waits for a thread as long as the others do not return. The
/// monitor, which then looks seldom, still starts threads for blocking jobs that wait for each
/// other.
#[test]
fn jobs_get_their_threads_while_a_lowered_poll_waits_in_vain() {
    isolated("lowered_relief::jobs_get_their_threads_while_a_lowered_poll_waits_in_vain", || {
        let _watch = watch();
        let most = 6;
        let runtime = Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .max_blocking_threads(most)
            .build()
            .unwrap();
        // One more than may ever run at once.
        let lowered =
            Endless::start(&runtime, || task::Builder::new().preemptible(true), most + 1, most);
        // Long after the worker is at rest. (If it is not, the jobs have their threads all the
        // same.)
        thread::sleep(Duration::from_millis(100));
        // More than are started at once.
        let barrier = Arc::new(Barrier::new(most));
        let job = |barrier: Arc<Barrier>| move || _ = barrier.wait();
        let jobs: Vec<_> =
            (0..most).map(|_| runtime.spawn_blocking(job(barrier.clone()))).collect();
        jobs.into_iter().for_each(|job| futures::executor::block_on(job).unwrap());
        assert_eq!(runtime.metrics().lowered_queued, 1);
        lowered.end(&runtime);
    });
}
