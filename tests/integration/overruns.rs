//! Background polls that do not return when they are asked: the kernel preempts them, and also the
//! polls that follow from the same place.

use giveway::task::{self, Class};
use giveway::{Builder, Runtime};
use giveway_tests::{Gate, eventually, recv, watch};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

fn runtime(workers: usize) -> Runtime {
    Builder::new().workers(workers).build().unwrap()
}

/// Computes in one poll until `stop` is set.
fn endless(stop: &Arc<AtomicBool>) -> impl Future<Output = ()> + use<> {
    let stop = stop.clone();
    async move {
        while !stop.load(Relaxed) {
            // Offers the CPU to the other tests. For the worker it is still one poll.
            std::thread::yield_now();
        }
    }
}

/// Computes until it has had a CPU for two milliseconds, however long that takes. Returns whether
/// that was on a lowered thread.
fn compute() -> bool {
    let until = cpu_time() + Duration::from_millis(2);
    while cpu_time() < until {
        (0..1_000).for_each(|_| std::hint::spin_loop());
    }
    is_lowered()
}

/// Returns whether the calling thread is lowered. The number of its worker would not tell: a spare
/// worker has none either.
fn is_lowered() -> bool {
    // SAFETY: the call takes no pointer, and only returns a number of the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) == 19 }
}

/// Returns the CPU time of the calling thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns how the kernel schedules a thread, the calling one for zero: nice, and the slice that it
/// has asked for.
#[cfg(target_os = "linux")]
fn scheduling(thread: i32) -> (i32, u64) {
    let mut attributes = [0_u64; 7];
    // SAFETY: `attributes` is valid for writes of 56 bytes, the size that is passed. The first
    // version of `sched_attr` has that size.
    let failed =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, 56, 0) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // The words hold size and policy, flags, nice and priority, runtime.
    (attributes[2] as i32, attributes[3])
}

/// L2 of the specification, for background tasks: with every worker in such a poll, the foreground
/// goes on.
#[test]
fn l2_everything_goes_on_beside_endless_polls_of_the_background() {
    for workers in [1, 2, 4] {
        let watch = watch();
        let (runtime, stop) = (runtime(workers), Arc::new(AtomicBool::new(false)));
        let handle = runtime.handle().clone();
        watch.report(move || format!("{}\n{}", handle.dump(), handle.metrics()));
        let jobs: Vec<_> =
            (0..3 * workers).map(|_| runtime.spawn_background(endless(&stop))).collect();
        // From the second round on, the place is known.
        eventually(|| runtime.metrics().overruns > 0 || runtime.metrics().lowered_running > 0);
        runtime.block_on(async {
            giveway::time::sleep(Duration::from_millis(1)).await;
            giveway::spawn(async { giveway::yield_now().await }).await.unwrap();
            giveway::spawn_background(async {
                giveway::time::sleep(Duration::from_millis(1)).await
            })
            .await
            .unwrap();
        });
        stop.store(true, Relaxed);
        jobs.into_iter().for_each(|job| runtime.block_on(job).unwrap());
        eventually(|| runtime.metrics().spares_at_work == 0);
        let metrics = runtime.metrics();
        assert!(
            metrics.overruns <= workers as u64,
            "the others were left to lowered threads\n{metrics}"
        );
        assert_eq!(
            metrics.to_string().contains("overrun polls "),
            metrics.overruns > 0,
            "{metrics}"
        );
        assert_eq!(metrics.monitor_rescues, 0, "wake-ups were lost\n{metrics}");
    }
}

