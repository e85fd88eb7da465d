//! The feature `tokio`: the two runtimes end in order, whichever way the end comes.

use super::blocking::threads_named;
use super::fork::in_fork;
use super::tokio_feature::{runtime, thread_name, with_tokio};
use giveway::{Runtime, spawn, spawn_blocking};
use giveway_tests::{
    Alive, Gate, HANG, Log, drain, eventually, hold, in_child, isolated, occupy, on_drop, recv,
    rounds, watch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Spawns a task that waits for ever and owns `value`, with tokio.
fn hold_on_tokio<T: Send + 'static>(runtime: &Runtime, value: T) {
    runtime.block_on(async {
        let (begun, begins) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            begun.send(()).unwrap();
            hold(value).await;
        });
        begins.await.unwrap();
    });
}

/// Runs a blocking job with tokio, which begins and then waits for `gate`.
fn occupy_thread_of_tokio(runtime: &Runtime, gate: &Gate) -> tokio::task::JoinHandle<()> {
    let (gate, begun) = (gate.clone(), Gate::new());
    let begins = begun.clone();
    let tokio = runtime.block_on(async { tokio::runtime::Handle::current() });
    let job = tokio.spawn_blocking(move || {
        begins.open();
        gate.wait();
    });
    begun.wait();
    job
}

/// Spawns a task that waits for ever and owns `value`, here.
fn hold_here<T: Send + 'static>(runtime: &Runtime, value: T) {
    drop(runtime.spawn(hold(value)));
    runtime.block_on(runtime.spawn(async {})).unwrap();
}

#[test]
fn destructors_of_tasks_use_tokio_and_come_before_those_of_tokios_tasks() {
    let _watch = watch();
    for workers in [1, 2] {
        let log = Log::default();
        let runtime = runtime(workers);
        hold_on_tokio(&runtime, {
            let log = log.clone();
            on_drop(move || log.add("tokio's"))
        });
        hold_here(&runtime, {
            let log = log.clone();
            on_drop(move || {
                let tokio = tokio::runtime::Handle::current();
                let answer = tokio.block_on(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    tokio::spawn(async { thread_name() }).await.unwrap()
                });
                log.add(answer);
            })
        });
        drop(runtime);
        log.assert(&["giveway-tokio", "tokio's"]);
    }
}

/// What they spawn is refused by the runtime, and not run by the default one.
#[cfg(target_os = "linux")]
#[test]
fn destructors_of_tokios_tasks_may_spawn() {
    isolated("tokio_feature_end::destructors_of_tokios_tasks_may_spawn", || {
        let (_watch, (outcome, outcomes)) = (watch(), mpsc::channel());
        let runtime = with_tokio(1).thread_name("kitchen").build().unwrap();
        hold_on_tokio(
            &runtime,
            on_drop(move || {
                let task = futures::executor::block_on(spawn(async { 1 }));
                let job = futures::executor::block_on(spawn_blocking(|| 2));
                outcome.send((task, job)).unwrap();
            }),
        );
        drop(runtime);
        let (task, job) = recv(&outcomes);
        assert!(task.unwrap_err().is_cancelled() && job.unwrap_err().is_cancelled());
        assert_eq!(threads_named("giveway"), 0, "a default runtime was started");
        assert_eq!(threads_named("kitchen"), 0, "a thread is left");
    });
}

#[test]
fn a_drop_waits_for_a_blocking_job_of_tokios() {
    let (_watch, gate, log) = (watch(), Gate::new(), Log::default());
    let runtime = runtime(1);
    let job = occupy_thread_of_tokio(&runtime, &gate);
    let dropper = thread::spawn({
        let log = log.clone();
        move || {
            drop(runtime);
            log.add("the drop has ended");
        }
    });
    thread::sleep(Duration::from_millis(50)); // in which a drop that does not wait would end
    log.add("the job may end");
    gate.open();
    dropper.join().unwrap();
    futures::executor::block_on(job).unwrap();
    log.assert(&["the job may end", "the drop has ended"]);
}

#[test]
fn a_drop_that_waits_for_tokio_says_so() {
    let child = in_child("tokio_feature_end::a_drop_that_waits_for_tokio_says_so", &[], || {
        let (_watch, gate) = (watch(), Gate::new());
        let runtime = runtime(1);
        let _job = occupy_thread_of_tokio(&runtime, &gate);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(1500));
            gate.open();
        });
        drop(runtime);
    });
    if let Some(child) = child {
        child.assert_success();
        assert!(
            child.output.contains("waits for 1 thread of tokio"),
            "the drop took longer than a second: {}",
            child.output
        );
    }
}

