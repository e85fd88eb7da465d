//! Wake-ups: none is lost, wherever it comes from and whatever the task does at the time.

use futures::task::AtomicWaker;
use giveway_tests::{
    Alive, Gate, Wakers, dawdle, drain, eventually, recv, rounds, watch, with_runtimes,
    with_runtimes_of,
};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;

/// tokio 525, PR 621: work queued behind a rogue task that never ends its poll.
#[test]
fn work_queued_behind_a_rogue_poll_is_taken_by_another_worker() {
    with_runtimes_of(2, |runtime| {
        let rogue = runtime.spawn(async {
            let (ran, runs) = mpsc::channel();
            for i in 0..300 {
                let ran = ran.clone();
                giveway::spawn(async move { ran.send(i).unwrap() });
            }
            drop(ran);
            // The poll does not end before all of them have run: those in the deque, those that
            // overflowed into the injector, and the last one, in the slot.
            drain(&runs).len()
        });
        assert_eq!(runtime.block_on(rogue).unwrap(), 300);
    });
}

/// tokio 4941: a task in the slot of a stuck worker. (tokio once stole it from every worker, PR
/// 7431, and took that back, PR 8100: see 8065 for what it cost. Here it is stolen from a worker
/// that is stuck, and from no other.)
///
/// Event order: `sleeper` has stored its waker (`waits`) before `rogue` wakes it, and the poll of
/// `rogue` ends only after `sleeper` was polled again (`woken`).
#[test]
fn a_task_woken_into_the_slot_of_a_rogue_poll_is_taken_by_another_worker() {
    with_runtimes_of(2, |runtime| {
        for _ in 0..10 {
            let wake = Arc::new(AtomicWaker::new());
            let (waits, woken) = (Gate::new(), Gate::new());
            let flag = Arc::new(AtomicBool::new(false));
            let sleeper = runtime.spawn({
                let (wake, waits, woken, flag) =
                    (wake.clone(), waits.clone(), woken.clone(), flag.clone());
                poll_fn(move |cx| {
                    wake.register(cx.waker());
                    waits.open();
                    if flag.load(SeqCst) {
                        woken.open();
                        return Poll::Ready(());
                    }
                    Poll::Pending
                })
            });
            waits.wait();
            let rogue = runtime.spawn(async move {
                flag.store(true, SeqCst);
                wake.wake();
                woken.wait();
            });
            runtime.block_on(rogue).unwrap();
            runtime.block_on(sleeper).unwrap();
        }
    });
}

