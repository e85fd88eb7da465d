//! Pinned tasks: they stay on one thread, whatever happens around them.

use futures::future::join_all;
use giveway::task::{Builder, Class};
use giveway_tests::{
    Alive, Gate, Log, Polls, Wakers, each_runtime, eventually, occupy, on_drop, outside, panic_of,
    rounds, runtime, watch, with_runtimes, with_runtimes_of,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Checks at each step that it is on the thread where it was made.
struct Stays(thread::ThreadId);

impl Stays {
    fn here() -> Self {
        Self(thread::current().id())
    }

    fn check(&self) {
        assert_eq!(thread::current().id(), self.0, "a pinned task moved");
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        // A panic in a destructor may be contained. An abort cannot be overlooked.
        if thread::current().id() != self.0 {
            eprintln!("a pinned task was dropped on another thread");
            std::process::abort();
        }
    }
}

#[test]
fn an_rc_lives_across_awaits() {
    with_runtimes(|runtime| {
        let sum = runtime.spawn_pinned(|| async {
            let numbers = Rc::new(RefCell::new(Vec::new()));
            for i in 0..100 {
                let borrowed = numbers.clone();
                giveway::yield_now().await;
                borrowed.borrow_mut().push(i);
                giveway::time::sleep(Duration::from_micros(10)).await;
            }
            numbers.borrow().iter().sum::<i32>()
        });
        assert_eq!(runtime.block_on(sum).unwrap(), 4950);
    });
}

/// The task is woken by other tasks, by timers and by itself, beside tasks that all workers steal
/// and tasks that block in place.
#[test]
fn i7_it_never_moves_and_steals_never_take_it() {
    with_runtimes(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let noise: Vec<_> = (0..8)
            .map(|i| {
                let stop = stop.clone();
                runtime.spawn(async move {
                    while !stop.load(Relaxed) {
                        match i % 4 {
                            0 => giveway::yield_now().await,
                            1 => giveway::spawn(async {}).await.unwrap(),
                            2 => giveway::block_in_place(|| {
                                thread::sleep(Duration::from_micros(200))
                            }),
                            _ => giveway::time::sleep(Duration::from_micros(50)).await,
                        }
                        giveway::yield_now().await;
                    }
                })
            })
            .collect();
        let pinned: Vec<_> = (0..32)
            .map(|i: u64| {
                runtime.spawn_pinned(move || async move {
                    let stays = Rc::new(Stays::here());
                    for turn in 0..50 {
                        stays.check();
                        match (i + turn) % 5 {
                            0 => giveway::yield_now().await,
                            1 => giveway::yield_now_if_busy().await,
                            2 => giveway::time::sleep(Duration::from_micros(20)).await,
                            3 => giveway::spawn(async {}).await.unwrap(),
                            _ => {
                                giveway::block_in_place(|| thread::sleep(Duration::from_micros(50)))
                            }
                        }
                    }
                    stays.check();
                })
            })
            .collect();
        for task in runtime.block_on(join_all(pinned)) {
            task.unwrap();
        }
        stop.store(true, Relaxed);
        for task in runtime.block_on(join_all(noise)) {
            task.unwrap();
        }
    });
}

#[test]
fn it_runs_on_the_worker_that_was_chosen_however_often_it_is_woken() {
    with_runtimes(|runtime| {
        for worker in 0..runtime.handle().workers() {
            let task = Builder::new().on_worker(worker).spawn_pinned_on(
                || async {
                    let mut seen = Vec::new();
                    for _ in 0..10 {
                        seen.push(giveway::task::worker());
                        giveway::spawn(giveway::yield_now()).await.unwrap();
                    }
                    seen
                },
                runtime.handle(),
            );
            assert_eq!(runtime.block_on(task).unwrap(), [Some(worker); 10]);
        }
    });
}

#[test]
fn a_worker_that_does_not_exist_is_a_clear_error() {
    let runtime = runtime(2);
    let message =
        panic_of(|| Builder::new().on_worker(2).spawn_pinned_on(|| async {}, runtime.handle()));
    assert_eq!(message, "there is no worker 2: this runtime has 2, numbered from 0");
    assert_eq!(runtime.block_on(runtime.spawn_pinned(|| async { 1 })).unwrap(), 1);
}

