//! Blocking in unexpected places: in wakers, in destructors, and while a runtime ends.

use futures::task::Spawn;
use giveway::block_in_place;
use giveway::time::sleep;
use giveway_tests::{
    Gate, each_runtime, eventually, isolated, on_drop, recv, watch, with_runtimes,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

struct BlocksInPlace {
    handle: giveway::Handle,
    woken: AtomicUsize,
}

impl Wake for BlocksInPlace {
    fn wake(self: Arc<Self>) {
        block_in_place(|| {
            (0..100).for_each(|_| drop(self.handle.spawn(giveway::yield_now())));
            thread::sleep(Duration::from_millis(5));
        });
        self.woken.fetch_add(1, SeqCst);
    }
}

/// A yield point may look at the reactor, which runs wakers, and goes on with its core after that.
/// So a waker that blocks in place must not lose the core.
#[test]
fn a_waker_that_blocks_in_place_keeps_the_core_of_a_yield_point() {
    with_runtimes(|runtime| {
        let waker = Arc::new(BlocksInPlace {
            handle: runtime.handle().clone(),
            woken: AtomicUsize::new(0),
        });
        let task = runtime.spawn(async move {
            for round in 0..5 {
                let mut timer = Box::pin(sleep(Duration::from_micros(300)));
                let _ = timer.as_mut().poll(&mut Context::from_waker(&Waker::from(waker.clone())));
                while waker.woken.load(SeqCst) == round {
                    giveway::yield_now_if_busy().await;
                }
            }
        });
        runtime.block_on(task).unwrap();
    });
}

/// The call waits until a task is gone that is queued behind it on its core. That task is run or
/// dropped only if another thread takes over the core.
#[test]
fn a_call_that_begins_after_the_runtime_was_closed_lends_its_core_too() {
    each_runtime(1, |runtime| {
        let (started, starts) = mpsc::channel();
        for _ in 0..runtime.handle().workers() {
            let (handle, started) = (runtime.handle().clone(), started.clone());
            runtime.spawn(async move {
                let (held, dropped) = mpsc::channel::<()>();
                giveway::spawn(async move { drop(held) });
                started.send(()).unwrap();
                eventually(|| handle.status().is_err());
                // Whether the task ran or was dropped, its end of the channel is gone.
                let _ = block_in_place(|| dropped.recv());
            });
        }
        (0..runtime.handle().workers()).for_each(|_| recv(&starts));
        drop(runtime);
    });
}

#[test]
fn a_nested_block_on_that_begins_after_the_runtime_was_closed_is_served() {
    each_runtime(1, |runtime| {
        let (started, starts) = mpsc::channel();
        let (handle, other) = (runtime.handle().clone(), giveway_tests::runtime(1));
        let task = runtime.spawn(async move {
            started.send(()).unwrap();
            eventually(|| handle.status().is_err());
            other.block_on(sleep(Duration::from_millis(1)));
            giveway::block_on(sleep(Duration::from_millis(1)));
        });
        recv(&starts);
        drop(runtime);
        futures::executor::block_on(task).unwrap();
    });
}

fn with_one_job_thread() -> giveway::Runtime {
    giveway::Builder::new().workers(1).max_spare_workers(0).max_blocking_threads(1).build().unwrap()
}

/// Spawns a job that keeps the only thread until `until` opens, so that the next job waits. Returns
/// when the job has begun.
fn keep_busy(runtime: &giveway::Runtime, until: &Gate) {
    let (started, until) = (Gate::new(), until.clone());
    let starts = started.clone();
    runtime.spawn_blocking(move || {
        starts.open();
        until.wait();
    });
    started.wait();
}

/// The report names the job, and the shutdown does not wait for the destructor beyond its deadline.
#[test]
fn the_destructor_of_a_job_that_was_never_run_may_block() {
    let (_watch, runtime) = (watch(), with_one_job_thread());
    let (busy, in_destructor) = (Gate::new(), Gate::new());
    keep_busy(&runtime, &busy);
    let waits = in_destructor.clone();
    let guard = on_drop(move || waits.wait());
    runtime.spawn_blocking(move || drop(guard));
    let report = runtime.shutdown_timeout(Duration::from_millis(100));
    assert!(!report.is_clean());
    assert!(report.stuck_tasks().iter().any(giveway::StuckTask::is_blocking_job), "{report}");
    in_destructor.open();
    busy.open();
}

/// A task waits for a timer, too. While the runtime closes, some thread has to serve both timers.
#[test]
fn the_destructor_of_a_job_that_was_never_run_may_wait_for_a_timer() {
    let (_watch, runtime) = (watch(), with_one_job_thread());
    let (busy, started) = (Gate::new(), Gate::new());
    keep_busy(&runtime, &busy);
    let (done, is_done) = mpsc::channel();
    let guard = on_drop(move || {
        giveway::block_on(sleep(Duration::from_millis(10)));
        done.send(()).unwrap();
    });
    runtime.spawn_blocking(move || drop(guard));
    let starts = started.clone();
    let task = runtime.spawn(async move {
        starts.open();
        giveway::block_on(sleep(Duration::from_millis(100)));
    });
    started.wait();
    runtime.shutdown_background();
    recv(&is_done);
    futures::executor::block_on(task).unwrap();
    busy.open();
}

/// Users rely on a limit of one thread to run jobs one at a time. Threads that have stood in for a
/// worker must not run jobs beyond the limit.
#[test]
fn no_more_jobs_run_at_once_than_there_may_be_threads() {
    for most in [1, 2] {
        let _watch = watch();
        let runtime = giveway::Builder::new()
            .workers(2)
            .max_spare_workers(0)
            .max_blocking_threads(most)
            .build()
            .unwrap();
        let gate = Gate::new();
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                runtime.spawn(async move { block_in_place(|| gate.wait()) })
            })
            .collect();
        // A nested `block_on`, so that there are stand-ins for sure.
        let nested = runtime.spawn(async { giveway::block_on(giveway::spawn(async {})).unwrap() });
        runtime.block_on(nested).unwrap();
        gate.open();
        runtime.block_on(futures::future::join_all(tasks));
        let (now, high) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs: Vec<_> = (0..20)
            .map(|_| {
                let (now, high) = (now.clone(), high.clone());
                runtime.spawn_blocking(move || {
                    high.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    thread::sleep(Duration::from_millis(2));
                    now.fetch_sub(1, SeqCst);
                })
            })
            .collect();
        for job in runtime.block_on(futures::future::join_all(jobs)) {
            job.unwrap();
        }
        assert!(high.load(SeqCst) <= most, "{} at once, and {most} may be", high.load(SeqCst));
    }
}

