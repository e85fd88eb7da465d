//! The rest of a poll that has blocked in place and lost its core: its timers, sockets, yield
//! points and budget.

use super::in_place::lose_core;
use super::io_common::{HOUR, tcp_pair, telling};
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, join};
use giveway::budget::{self, unconstrained};
use giveway::time::{Duration, sleep, timeout};
use giveway::{
    Handle, block_in_place, block_on, should_yield, spawn, yield_now, yield_now_if_busy,
};
use giveway_tests::{Gate, Polls, on_one_worker, outside, runtime, watch, with_runtimes};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

const NAP: Duration = Duration::from_millis(3);

/// The worker registers such a timer when the poll ends. By then the thread is no worker any more.
#[test]
fn a_timer_made_before_it_in_the_same_poll_fires() {
    on_one_worker(async {
        for _ in 0..10 {
            // Nothing but the timer wakes the task.
            join!(sleep(NAP), async { lose_core() });
        }
    });
}

#[test]
fn a_timer_made_inside_fires() {
    on_one_worker(async {
        for _ in 0..10 {
            let (mut nap, mut first) = (pin!(sleep(NAP)), true);
            poll_fn(|cx| {
                if !std::mem::take(&mut first) {
                    return nap.as_mut().poll(cx);
                }
                block_in_place(|| {
                    lose_core();
                    nap.as_mut().poll(cx)
                })
            })
            .await;
        }
    });
}

#[test]
fn a_timer_made_after_it_in_the_same_poll_fires() {
    on_one_worker(async {
        for _ in 0..10 {
            lose_core();
            sleep(NAP).await;
            // `unconstrained` ignores the budget, which is spent. So a thread without a core
            // registers the timer.
            unconstrained(async {
                lose_core();
                sleep(NAP).await;
            })
            .await;
        }
    });
}

/// The wake-up comes while the poll goes on without a core.
#[test]
fn a_timer_that_fires_while_the_closure_blocks_wakes_the_task() {
    on_one_worker(async {
        for _ in 0..5 {
            let (due, opens) = (Gate::new(), Gate::new());
            let gate = opens.clone();
            let watcher = spawn(async move {
                sleep(2 * NAP).await;
                gate.open();
            });
            join!(telling(due, sleep(NAP)), async { block_in_place(|| opens.wait()) });
            watcher.await.unwrap();
        }
    });
}

#[test]
fn a_timeout_around_it_is_looked_at_when_it_returns() {
    on_one_worker(async {
        let late = timeout(Duration::ZERO, async {
            lose_core();
            yield_now().await;
            sleep(HOUR).await;
        });
        assert!(late.await.is_err());
        let in_time = timeout(HOUR, async {
            lose_core();
            yield_now().await;
            5
        });
        assert_eq!(in_time.await.unwrap(), 5);
    });
}