#[test]
fn the_workers_have_about_as_many_each() {
    let (_watch, runtime) = (watch(), runtime(4));
    let (release, released) = futures::channel::oneshot::channel::<()>();
    let released = futures::FutureExt::shared(released);
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let released = released.clone();
            runtime.spawn_pinned(|| async move {
                let worker = giveway::task::worker().unwrap();
                released.await.unwrap();
                worker
            })
        })
        .collect();
    release.send(()).unwrap();
    let mut each = [0; 4];
    runtime.block_on(join_all(tasks)).into_iter().for_each(|worker| each[worker.unwrap()] += 1);
    assert_eq!(each, [10; 4]);
}

/// All other workers are idle, and cannot help.
#[test]
fn a_polite_loop_gives_way_to_a_task_pinned_to_its_worker() {
    with_runtimes(|runtime| {
        let (stop, now_on) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(usize::MAX)));
        let polite = runtime.spawn({
            let (stop, now_on) = (stop.clone(), now_on.clone());
            async move {
                while !stop.load(Relaxed) {
                    now_on.store(giveway::task::worker().unwrap(), Relaxed);
                    giveway::yield_now_if_busy().await;
                }
            }
        });
        eventually(|| now_on.load(Relaxed) != usize::MAX);
        for _ in 0..100 {
            // Where the loop is now. It may move when it gives way, and then the pinned task runs
            // at once anyway.
            let worker = now_on.load(Relaxed);
            let pinned =
                Builder::new().on_worker(worker).spawn_pinned_on(|| async {}, runtime.handle());
            runtime.block_on(pinned).unwrap();
        }
        stop.store(true, Relaxed);
        runtime.block_on(polite).unwrap();
    });
}

/// The push asks the current poll to give way. That poll ends, and the polite task is next: its
/// first yield point has to know.
#[test]
fn a_polite_task_gives_way_to_one_that_was_pinned_here_during_the_poll_before() {
    with_runtimes(|runtime| {
        for _ in 0..100 {
            let handle = runtime.handle().clone();
            let pinned_to_first = || Builder::new().on_worker(0);
            let ran = Arc::new(AtomicBool::new(false));
            let (polite, other) = (ran.clone(), ran);
            let polite = move || async move {
                giveway::yield_now_if_busy().await;
                polite.load(Relaxed)
            };
            let other = move || async move { other.store(true, Relaxed) };
            // In an array, so that the handle is returned, and not awaited here.
            let before = move || async move {
                outside(|| {
                    let polite = pinned_to_first().spawn_pinned_on(polite, &handle);
                    drop(pinned_to_first().spawn_pinned_on(other, &handle));
                    [polite]
                })
            };
            let before = pinned_to_first().spawn_pinned_on(before, runtime.handle());
            let [polite] = runtime.block_on(before).unwrap();
            assert!(
                runtime.block_on(polite).unwrap(),
                "it went on beside a task that only its worker can run"
            );
        }
    });
}

/// The monitor has asked the poll before to return and has given up on it, and with it on the
/// push's own request.
#[test]
fn a_polite_task_gives_way_to_one_that_was_pinned_here_during_a_poll_that_did_not_return() {
    let _watch = watch();
    // The spare worker beside that poll is idle, and cannot help.
    let runtime = giveway::Builder::new().workers(1).max_spare_workers(1).build().unwrap();
    let handle = runtime.handle().clone();
    let ran = Arc::new(AtomicBool::new(false));
    let before = runtime.spawn_pinned({
        let ran = ran.clone();
        move || async move {
            let [polite, _other] = outside(|| {
                let looks = ran.clone();
                let polite = || async move {
                    giveway::yield_now_if_busy().await;
                    looks.load(Relaxed)
                };
                let other = || async move {
                    ran.store(true, Relaxed);
                    true
                };
                [handle.spawn_pinned(polite), handle.spawn_pinned(other)]
            });
            eventually(|| handle.metrics().spares_sent > 0);
            // In an array, so that the handle is returned, and not awaited here.
            [polite]
        }
    });
    let [polite] = runtime.block_on(before).unwrap();
    assert!(
        runtime.block_on(polite).unwrap(),
        "it went on beside a task that only its worker can run"
    );
}

