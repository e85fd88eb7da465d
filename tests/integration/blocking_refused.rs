//! No thread can be had: the OS refuses one, the limit is reached, or this is the child of a fork.

use super::blocking::{limited, occupy_thread, threads_named};
use super::blocking_end::assert_cancelled;
use futures::task::Spawn;
use giveway::task::JoinHandle;
use giveway::{Handle, Runtime, block_in_place, block_on, spawn, spawn_blocking, yield_now};
use giveway_tests::{Drops, Gate, eventually, isolated, occupy, on_drop, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

/// The stack size of threads that do not fit into what is left of the address space. The OS refuses
/// them even to a user for whom no limit of processes holds.
pub(crate) const HUGE: usize = 512 << 20;

/// Limits the address space of this process to what it has and half of a stack. Call this in a
/// process of its own only.
pub(crate) fn refuse_huge_stacks() {
    limit_address_space(HUGE as u64 / 2);
}

/// Limits the address space of this process to what it has and `room` more. Call this in a process
/// of its own only.
pub(crate) fn limit_address_space(room: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: `sysconf` takes a number only, and returns a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    let limit = libc::rlimit { rlim_cur: pages * page + room, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `setrlimit` only reads `limit`, which is initialized and outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

pub(crate) fn allow_huge_stacks() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `setrlimit` only reads `limit`, which is initialized and outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Starts a runtime whose threads have stacks of a size that the OS can be made to refuse.
fn with_huge_stacks(workers: usize) -> Runtime {
    giveway::Builder::new()
        .workers(workers)
        .max_spare_workers(0)
        .stack_size(HUGE)
        .build()
        .expect("address space is plenty")
}

fn assert_refused<T>(job: JoinHandle<T>) {
    let error = futures::executor::block_on(job).map(drop).unwrap_err();
    assert!(
        error.is_cancelled() && error.to_string().contains("no thread could be started for it"),
        "{error}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_job_for_which_the_os_refuses_the_first_thread_is_dropped_and_says_why() {
    isolated(
        "blocking_refused::a_job_for_which_the_os_refuses_the_first_thread_is_dropped_and_says_why",
        || {
            let _watch = watch();
            let (runtime, drops) = (with_huge_stacks(1), Drops::of(10));
            refuse_huge_stacks();
            for i in 0..10 {
                let counter = drops.counter(i);
                assert_refused(runtime.spawn_blocking(move || drop(counter)));
            }
            drops.assert_each_once();
            allow_huge_stacks();
            assert_eq!(
                runtime.block_on(runtime.spawn_blocking(|| 1)).unwrap(),
                1,
                "as soon as there is one"
            );
        },
    );
}

/// The only thread is in a job until all others are queued, and then runs them.
#[cfg(target_os = "linux")]
#[test]
fn jobs_for_which_the_os_refuses_more_threads_run_on_those_there_are() {
    isolated(
        "blocking_refused::jobs_for_which_the_os_refuses_more_threads_run_on_those_there_are",
        || {
            let _watch = watch();
            let (runtime, gate, runs) =
                (with_huge_stacks(2), Gate::new(), Arc::new(AtomicUsize::new(0)));
            let busy = occupy_thread(runtime.handle(), &gate);
            refuse_huge_stacks();
            let jobs: Vec<_> = (0..500)
                .map(|_| {
                    let runs = runs.clone();
                    runtime.spawn_blocking(move || runs.fetch_add(1, SeqCst))
                })
                .collect();
            assert_eq!(runs.load(SeqCst), 0);
            gate.open();
            jobs.into_iter().for_each(|job| _ = runtime.block_on(job).unwrap());
            assert_eq!(runs.load(SeqCst), 500);
            runtime.block_on(busy).unwrap();
        },
    );
}

/// The only other thread holds the core of the task that waits for the job, so no thread comes for
/// the job. It runs if the OS has a thread for it; otherwise its handle says why it does not.
#[cfg(target_os = "linux")]
#[test]
fn a_job_that_nobody_can_come_to_but_a_stand_in_is_refused_or_run() {
    isolated(
        "blocking_refused::a_job_that_nobody_can_come_to_but_a_stand_in_is_refused_or_run",
        || {
            let _watch = watch();
            let runtime = with_huge_stacks(1);
            let task = runtime.spawn(async {
                block_in_place(|| {
                    // From here on a thread of the crew holds the core.
                    block_on(spawn(async {})).unwrap();
                    refuse_huge_stacks();
                    let outcome = block_on(spawn_blocking(|| 3));
                    allow_huge_stacks();
                    outcome
                })
            });
            match runtime.block_on(task).unwrap() {
                Ok(three) => assert_eq!(three, 3),
                Err(error) => {
                    assert!(error.to_string().contains("no thread could be started"), "{error}")
                }
            }
        },
    );
}

/// The worker keeps its core. What is queued there waits for the call, or goes to the other
/// workers.
#[cfg(target_os = "linux")]
#[test]
fn blocking_in_place_without_a_thread_to_take_over_is_slow_and_works() {
    isolated(
        "blocking_refused::blocking_in_place_without_a_thread_to_take_over_is_slow_and_works",
        || {
            let _watch = watch();
            for workers in [1, 2] {
                let runtime = with_huge_stacks(workers);
                refuse_huge_stacks();
                let tasks: Vec<_> = (0..10)
                    .map(|i| {
                        runtime.spawn(async move {
                            for _ in 0..5 {
                                block_in_place(|| std::thread::sleep(Duration::from_millis(1)));
                                assert_eq!(spawn(async move { i }).await.unwrap(), i);
                                yield_now().await;
                            }
                        })
                    })
                    .collect();
                tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
                allow_huge_stacks();
                let (sent, received) = mpsc::channel();
                let late = runtime.spawn(async move {
                    spawn(async move { sent.send(()).unwrap() });
                    block_in_place(|| giveway_tests::recv(&received));
                });
                runtime.block_on(late).unwrap();
            }
        },
    );
}

/// As many tasks may be in `block_in_place` without keeping a worker as `max_blocking_threads`
/// allows jobs.
#[test]
fn as_many_tasks_may_be_in_place_as_jobs_may_run_and_both_at_once() {
    isolated(
        "blocking_refused::as_many_tasks_may_be_in_place_as_jobs_may_run_and_both_at_once",
        || {
            const MOST: usize = 6;
            let _watch = watch();
            let (runtime, gate) = (limited(1, MOST), Gate::new());
            let jobs: Vec<_> = (0..MOST).map(|_| occupy_thread(runtime.handle(), &gate)).collect();
            let tasks = giveway_tests::block_in_place(runtime.handle(), MOST, &gate);
            // None of the tasks in place keeps the worker.
            runtime.block_on(runtime.spawn(async {})).unwrap();
            gate.open();
            tasks.into_iter().chain(jobs).for_each(|task| runtime.block_on(task).unwrap());
        },
    );
}

/// A task in place waits for a job, and the job waits for a thread. A stand-in takes no thread from
/// the jobs, and a job takes none from the stand-ins.
#[test]
fn tasks_in_place_leave_the_jobs_their_threads() {
    for most in [1, 2] {
        let _watch = watch();
        let runtime = limited(1, most);
        let task = runtime.spawn(async {
            block_in_place(|| {
                // A stand-in holds the core now. It does not count as a thread for jobs.
                let first = block_on(spawn(async { 1 })).unwrap();
                let second =
                    block_on(spawn_blocking(|| block_on(spawn(async { 2 })).unwrap())).unwrap();
                first + second
            })
        });
        assert_eq!(runtime.block_on(task).unwrap(), 3);
    }
}

/// Calls `block_in_place` from one place in the program, which is known to block for long after its
/// first call.
fn from_one_place(f: impl FnOnce()) {
    block_in_place(f);
}

/// In the child there is only the thread that forked. It must not start threads that run its
/// parent's tasks.
#[cfg(target_os = "linux")]
#[test]
fn blocking_in_place_in_a_forked_child_is_just_a_call() {
    isolated("blocking_refused::blocking_in_place_in_a_forked_child_is_just_a_call", || {
        let _watch = watch();
        let builder = giveway::Builder::new().workers(1).max_spare_workers(0).thread_name("forks");
        let runtime = builder.blocking_keep_alive(Duration::from_millis(1)).build().unwrap();
        let task = runtime.spawn(async {
            for _ in 0..2 {
                from_one_place(|| std::thread::sleep(Duration::from_millis(5)));
                yield_now().await;
            }
            // In the child, an idle blocking thread would be called for the core, and does not
            // exist there. So the task waits until there is none. The task may itself run on such a
            // thread, which holds the core and gives it back when the poll is over.
            while threads_named("forks-bl") != 0 {
                yield_now().await;
            }
            // This task is queued behind the forking one, also in the child's copy of the queue,
            // where it must not run.
            let parent = std::process::id();
            let behind = spawn(async move {
                if std::process::id() != parent {
                    // SAFETY: `_exit` takes a number, and runs no other code of this process. The
                    // child has nothing to clean up.
                    unsafe { libc::_exit(42) };
                }
            });
            let code = super::fork::in_fork(|| {
                from_one_place(|| std::thread::sleep(Duration::from_millis(200)))
            });
            assert_eq!(code, 0, "42: a task of the parent ran in the child");
            behind.await.unwrap();
        });
        runtime.block_on(task).unwrap();
    });
}

/// The closure's destructor calls the crew: it has to run while no lock is held.
#[cfg(target_os = "linux")]
#[test]
fn the_destructor_of_a_job_that_is_refused_may_spawn_another() {
    isolated("blocking_refused::the_destructor_of_a_job_that_is_refused_may_spawn_another", || {
        let _watch = watch();
        let runtime = with_huge_stacks(1);
        refuse_huge_stacks();
        let handle: Handle = runtime.handle().clone();
        let (spawned, spawns) = mpsc::channel();
        let value = on_drop(move || spawned.send(handle.spawn_blocking(|| ())).unwrap());
        assert_refused(runtime.spawn_blocking(move || drop(value)));
        assert_refused(giveway_tests::recv(&spawns));
        allow_huge_stacks();
    });
}

/// The jobs wait for the threads that there are, also while the runtime is dropped.
#[cfg(target_os = "linux")]
#[test]
fn jobs_for_which_the_os_refuses_more_threads_run_before_the_drop_returns() {
    isolated(
        "blocking_refused::jobs_for_which_the_os_refuses_more_threads_run_before_the_drop_returns",
        || {
            let _watch = watch();
            let (runtime, gate, runs) =
                (with_huge_stacks(1), Gate::new(), Arc::new(AtomicUsize::new(0)));
            let busy = occupy_thread(runtime.handle(), &gate);
            // The worker is kept too: if it ended, there would be room for another thread.
            let held = occupy(runtime.handle(), 1, &gate);
            refuse_huge_stacks();
            for _ in 0..100 {
                let runs = runs.clone();
                runtime.spawn_blocking(move || runs.fetch_add(1, SeqCst));
            }
            let handle = runtime.handle().clone();
            let dropper = std::thread::spawn(move || drop(runtime));
            eventually(|| handle.status().is_err());
            assert_eq!(runs.load(SeqCst), 0);
            gate.open();
            dropper.join().unwrap();
            assert_eq!(runs.load(SeqCst), 100);
            futures::executor::block_on(busy).unwrap();
            drop(held);
        },
    );
}

/// Only the caller's thread can drop the jobs. The one blocking thread is in a job, no second one
/// is allowed, and the OS refuses the thread that a shutdown starts to drop jobs. The worker is
/// kept in a poll too, since the room of its stack would be enough for another thread.
#[cfg(target_os = "linux")]
#[test]
fn jobs_that_are_given_up_are_dropped_though_the_os_refuses_a_thread() {
    isolated(
        "blocking_refused::jobs_that_are_given_up_are_dropped_though_the_os_refuses_a_thread",
        || {
            let _watch = watch();
            let (gate, drops) = (Gate::new(), Drops::of(10));
            let builder = giveway::Builder::new()
                .workers(1)
                .max_spare_workers(0)
                .stack_size(HUGE)
                .max_blocking_threads(1);
            let runtime = builder.build().expect("address space is plenty");
            let busy = occupy_thread(runtime.handle(), &gate);
            let held = occupy(runtime.handle(), 1, &gate);
            refuse_huge_stacks();
            let jobs: Vec<_> = (0..10)
                .map(|i| {
                    let counter = drops.counter(i);
                    runtime.spawn_blocking(move || drop(counter))
                })
                .collect();
            runtime.shutdown_background();
            drops.assert_each_once();
            jobs.into_iter().for_each(assert_cancelled);
            gate.open();
            futures::executor::block_on(busy).unwrap();
            drop(held);
        },
    );
}