#[test]
fn after_the_first_overrun_polls_from_the_same_place_are_made_on_lowered_threads() {
    let _watch = watch();
    let runtime = runtime(2);
    let spawn = || runtime.spawn_background(async { compute() });
    // The monitor may have no CPU in time for the first polls.
    eventually(|| runtime.block_on(spawn()).unwrap());
    let before = runtime.metrics();
    assert!(before.overruns > 0);
    for _ in 0..10 {
        assert!(runtime.block_on(spawn()).unwrap(), "on no worker");
    }
    let metrics = runtime.metrics();
    assert_eq!(metrics.since(&before).overruns, 0, "{metrics}");
    assert!(metrics.since(&before).lowered_time > Duration::from_millis(1), "{metrics}");
    assert_eq!(metrics.since(&metrics).lowered_time, Duration::ZERO);
    // At another place nothing has overrun.
    assert!(!runtime.block_on(runtime.spawn_background(async { is_lowered() })).unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn an_overrun_thread_is_as_before_when_its_poll_has_returned() {
    let _watch = watch();
    let (runtime, stop) = (runtime(1), Arc::new(AtomicBool::new(false)));
    let worker = || async {
        assert!(task::worker().is_some());
        scheduling(0)
    };
    let before = runtime.block_on(runtime.spawn(worker())).unwrap();
    let (tell, told) = mpsc::channel();
    let job = {
        let stop = stop.clone();
        runtime.spawn_background(async move {
            while scheduling(0) == before && !stop.load(Relaxed) {
                std::thread::yield_now();
            }
            tell.send(scheduling(0)).unwrap();
        })
    };
    // A kernel that knows no slices changes nothing, and the poll does not end by itself.
    eventually(|| job.is_finished() || runtime.metrics().overruns > 0);
    // A kernel that knows slices reports the default for a thread that has asked for none. Others
    // report zero.
    let knows_slices = before.1 != 0;
    stop.store(!knows_slices, Relaxed);
    let during = recv(&told);
    runtime.block_on(job).unwrap();
    assert_eq!(during.0, before.0, "it is a worker again, so it must not be lowered for good");
    assert!(!knows_slices || during.1 > before.1, "{during:?} {before:?}");
    // The task has to run on the worker, and not on a spare one.
    eventually(|| runtime.metrics().spares_at_work == 0);
    eventually(|| runtime.block_on(runtime.spawn(worker())).unwrap() == before);
}

#[test]
fn a_background_task_that_gives_way_stays_on_workers() {
    let _watch = watch();
    let (runtime, stop) = (runtime(2), Arc::new(AtomicBool::new(false)));
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn_background(async move {
                let (mut rounds, mut elsewhere) = (0, 0);
                while !stop.load(Relaxed) {
                    (0..100).for_each(|_| std::hint::spin_loop());
                    rounds += 1;
                    elsewhere += usize::from(is_lowered());
                    giveway::yield_now_if_busy().await;
                }
                [rounds, elsewhere]
            })
        })
        .collect();
    for _ in 0..500 {
        runtime.block_on(runtime.spawn(async {})).unwrap();
    }
    stop.store(true, Relaxed);
    let outcomes = jobs.into_iter().map(|job| runtime.block_on(job).unwrap());
    let [rounds, elsewhere] = outcomes.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    // The kernel charges a thread for an interrupt of the machine that takes long in the middle of
    // a short stretch.
    assert!(
        elsewhere <= rounds / 10,
        "{elsewhere} of {rounds} rounds on lowered threads\n{}",
        runtime.metrics()
    );
}

#[test]
fn a_place_is_forgiven_when_its_polls_have_been_short_for_a_while() {
    let _watch = watch();
    let (runtime, short) = (runtime(2), Arc::new(AtomicBool::new(false)));
    let spawn = || {
        let short = short.clone();
        runtime.spawn_background(async move {
            if short.load(Relaxed) { is_lowered() } else { compute() }
        })
    };
    eventually(|| runtime.block_on(spawn()).unwrap());
    short.store(true, Relaxed);
    eventually(|| !runtime.block_on(spawn()).unwrap());
}

/// A task that is polled on lowered threads may turn out to have yield points after all.
#[test]
fn one_long_task_comes_back_to_workers_when_it_gives_way_in_time() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn_background(async {
        // The task gives way by yield points first, and by its budget then.
        for by_budget in [false, true] {
            while !compute() {
                giveway::yield_now().await;
            }
            while is_lowered() {
                (0..100).for_each(|_| std::hint::spin_loop());
                if by_budget {
                    giveway::budget::consume().await;
                } else {
                    giveway::yield_now_if_busy().await;
                }
            }
        }
    });
    runtime.block_on(job).unwrap();
}