/// A pinned task cannot wait in the yield queue, because every worker takes from there.
#[test]
fn a_polite_pinned_task_lets_everything_else_go_first_and_goes_on() {
    let (_watch, runtime) = (watch(), runtime(1));
    let log = Log::default();
    let pinned = runtime.spawn_pinned({
        let (log, handle) = (log.clone(), runtime.handle().clone());
        move || async move {
            log.add("pinned");
            let others = outside(|| {
                ["first", "second", "third"].map(|name| {
                    let log = log.clone();
                    handle.spawn(async move { log.add(name) })
                })
            });
            giveway::yield_now_if_busy().await;
            log.add("pinned again");
            join_all(others).await;
        }
    });
    runtime.block_on(pinned).unwrap();
    log.assert(&["pinned", "first", "second", "third", "pinned again"]);
}

#[test]
fn two_polite_pinned_tasks_on_one_worker_both_come_to_their_end() {
    with_runtimes(|runtime| {
        let loops = |_| {
            Builder::new().on_worker(0).spawn_pinned_on(
                || async {
                    for _ in 0..10_000 {
                        giveway::yield_now_if_busy().await;
                    }
                },
                runtime.handle(),
            )
        };
        let tasks: Vec<_> = (0..2).map(loops).collect();
        for task in runtime.block_on(join_all(tasks)) {
            task.unwrap();
        }
    });
}

/// The inbox takes turns with the deque, so neither starves the other.
#[test]
fn pinned_tasks_and_others_take_turns() {
    let (_watch, runtime) = (watch(), runtime(1));
    let turns = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    // Returns by how much one loop gets ahead of the other, at most. One begins before the other,
    // which is in the injector.
    let loops = |kind: usize| {
        let turns = turns.clone();
        async move {
            let (mut ahead, mut start) = (0, None);
            for turn in 1..=1_000 {
                turns[kind].store(turn, Relaxed);
                giveway::yield_now().await;
                let others = turns[1 - kind].load(Relaxed);
                if others > 0 && others < 1_000 {
                    let lead = turn as isize - others as isize;
                    ahead = ahead.max(lead - *start.get_or_insert(lead));
                }
            }
            ahead
        }
    };
    let gate = Gate::new();
    let busy = occupy(runtime.handle(), 1, &gate);
    let (pinned, other) = (loops(0), loops(1));
    let pinned = runtime.spawn_pinned(move || pinned);
    let other = runtime.spawn(other);
    gate.open();
    runtime.block_on(async {
        join_all(busy).await;
        assert!(pinned.await.unwrap() <= 2);
        assert!(other.await.unwrap() <= 2);
    });
}

/// The stand-in leaves the inbox alone. The home thread comes back for its core, and runs the
/// pinned task.
#[test]
fn it_waits_for_its_thread_while_that_blocks_in_place_and_others_go_on() {
    with_runtimes(|runtime| {
        let (blocking, unblock) = (Gate::new(), Gate::new());
        let thread = Arc::new(std::sync::Mutex::new(None));
        let blocks = Builder::new().on_worker(0).spawn_pinned_on(
            {
                let (blocking, unblock, thread) =
                    (blocking.clone(), unblock.clone(), thread.clone());
                move || async move {
                    *thread.lock().unwrap() = Some(thread::current().id());
                    giveway::block_in_place(|| {
                        blocking.open();
                        unblock.wait();
                    });
                }
            },
            runtime.handle(),
        );
        blocking.wait();
        let pinned = Builder::new()
            .on_worker(0)
            .spawn_pinned_on(|| async { thread::current().id() }, runtime.handle());
        // A task on every worker, that one included: a stand-in holds its core.
        let gate = Gate::new();
        let occupied = occupy(runtime.handle(), runtime.handle().workers(), &gate);
        assert!(!pinned.is_finished());
        gate.open();
        runtime.block_on(join_all(occupied));
        unblock.open();
        assert_eq!(Some(runtime.block_on(pinned).unwrap()), *thread.lock().unwrap());
        runtime.block_on(blocks).unwrap();
    });
}

