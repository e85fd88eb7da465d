//! Preemptible tasks: they are polled on threads of the lowest priority, so the kernel makes room
//! for everything else.

#[cfg(target_os = "linux")]
use super::io_faults::refuse_call;
use giveway::metrics::TaskState;
use giveway::task::{Builder, Class, JoinHandle};
use giveway::{Runtime, spawn, yield_now, yield_now_if_busy};
use giveway_tests::{
    Drops, Endless, Gate, Wakers, eventually, hold, in_child, panic_of, rounds, runtime, watch,
    with_runtimes,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

fn preemptible() -> Builder {
    Builder::new().preemptible(true)
}

/// Starts `tasks` tasks with endless polls. Returns when polls have begun on as many lowered
/// threads as there are at first.
fn endless(runtime: &Runtime, tasks: usize) -> Endless {
    Endless::start(
        runtime,
        || preemptible().name("mill"),
        tasks,
        tasks.min(runtime.handle().workers()),
    )
}

#[cfg(target_os = "linux")]
fn nice() -> i32 {
    // SAFETY: the call takes no pointer, and only returns a number of the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(target_os = "linux")]
#[test]
fn it_is_polled_on_a_lowered_thread_at_each_poll_and_is_of_the_background() {
    with_runtimes(|runtime| {
        let task = async {
            let mut here = Vec::new();
            for _ in 0..3 {
                here.push((nice(), giveway::task::worker(), giveway::task::class()));
                giveway::time::sleep(Duration::from_millis(1)).await;
                yield_now().await;
            }
            let child = spawn(async { (nice(), giveway::task::class()) });
            (here, child.await.unwrap())
        };
        // The class that is set here has no effect.
        let builder = preemptible().class(Class::Foreground);
        let (here, child) = runtime.block_on(builder.spawn_on(task, runtime.handle())).unwrap();
        assert_eq!(here, vec![(19, None, Class::Background); 3]);
        let own = nice();
        assert_eq!(
            child,
            (own, Class::Background),
            "a child inherits the class, and is a task like others"
        );
        assert_eq!(
            runtime.block_on(preemptible().spawn_blocking_on(nice, runtime.handle())).unwrap(),
            19
        );
    });
}

/// On workers such polls would stop everything.
#[test]
fn everything_goes_on_beside_more_endless_polls_than_there_are_threads() {
    with_runtimes(|runtime| {
        let workers = runtime.handle().workers();
        let endless = endless(runtime, 3 * workers);
        let metrics = runtime.metrics();
        // At first as many run as there are workers. After a while one after the other gets a
        // thread.
        assert!(metrics.lowered_running >= workers, "{metrics}");
        assert_eq!(metrics.lowered_running + metrics.lowered_queued, 3 * workers, "{metrics}");
        assert!(metrics.to_string().contains("lowered polls "), "{metrics}");
        runtime.block_on(async {
            giveway::time::sleep(Duration::from_millis(1)).await;
            spawn(async { yield_now().await }).await.unwrap();
            giveway::spawn_background(async {
                giveway::time::sleep(Duration::from_millis(1)).await
            })
            .await
            .unwrap();
            giveway::spawn_blocking(|| ()).await.unwrap();
        });
        let dump = runtime.handle().dump();
        let tasks = || dump.tasks().iter().filter(|task| task.name.as_deref() == Some("mill"));
        let state = |state| tasks().filter(move |task| task.state == state);
        let running = state(TaskState::Running { worker: None }).count();
        assert!(running >= workers, "{dump}");
        assert_eq!(state(TaskState::Queued).count(), 3 * workers - running, "{dump}");
        endless.end(runtime);
        assert_eq!(runtime.metrics().lowered_queued, 0);
    });
}

/// At first there are as many lowered threads as workers, and those that run do not come back.
#[test]
fn those_that_wait_for_others_of_their_kind_get_them() {
    with_runtimes(|runtime| {
        let _inside = runtime.enter();
        let workers = runtime.handle().workers().min(8);
        // The chain is longer than there are threads.
        fn link(left: usize) -> usize {
            if left == 0 {
                return 0;
            }
            let next = if left.is_multiple_of(2) {
                giveway::block_on(preemptible().spawn(async move { link(left - 1) }))
            } else {
                let builder = Builder::new().class(Class::Background);
                giveway::block_on(builder.spawn_blocking(move || link(left - 1)))
            };
            next.unwrap() + 1
        }
        let links = 2 * workers + 4;
        let first = preemptible().spawn(async move { link(links) });
        assert_eq!(runtime.block_on(first).unwrap(), links);
    });
}

/// There is one lowered thread. If the tasks took no turns, the others would wait for ever.
#[test]
fn those_with_yield_points_take_turns() {
    let _watch = watch();
    let runtime = runtime(1);
    let rounds = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let job = |number: usize| {
        let rounds = rounds.clone();
        async move {
            while rounds.iter().any(|rounds| rounds.load(Relaxed) == 0) {
                rounds[number].fetch_add(1, Relaxed);
                yield_now_if_busy().await;
            }
        }
    };
    let jobs: Vec<_> =
        (0..3).map(|number| preemptible().spawn_on(job(number), runtime.handle())).collect();
    jobs.into_iter().for_each(|job| runtime.block_on(job).unwrap());
}

#[test]
fn those_that_spend_their_budget_take_turns() {
    let _watch = watch();
    let runtime = runtime(1);
    let done = Arc::new(AtomicBool::new(false));
    let waits = done.clone();
    let spends = async move {
        while !waits.load(Relaxed) {
            giveway::budget::consume().await;
        }
    };
    let spends = preemptible().spawn_on(spends, runtime.handle());
    let ends = preemptible().spawn_on(async move { done.store(true, Relaxed) }, runtime.handle());
    runtime.block_on(ends).unwrap();
    runtime.block_on(spends).unwrap();
}

#[test]
fn an_abort_arrives_at_a_yield_point_with_nobody_else_in_the_queue() {
    with_runtimes(|runtime| {
        let begun = Gate::new();
        let begins = begun.clone();
        let task = preemptible().spawn_on(
            async move {
                begins.open();
                loop {
                    yield_now_if_busy().await;
                }
            },
            runtime.handle(),
        );
        begun.wait();
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}

/// The look of `should_yield` is not the only one: the yield point behind it looks too.
#[test]
fn a_loop_that_asks_before_it_gives_way_is_aborted_and_dropped() {
    for aborts in [true, false] {
        let _watch = watch();
        let (runtime, begun) = (runtime(1), Gate::new());
        let begins = begun.clone();
        let task = preemptible().spawn_on(
            async move {
                begins.open();
                loop {
                    while !giveway::should_yield() {
                        std::hint::spin_loop();
                    }
                    yield_now_if_busy().await;
                }
            },
            runtime.handle(),
        );
        begun.wait();
        if aborts {
            task.abort();
        } else {
            drop(runtime);
        }
        assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
    }
}

#[test]
fn it_may_wake_and_be_woken_spawn_panic_and_block() {
    with_runtimes(|runtime| {
        let (send, receive) = async_channel::bounded::<u32>(1);
        let counts = preemptible().spawn_on(
            async move {
                for number in 0..100 {
                    send.send(number).await.unwrap();
                    if number % 10 == 0 {
                        giveway::block_in_place(|| spawn(async {}));
                        giveway::block_on(spawn(async {})).unwrap();
                    }
                }
            },
            runtime.handle(),
        );
        let sum = runtime.block_on(async {
            let mut sum = 0;
            while let Ok(number) = receive.recv().await {
                sum += number;
            }
            sum
        });
        assert_eq!(sum, 4_950);
        runtime.block_on(counts).unwrap();
        let panics = preemptible().spawn_on(async { panic!("on purpose") }, runtime.handle());
        assert!(runtime.block_on(panics).unwrap_err().is_panic());
        assert_eq!(
            runtime.block_on(preemptible().spawn_on(async { 1 }, runtime.handle())).unwrap(),
            1
        );
    });
}

#[test]
fn a_shutdown_drops_those_that_wait_or_are_queued_and_names_those_that_do_not_return() {
    for workers in [1, 2] {
        let _watch = watch();
        let (runtime, drops, wakers) = (runtime(workers), Drops::of(20), Wakers::default());
        let waiting: Vec<_> = (0..10)
            .map(|n| preemptible().spawn_on(wakers.park(drops.counter(n)), runtime.handle()))
            .collect();
        eventually(|| wakers.len() == 10);
        let endless = endless(&runtime, workers);
        let queued: Vec<_> = (10..20)
            .map(|n| preemptible().spawn_on(hold(drops.counter(n)), runtime.handle()))
            .collect();
        let report = runtime.shutdown_timeout(Duration::from_millis(1));
        // On a busy machine one more thread may be there by now, and on its way out of a short
        // poll.
        let mills = report.stuck_tasks().iter().filter(|task| task.name() == Some("mill"));
        let mills: Vec<_> = mills.map(|task| (task.worker(), task.is_blocking_job())).collect();
        assert_eq!(mills, vec![(None, false); workers], "{report}");
        assert!(report.to_string().contains("on a lowered thread"), "{report}");
        for task in waiting.into_iter().chain(queued) {
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
        drops.assert_each_once();
        endless.stop.store(true, Relaxed);
        for task in endless.tasks {
            futures::executor::block_on(task).unwrap();
        }
    }
}

#[test]
fn a_drop_waits_for_polls_that_go_on_and_ends_polite_ones() {
    with_runtimes(|_| {
        let runtime = runtime(2);
        let endless = endless(&runtime, 1);
        let polite = preemptible().spawn_on(
            async {
                loop {
                    yield_now_if_busy().await;
                }
            },
            runtime.handle(),
        );
        let dropper = thread::spawn(move || drop(runtime));
        assert!(futures::executor::block_on(polite).unwrap_err().is_cancelled());
        assert!(!dropper.is_finished(), "a poll goes on");
        endless.stop.store(true, Relaxed);
        dropper.join().unwrap();
        assert!(endless.tasks.iter().all(JoinHandle::is_finished));
    });
}

/// One thread spawns tasks and another wakes some, while the runtime comes to its end.
#[test]
fn those_spawned_and_woken_while_the_runtime_is_dropped_end_once() {
    for _ in rounds(200) {
        let _watch = watch();
        let (runtime, drops, wakers) = (runtime(2), Drops::of(60), Wakers::default());
        let handle = runtime.handle().clone();
        let parked: Vec<_> = (0..20)
            .map(|n| preemptible().spawn_on(wakers.park(drops.counter(n)), &handle))
            .collect();
        let spawner = {
            let (handle, drops) = (handle.clone(), drops.clone());
            thread::spawn(move || {
                let spawn = |n| preemptible().spawn_on(hold(drops.counter(n)), &handle);
                (20..60).map(spawn).collect::<Vec<_>>()
            })
        };
        let waker = thread::spawn({
            let wakers = wakers.clone();
            move || wakers.wake_all()
        });
        drop(runtime);
        let spawned = spawner.join().unwrap();
        waker.join().unwrap();
        for task in parked.into_iter().chain(spawned) {
            let _ended = futures::executor::block_on(task);
        }
        drops.assert_each_once();
    }
}

#[test]
fn a_task_cannot_be_pinned_and_preemptible() {
    let _watch = watch();
    let runtime = runtime(1);
    let message = panic_of(|| preemptible().spawn_pinned_on(|| async {}, runtime.handle()));
    assert!(message.contains("both pinned and preemptible"), "{message}");
}

#[test]
fn a_deadlock_of_preemptible_tasks_is_found() {
    let _watch = watch();
    let runtime = giveway::Builder::new().workers(1).detect_deadlock(true).build().unwrap();
    let waits = preemptible().name("mill").spawn_on(std::future::pending::<()>(), runtime.handle());
    let message = panic_of(|| runtime.block_on(waits));
    assert!(message.contains("deadlock") && message.contains("\"mill\""), "{message}");
}

/// A container's filter of system calls may refuse it.
#[cfg(target_os = "linux")]
#[test]
fn a_system_that_refuses_to_lower_threads_is_told_of_once_and_everything_works() {
    const NAME: &str =
        "lowered::a_system_that_refuses_to_lower_threads_is_told_of_once_and_everything_works";
    let child = in_child(NAME, &[], || {
        let _watch = watch();
        refuse_call(libc::SYS_setpriority, libc::EPERM);
        let runtime = runtime(2);
        assert!(!runtime.metrics().lowering_refused);
        let tasks: Vec<_> =
            (0..10).map(|n| preemptible().spawn_on(async move { n }, runtime.handle())).collect();
        let sum: i32 = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
        let job = Builder::new().class(Class::Background).spawn_blocking_on(|| 1, runtime.handle());
        assert_eq!(sum + runtime.block_on(job).unwrap(), 46);
        assert!(runtime.metrics().lowering_refused);
        assert_eq!(nice(), 0);
    });
    let Some(child) = child else { return };
    child.assert_success();
    let said = child.output.matches("refuses to lower the priority").count();
    assert_eq!(said, 1, "{child:?}");
}
