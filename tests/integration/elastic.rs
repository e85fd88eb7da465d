//! Paced jobs: they finish, together they keep to a limit, and a job that leaves takes nothing
//! along. How much they are given over time is tested in giveway-yield, where the test controls the
//! clock.

use futures::future::{join_all, poll_fn, select};
use giveway::elastic::{Pace, Pacer, Settings};
use giveway::time::timeout;
use giveway::{Builder, Runtime};
use giveway_tests::{
    Alive, Gate, Log, Polls, each_runtime, eventually, hold, panic_of, recv, watch, with_runtimes,
};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Starts a runtime without spare workers, which would run foreground tasks beside a job that goes
/// on for long.
fn paced(workers: usize, settings: Settings) -> Runtime {
    let builder = Builder::new().workers(workers).max_spare_workers(0);
    builder.elastic(settings).build().expect("a runtime starts")
}

/// Keeps the calling thread busy for `time`.
fn work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

async fn job(pacer: Pacer, pieces: usize, piece: Duration) -> usize {
    for _ in 0..pieces {
        work(piece);
        pacer.pace().await;
    }
    pieces
}

/// Takes all CPU time that is in the bucket, and owes so much that the next slice is a long time
/// off. Returns when a call would wait.
async fn exhaust(pacer: &Pacer) {
    loop {
        let mut call = pin!(pacer.pace());
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await {
            return;
        }
        work(5 * MS);
    }
}

/// Takes all CPU time that is in the bucket, and stands in line for more. Returns the call that
/// waits. A call that gives way is pending too, but it is woken at once.
async fn line_up(pacer: &Pacer) -> Pin<Box<Pace<'_>>> {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }
    loop {
        work(5 * MS);
        let (mut call, woken) = (Box::pin(pacer.pace()), Arc::<Woken>::default());
        let pending =
            call.as_mut().poll(&mut Context::from_waker(&Waker::from(woken.clone()))).is_pending();
        if pending && !woken.0.load(SeqCst) {
            return call;
        }
    }
}

#[test]
fn a_paced_job_finishes_wherever_it_runs() {
    with_runtimes(|runtime| {
        let slice = Pacer::with_slice(MS);
        let piece = Duration::from_micros(100);
        let jobs = [
            runtime.spawn(job(slice.clone(), 50, piece)),
            runtime.spawn_background(job(slice.clone(), 50, piece)),
            runtime.spawn_pinned({
                let slice = slice.clone();
                move || job(slice, 50, piece)
            }),
        ];
        assert_eq!(runtime.block_on(job(slice, 50, piece)), 50);
        for job in jobs {
            assert_eq!(runtime.block_on(job).unwrap(), 50);
        }
    });
}

#[test]
fn a_job_that_has_used_its_share_waits_for_more() {
    let _watch = watch();
    let runtime = paced(1, Settings::fixed(0.1));
    let polls = Polls::default();
    // The bucket holds 25 ms. The job uses 60.
    let job = runtime.spawn(polls.clone().of(job(Pacer::with_slice(MS), 4, 15 * MS)));
    runtime.block_on(job).unwrap();
    assert!(polls.count() > 1, "it never waited");
}

#[test]
fn many_jobs_get_their_turns() {
    let _watch = watch();
    for workers in [1, 4] {
        let runtime = paced(workers, Settings::fixed(0.5));
        let jobs: Vec<_> =
            (0..100).map(|_| runtime.spawn(job(Pacer::with_slice(MS), 3, MS))).collect();
        runtime.block_on(join_all(jobs)).into_iter().for_each(|job| assert_eq!(job.unwrap(), 3));
    }
}

#[test]
fn jobs_may_share_a_pacer() {
    with_runtimes(|runtime| {
        let pacer = Arc::new(Pacer::with_slice(MS));
        let share = |pacer: Arc<Pacer>| async move {
            for _ in 0..50 {
                work(MS / 10);
                pacer.pace().await;
            }
        };
        let jobs: Vec<_> = (0..8).map(|_| runtime.spawn(share(pacer.clone()))).collect();
        runtime.block_on(join_all(jobs)).into_iter().for_each(|job| job.unwrap());
    });
}

#[test]
fn the_first_slice_is_there_at_once_and_the_pacer_knows_its_limit() {
    with_runtimes(|runtime| {
        let job = runtime.spawn(async {
            let pacer = Pacer::new();
            let at_once = poll_fn(|cx| Poll::Ready(pin!(pacer.pace()).poll(cx).is_ready())).await;
            at_once && pacer.limit().is_some()
        });
        assert!(runtime.block_on(job).unwrap());
    });
}