/// A job waits for a message of a task that tokio polls. Each of them could wait for the end of the
/// other.
#[test]
fn a_job_that_waits_for_a_task_of_tokios_does_not_keep_the_runtime_from_its_end() {
    let _watch = watch();
    // One job runs, and the other waits for its thread.
    let runtime = with_tokio(1).max_blocking_threads(1).build().unwrap();
    let jobs: Vec<_> = (0..2)
        .map(|_| {
            let (sender, receiver) = mpsc::channel::<()>();
            hold_on_tokio(&runtime, sender);
            runtime.spawn_blocking(move || receiver.recv().is_err())
        })
        .collect();
    drop(runtime);
    for job in jobs {
        assert!(futures::executor::block_on(job).unwrap(), "the sender was dropped");
    }
}

#[test]
fn a_runtime_dropped_by_a_task_of_tokios_ends() {
    let (_watch, alive) = (watch(), Alive::default());
    let runtime = Arc::new(runtime(2));
    hold_on_tokio(&runtime, alive.clone());
    hold_here(&runtime, alive.clone());
    let (gate, handle, (sender, dropped)) =
        (Gate::new(), runtime.handle().clone(), mpsc::channel());
    handle.block_on(async {
        let gate = gate.clone();
        tokio::spawn(async move {
            giveway::block_in_place(|| gate.wait());
            drop(Arc::into_inner(runtime).expect("this is the last count"));
            sender.send(()).unwrap();
        });
    });
    gate.open();
    recv(&dropped);
    eventually(|| Arc::strong_count(&alive) == 1);
}

#[test]
fn a_runtime_dropped_by_a_job_of_tokios_ends() {
    let (_watch, alive) = (watch(), Alive::default());
    let runtime = runtime(1);
    hold_on_tokio(&runtime, alive.clone());
    let handle = runtime.handle().clone();
    handle.block_on(async { tokio::task::spawn_blocking(move || drop(runtime)).await }).unwrap();
    eventually(|| Arc::strong_count(&alive) == 1);
}

#[test]
fn a_runtime_dropped_by_its_own_worker_ends() {
    let (_watch, alive) = (watch(), Alive::default());
    let runtime = runtime(2);
    hold_on_tokio(&runtime, alive.clone());
    let handle = runtime.handle().clone();
    drop(handle.spawn(async move { drop(runtime) }));
    eventually(|| Arc::strong_count(&alive) == 1);
}

