//! Blocking jobs on threads of their own: each runs once, whichever thread spawns it and however
//! many jobs wait.

use futures::future::join_all;
use giveway::task::{self, Builder, Class, JoinHandle};
use giveway::time::{Duration, sleep};
use giveway::{Handle, Runtime, block_on, spawn, spawn_blocking};
use giveway_tests::with_runtimes;
use giveway_tests::{
    Drops, Gate, Log, each_runtime, eventually, isolated, message, on_drop, recv, runtime, watch,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

/// Starts a runtime with `workers` workers, and at most `threads` threads for jobs.
pub(crate) fn limited(workers: usize, threads: usize) -> Runtime {
    giveway::Builder::new()
        .workers(workers)
        .max_spare_workers(0)
        .max_blocking_threads(threads)
        .build()
        .expect("a runtime starts")
}

/// Spawns a job that ends when `gate` opens. Returns when it has begun.
pub(crate) fn occupy_thread(handle: &Handle, gate: &Gate) -> JoinHandle<()> {
    let (begun, waits) = (Gate::new(), gate.clone());
    let begins = begun.clone();
    let job = handle.spawn_blocking(move || {
        begins.open();
        waits.wait();
    });
    begun.wait();
    job
}

/// tokio 8056: a job hung, because no thread was told of it.
#[test]
fn ten_thousand_jobs_run_once_each() {
    with_runtimes(|runtime| {
        const JOBS: usize = 10_000;
        let (runs, drops) = (Arc::new(AtomicUsize::new(0)), Drops::of(JOBS));
        let jobs: Vec<_> = (0..JOBS)
            .map(|i| {
                let (runs, counter) = (runs.clone(), drops.counter(i));
                runtime.spawn_blocking(move || {
                    drop(counter);
                    runs.fetch_add(1, SeqCst);
                    i
                })
            })
            .collect();
        for (i, job) in jobs.into_iter().enumerate() {
            assert_eq!(runtime.block_on(job).unwrap(), i);
        }
        assert_eq!(runs.load(SeqCst), JOBS);
        drops.assert_each_once();
    });
}

#[test]
fn a_job_has_a_number_a_class_and_a_runtime_and_may_use_it() {
    with_runtimes(|runtime| {
        let workers = runtime.handle().workers();
        let job = runtime.spawn_blocking(move || {
            assert_eq!((task::class(), Handle::current().workers()), (Class::Foreground, workers));
            let sum = block_on(async {
                sleep(Duration::from_millis(1)).await;
                spawn(async { 1 }).await.unwrap() + spawn_blocking(|| 2).await.unwrap()
            });
            (task::id(), sum)
        });
        let id = job.id();
        assert_eq!(runtime.block_on(job).unwrap(), (id, 3));
    });
}

#[test]
fn a_job_that_panics_says_so_and_its_thread_goes_on() {
    let _watch = watch();
    let runtime = limited(1, 1);
    for round in 0..10 {
        let job = runtime.spawn_blocking(move || -> usize { panic!("job {round}") });
        let id = job.id();
        let error = runtime.block_on(job).unwrap_err();
        assert!(error.is_panic() && error.id() == id);
        assert_eq!(message(&*error.into_panic()), format!("job {round}"));
        let (seen, name) = (task::try_id(), thread::current().id());
        assert!(seen.is_none());
        let after = runtime.spawn_blocking(move || (task::id(), thread::current().id() != name));
        let id = after.id();
        assert_eq!(
            runtime.block_on(after).unwrap(),
            (id, true),
            "what the panic unwound past is as it was"
        );
    }
}

/// A job's closure captures a value that panics when it is dropped, and then the output of a job is
/// such a value. The only thread for jobs survives both.
#[test]
fn a_destructor_of_a_job_that_panics_does_not_end_its_thread() {
    let _watch = watch();
    let runtime = limited(1, 1);
    let bomb = on_drop(|| panic!("in the closure's destructor"));
    let job = runtime.spawn_blocking(move || {
        let _bomb = bomb;
    });
    assert!(runtime.block_on(job).unwrap_err().is_panic());
    drop(runtime.spawn_blocking(|| on_drop(|| panic!("in the output's destructor"))));
    assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 1)).unwrap(), 1);
}

#[test]
fn jobs_spawn_jobs_in_a_deep_chain_and_in_a_fan() {
    fn chain(depth: usize, done: mpsc::Sender<usize>) {
        if depth == 0 {
            done.send(0).unwrap()
        } else {
            drop(spawn_blocking(move || chain(depth - 1, done)))
        }
    }
    fn fan(depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        let children: Vec<_> = (0..3).map(|_| spawn_blocking(move || fan(depth - 1))).collect();
        // Each job blocks its thread until its children have run on other threads.
        children.into_iter().map(|child| block_on(child).unwrap()).sum()
    }
    with_runtimes(|runtime| {
        let (done, is_done) = mpsc::channel();
        runtime.spawn_blocking(move || chain(2_000, done));
        recv(&is_done);
        assert_eq!(runtime.block_on(runtime.spawn_blocking(|| fan(4))).unwrap(), 81);
    });
}

