//! Figures and dumps at difficult times: in hooks and destructors, during a shutdown, after it, and
//! in a race with everything.

use giveway::metrics::{Dump, Metrics};
use giveway::{
    Builder, Handle, PanicPolicy, spawn, spawn_background, yield_now, yield_now_if_busy,
};
use giveway_tests::{Gate, Wakers, each_runtime, eventually, on_drop, recv, watch, with_runtimes};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

fn both(handle: &Handle) -> (Metrics, Dump) {
    (handle.metrics(), handle.dump())
}

#[test]
fn after_a_shutdown_the_last_figures_stay_and_nothing_is_listed() {
    each_runtime(1, |runtime| {
        let (handle, wakers) = (runtime.handle().clone(), Wakers::default());
        let tasks: Vec<_> = (0..10).map(|_| runtime.spawn(wakers.park(()))).collect();
        eventually(|| wakers.len() == 10);
        drop(runtime);
        let (metrics, dump) = both(&handle);
        // A task that is woken to be dropped may be polled by a worker that has not noticed the end
        // yet.
        assert!((10..=20).contains(&metrics.polls()), "{metrics}");
        assert_eq!((metrics.tasks, metrics.blocking_threads), (0, 0));
        assert!(dump.tasks().is_empty() && dump.unlisted() == 0, "{dump}");
        assert_eq!(dump.to_string(), "0 tasks");
        let again = handle.metrics();
        assert_eq!((again.uptime, again.polls()), (metrics.uptime, metrics.polls()));
        let busy = |metrics: &Metrics| {
            metrics.workers.iter().map(|worker| worker.busy).collect::<Vec<_>>()
        };
        assert_eq!(busy(&again), busy(&metrics));
        drop(tasks);
    });
}

/// The shutdown runs the destructors, on whichever thread.
#[test]
fn a_destructor_may_look_while_its_runtime_closes() {
    each_runtime(1, |runtime| {
        let (tell, told) = mpsc::channel();
        let wakers = Wakers::default();
        for _ in 0..10 {
            let (handle, tell) = (runtime.handle().clone(), tell.clone());
            drop(runtime.spawn(wakers.park(on_drop(move || tell.send(both(&handle)).unwrap()))));
        }
        eventually(|| wakers.len() == 10);
        drop(runtime);
        for _ in 0..10 {
            let (metrics, dump) = recv(&told);
            assert!(metrics.polls() >= 10 && dump.tasks().len() <= 10, "{dump}");
        }
    });
}

#[test]
fn hooks_may_look() {
    let _watch = watch();
    let looks = Arc::new(AtomicUsize::new(0));
    let look = {
        let looks = looks.clone();
        move || {
            if let Some(handle) = Handle::try_current() {
                let _both = both(&handle);
                looks.fetch_add(1, SeqCst);
            }
        }
    };
    let runtime = Builder::new()
        .workers(2)
        .on_thread_start(look.clone())
        .on_thread_stop(look.clone())
        .on_task_panic({
            let look = look.clone();
            move |_| {
                look();
                PanicPolicy::Continue
            }
        })
        .build()
        .unwrap();
    let task = runtime.spawn(async { std::panic::resume_unwind(Box::new("on purpose")) });
    assert!(runtime.block_on(task).is_err());
    drop(runtime);
    assert!(looks.load(SeqCst) >= 1);
}

#[test]
fn looks_race_a_shutdown() {
    each_runtime(1, |runtime| {
        let (handle, wakers, ended) =
            (runtime.handle().clone(), Wakers::default(), Arc::new(AtomicBool::new(false)));
        let tasks: Vec<_> = (0..1_000).map(|_| runtime.spawn(wakers.park(()))).collect();
        let started = Gate::new();
        let looker = thread::spawn({
            let (started, ended) = (started.clone(), ended.clone());
            move || {
                let mut last = handle.metrics();
                started.open();
                loop {
                    let over = ended.load(SeqCst);
                    let (metrics, dump) = both(&handle);
                    assert!(metrics.polls() >= last.polls(), "counts do not go back");
                    assert!(dump.tasks().len() <= 1_000);
                    last = metrics;
                    if over {
                        return last.tasks;
                    }
                }
            }
        });
        started.wait();
        drop(runtime);
        ended.store(true, SeqCst);
        assert_eq!(looker.join().unwrap(), 0);
        drop(tasks);
    });
}

/// Tasks of every kind come and go while several threads look.
#[test]
fn looks_race_everything() {
    with_runtimes(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let lookers: Vec<_> = (0..2)
            .map(|_| {
                let (handle, stop) = (runtime.handle().clone(), stop.clone());
                thread::spawn(move || {
                    let (mut looks, mut last) = (0, handle.metrics());
                    while !stop.load(SeqCst) || looks == 0 {
                        let (metrics, dump) = both(&handle);
                        assert!(metrics.polls() >= last.polls(), "counts do not go back");
                        assert!(metrics.poll_time.count() >= last.poll_time.count());
                        assert!(!metrics.to_string().is_empty() && !dump.to_string().is_empty());
                        (looks, last) = (looks + 1, metrics);
                    }
                })
            })
            .collect();
        let before = runtime.metrics();
        runtime.block_on(async {
            for _ in 0..20 {
                let tasks = (0..50).map(|i| match i % 5 {
                    0 => spawn(yield_now()),
                    1 => spawn_background(async { yield_now_if_busy().await }),
                    2 => giveway::task::Builder::new().name("named").spawn(yield_now()),
                    3 => giveway::spawn_pinned(yield_now),
                    _ => giveway::spawn_blocking(|| ()),
                });
                for task in tasks.collect::<Vec<_>>() {
                    task.await.unwrap();
                }
            }
        });
        stop.store(true, SeqCst);
        lookers.into_iter().for_each(|looker| looker.join().unwrap());
        let polls = runtime.metrics().since(&before).polls();
        assert!(polls >= 20 * (3 * 20 + 10), "{polls}: three kinds twice, and one once or more");
        eventually(|| runtime.dump().tasks().is_empty());
    });
}