#[test]
fn timers_of_others_fire_while_every_worker_is_in_place() {
    with_runtimes(|runtime| {
        let workers = runtime.handle().workers();
        let tasks: Vec<_> = (0..workers)
            .map(|_| {
                runtime.spawn(async {
                    let gate = Gate::new();
                    let opens = gate.clone();
                    spawn(async move {
                        sleep(NAP).await;
                        opens.open();
                    });
                    block_in_place(|| gate.wait());
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// Reads that begin before, inside and after the call. The peer answers when the core is lost, so
/// the wake-up is for a task whose thread has no core.
#[test]
fn sockets_made_before_inside_and_after_it_work() {
    on_one_worker(async {
        for _ in 0..5 {
            let (mut here, mut there) = tcp_pair().await;
            let mut byte = [0];
            let (read, ()) = join!(here.read_exact(&mut byte), async {
                lose_core();
                unconstrained(there.write_all(b"a")).await.unwrap();
            });
            read.unwrap();
            assert_eq!(&byte, b"a");

            let (mut here, mut there) = block_in_place(|| {
                lose_core();
                block_on(tcp_pair())
            });
            there.write_all(b"b").await.unwrap();
            here.read_exact(&mut byte).await.unwrap();
            assert_eq!(&byte, b"b");

            lose_core();
            let (mut here, mut there) = unconstrained(tcp_pair()).await;
            join!(async { here.read_exact(&mut byte).await.unwrap() }, async {
                there.write_all(b"c").await.unwrap()
            });
            assert_eq!(&byte, b"c");
        }
    });
}

/// Runs `future` in a task on a single worker, and checks that it is polled twice: once more after
/// it gave way.
#[track_caller]
fn assert_polled_twice<F: Future<Output = ()> + Send + 'static>(future: F) {
    let polls = Polls::default();
    on_one_worker(polls.clone().at_most(2, future));
    assert_eq!(polls.count(), 2);
}

#[test]
fn a_yield_point_gives_way_when_the_core_is_lost() {
    assert_polled_twice(async {
        assert!(!should_yield(), "nobody waits");
        lose_core();
        assert!(should_yield(), "without a core");
        let first = Polls::default();
        first.clone().of(yield_now_if_busy()).await;
        assert_eq!(first.count(), 2);
    });
}

#[test]
fn the_budget_is_spent_when_the_core_is_lost() {
    assert_polled_twice(async {
        lose_core();
        assert!(!budget::has_remaining());
        let first = Polls::default();
        first.clone().of(budget::consume()).await;
        assert_eq!(first.count(), 2);
        assert!(budget::has_remaining(), "a new poll, a new budget");
    });
}

#[test]
fn a_background_task_that_has_lost_its_core_goes_on_on_one() {
    let _watch = watch();
    let runtime = runtime(1);
    let polls = Polls::default();
    let task = runtime.spawn_background(polls.clone().of(async {
        let gate = Gate::new();
        let opens = gate.clone();
        giveway::task::Builder::new()
            .class(giveway::task::Class::Foreground)
            .spawn(async move { opens.open() });
        block_in_place(|| gate.wait());
        budget::consume().await;
        yield_now_if_busy().await;
        yield_now().await;
    }));
    runtime.block_on(task).unwrap();
    assert!(polls.count() > 1);
}

/// A yield point wants to give way and is dropped, as in a `select!` whose other side is ready.
/// What it asked for is taken back. The poll ends at the first chance all the same, because it has
/// lost its core.
#[test]
fn a_yield_point_dropped_after_the_core_was_lost_is_no_request() {
    on_one_worker(async {
        for _ in 0..10 {
            lose_core();
            let mut polite = pin!(yield_now_if_busy());
            assert!(futures::poll!(polite.as_mut()).is_pending());
        }
        let mut kept = pin!(yield_now_if_busy());
        lose_core();
        assert!(futures::poll!(kept.as_mut()).is_pending());
        yield_now().await;
        kept.await;
    });
}

/// The yield point asked while its task had the core, and is dropped when the core is lost.
#[test]
fn a_yield_point_polled_before_and_dropped_after_the_core_was_lost() {
    on_one_worker(async {
        let handle = Handle::current();
        for _ in 0..10 {
            let gate = Gate::new();
            let opens = gate.clone();
            outside(|| handle.spawn(async move { opens.open() }));
            {
                let mut polite = pin!(yield_now_if_busy());
                assert!(
                    futures::poll!(polite.as_mut()).is_pending(),
                    "a task is queued, and nobody is idle"
                );
                block_in_place(|| gate.wait());
            }
            yield_now().await;
        }
    });
}

#[test]
fn yield_points_inside_do_not_give_way_and_the_budget_does_not_count() {
    on_one_worker(async {
        let handle = Handle::current();
        outside(|| handle.spawn(async {}));
        assert!(should_yield(), "a task is queued, and nobody is idle");
        block_in_place(|| {
            assert!(!should_yield());
            assert!(yield_now_if_busy().now_or_never().is_some());
            for _ in 0..1_000 {
                assert!(budget::consume().now_or_never().is_some(), "not limited");
            }
            assert_eq!(budget::remaining(), None);
        });
    });
}

/// A call that keeps its core leaves the budget as it was.
#[test]
fn the_budget_is_what_it_was_if_the_core_was_kept() {
    on_one_worker(async {
        // The monitor may take the core in any single call, so one call that keeps it is enough.
        let kept = (0..1_000).any(|_| {
            let before = budget::remaining();
            block_in_place(|| ());
            before == budget::remaining() && before > Some(0)
        });
        assert!(kept);
    });
}

/// The closure wakes its own task, by reference. The task must be polled again after this poll has
/// ended.
#[test]
fn a_task_may_wake_itself_inside() {
    for lose in [false, true] {
        let polls = Polls::default();
        let mut first = true;
        let future = poll_fn(move |cx| {
            if !std::mem::take(&mut first) {
                return Poll::Ready(());
            }
            block_in_place(|| {
                if lose {
                    lose_core();
                }
                cx.waker().wake_by_ref();
            });
            Poll::Pending
        });
        on_one_worker(polls.clone().of(future));
        assert_eq!(polls.count(), 2);
    }
}

/// Another thread wakes the task while it is without a core.
#[test]
fn a_task_that_is_woken_from_outside_while_it_is_in_place_comes_back() {
    for _ in 0..20 {
        let mut first = true;
        on_one_worker(poll_fn(move |cx| {
            if !std::mem::take(&mut first) {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            block_in_place(|| {
                lose_core();
                outside(|| waker.wake());
            });
            Poll::Pending
        }));
    }
}

#[test]
fn a_task_aborted_while_it_is_in_place_ends_at_its_next_await() {
    with_runtimes(|runtime| {
        let (entered, gate) = (Gate::new(), Gate::new());
        let (enters, waits) = (entered.clone(), gate.clone());
        let task = runtime.spawn(async move {
            block_in_place(|| {
                enters.open();
                waits.wait();
            });
            std::future::pending::<()>().await;
        });
        entered.wait();
        task.abort();
        assert!(!task.is_finished());
        gate.open();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}