#[test]
fn what_is_said_outright_is_not_learnt() {
    let _watch = watch();
    let runtime = runtime(2);
    let spawn = |preemptible| {
        let builder = task::Builder::new().class(Class::Background).preemptible(preemptible);
        runtime.block_on(builder.spawn_on(async { compute() }, runtime.handle())).unwrap()
    };
    for _ in 0..20 {
        assert!(!spawn(false), "a worker polls it, however long that takes");
    }
    assert!(spawn(true));
    assert_eq!(runtime.metrics().overruns, 0);
}

#[test]
fn a_runtime_that_is_not_to_preempt_leaves_all_polls_to_workers() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).preempt_background(false).build().unwrap();
    for _ in 0..20 {
        assert!(!runtime.block_on(runtime.spawn_background(async { compute() })).unwrap());
    }
    assert_eq!(runtime.metrics().overruns, 0);
}

#[test]
fn a_pinned_task_stays_on_its_worker() {
    let _watch = watch();
    let runtime = runtime(1);
    for _ in 0..20 {
        let builder = task::Builder::new().class(Class::Background);
        let pinned =
            builder.spawn_pinned_on(|| async { (compute(), task::worker()) }, runtime.handle());
        assert_eq!(runtime.block_on(pinned).unwrap(), (false, Some(0)));
    }
    assert_eq!(runtime.metrics().overruns, 0);
}

/// There is no CPU to take from such a poll, and what it waits for may be a lock that it shares
/// with the foreground.
#[test]
fn a_poll_that_sleeps_is_not_left_to_lowered_threads() {
    let _watch = watch();
    let runtime = runtime(2);
    let spawn = || {
        runtime.spawn_background(async {
            std::thread::sleep(Duration::from_millis(20));
            is_lowered()
        })
    };
    for _ in 0..20 {
        assert!(!runtime.block_on(spawn()).unwrap());
    }
    assert_eq!(runtime.metrics().overruns, 0);
}

#[test]
fn a_dump_says_which_task_is_overrun() {
    let _watch = watch();
    let (runtime, stop) = (runtime(1), Arc::new(AtomicBool::new(false)));
    let job = task::Builder::new()
        .name("mill")
        .class(Class::Background)
        .spawn_on(endless(&stop), runtime.handle());
    eventually(|| {
        let dump = runtime.dump();
        let mill = dump.tasks().iter().find(|task| task.name.as_deref() == Some("mill"));
        mill.is_some_and(|mill| mill.overrun) && dump.to_string().contains("\"mill\" (overrun)")
    });
    stop.store(true, Relaxed);
    runtime.block_on(job).unwrap();
    // The next look of the monitor finds that the poll has ended.
    eventually(|| !runtime.dump().tasks().iter().any(|task| task.overrun));
}

