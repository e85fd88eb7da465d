//! A blocking job that was accepted runs, unless `shutdown_timeout` or `shutdown_background` gives
//! up on it.

use super::blocking::{limited, occupy_thread};
use super::blocking_end::assert_cancelled;
use futures::task::Spawn;
use giveway::task::{Builder, Class, JoinHandle};
use giveway::{Runtime, block_on, spawn_blocking};
use giveway_tests::{
    Drops, Gate, HANG, Log, each_runtime, eventually, isolated, recv, runtime, watch,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// Counts how often its jobs have run.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn job(&self) -> impl FnOnce() + Send + 'static {
        let runs = self.0.clone();
        move || _ = runs.fetch_add(1, SeqCst)
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

#[test]
fn a_job_spawned_just_before_the_drop_runs() {
    for class in [Class::Foreground, Class::Background] {
        for warm in [false, true] {
            for _ in 0..25 {
                each_runtime(1, |runtime| {
                    let runs = Runs::default();
                    let inside = runtime.enter();
                    if warm {
                        // The job's thread waits for the next job, or is about to.
                        block_on(Builder::new().class(class).spawn_blocking(|| ())).unwrap();
                    }
                    let job = Builder::new().class(class).spawn_blocking(runs.job());
                    drop(inside);
                    drop(runtime);
                    assert_eq!(runs.count(), 1, "{class:?}, warm: {warm}");
                    futures::executor::block_on(job).unwrap();
                });
            }
        }
    }
}

/// The only thread is in a job until the runtime has closed. After that it runs the queued jobs in
/// turn, and the drop waits for them.
#[test]
fn jobs_that_wait_for_the_only_thread_run_in_turn_before_the_drop_returns() {
    each_runtime(1, |first| {
        let runtime = limited(first.handle().workers(), 1);
        let (gate, drops, log) = (Gate::new(), Drops::of(50), Log::default());
        let started = occupy_thread(runtime.handle(), &gate);
        let queued: Vec<_> = (0..50)
            .map(|i| {
                let (counter, log) = (drops.counter(i), log.clone());
                runtime.spawn_blocking(move || {
                    let _counter = counter;
                    log.add(i.to_string());
                })
            })
            .collect();
        let handle = runtime.handle().clone();
        let dropper = thread::spawn(move || drop(runtime));
        eventually(|| handle.status().is_err());
        assert!(!dropper.is_finished() && !started.is_finished());
        gate.open();
        dropper.join().unwrap();
        assert_eq!(log.all(), Vec::from_iter((0..50).map(|i: i32| i.to_string())));
        drops.assert_each_once();
        for job in queued.into_iter().chain([started]) {
            assert!(job.is_finished());
            futures::executor::block_on(job).unwrap();
        }
    });
}

/// There are more jobs than threads that are started at once. The crew goes on growing while the
/// runtime closes.
#[test]
fn jobs_that_wait_for_each_other_all_get_a_thread_while_the_runtime_is_dropped() {
    each_runtime(1, |runtime| {
        let jobs = 4 * runtime.handle().workers() + 8;
        let (barrier, runs) = (Arc::new(Barrier::new(jobs)), Runs::default());
        for _ in 0..jobs {
            let (barrier, run) = (barrier.clone(), runs.job());
            runtime.spawn_blocking(move || {
                barrier.wait();
                run();
            });
        }
        drop(runtime);
        assert_eq!(runs.count(), jobs);
    });
}

/// The drop of the runtime cancels the task, and drops the handle of its job with it. The job,
/// which waits for the only thread until the task is gone, runs all the same.
#[test]
fn a_job_runs_though_the_task_that_awaits_it_is_dropped() {
    let _watch = watch();
    let (runtime, gate, runs) = (limited(1, 1), Gate::new(), Runs::default());
    let started = occupy_thread(runtime.handle(), &gate);
    let (waiting, run) = (Gate::new(), runs.job());
    let task = runtime.spawn({
        let waiting = waiting.clone();
        async move {
            let job = spawn_blocking(run);
            waiting.open();
            job.await
        }
    });
    waiting.wait();
    let handle = runtime.handle().clone();
    let dropper = thread::spawn(move || drop(runtime));
    eventually(|| handle.status().is_err());
    // The job cannot have run yet: the end of the task does not wait for it.
    assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
    assert_eq!(runs.count(), 0);
    gate.open();
    dropper.join().unwrap();
    assert_eq!(runs.count(), 1);
    futures::executor::block_on(started).unwrap();
}

/// The job begins after the runtime has closed: the only thread is in another job until then.
#[test]
fn a_job_that_begins_while_the_runtime_closes_may_sleep_and_what_it_spawns_is_cancelled() {
    each_runtime(1, |first| {
        let runtime = limited(first.handle().workers(), 1);
        let gate = Gate::new();
        occupy_thread(runtime.handle(), &gate);
        let (outcome, outcomes) = mpsc::channel();
        let job = runtime.spawn_blocking(move || {
            block_on(giveway::time::sleep(Duration::from_millis(1)));
            assert_cancelled(giveway::spawn(async {}));
            assert_cancelled(spawn_blocking(|| ()));
            outcome
                .send(block_on(async {
                    giveway::spawn(async {}).await.unwrap_err().is_cancelled()
                }))
                .unwrap();
        });
        let handle = runtime.handle().clone();
        let dropper = thread::spawn(move || drop(runtime));
        eventually(|| handle.status().is_err());
        gate.open();
        dropper.join().unwrap();
        futures::executor::block_on(job).unwrap();
        assert!(recv(&outcomes));
    });
}

#[test]
fn an_aborted_job_that_waits_for_a_thread_is_not_run_by_the_drop() {
    let _watch = watch();
    let (runtime, gate, runs) = (limited(1, 1), Gate::new(), Runs::default());
    occupy_thread(runtime.handle(), &gate);
    let (aborted, other) = (runtime.spawn_blocking(runs.job()), runtime.spawn_blocking(runs.job()));
    aborted.abort();
    gate.open();
    drop(runtime);
    assert_eq!(runs.count(), 1);
    let error = futures::executor::block_on(aborted).unwrap_err();
    assert!(error.to_string().contains("was aborted"), "{error}");
    futures::executor::block_on(other).unwrap();
}

/// A runtime that is dropped by one of its own threads cannot wait for that thread. Jobs that were
/// accepted run all the same.
#[test]
fn jobs_run_though_the_runtime_is_dropped_by_one_of_its_own_threads() {
    isolated(
        "blocking_accepted::jobs_run_though_the_runtime_is_dropped_by_one_of_its_own_threads",
        || {
            for round in 0..60 {
                let _watch = watch();
                let (runtime, runs) = (limited(1 + round % 2, 1 + round % 3), Runs::default());
                let (handle, jobs) = (runtime.handle().clone(), Runs::clone(&runs));
                let spawn_and_drop = move || {
                    let all: Vec<_> = (0..10).map(|_| spawn_blocking(jobs.job())).collect();
                    drop(runtime);
                    all
                };
                let jobs = if round % 2 == 0 {
                    futures::executor::block_on(handle.spawn_blocking(spawn_and_drop))
                } else {
                    futures::executor::block_on(handle.spawn(async { spawn_and_drop() }))
                };
                for job in jobs.unwrap() {
                    futures::executor::block_on(job).unwrap();
                }
                assert_eq!(runs.count(), 10);
            }
        },
    );
}

/// Queues jobs behind one that keeps the only thread, each with a counter of its drops. They must
/// not run.
fn queue_behind(runtime: &Runtime, drops: &Drops, jobs: usize) -> Vec<JoinHandle<()>> {
    let _inside = runtime.enter();
    let queue = |i| {
        let counter = drops.counter(i);
        Builder::new().name(format!("job {i}")).spawn_blocking(move || {
            let _counter = counter;
            unreachable!("the shutdown has given up on it")
        })
    };
    (0..jobs).map(queue).collect()
}

#[test]
fn a_shutdown_with_a_deadline_names_and_cancels_the_jobs_that_had_no_thread() {
    each_runtime(1, |first| {
        let runtime = limited(first.handle().workers(), 1);
        let (gate, drops) = (Gate::new(), Drops::of(20));
        let started = occupy_thread(runtime.handle(), &gate);
        let queued = queue_behind(&runtime, &drops, 20);
        let report = runtime.shutdown_timeout(Duration::from_millis(5));
        assert!(!report.is_clean(), "{report}");
        let (going_on, given_up): (Vec<_>, Vec<_>) =
            report.stuck_tasks().iter().partition(|job| job.has_started());
        assert!(
            going_on.iter().all(|job| job.is_blocking_job()) && going_on[0].id() == started.id(),
            "{report}"
        );
        assert_eq!(given_up.len(), 20, "{report}");
        for (i, (job, handle)) in given_up.iter().zip(&queued).enumerate() {
            assert_eq!(
                (job.id(), job.name(), job.worker()),
                (handle.id(), Some(&*format!("job {i}")), None)
            );
            assert!(
                job.is_blocking_job()
                    && job.to_string().ends_with("had not started, and is cancelled"),
                "{job}"
            );
        }
        // Their handles do not wait for the job that goes on.
        queued.into_iter().for_each(assert_cancelled);
        eventually(|| drops.all_once());
        assert!(!started.is_finished());
        gate.open();
        futures::executor::block_on(started).unwrap();
    });
}

#[test]
fn a_shutdown_with_a_deadline_that_suffices_runs_every_job() {
    each_runtime(1, |first| {
        let (runtime, runs) = (limited(first.handle().workers(), 1), Runs::default());
        (0..100).for_each(|_| drop(runtime.spawn_blocking(runs.job())));
        let report = runtime.shutdown_timeout(HANG);
        assert!(report.is_clean() && runs.count() == 100, "{report}");
    });
}

/// A job that has begun runs on. The jobs in the queue behind it are cancelled at once.
#[test]
fn a_shutdown_in_the_background_cancels_the_jobs_that_had_no_thread() {
    each_runtime(1, |first| {
        let runtime = limited(first.handle().workers(), 1);
        let (gate, drops) = (Gate::new(), Drops::of(20));
        let first = occupy_thread(runtime.handle(), &gate);
        let queued = queue_behind(&runtime, &drops, 20);
        runtime.shutdown_background();
        queued.into_iter().for_each(assert_cancelled);
        eventually(|| drops.all_once());
        gate.open();
        futures::executor::block_on(first).unwrap();
    });
}

/// `giveway::fs` uses blocking jobs: a write that was accepted is complete when the drop of the
/// runtime returns, though its task was dropped.
#[test]
fn a_file_that_was_being_written_is_whole_when_the_runtime_is_gone() {
    let _watch = watch();
    let path = std::env::temp_dir().join(format!("giveway-accepted-{}", std::process::id()));
    for round in 0..20 {
        let (runtime, (begun, begins)) = (runtime(1), mpsc::channel());
        let text = format!("round {round}").repeat(1_000);
        let write = giveway::fs::write(path.clone(), text.clone());
        runtime.spawn(async move {
            let mut write = std::pin::pin!(write);
            let _written = futures::poll!(&mut write);
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        recv(&begins);
        drop(runtime);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::remove_file(path).unwrap();
}