/// Every worker but one is stuck, each with a task in its slot. The free worker runs all of these,
/// and the tasks that come from outside.
#[test]
fn the_last_free_worker_serves_every_stuck_one() {
    with_runtimes_of(2, |runtime| {
        let rogues: Vec<_> = (1..runtime.handle().workers())
            .map(|_| {
                runtime.spawn(async {
                    let (ran, runs) = mpsc::channel();
                    giveway::spawn(async move { ran.send(()).unwrap() });
                    recv(&runs);
                })
            })
            .collect();
        let outside: Vec<_> = (0..100).map(|_| runtime.spawn(giveway::yield_now())).collect();
        rogues.into_iter().chain(outside).for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// compio 948: a wake-up from another thread was lost on a stale "already scheduled" bit. Each
/// wake-up here is needed for the next, so a lost one hangs the test.
#[test]
fn no_wake_from_another_thread_is_lost() {
    const ROUNDS: usize = 300;
    const THREADS: usize = 4;
    with_runtimes(|runtime| {
        let wakers = (0..THREADS).map(|_| {
            let (wake, asked) = (Arc::new(AtomicWaker::new()), Arc::new(AtomicUsize::new(0)));
            let (answer, answers) = mpsc::channel();
            let task = runtime.spawn({
                let (wake, asked) = (wake.clone(), asked.clone());
                let mut answered = 0;
                poll_fn(move |cx| {
                    wake.register(cx.waker());
                    let asked = asked.load(SeqCst);
                    if asked > answered {
                        answered = asked;
                        answer.send(asked).unwrap();
                    }
                    if asked == ROUNDS { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            thread::spawn(move || {
                for round in 1..=ROUNDS {
                    asked.store(round, SeqCst);
                    wake.wake();
                    assert_eq!(recv(&answers), round);
                }
                task
            })
        });
        let threads: Vec<_> = wakers.collect();
        threads.into_iter().for_each(|thread| runtime.block_on(thread.join().unwrap()).unwrap());
    });
}

/// Many threads wake the same few tasks and wait for no answer. Every wake-up is followed by a poll
/// that began after it.
#[test]
fn a_stampede_of_wakes_loses_none() {
    const THREADS: usize = 4;
    const WAKES: usize = 2_000;
    with_runtimes(|runtime| {
        let wakers: Arc<Vec<(AtomicWaker, AtomicUsize)>> =
            Arc::new((0..3).map(|_| Default::default()).collect());
        let tasks: Vec<_> = (0..wakers.len())
            .map(|i| {
                let (wakers, inside) = (wakers.clone(), AtomicBool::new(false));
                runtime.spawn(poll_fn(move |cx| {
                    assert!(!inside.swap(true, SeqCst), "polled by two workers at once");
                    wakers[i].0.register(cx.waker());
                    let all = wakers[i].1.load(SeqCst) == THREADS * WAKES;
                    inside.store(false, SeqCst);
                    if all { Poll::Ready(()) } else { Poll::Pending }
                }))
            })
            .collect();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..WAKES {
                        for (waker, wakes) in wakers.iter() {
                            wakes.fetch_add(1, SeqCst);
                            waker.wake();
                        }
                    }
                });
            }
        });
        // A task is ready only if a poll began after the last of all wake-ups.
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// compio 948, step by step: a task that is woken in the middle of a poll is polled again. A
/// wake-up after that has its poll too: no mark of the earlier ones is left.
///
/// Event order: the first poll hands over the waker and returns only after both wake-ups (`woken`).
#[test]
fn a_wake_while_running_means_another_poll() {
    with_runtimes(|runtime| {
        let (hand_over, wakers) = mpsc::channel::<Waker>();
        let (woken, wakes) = mpsc::channel();
        let (polled, polls) = mpsc::channel();
        let mut count = 0;
        let task = runtime.spawn(poll_fn(move |cx| {
            count += 1;
            match count {
                1 => {
                    hand_over.send(cx.waker().clone()).unwrap();
                    // Two wake-ups in one poll, which count as one.
                    recv(&wakes);
                    recv(&wakes);
                }
                2 => {}
                3 => cx.waker().wake_by_ref(),
                _ => return Poll::Ready(count),
            }
            polled.send(count).unwrap();
            Poll::Pending
        }));
        let waker = recv(&wakers);
        waker.wake_by_ref();
        woken.send(()).unwrap();
        waker.wake_by_ref();
        woken.send(()).unwrap();
        assert_eq!(recv(&polls), 1);
        assert_eq!(recv(&polls), 2, "polled again, for the wakes that came while it ran");
        assert!(!task.is_finished());
        waker.wake();
        assert_eq!(recv(&polls), 3);
        assert_eq!(runtime.block_on(task).unwrap(), 4);
    });
}

/// tokio PR 6876: a worker parks while a task remains queued. The pauses between the bursts have
/// many lengths.
#[test]
fn no_worker_parks_while_a_task_is_queued() {
    const BURSTS: usize = 300;
    with_runtimes(|runtime| {
        let (ran, runs) = mpsc::channel();
        for burst in rounds(BURSTS) {
            let size = 1 + burst % 9;
            for i in 0..size {
                let ran = ran.clone();
                runtime.spawn(async move {
                    let again = ran.clone();
                    giveway::spawn(async move { again.send(i).unwrap() });
                    if i % 2 == 0 {
                        giveway::yield_now().await;
                    }
                    ran.send(i).unwrap();
                });
            }
            (0..2 * size).for_each(|_| _ = recv(&runs));
            // Orders nothing. It varies whether the next burst finds workers that search, that are
            // going to sleep, or that sleep.
            dawdle((burst * 7) % 40);
        }
        assert!(runs.try_recv().is_err(), "each ran once");
    });
}

/// Bursts from several threads at once. Each thread waits for its own tasks.
#[test]
fn bursts_from_many_threads_all_run() {
    with_runtimes(|runtime| {
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for burst in rounds(100) {
                        let tasks: Vec<_> = (0..1 + (burst + thread) % 5)
                            .map(|i| runtime.spawn(async move { i }))
                            .collect();
                        for (i, task) in tasks.into_iter().enumerate() {
                            assert_eq!(runtime.block_on(task).unwrap(), i);
                        }
                    }
                });
            }
        });
    });
}

/// async-executor 103: two stores of the same waker drift apart. Here a future leaves its waker in
/// two places. Either one wakes the task, also after the other was dropped unused.
#[test]
fn either_of_two_wakers_wakes() {
    with_runtimes(|runtime| {
        for (use_first, by_ref) in [(true, true), (true, false), (false, true), (false, false)] {
            let wakers = Wakers::default();
            let go = Arc::new(AtomicBool::new(false));
            let task = runtime.spawn({
                let (wakers, go) = (wakers.clone(), go.clone());
                let mut parked = wakers.park(());
                poll_fn(move |cx| {
                    if go.load(SeqCst) {
                        return Poll::Ready(());
                    }
                    let mut second = wakers.park(());
                    let _ = pin!(&mut parked).poll(cx);
                    pin!(&mut second).poll(cx)
                })
            });
            eventually(|| wakers.len() == 2);
            let mut pair = wakers.take();
            assert!(pair[0].will_wake(&pair[1]));
            if use_first {
                pair.reverse();
            }
            let (used, unused) = (pair.pop().unwrap(), pair.pop().unwrap());
            drop(unused);
            go.store(true, SeqCst);
            if by_ref {
                used.wake_by_ref()
            } else {
                used.wake()
            }
            runtime.block_on(task).unwrap();
        }
    });
}

/// async-executor 103: a future moves from one task to another. After that it wakes the second.
#[test]
fn a_future_that_moves_between_tasks_is_woken_where_it_is() {
    type Channel = async_channel::Receiver<u32>;
    async fn wait(channel: Channel) -> u32 {
        channel.recv().await.unwrap()
    }
    with_runtimes(|runtime| {
        let (sender, channel) = async_channel::bounded(1);
        let moved = Arc::new(Mutex::new(Some(Box::pin(wait(channel)))));
        // The first task polls it once, and ends.
        let first = runtime.spawn({
            let moved = moved.clone();
            poll_fn(move |cx| {
                let pending =
                    moved.lock().unwrap().as_mut().unwrap().as_mut().poll(cx).is_pending();
                Poll::Ready(pending)
            })
        });
        assert!(runtime.block_on(first).unwrap());
        let waits = Gate::new();
        let in_second = waits.clone();
        let mut future = moved.lock().unwrap().take().unwrap();
        let second = runtime.spawn(poll_fn(move |cx| {
            let outcome = future.as_mut().poll(cx);
            in_second.open();
            outcome
        }));
        waits.wait();
        sender.send_blocking(4).unwrap();
        assert_eq!(runtime.block_on(second).unwrap(), 4);
    });
}

/// glommio 379: the reference count was wrong after `wake_by_ref` and a drop.
#[test]
fn the_future_is_freed_whatever_was_done_with_its_wakers() {
    fn nothing(_: &Waker) {}
    fn copy_and_drop(waker: &Waker) {
        drop(waker.clone());
    }
    fn wake_copy(waker: &Waker) {
        let copy = waker.clone();
        copy.wake();
    }
    let uses: [fn(&Waker); 4] = [nothing, Waker::wake_by_ref, copy_and_drop, wake_copy];
    with_runtimes(|runtime| {
        for use_it in uses {
            for keep_handle in [true, false] {
                let (alive, wakers) = (Alive::default(), Wakers::default());
                let task = runtime.spawn(wakers.park(alive.clone()));
                eventually(|| wakers.len() == 1);
                let waker = wakers.take().pop().unwrap();
                use_it(&waker);
                use_it(&waker);
                task.abort();
                if keep_handle {
                    assert!(runtime.block_on(task).unwrap_err().is_cancelled());
                } else {
                    drop(task);
                }
                eventually(|| Arc::strong_count(&alive) == 1);
                use_it(&waker);
                drop(waker);
            }
        }
    });
}

/// Each task is woken by a worker of the other runtime, which has other queues.
#[test]
fn tasks_of_two_runtimes_wake_each_other() {
    with_runtimes(|runtime| {
        let other = giveway_tests::runtime(2);
        let (to_other, from_here) = async_channel::bounded(1);
        let (to_here, from_other) = async_channel::bounded(1);
        let echo = other.spawn(async move {
            while let Ok(n) = from_here.recv().await {
                to_here.send(n + 1).await.unwrap();
            }
        });
        let task = runtime.spawn(async move {
            let mut n = 0;
            for _ in 0..300 {
                to_other.send(n).await.unwrap();
                n = from_other.recv().await.unwrap();
            }
            n
        });
        assert_eq!(runtime.block_on(task).unwrap(), 300);
        runtime.block_on(echo).unwrap();
    });
}

/// A chain of tasks, each woken by the one before, on a runtime that is otherwise asleep.
#[test]
fn a_chain_of_wakes_goes_through() {
    with_runtimes(|runtime| {
        let (first, mut previous) = async_channel::bounded::<usize>(1);
        for _ in 0..500 {
            let (sender, next) = async_channel::bounded(1);
            runtime.spawn(
                async move { sender.send(previous.recv().await.unwrap() + 1).await.unwrap() },
            );
            previous = next;
        }
        first.send_blocking(0).unwrap();
        assert_eq!(runtime.block_on(previous.recv()).unwrap(), 500);
    });
}

/// The future of `block_on` is woken by tasks and by threads. A wake-up that comes late, between
/// two calls of `block_on`, does no harm.
#[test]
fn block_on_is_woken_from_everywhere() {
    with_runtimes(|runtime| {
        for round in rounds(200) {
            let woken = Arc::new(AtomicBool::new(false));
            let mut asked = false;
            runtime.block_on(poll_fn(|cx: &mut Context<'_>| {
                if woken.load(SeqCst) {
                    return Poll::Ready(());
                }
                if !std::mem::replace(&mut asked, true) {
                    let (waker, woken) = (cx.waker().clone(), woken.clone());
                    let wake = move || {
                        woken.store(true, SeqCst);
                        waker.wake_by_ref();
                        waker.wake();
                    };
                    if round % 2 == 0 {
                        giveway::spawn(async move { wake() });
                    } else {
                        thread::spawn(wake);
                    }
                }
                Poll::Pending
            }));
        }
    });
}

/// User code may unpark workers, and threads in `block_on`, at any time.
#[test]
fn stray_unparks_do_no_harm() {
    let _watch = watch();
    with_runtimes(|runtime| {
        let (sender, threads) = mpsc::channel();
        for _ in 0..8 {
            let sender = sender.clone();
            runtime
                .block_on(runtime.spawn(async move { sender.send(thread::current()).unwrap() }))
                .unwrap();
        }
        drop(sender);
        let threads = drain(&threads);
        let ran = AtomicUsize::new(0);
        for _ in 0..100 {
            threads.iter().for_each(thread::Thread::unpark);
            thread::current().unpark();
            runtime
                .block_on(async { giveway::spawn(async { thread::current().unpark() }).await })
                .unwrap();
            ran.fetch_add(1, Relaxed);
        }
        assert_eq!(ran.load(Relaxed), 100);
    });
}