/// Such a task has no worker to be dropped on, and the thread that polls it may be in another poll
/// for ever.
#[test]
fn tasks_that_were_left_to_lowered_threads_are_dropped_with_the_runtime() {
    let _watch = watch();
    let (runtime, stop, dropped) =
        (runtime(1), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..6 {
        let (counter, endless) = (giveway_tests::on_drop(counts(&dropped)), endless(&stop));
        drop(runtime.spawn_background(async move {
            let _counter = counter;
            endless.await;
            std::future::pending::<()>().await;
        }));
    }
    eventually(|| {
        let metrics = runtime.metrics();
        metrics.overruns > 0 && metrics.lowered_running > 0 && metrics.yield_queue == 0
    });
    let report = runtime.shutdown_timeout(Duration::from_millis(20));
    assert!(!report.is_clean(), "{report}");
    stop.store(true, Relaxed);
    eventually(|| dropped.load(Relaxed) == 6);
}

fn counts(counter: &Arc<AtomicUsize>) -> impl FnOnce() + Send + use<> {
    let counter = counter.clone();
    move || _ = counter.fetch_add(1, Relaxed)
}

/// A foreground task that the poll has spawned runs elsewhere meanwhile. A pinned task runs when
/// the worker comes back.
#[test]
fn what_waits_for_a_worker_in_an_overrun_poll_goes_on_after_it() {
    let _watch = watch();
    let (runtime, stop, woken) = (runtime(1), Arc::new(AtomicBool::new(false)), Gate::new());
    let (begin, begun) = mpsc::channel();
    let job = {
        let (stop, woken) = (stop.clone(), woken.clone());
        runtime.spawn_background(async move {
            let foreground = task::Builder::new().class(Class::Foreground);
            drop(foreground.spawn(async move { woken.open() }));
            begin.send(()).unwrap();
            while !stop.load(Relaxed) {
                std::thread::yield_now();
            }
        })
    };
    recv(&begun);
    let pinned = runtime.spawn_pinned(|| async { task::worker() });
    woken.wait();
    stop.store(true, Relaxed);
    assert_eq!(runtime.block_on(pinned).unwrap(), Some(0));
    runtime.block_on(job).unwrap();
}

/// The task is woken at the very moment when it is left to a lowered thread.
#[test]
fn no_wake_is_lost_between_workers_and_lowered_threads() {
    let _watch = watch();
    let (runtime, polls) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let task = {
        let polls = polls.clone();
        runtime.spawn_background(poll_fn(move |cx| {
            let poll = polls.fetch_add(1, Relaxed);
            if poll % 100 < 5 {
                compute();
            }
            let waker = cx.waker().clone();
            match poll {
                300.. => Poll::Ready(()),
                _ if poll % 2 == 0 => {
                    std::thread::spawn(move || waker.wake());
                    Poll::Pending
                }
                _ => {
                    waker.wake();
                    Poll::Pending
                }
            }
        }))
    };
    runtime.block_on(task).unwrap();
    assert_eq!(polls.load(Relaxed), 301);
}

/// A thread that wakes up preempts only threads with longer slices at once: see "Who goes first on
/// a CPU" in `monitor/overruns.md`.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_others_wait_for_have_shorter_time_slices() {
    let watch = watch();
    let runtime = Builder::new().workers(1).thread_name("slices").build().unwrap();
    let handle = runtime.handle().clone();
    watch.report(move || format!("{}\n{}", handle.dump(), handle.metrics()));
    let slice = || scheduling(0).1;
    let worker = runtime.block_on(runtime.spawn(async move { slice() })).unwrap();
    if worker == 0 {
        return eprintln!("skipped: this kernel knows no time slices");
    }
    let lowered = task::Builder::new().preemptible(true);
    let lowered = lowered.spawn_on(async move { (is_lowered(), slice()) }, runtime.handle());
    assert_eq!(runtime.block_on(lowered).unwrap(), (true, 2 * worker));
    let monitor = || scheduling(thread("slices-monitor")).1;
    assert_eq!(monitor(), worker, "a runtime without long background polls asks for nothing");
    // The monitor notices the poll, and calls a thread of the blocking pool for a spare core.
    let stop = Arc::new(AtomicBool::new(false));
    let overrun = runtime.spawn_background(endless(&stop));
    eventually(|| runtime.metrics().overruns > 0);
    assert!(monitor() < worker);
    runtime.block_on(runtime.spawn(async {})).unwrap();
    stop.store(true, Relaxed);
    runtime.block_on(overrun).unwrap();
    // The next job of that thread is not urgent. The thread that was called last is the first to
    // get one.
    eventually(|| runtime.metrics().spares_at_work == 0);
    for _ in 0..3 {
        assert_eq!(runtime.block_on(runtime.spawn_blocking(slice)).unwrap(), worker);
    }
}

/// Returns the number of the thread with this name.
#[cfg(target_os = "linux")]
fn thread(name: &str) -> i32 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap());
    let mut named = threads.filter(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    named.next().unwrap().file_name().to_str().unwrap().parse().unwrap()
}