/// The first call stands in line and is not polled again when its slice is there. The second call
/// is served nevertheless.
#[test]
fn who_waits_is_served_though_somebody_before_it_does_not_come() {
    let _watch = watch();
    let runtime = paced(2, Settings::fixed(0.2));
    runtime.block_on(async {
        let (first, second) = (Pacer::with_slice(MS), Pacer::with_slice(MS));
        exhaust(&first).await;
        let mut left_lying = pin!(first.pace());
        poll_fn(|cx| {
            assert!(left_lying.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        second.pace().await;
        // This call was served long ago.
        left_lying.await;
    });
}

#[test]
fn the_limit_falls_when_foreground_tasks_wait() {
    let _watch = watch();
    // Every wait is longer than the target.
    let settings = Settings::new().target_latency(Duration::from_nanos(1)).delta_per_second(10.0);
    let runtime = paced(1, settings);
    let (stop, limit) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let job = runtime.spawn({
        let (stop, limit) = (stop.clone(), limit.clone());
        async move {
            let pacer = Pacer::with_slice(MS);
            while !stop.load(SeqCst) {
                work(MS);
                pacer.pace().await;
                *limit.lock().unwrap() = pacer.limit();
            }
        }
    });
    eventually(|| {
        runtime.block_on(runtime.spawn(async {})).unwrap();
        *limit.lock().unwrap() == Some(0.05)
    });
    stop.store(true, SeqCst);
    runtime.block_on(job).unwrap();
}

/// Foreground tasks wait behind one another until the limit moves, while the job waits for a slice.
/// The limit may only rise.
#[test]
fn waits_that_paced_jobs_did_not_cause_leave_the_limit_alone() {
    let _watch = watch();
    // The slice that the job waits for is minutes away.
    let (baseline, target) = (0.001, Duration::from_micros(1));
    let settings =
        Settings::new().minimum(baseline / 2.0).baseline(baseline).target_latency(target);
    let runtime = paced(1, settings.delta_per_second(baseline));
    let (pacer, (waits, waiting)) = (Arc::new(Pacer::new()), mpsc::channel());
    let job = runtime.spawn({
        let pacer = pacer.clone();
        async move {
            let call = line_up(&pacer).await;
            waits.send(()).unwrap();
            call.await;
        }
    });
    recv(&waiting);
    // The job's poll is over when this task runs. No foreground task has waited for that poll.
    runtime.block_on(runtime.spawn_background(async {})).unwrap();
    eventually(|| {
        let gate = Gate::new();
        let first = runtime.spawn({
            let gate = gate.clone();
            async move { gate.wait() }
        });
        let others: Vec<_> = (0..50).map(|_| runtime.spawn(async {})).collect();
        gate.open();
        runtime.block_on(async {
            first.await.unwrap();
            join_all(others).await.into_iter().for_each(|other| other.unwrap());
        });
        pacer.limit() != Some(baseline)
    });
    let limit = pacer.limit().expect("it is paced");
    assert!(limit > baseline, "it has fallen, to {limit}");
    job.abort();
}

/// Here the foreground tasks wait behind a poll of a paced job, which is what the limit is for.
#[test]
fn waits_behind_a_paced_poll_lower_the_limit() {
    let _watch = watch();
    let settings = Settings::new().target_latency(Duration::from_micros(1)).delta_per_second(0.01);
    let runtime = paced(1, settings);
    let (stop, limit) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let (begun, begins) = mpsc::channel();
    let job = runtime.spawn({
        let (stop, limit) = (stop.clone(), limit.clone());
        async move {
            let pacer = Pacer::new();
            while !stop.load(SeqCst) {
                // The thread that receives this spawns the next foreground task, which waits for
                // the rest of this stretch.
                let _nobody_listens = begun.send(());
                work(MS);
                pacer.pace().await;
                *limit.lock().unwrap() = pacer.limit();
                giveway::yield_now().await;
            }
        }
    });
    eventually(|| {
        recv(&begins);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        limit.lock().unwrap().is_some_and(|limit| limit < 0.25)
    });
    stop.store(true, SeqCst);
    runtime.block_on(job).unwrap();
}

#[test]
fn the_limit_rises_when_a_job_waits_and_nobody_else() {
    let _watch = watch();
    let settings = Settings::new().target_latency(Duration::from_secs(3600)).delta_per_second(10.0);
    let runtime = paced(1, settings);
    let job = runtime.spawn(async {
        let pacer = Pacer::with_slice(MS);
        while pacer.limit() != Some(0.75) {
            work(MS);
            pacer.pace().await;
        }
    });
    runtime.block_on(job).unwrap();
}

#[test]
fn outside_of_a_runtime_a_pacer_is_always_ready() {
    let pacer = Pacer::with_slice(Duration::from_nanos(1));
    futures::executor::block_on(async {
        for _ in 0..1_000 {
            pacer.pace().await;
        }
    });
    assert_eq!(pacer.limit(), None);
    // The thread has entered a runtime, but another executor polls the call.
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.handle().enter();
    futures::executor::block_on(pacer.pace());
}

#[test]
fn settings_that_make_no_sense_are_refused_when_the_runtime_is_built() {
    for (settings, named) in [
        (Settings::fixed(0.0), "minimum"),
        (Settings::fixed(-1.0), "minimum"),
        (Settings::fixed(f64::NAN), "minimum"),
        (Settings::fixed(2.0), "maximum"),
        (Settings::new().baseline(0.9), "baseline"),
        (Settings::new().delta_per_second(f64::INFINITY), "delta"),
        (Settings::new().target_latency(Duration::ZERO), "target"),
    ] {
        let error = Builder::new().elastic(settings).build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(named), "{error}");
    }
    assert!(panic_of(|| Pacer::with_slice(Duration::ZERO)).contains("slice"));
}

#[test]
fn calls_inside_of_join_and_select_are_all_served() {
    let _watch = watch();
    let runtime = paced(2, Settings::fixed(0.5));
    let job = runtime.spawn(async {
        let pacers = [(); 5].map(|()| Pacer::with_slice(MS));
        exhaust(&pacers[0]).await;
        // The call that comes second is dropped, and leaves its place in the line.
        for _ in 0..10 {
            let _ = select(pin!(pacers[1].pace()), pin!(pacers[2].pace())).await;
            work(MS);
        }
        join_all(pacers.iter().chain(&pacers).map(Pacer::pace)).await;
    });
    runtime.block_on(job).unwrap();
}

#[test]
fn a_slice_on_its_way_to_a_job_that_is_gone_goes_to_the_next() {
    let _watch = watch();
    let runtime = paced(2, Settings::fixed(0.1));
    let (waits, waiting) = mpsc::channel();
    let first = runtime.spawn(async move {
        let pacer = Pacer::new();
        exhaust(&pacer).await;
        waits.send(()).unwrap();
        pacer.pace().await;
        hold(pacer).await;
    });
    recv(&waiting);
    let second = runtime.spawn(job(Pacer::with_slice(MS), 1, MS));
    first.abort();
    assert!(runtime.block_on(first).unwrap_err().is_cancelled());
    runtime.block_on(second).unwrap();
}

/// Jobs come, give up, are aborted and go on, all at once. Those that stay finish.
#[test]
fn stampede() {
    for workers in [1, 2, 8] {
        let _watch = watch();
        let runtime = paced(workers, Settings::fixed(0.5));
        let impatient = |n: u64| async move {
            let pacer = Pacer::with_slice(MS);
            for _ in 0..20 {
                work(MS / 10);
                let _ = timeout(Duration::from_micros(100 * (n % 8)), pacer.pace()).await;
            }
            pacer.pace().await;
        };
        let stay: Vec<_> = (0..64).map(|n| runtime.spawn(impatient(n))).collect();
        let leave: Vec<_> = (0..64).map(|n| runtime.spawn_background(impatient(n))).collect();
        for job in leave.into_iter().rev() {
            job.abort();
        }
        runtime.block_on(join_all(stay)).into_iter().for_each(|job| job.unwrap());
    }
}

#[test]
fn dropping_the_runtime_drops_the_jobs_that_wait() {
    each_runtime(1, |_| {
        let runtime = paced(1, Settings::fixed(0.01));
        let (alive, (waits, waiting)) = (Alive::default(), mpsc::channel());
        let jobs: Vec<_> = (0..10)
            .map(|_| {
                let (alive, waits) = (alive.clone(), waits.clone());
                runtime.spawn(async move {
                    let (_alive, pacer) = (alive, Pacer::new());
                    exhaust(&pacer).await;
                    waits.send(()).unwrap();
                    pacer.pace().await;
                    hold(()).await;
                })
            })
            .collect();
        jobs.iter().for_each(|_| recv(&waiting));
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
        for job in jobs {
            assert!(futures::executor::block_on(job).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_future_of_block_on_that_waits_is_let_go_when_the_runtime_is_shut_down() {
    let _watch = watch();
    let runtime = paced(1, Settings::fixed(0.01));
    let (handle, waits) = (runtime.handle().clone(), Gate::new());
    let waiter = std::thread::spawn({
        let waits = waits.clone();
        move || {
            handle.block_on(async {
                let pacer = Pacer::new();
                exhaust(&pacer).await;
                waits.open();
                pacer.pace().await;
                // From now on no call is paced.
                for _ in 0..1_000 {
                    pacer.pace().await;
                }
            });
        }
    });
    waits.wait();
    drop(runtime);
    waiter.join().unwrap();
}

#[test]
fn a_pacer_goes_from_one_runtime_to_another_and_outlives_both() {
    let _watch = watch();
    let pacer = Arc::new(Pacer::new());
    for limit in [0.2, 0.3] {
        let runtime = paced(2, Settings::fixed(limit));
        let job = runtime.spawn({
            let pacer = pacer.clone();
            async move {
                pacer.pace().await;
                pacer.limit()
            }
        });
        assert_eq!(runtime.block_on(job).unwrap(), Some(limit));
    }
    assert_eq!(Arc::strong_count(&pacer), 1);
    futures::executor::block_on(pacer.pace());
    drop(pacer);
}

#[test]
fn a_call_that_waits_in_a_runtime_that_is_gone_is_ready_in_another() {
    let _watch = watch();
    let (here, there) = (paced(1, Settings::fixed(0.01)), paced(1, Settings::fixed(0.5)));
    let pacer = Pacer::new();
    let mut call = pin!(pacer.pace());
    here.block_on(async {
        let other = Pacer::new();
        exhaust(&other).await;
        poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        // The drop gives nothing back: the slice has been used.
        drop(other);
    });
    let there = std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            there.block_on(call);
            there
        });
        drop(here);
        waiter.join().unwrap()
    });
    there.block_on(pacer.pace());
}

#[test]
fn a_job_that_waits_for_a_slice_is_no_deadlock() {
    let _watch = watch();
    let settings = Settings::fixed(0.1);
    let runtime =
        Builder::new().workers(2).detect_deadlock(true).elastic(settings).build().unwrap();
    runtime.block_on(runtime.spawn(job(Pacer::with_slice(MS), 5, 10 * MS))).unwrap();
}

/// The destructor of a waiting job may call `pace`.
#[test]
fn a_destructor_may_use_pacers() {
    each_runtime(1, |_| {
        let runtime = paced(1, Settings::fixed(0.01));
        let log = Log::default();
        let (waits, waiting) = mpsc::channel();
        let job = runtime.spawn({
            let log = log.clone();
            async move {
                let pacer = Arc::new(Pacer::new());
                exhaust(&pacer).await;
                let _last = giveway_tests::on_drop({
                    let pacer = pacer.clone();
                    move || {
                        let mut call = pin!(pacer.pace());
                        let _ = call
                            .as_mut()
                            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
                        log.add("dropped");
                    }
                });
                waits.send(()).unwrap();
                pacer.pace().await;
                hold(()).await;
            }
        });
        recv(&waiting);
        drop(runtime);
        log.assert(&["dropped"]);
        assert!(futures::executor::block_on(job).unwrap_err().is_cancelled());
    });
}

/// The awaiter of a task is woken when the task is gone. Its waker is foreign code, and may call
/// `pace`.
#[test]
fn a_waker_may_use_pacers() {
    struct Polite {
        pacer: Pacer,
        called: mpsc::Sender<()>,
    }
    impl std::task::Wake for Polite {
        fn wake(self: Arc<Self>) {
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = pin!(self.pacer.pace()).poll(&mut cx);
            self.called.send(()).unwrap();
        }
    }
    with_runtimes(|runtime| {
        for _ in 0..100 {
            let (called, calls) = mpsc::channel();
            let waker = std::task::Waker::from(Arc::new(Polite { pacer: Pacer::new(), called }));
            let end = Gate::new();
            let task = runtime.spawn({
                let end = end.clone();
                async move { end.wait() }
            });
            // The worker wakes the awaiter at the very end of the task.
            let mut task = task;
            assert!(pin!(&mut task).poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            end.open();
            recv(&calls);
            runtime.block_on(task).unwrap();
        }
    });
}
