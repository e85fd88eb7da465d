//! Timers are registered when the poll that waits for them is over. These tests show what a task
//! can do to a timer before that.

use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use giveway::time::{Duration, Instant, Sleep, sleep, timeout};
use giveway_tests::{Gate, runtime, watch, with_runtimes};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;

const NAP: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_secs(3_600);

/// Polls `sleep` once, and returns whether it is pending.
async fn is_pending(sleep: &mut Sleep) -> bool {
    futures::poll!(sleep).is_pending()
}

/// The nested executor waits for the timer, and the task's own poll does not return before that.
#[test]
fn an_executor_nested_in_a_task_sleeps() {
    with_runtimes(|runtime| {
        let nested = runtime.spawn(async {
            futures::executor::block_on(sleep(NAP));
            futures::executor::block_on(async {
                let mut both: FuturesUnordered<_> = [NAP, NAP / 2].into_iter().map(sleep).collect();
                while both.next().await.is_some() {}
            });
        });
        runtime.block_on(nested).unwrap();
    });
}

#[test]
fn a_sleep_that_a_task_has_polled_goes_on_in_an_executor_nested_in_it() {
    with_runtimes(|runtime| {
        let nested = runtime.spawn(async {
            let mut nap = sleep(NAP);
            assert!(is_pending(&mut nap).await);
            let deadline = nap.deadline();
            futures::executor::block_on(&mut nap);
            assert!(Instant::now() >= deadline);
        });
        runtime.block_on(nested).unwrap();
    });
}

#[test]
fn a_sleep_may_be_waited_for_on_another_thread_within_the_poll() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(async {
            let mut nap = sleep(NAP);
            assert!(is_pending(&mut nap).await);
            std::thread::spawn(|| futures::executor::block_on(nap)).join().unwrap();
        });
        runtime.block_on(task).unwrap();
    });
}

/// tokio PR 8252: a cancel raced the insert.
#[test]
fn a_sleep_dropped_on_another_thread_within_the_poll_wakes_nobody() {
    let _watch = watch();
    let runtime = runtime(1);
    let (send, receive) = mpsc::channel();
    // `unconstrained`: a poll that takes long is asked to return, and with a budget its next
    // operation would then wake the task.
    let task = runtime.spawn(giveway::budget::unconstrained(async move {
        for _ in 0..100 {
            let mut nap = sleep(Duration::from_millis(1));
            assert!(is_pending(&mut nap).await);
            std::thread::spawn(move || drop(nap)).join().unwrap();
        }
        std::future::poll_fn(|_| {
            send.send(()).unwrap();
            std::task::Poll::<()>::Pending
        })
        .await
    }));
    receive.recv().unwrap();
    // Long after the timers would have been due. Each of them would wake the task.
    runtime.block_on(sleep(Duration::from_millis(20)));
    assert!(receive.try_recv().is_err(), "a timer that was dropped has fired");
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_cancelled());
}

#[test]
fn a_sleep_is_handed_from_a_task_that_ends_to_another() {
    with_runtimes(|runtime| {
        let (send, receive) = futures::channel::oneshot::channel();
        let giver = runtime.spawn(async move {
            let mut nap = sleep(NAP);
            assert!(is_pending(&mut nap).await);
            assert!(send.send(nap).is_ok());
        });
        let taker = runtime.spawn(async move { receive.await.unwrap().await });
        runtime.block_on(giver).unwrap();
        runtime.block_on(taker).unwrap();
    });
}

#[test]
fn a_sleep_outlives_the_panic_of_the_task_that_polled_it() {
    with_runtimes(|runtime| {
        let (send, receive) = mpsc::channel();
        let panics = runtime.spawn(async move {
            let mut nap = sleep(NAP);
            assert!(is_pending(&mut nap).await);
            send.send(nap).unwrap();
            std::panic::panic_any("on purpose");
        });
        assert!(runtime.block_on(panics).unwrap_err().is_panic());
        let nap = receive.recv().unwrap();
        let deadline = nap.deadline();
        runtime.block_on(runtime.spawn(nap)).unwrap();
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn the_losing_side_of_a_race_is_stopped_and_the_winner_fires() {
    with_runtimes(|runtime| {
        let races = (0..20).map(|_| {
            runtime.spawn(async {
                for _ in 0..20 {
                    let (soon, late) = (sleep(Duration::from_micros(100)), sleep(LONG));
                    assert!(matches!(select(pin!(soon), pin!(late)).await, Either::Left(_)));
                    assert!(timeout(LONG, giveway::yield_now()).await.is_ok());
                    assert!(timeout(Duration::from_micros(50), sleep(LONG)).await.is_err());
                }
            })
        });
        races.collect::<Vec<_>>().into_iter().for_each(|race| runtime.block_on(race).unwrap());
    });
}

/// All timers are in the list of one poll. Some are dropped before its end, some are reset: exactly
/// those that are left wake the task.
#[test]
fn of_many_sleeps_in_one_poll_those_that_are_kept_fire() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(async {
            let mut naps: Vec<_> = (0..1_000).map(|n| sleep(Duration::from_micros(n))).collect();
            for nap in &mut naps {
                let _pending = is_pending(nap).await;
            }
            let mut n = 0;
            naps.retain(|_| {
                n += 1;
                n % 3 == 0
            });
            for nap in naps.iter_mut().step_by(2) {
                std::pin::Pin::new(nap).reset(Instant::now() + NAP);
            }
            let kept: FuturesUnordered<_> = naps.into_iter().collect();
            kept.count().await
        });
        assert_eq!(runtime.block_on(task).unwrap(), 333);
    });
}

#[test]
fn a_runtime_is_dropped_while_a_task_makes_timers() {
    with_runtimes(|runtime| {
        let started = Arc::new(Gate::new());
        for _ in 0..4 {
            let started = started.clone();
            runtime.spawn(async move {
                started.open();
                loop {
                    let mut far = sleep(LONG);
                    assert!(is_pending(&mut far).await);
                    sleep(Duration::from_micros(20)).await;
                }
            });
        }
        started.wait();
    });
}