/// There are more jobs than threads that are started at once, which are four for each worker. The
/// monitor starts the rest; without it the jobs would wait for ever.
#[test]
fn jobs_that_wait_for_each_other_all_get_a_thread() {
    let _watch = watch();
    for (workers, jobs) in [(1, 40), (2, 100)] {
        let runtime = limited(workers, jobs);
        let barrier = Arc::new(Barrier::new(jobs));
        let all: Vec<_> = (0..jobs)
            .map(|_| {
                let barrier = barrier.clone();
                runtime.spawn_blocking(move || barrier.wait().is_leader())
            })
            .collect();
        let leaders = runtime
            .block_on(join_all(all))
            .into_iter()
            .filter(|leads| *leads.as_ref().unwrap())
            .count();
        assert_eq!(leaders, 1);
    }
}

/// All workers and the monitor sleep when the jobs come.
#[test]
fn jobs_get_their_threads_in_a_runtime_that_sleeps() {
    isolated("blocking::jobs_get_their_threads_in_a_runtime_that_sleeps", || {
        let _watch = watch();
        let runtime = limited(1, 20);
        // Long enough for all workers and the monitor to fall asleep.
        thread::sleep(Duration::from_millis(100));
        let barrier = Arc::new(Barrier::new(20));
        let all: Vec<_> = (0..20)
            .map(|_| {
                let barrier = barrier.clone();
                runtime.spawn_blocking(move || _ = barrier.wait())
            })
            .collect();
        all.into_iter().for_each(|job| futures::executor::block_on(job).unwrap());
    });
}

#[test]
fn no_more_jobs_run_at_once_than_there_may_be_threads() {
    for most in [1, 2] {
        each_runtime(1, |first| {
            let runtime = limited(first.handle().workers(), most);
            let (now, highest, order) =
                (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Log::default());
            let jobs: Vec<_> = (0..300)
                .map(|i| {
                    let (now, highest, order) = (now.clone(), highest.clone(), order.clone());
                    runtime.spawn_blocking(move || {
                        highest.fetch_max(1 + now.fetch_add(1, SeqCst), SeqCst);
                        order.add(i.to_string());
                        thread::yield_now();
                        now.fetch_sub(1, SeqCst);
                    })
                })
                .collect();
            runtime.block_on(join_all(jobs)).into_iter().for_each(Result::unwrap);
            assert!((1..=most).contains(&highest.load(SeqCst)), "{highest:?}");
            if most == 1 {
                assert_eq!(
                    order.all(),
                    (0..300).map(|i: i32| i.to_string()).collect::<Vec<_>>(),
                    "first come, first served"
                );
            }
        });
    }
}

/// The only thread is busy until `gate` opens, so both jobs are aborted while they are queued.
#[test]
fn a_job_aborted_before_it_starts_does_not_and_its_closure_is_dropped() {
    let _watch = watch();
    let (runtime, gate, drops) = (limited(1, 1), Gate::new(), Drops::of(2));
    let busy = occupy_thread(runtime.handle(), &gate);
    let queue = |i: usize| {
        let counter = drops.counter(i);
        runtime.spawn_blocking(move || {
            let _counter = counter;
            unreachable!("it was aborted")
        })
    };
    let (aborted, detached): (JoinHandle<()>, JoinHandle<()>) = (queue(0), queue(1));
    aborted.abort();
    let abort = detached.abort_handle();
    drop(detached);
    abort.abort();
    gate.open();
    assert!(runtime.block_on(aborted).unwrap_err().is_cancelled());
    runtime.block_on(busy).unwrap();
    runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
    drops.assert_each_once();
}

#[test]
fn a_job_aborted_after_it_has_started_runs_to_its_end_and_has_its_output() {
    let _watch = watch();
    let (runtime, gate, begun) = (runtime(1), Gate::new(), Gate::new());
    let (waits, begins) = (gate.clone(), begun.clone());
    let ended = Gate::new();
    let ends = ended.clone();
    let job = runtime.spawn_blocking(move || {
        begins.open();
        waits.wait();
        ends.open();
        5
    });
    begun.wait();
    job.abort();
    assert!(!job.is_finished());
    gate.open();
    // An abort only keeps a job from starting.
    assert_eq!(runtime.block_on(job).unwrap(), 5);
    assert!(ended.is_open());
}

#[test]
fn a_job_whose_handle_is_dropped_runs_and_its_output_is_dropped() {
    each_runtime(1, |runtime| {
        let (ran, runs) = mpsc::channel();
        for i in 0..20 {
            let ran = ran.clone();
            drop(runtime.spawn_blocking(move || on_drop(move || ran.send(i).unwrap())));
        }
        drop(ran);
        assert_eq!(giveway_tests::drain(&runs).into_iter().collect::<HashSet<_>>().len(), 20);
    });
}