#[test]
fn a_panic_in_the_function_or_the_future_goes_to_the_handle() {
    with_runtimes(|runtime| {
        let unmade = runtime.spawn_pinned(|| -> std::future::Ready<()> { panic!("no future") });
        assert!(runtime.block_on(unmade).unwrap_err().to_string().contains("no future"));
        let made = runtime.spawn_pinned(|| async {
            let _kept = Stays::here();
            giveway::yield_now().await;
            panic!("no result");
        });
        assert!(runtime.block_on(made).unwrap_err().to_string().contains("no result"));
        assert_eq!(runtime.block_on(runtime.spawn_pinned(|| async { 1 })).unwrap(), 1);
    });
}

#[test]
fn an_aborted_one_is_dropped_on_its_thread() {
    with_runtimes(|runtime| {
        let (wakers, alive) = (Wakers::default(), Alive::default());
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let parked = wakers.park(alive.clone());
                runtime.spawn_pinned(|| async move {
                    let _stays = Stays::here();
                    parked.await;
                })
            })
            .collect();
        eventually(|| wakers.len() == 20);
        for task in tasks {
            task.abort();
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        }
        drop(wakers.take());
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

/// Tasks that wait, that are queued and that have not begun, with destructors that wake and spawn.
#[test]
fn dropping_the_runtime_drops_each_on_its_thread_once() {
    each_runtime(1, |runtime| {
        let (wakers, alive, gate) = (Wakers::default(), Alive::default(), Gate::new());
        for i in 0..40 {
            let (parked, wakers) = (wakers.park(alive.clone()), wakers.clone());
            runtime.spawn_pinned(move || async move {
                let _stays = Stays::here();
                let _wakes = on_drop(move || {
                    wakers.wake_all();
                    giveway::spawn_pinned(|| async {});
                });
                if i % 2 == 0 {
                    parked.await;
                } else {
                    let _parked = parked;
                    loop {
                        giveway::yield_now().await;
                    }
                }
            });
        }
        let busy = occupy(runtime.handle(), runtime.handle().workers(), &gate);
        for _ in 0..10 {
            let alive = alive.clone();
            runtime.spawn_pinned(move || async move { drop(alive) });
        }
        gate.open();
        drop(busy);
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn one_that_blocks_in_place_while_the_runtime_is_dropped_ends_on_its_thread() {
    each_runtime(1, |runtime| {
        let (blocking, unblock, alive) = (Gate::new(), Gate::new(), Alive::default());
        let parked = Wakers::default();
        for worker in 0..runtime.handle().workers() {
            let kept = parked.park(alive.clone());
            Builder::new().on_worker(worker).spawn_pinned_on(
                || async move {
                    let _stays = Stays::here();
                    kept.await;
                },
                runtime.handle(),
            );
        }
        eventually(|| parked.len() == runtime.handle().workers());
        let task = runtime.spawn_pinned({
            let (blocking, unblock, alive) = (blocking.clone(), unblock.clone(), alive.clone());
            move || async move {
                let (_stays, _alive) = (Stays::here(), alive);
                giveway::block_in_place(|| {
                    blocking.open();
                    unblock.wait();
                });
                std::future::pending::<()>().await;
            }
        });
        blocking.wait();
        let dropping = thread::spawn(move || drop(runtime));
        unblock.open();
        dropping.join().unwrap();
        assert_eq!(Arc::strong_count(&alive), 1);
        assert!(giveway::block_on(task).unwrap_err().is_cancelled());
    });
}

#[test]
fn spawns_from_outside_race_the_end_of_the_runtime() {
    for _ in rounds(200) {
        each_runtime(1, |runtime| {
            let (alive, handle) = (Alive::default(), runtime.handle().clone());
            let spawner = thread::spawn({
                let alive = alive.clone();
                move || {
                    for _ in 0..20 {
                        let alive = alive.clone();
                        handle.spawn_pinned(move || async move {
                            let (_stays, _alive) = (Stays::here(), alive);
                            giveway::yield_now().await;
                            std::future::pending::<()>().await;
                        });
                    }
                }
            });
            drop(runtime);
            spawner.join().unwrap();
            assert_eq!(Arc::strong_count(&alive), 1);
        });
    }
}

#[test]
fn it_inherits_the_class_and_may_say_otherwise() {
    with_runtimes_of(2, |runtime| {
        let classes = runtime.spawn_background(async {
            let inherited = giveway::spawn_pinned(|| async { giveway::task::class() });
            let chosen = Builder::new()
                .class(Class::Foreground)
                .spawn_pinned(|| async { giveway::task::class() });
            (inherited.await.unwrap(), chosen.await.unwrap())
        });
        assert_eq!(runtime.block_on(classes).unwrap(), (Class::Background, Class::Foreground));
    });
}

/// Thousands of wake-ups from other threads, none of which is lost.
#[test]
fn wakes_from_other_workers_and_from_outside_are_not_lost() {
    with_runtimes(|runtime| {
        let (to_pinned, mut from_us) = futures::channel::mpsc::channel::<u32>(1);
        let (mut to_us, from_pinned) = futures::channel::mpsc::channel::<u32>(1);
        let pinned = runtime.spawn_pinned(move || async move {
            use futures::{SinkExt, StreamExt};
            let count = Rc::new(Cell::new(0));
            while let Some(number) = from_us.next().await {
                count.set(count.get() + 1);
                to_us.send(number).await.unwrap();
            }
            count.get()
        });
        let trips = async move {
            use futures::{SinkExt, StreamExt};
            let (mut to_pinned, mut from_pinned) = (to_pinned, from_pinned);
            for number in 0..2_000 {
                to_pinned.send(number).await.unwrap();
                assert_eq!(from_pinned.next().await, Some(number));
            }
            (to_pinned, from_pinned)
        };
        let (to_pinned, from_pinned) = runtime.block_on(runtime.spawn(trips)).unwrap();
        outside(|| {
            futures::executor::block_on(async move {
                use futures::{SinkExt, StreamExt};
                let (mut to_pinned, mut from_pinned) = (to_pinned, from_pinned);
                for number in 0..2_000 {
                    to_pinned.send(number).await.unwrap();
                    assert_eq!(from_pinned.next().await, Some(number));
                }
            });
        });
        assert_eq!(runtime.block_on(pinned).unwrap(), 4_000);
    });
}

/// Each task once found another one in the inbox when its poll began, and had its budget cut short
/// for it. None came further than its first operation, for ever.
#[test]
fn background_tasks_pinned_to_one_worker_do_not_hold_each_other_up() {
    let _watch = watch();
    let runtime = runtime(1);
    let spend = |operations| async move {
        for _ in 0..operations {
            giveway::budget::consume().await;
        }
    };
    let pinned = |_| {
        let builder = Builder::new().class(Class::Background);
        builder.spawn_pinned_on(
            move || Polls::default().at_most(10_000, spend(1_000)),
            runtime.handle(),
        )
    };
    let pinned: Vec<_> = (0..3).map(pinned).collect();
    runtime.block_on(join_all(pinned)).into_iter().for_each(|task| task.unwrap());
}

/// The worker waits for the thread that is just spawning a task on it. That thread, whose task is
/// refused, drops the runtime, and so waits for the worker.
#[test]
fn a_function_that_is_refused_may_drop_its_runtime() {
    let _watch = watch();
    let builder = giveway::Builder::new()
        .workers(2)
        .max_spare_workers(0)
        .on_task_panic(|_| giveway::PanicPolicy::Shutdown);
    let runtime = builder.build().unwrap();
    let (gate, started, alive) = (Gate::new(), Gate::new(), Alive::default());
    let (waits, starts) = (gate.clone(), started.clone());
    let busy = move || async move {
        starts.open();
        waits.wait();
    };
    let busy = Builder::new().on_worker(0).spawn_pinned_on(busy, runtime.handle());
    started.wait();
    assert!(runtime.block_on(runtime.spawn(async { panic!("the last straw") })).is_err());
    let (handle, held) = (runtime.handle().clone(), alive.clone());
    // The order of the drops: the worker comes to its end while the runtime is being dropped.
    let goes = (on_drop(move || gate.open()), runtime, held);
    let refused =
        Builder::new().on_worker(0).spawn_pinned_on(move || async move { drop(goes) }, &handle);
    assert!(futures::executor::block_on(refused).unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&alive), 1);
    drop(busy);
}