#[test]
fn panics_of_destructors_on_both_sides_are_contained() {
    let (_watch, alive) = (watch(), Alive::default());
    let runtime = runtime(1);
    for _ in 0..3 {
        let (here, there) = (alive.clone(), alive.clone());
        hold_here(&runtime, (on_drop(|| panic!("a destructor here")), here));
        hold_on_tokio(&runtime, (on_drop(|| panic!("a destructor there")), there));
    }
    drop(runtime);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn shutdown_timeout_is_clean_when_both_have_ended() {
    let (_watch, alive) = (watch(), Alive::default());
    let runtime = runtime(1);
    hold_on_tokio(&runtime, alive.clone());
    hold_here(&runtime, alive.clone());
    let report = runtime.shutdown_timeout(HANG);
    assert!(report.is_clean(), "{report}");
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn shutdown_timeout_counts_threads_of_tokio_that_are_stuck() {
    let (_watch, gate) = (watch(), Gate::new());
    let runtime = runtime(1);
    let job = occupy_thread_of_tokio(&runtime, &gate);
    // The runtime itself ends at once, and the rest of the time is for tokio.
    let report = runtime.shutdown_timeout(Duration::from_secs(2));
    assert!(!report.is_clean());
    assert_eq!((report.stuck_threads(), report.stuck_tasks().len()), (1, 0));
    assert_eq!(report.to_string(), "1 thread has not ended, 1 of them of tokio");
    gate.open();
    futures::executor::block_on(job).expect("the job goes on");
}

/// The server of a runtime whose task is stuck does not serve for ever.
#[test]
fn shutdown_timeout_ends_tokio_although_a_task_is_stuck() {
    let (_watch, gate, alive) = (watch(), Gate::new(), Alive::default());
    let runtime = runtime(1);
    hold_on_tokio(&runtime, alive.clone());
    let _stuck = occupy(runtime.handle(), 1, &gate);
    let report = runtime.shutdown_timeout(Duration::from_millis(10));
    assert_eq!(report.stuck_tasks().len(), 1, "{report}");
    eventually(|| Arc::strong_count(&alive) == 1);
    gate.open();
}

#[test]
fn shutdown_background_ends_both_and_leaves_a_job() {
    let (_watch, gate, alive) = (watch(), Gate::new(), Alive::default());
    let runtime = runtime(1);
    hold_on_tokio(&runtime, alive.clone());
    hold_here(&runtime, alive.clone());
    let job = super::blocking::occupy_thread(runtime.handle(), &gate);
    runtime.shutdown_background();
    eventually(|| Arc::strong_count(&alive) == 1);
    gate.open();
    futures::executor::block_on(job).unwrap();
}

/// Tasks of each runtime spawn onto the other while both end.
#[test]
fn tasks_that_spawn_on_both_sides_do_not_keep_them_from_their_end() {
    let _watch = watch();
    for _ in rounds(1000) {
        let (runtime, spawned) = (runtime(2), Arc::new(AtomicUsize::new(0)));
        let (there, all_gone) = mpsc::channel::<()>();
        async fn here(spawned: Arc<AtomicUsize>, there: mpsc::Sender<()>) {
            loop {
                spawned.fetch_add(1, SeqCst);
                let (again, kept) = (spawned.clone(), there.clone());
                let task = tokio::spawn(async move {
                    let _kept = kept;
                    _ = spawn(async move { again.fetch_add(1, SeqCst) }).await;
                    giveway::yield_now_if_busy().await;
                });
                if task.await.is_err() {
                    return;
                }
            }
        }
        runtime.block_on(async {
            for _ in 0..4 {
                drop(spawn(here(spawned.clone(), there.clone())));
                drop(tokio::spawn(here(spawned.clone(), there.clone())));
            }
        });
        eventually(|| spawned.load(SeqCst) > 100);
        drop((runtime, there));
        drain(&all_gone);
    }
}

/// A task of tokio's waits in the yield queue of a runtime that closes.
#[test]
fn a_task_of_tokios_that_gave_way_is_dropped() {
    let (_watch, gate, alive) = (watch(), Gate::new(), Alive::default());
    let runtime = runtime(1);
    let _occupied = occupy(runtime.handle(), 1, &gate);
    let _queued = runtime.spawn(async {});
    let kept = alive.clone();
    runtime.block_on(async {
        let (begun, begins) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let _kept = kept;
            begun.send(()).unwrap();
            loop {
                giveway::yield_now_if_busy().await;
            }
        });
        begins.await.unwrap();
        // Once more through tokio's thread: the task is not polled any more.
        tokio::spawn(async {}).await.unwrap();
    });
    let dropper = thread::spawn(move || drop(runtime));
    gate.open();
    dropper.join().unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn runtimes_that_have_ended_leave_no_thread_and_no_descriptor() {
    let name = "tokio_feature_end::runtimes_that_have_ended_leave_no_thread_and_no_descriptor";
    isolated(name, || {
        let _watch = watch();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let once = || {
            let runtime = with_tokio(2).thread_name("kitchen").build().unwrap();
            hold_on_tokio(&runtime, ());
            hold_here(&runtime, ());
            runtime.block_on(async {
                tokio::task::spawn_blocking(|| ()).await.unwrap();
                spawn_blocking(|| ()).await.unwrap();
            });
            drop(runtime);
            assert_eq!(threads_named("kitchen"), 0, "the drop has joined them");
        };
        once();
        let before = descriptors();
        (0..20).for_each(|_| once());
        assert_eq!(descriptors(), before);
    });
}

/// A handle keeps neither of the two running, and is of no use for tokio's things any more.
#[test]
fn a_handle_that_outlives_the_runtime_still_blocks_on() {
    let _watch = watch();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    drop(runtime);
    assert_eq!(handle.block_on(async { 1 }), 1);
    let on_tokio = handle.block_on(async { tokio::spawn(async { 2 }).await });
    assert!(on_tokio.unwrap_err().is_cancelled());
}

#[cfg(unix)]
#[test]
fn the_child_of_a_fork_starts_a_new_runtime() {
    isolated("tokio_feature_end::the_child_of_a_fork_starts_a_new_runtime", || {
        let first = runtime(1);
        let sleep = || async { tokio::time::sleep(Duration::from_millis(1)).await };
        first.block_on(first.spawn(sleep())).unwrap();
        let mut first = Some(first);
        let code = in_fork(|| {
            drop(first.take()); // returns, though none of its threads exists here
            let runtime = runtime(1);
            runtime.block_on(runtime.spawn(sleep())).unwrap();
            runtime.block_on(async { tokio::spawn(sleep()).await.unwrap() });
            drop(runtime);
        });
        assert_eq!(code, 0);
        let first = first.expect("the child has taken its own copy");
        first.block_on(first.spawn(sleep())).unwrap();
    });
}