thread_local! {
    static KEPT: Mutex<Option<giveway::Runtime>> = const { Mutex::new(None) };
}

#[test]
fn a_thread_local_of_a_blocking_thread_may_drop_its_runtime() {
    isolated("blocking_misuse::a_thread_local_of_a_blocking_thread_may_drop_its_runtime", || {
        let keep_alive = Duration::from_millis(1);
        let runtime = giveway::Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .blocking_keep_alive(keep_alive)
            .build()
            .unwrap();
        let (alive, (give, given)) = (Arc::new(()), mpsc::channel());
        let held = alive.clone();
        runtime.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        runtime.spawn_blocking(move || {
            let runtime = recv(&given);
            KEPT.with(|kept| *kept.lock().unwrap() = Some(runtime));
        });
        give.send(runtime).unwrap();
        eventually(|| Arc::strong_count(&alive) == 1);
    });
}

extern "C" fn takes_its_time(_: i32) {
    thread::sleep(Duration::from_millis(200));
}

/// A signal handler keeps the woken thread from running, as if the OS gave it no CPU for a while.
#[test]
fn a_thread_that_was_woken_and_has_not_run_since_is_no_deadlock() {
    isolated(
        "blocking_misuse::a_thread_that_was_woken_and_has_not_run_since_is_no_deadlock",
        || {
            let runtime = giveway::Builder::new()
                .workers(1)
                .max_spare_workers(0)
                .detect_deadlock(true)
                .build()
                .unwrap();
            // SAFETY: the handler is a function of the type that `signal` expects. It only sleeps,
            // which is async-signal-safe, and it interrupts only a thread that waits.
            unsafe { libc::signal(libc::SIGUSR2, takes_its_time as *const () as usize) };
            // SAFETY: `pthread_self` takes no arguments, and only returns a number.
            let me = unsafe { libc::pthread_self() } as usize;
            let (answer, question) = futures::channel::oneshot::channel();
            runtime.spawn(async move {
                sleep(Duration::from_millis(20)).await;
                // SAFETY: the thread has not ended, since it waits for this very task. The signal
                // has a handler.
                unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR2) };
                sleep(Duration::from_millis(5)).await;
                answer.send(7).unwrap();
            });
            assert_eq!(runtime.block_on(question), Ok(7));
        },
    );
}

/// The monitor sleeps when the OS refuses the thread. It has to be called, because no other thread
/// tries again.
#[test]
fn a_thread_that_was_refused_is_tried_again() {
    isolated("blocking_misuse::a_thread_that_was_refused_is_tried_again", || {
        const HUGE: usize = 512 << 20;
        let set = |limit| {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: `setrlimit` only reads the struct, which is initialized and outlives the
            // call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        };
        let runtime = giveway::Builder::new()
            .workers(2)
            .max_spare_workers(0)
            .stack_size(HUGE)
            .build()
            .unwrap();
        let (release, released) = mpsc::channel();
        let started = Gate::new();
        let starts = started.clone();
        let first = runtime.spawn_blocking(move || {
            starts.open();
            recv(&released);
        });
        started.wait();
        thread::sleep(Duration::from_millis(50));
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        set(pages * 4096 + HUGE as u64 / 2);
        let second = runtime.spawn_blocking(move || release.send(()).unwrap());
        set(libc::RLIM_INFINITY);
        runtime.block_on(second).unwrap();
        runtime.block_on(first).unwrap();
    });
}
