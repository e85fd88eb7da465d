//! Blocking jobs while their runtime ends: what they may still do, what a report says of them, and
//! which jobs are refused.

use super::blocking::{limited, occupy_thread};
use super::io_common::Random;
use futures::task::Spawn;
use giveway::task::{Builder, Class, JoinHandle};
use giveway::time::{Duration, sleep};
use giveway::{PanicPolicy, block_on, spawn, spawn_blocking};
use giveway_tests::{
    Drops, Gate, HANG, each_runtime, eventually, isolated, on_drop, panic_of, recv, rounds,
    runtime, watch,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

/// Asserts that the shutdown of its runtime cancelled the job or task.
pub(crate) fn assert_cancelled<T>(job: JoinHandle<T>) {
    let error = futures::executor::block_on(job).map(drop).unwrap_err();
    assert!(
        error.is_cancelled() && error.to_string().contains("its runtime was shut down"),
        "{error}"
    );
}

#[test]
fn a_shutdown_with_a_deadline_returns_and_names_the_job_that_never_ends() {
    for class in [Class::Foreground, Class::Background] {
        each_runtime(1, |runtime| {
            let (gate, begun, drops) = (Gate::new(), Gate::new(), Drops::of(1));
            let (waits, begins, counter) = (gate.clone(), begun.clone(), drops.counter(0));
            let inside = runtime.enter();
            let job = Builder::new().name("miller").class(class).spawn_blocking(move || {
                let _counter = counter;
                begins.open();
                waits.wait();
            });
            drop(inside);
            begun.wait();
            let report = runtime.shutdown_timeout(Duration::from_millis(20));
            assert!(!report.is_clean() && report.stuck_threads() >= 1, "{report}");
            let stuck = report
                .stuck_tasks()
                .iter()
                .find(|stuck| stuck.id() == job.id())
                .expect("it is named");
            assert_eq!(
                (stuck.name(), stuck.worker(), stuck.is_blocking_job()),
                (Some("miller"), None, true)
            );
            assert!(stuck.spawned_at().file().ends_with("blocking_end.rs"));
            assert!(
                report.to_string().contains("\"miller\"")
                    && report.to_string().contains("is a blocking job"),
                "{report}"
            );
            assert!(!job.is_finished());
            gate.open();
            futures::executor::block_on(job).unwrap();
            eventually(|| drops.all_once());
        });
    }
}

#[test]
fn a_shutdown_with_a_deadline_that_suffices_is_clean_and_joins_the_threads() {
    each_runtime(1, |runtime| {
        let stopped = Arc::new(AtomicUsize::new(0));
        drop(runtime);
        let stops = stopped.clone();
        let builder = giveway::Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .on_thread_stop(move || _ = stops.fetch_add(1, SeqCst));
        let runtime = builder.build().unwrap();
        let jobs: Vec<_> = (0..4)
            .map(|_| runtime.spawn_blocking(|| thread::sleep(Duration::from_millis(2))))
            .collect();
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        let report = runtime.shutdown_timeout(HANG);
        assert!(report.is_clean(), "{report}");
        assert!(stopped.load(SeqCst) >= 2, "the worker and at least one thread");
        jobs.into_iter().for_each(|job| assert!(job.is_finished()));
    });
}

#[test]
fn a_shutdown_in_the_background_leaves_a_job_to_itself() {
    each_runtime(1, |runtime| {
        let gate = Gate::new();
        let job = occupy_thread(runtime.handle(), &gate);
        runtime.shutdown_background();
        assert!(!job.is_finished());
        gate.open();
        futures::executor::block_on(job).unwrap();
    });
}

/// After the end of its runtime, every call of the job is served or refused, and none hangs.
#[test]
fn a_job_that_outlives_its_runtime_may_spawn_and_block() {
    each_runtime(1, |runtime| {
        let (gate, begun) = (Gate::new(), Gate::new());
        let (waits, begins) = (gate.clone(), begun.clone());
        let job = runtime.spawn_blocking(move || {
            begins.open();
            waits.wait();
            assert_cancelled(spawn(async {}));
            assert_cancelled(spawn_blocking(|| ()));
            giveway::block_in_place(|| ());
            block_on(async { spawn(async {}).await.unwrap_err().is_cancelled() })
        });
        begun.wait();
        let _report = runtime.shutdown_timeout(Duration::ZERO);
        gate.open();
        assert!(futures::executor::block_on(job).unwrap());
    });
}

/// The job runs on a thread of the runtime, and the runtime cannot wait for that thread. This holds
/// from the job's first moment on, when the thread that started the job's thread may not have
/// stored its handle yet.
#[test]
fn a_job_may_drop_its_runtime() {
    isolated("blocking_end::a_job_may_drop_its_runtime", || {
        for round in rounds(400) {
            let _watch = watch();
            let runtime = runtime(1 + round % 2);
            let (handle, drops) = (runtime.handle().clone(), Drops::of(1));
            let other = handle.spawn(giveway_tests::hold(drops.counter(0)));
            let job = handle.spawn_blocking(move || match round % 3 {
                0 => drop(runtime),
                1 => assert!(
                    !runtime.shutdown_timeout(HANG).is_clean(),
                    "this very job has not ended"
                ),
                _ => runtime.shutdown_background(),
            });
            futures::executor::block_on(job).unwrap();
            assert!(futures::executor::block_on(other).unwrap_err().is_cancelled());
            eventually(|| drops.all_once());
        }
    });
}

#[test]
fn a_job_spawned_after_the_end_is_dropped_and_cancelled() {
    each_runtime(1, |runtime| {
        let handle = runtime.handle().clone();
        drop(runtime);
        let drops = Drops::of(20);
        for i in 0..20 {
            let counter = drops.counter(i);
            assert_cancelled(handle.spawn_blocking(move || drop(counter)));
        }
        drops.assert_each_once();
    });
}

/// tokio 8406. A job that is spawned between the decision to shut down and the closing of the crew
/// must not be left in a queue. A job that was spawned before the drop runs.
#[test]
fn jobs_spawned_while_the_runtime_closes_are_run_or_cancelled() {
    isolated("blocking_end::jobs_spawned_while_the_runtime_closes_are_run_or_cancelled", || {
        let mut random = Random(3);
        for round in rounds(300) {
            let _watch = watch();
            let runtime = limited([1, 2, 8][round % 3], 1 + round % 2);
            let (closing, drops) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let spawners: Vec<_> = (0..2)
                .map(|_| {
                    let (handle, closing, drops) =
                        (runtime.handle().clone(), closing.clone(), drops.clone());
                    thread::spawn(move || {
                        let (mut jobs, mut after) = (Vec::new(), 0);
                        // At least five jobs are spawned after the runtime has closed.
                        while after < 5 {
                            after += usize::from(closing.load(SeqCst) && handle.status().is_err());
                            let drops = drops.clone();
                            let counter = on_drop(move || _ = drops.fetch_add(1, SeqCst));
                            let job = handle.spawn_blocking(move || drop(counter));
                            jobs.push((job, !closing.load(SeqCst)));
                        }
                        jobs
                    })
                })
                .collect();
            (0..random.below(20_000)).for_each(|_| std::hint::spin_loop());
            closing.store(true, SeqCst);
            drop(runtime);
            let mut all = 0;
            for (job, in_time) in spawners.into_iter().flat_map(|spawner| spawner.join().unwrap()) {
                all += 1;
                if let Err(error) = futures::executor::block_on(job) {
                    assert!(
                        error.is_cancelled() && !in_time,
                        "{error}; spawned before the drop: {in_time}"
                    );
                }
            }
            eventually(|| drops.load(SeqCst) == all);
        }
    });
}

/// No lock is held while jobs that were given up are dropped: their destructors may spawn and wait.
#[test]
fn destructors_of_jobs_that_are_given_up_may_spawn_jobs_and_drop_handles() {
    let _watch = watch();
    let (runtime, gate) = (limited(1, 1), Gate::new());
    let started = occupy_thread(runtime.handle(), &gate);
    let (dropped, drops) = mpsc::channel();
    for _ in 0..10 {
        let (handle, dropped) = (runtime.handle().clone(), dropped.clone());
        let in_destructor = on_drop(move || {
            assert_cancelled(handle.spawn_blocking(|| ()));
            assert_cancelled(spawn_blocking(|| ()));
            dropped.send(()).unwrap();
        });
        drop(runtime.spawn_blocking(move || drop(in_destructor)));
    }
    runtime.shutdown_background();
    (0..10).for_each(|_| recv(&drops));
    gate.open();
    futures::executor::block_on(started).unwrap();
}

#[test]
fn a_job_that_panics_may_shut_its_runtime_down() {
    let _watch = watch();
    let runtime = giveway::Builder::new()
        .workers(1)
        .max_spare_workers(0)
        .on_task_panic(|_| PanicPolicy::Shutdown)
        .build()
        .unwrap();
    let other = runtime.spawn(std::future::pending::<()>());
    assert!(
        runtime.block_on(runtime.spawn_blocking(|| panic!("the last one"))).unwrap_err().is_panic()
    );
    assert!(runtime.block_on(other).unwrap_err().is_cancelled());
    drop(runtime);
}

/// The job waits for a timer of a runtime whose workers have all left.
#[test]
fn a_job_that_sleeps_while_its_runtime_is_dropped_comes_to_its_end() {
    each_runtime(1, |runtime| {
        let (begun, begins) = mpsc::channel();
        let job = runtime.spawn_blocking(move || {
            begun.send(()).unwrap();
            block_on(sleep(Duration::from_millis(5)));
            5
        });
        recv(&begins);
        drop(runtime);
        assert_eq!(futures::executor::block_on(job).unwrap(), 5);
    });
}

#[test]
fn spawn_blocking_in_a_forked_child_panics_clearly() {
    isolated("blocking_end::spawn_blocking_in_a_forked_child_panics_clearly", || {
        let runtime = runtime(2);
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        let code = super::fork::in_fork(|| {
            super::fork::assert_clear(&panic_of(|| runtime.spawn_blocking(|| ())));
            super::fork::assert_clear(&panic_of(|| runtime.handle().spawn_blocking(|| ())));
            let _inside = runtime.enter();
            super::fork::assert_clear(&panic_of(|| spawn_blocking(|| ())));
        });
        assert_eq!(code, 0);
        assert_eq!(
            runtime.block_on(runtime.spawn_blocking(|| 1)).unwrap(),
            1,
            "the parent goes on"
        );
    });
}