#[test]
fn a_job_is_spawned_from_a_foreign_thread_and_from_everywhere_else() {
    let _watch = watch();
    let runtime = giveway::Builder::new()
        .workers(2)
        .max_spare_workers(0)
        .thread_name("ours")
        .build()
        .unwrap();
    let here = || thread::current().name().unwrap().starts_with("ours-bl");
    let handle = runtime.handle().clone();
    assert!(
        thread::spawn(move || futures::executor::block_on(handle.spawn_blocking(here)))
            .join()
            .unwrap()
            .unwrap()
    );
    assert!(runtime.block_on(async { spawn_blocking(here).await.unwrap() }));
    assert!(
        runtime
            .block_on(runtime.spawn(async move { spawn_blocking(here).await.unwrap() }))
            .unwrap()
    );
    let _inside = runtime.enter();
    assert!(
        futures::executor::block_on(Builder::new().name("named").spawn_blocking(here)).unwrap()
    );
}

/// A job is of the background if its builder says so, or if a background task or job spawns it.
/// Such jobs have threads of their own, at nice 19.
#[test]
fn jobs_of_the_background_run_on_threads_of_the_background() {
    each_runtime(1, |runtime| {
        let here = || {
            // SAFETY: `getpriority` takes numbers only. With 0 it returns a setting of the calling
            // thread.
            let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            (task::class(), thread::current().name().unwrap().contains("-bg"), nice == 19)
        };
        let background = (Class::Background, true, true);
        let _inside = runtime.enter();
        let by_builder = Builder::new().class(Class::Background).spawn_blocking(here);
        assert_eq!(runtime.block_on(by_builder).unwrap(), background);
        let inherited =
            runtime.spawn_background(async move { spawn_blocking(here).await.unwrap() });
        assert_eq!(runtime.block_on(inherited).unwrap(), background);
        let from_a_job =
            Builder::new().class(Class::Background).spawn_blocking(move || spawn_blocking(here));
        let inner = runtime.block_on(from_a_job).unwrap();
        assert_eq!(runtime.block_on(inner).unwrap(), background);
        let foreground = Builder::new()
            .class(Class::Background)
            .spawn_blocking(move || Builder::new().class(Class::Foreground).spawn_blocking(here));
        let inner = runtime.block_on(foreground).unwrap();
        let (class, named, _) = runtime.block_on(inner).unwrap();
        assert_eq!((class, named), (Class::Foreground, false));
        let many: Vec<_> = (0..200)
            .map(|_| Builder::new().class(Class::Background).spawn_blocking(here))
            .collect();
        for job in many {
            assert_eq!(runtime.block_on(job).unwrap(), background);
        }
    });
}

#[test]
fn hooks_are_called_once_at_the_start_and_once_at_the_end_of_every_thread() {
    let _watch = watch();
    let (starts, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |counter: &Arc<AtomicUsize>| {
        let counter = counter.clone();
        move || _ = counter.fetch_add(1, SeqCst)
    };
    let builder = giveway::Builder::new()
        .workers(2)
        .max_spare_workers(0)
        .blocking_keep_alive(Duration::from_millis(1));
    let runtime =
        builder.on_thread_start(count(&starts)).on_thread_stop(count(&stops)).build().unwrap();
    for _ in 0..20 {
        let jobs: Vec<_> = (0..10).map(|_| runtime.spawn_blocking(|| ())).collect();
        runtime.block_on(join_all(jobs)).into_iter().for_each(Result::unwrap);
    }
    // The keep-alive is over for all blocking threads, of which there was one at least: only the
    // workers are left. Stops are read first, so that there are never more of them than starts.
    eventually(|| {
        let (stops, starts) = (stops.load(SeqCst), starts.load(SeqCst));
        stops > 0 && starts - stops == 2
    });
    runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
    drop(runtime);
    assert_eq!(starts.load(SeqCst), stops.load(SeqCst));
}

/// Returns how many threads of this process have a name that begins with `prefix`.
#[cfg(target_os = "linux")]
pub(crate) fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread that has ended meanwhile has no name any more.
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// The crew has as many threads as the jobs of a burst need, ends them when the keep-alive is over,
/// and starts one thread for one job after that.
#[cfg(target_os = "linux")]
#[test]
fn the_threads_end_when_there_is_nothing_to_do_for_a_while() {
    isolated("blocking::the_threads_end_when_there_is_nothing_to_do_for_a_while", || {
        let _watch = watch();
        let runtime = giveway::Builder::new().workers(2).max_spare_workers(0).thread_name("pool");
        let runtime = runtime.blocking_keep_alive(Duration::from_millis(50)).build().unwrap();
        let barrier = Arc::new(Barrier::new(31));
        let jobs: Vec<_> = (0..30)
            .map(|_| {
                let barrier = barrier.clone();
                runtime.spawn_blocking(move || _ = barrier.wait())
            })
            .collect();
        barrier.wait();
        assert!(threads_named("pool-bl") >= 30);
        jobs.into_iter().for_each(|job| runtime.block_on(job).unwrap());
        eventually(|| threads_named("pool-bl") == 0);
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        assert_eq!(threads_named("pool-bl"), 1, "one job, one thread");
    });
}
