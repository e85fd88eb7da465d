//! Yield points inside other futures and other executors, in `block_on`, outside any runtime, and
//! moved to other tasks and threads.

use futures::executor::LocalPool;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::task::LocalSpawnExt;
use futures::{FutureExt, future, join, pin_mut, select_biased};
use giveway::task::YieldNowIfBusy;
use giveway::time::{Duration, timeout};
use giveway::{Builder, Handle, should_yield, spawn_background, yield_now, yield_now_if_busy};
use giveway_tests::{Gate, Log, Polls, occupy, on_one_worker, outside, recv, runtime, watch};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;

/// Two ways for work to wait: in the task's own queue, so that the task changes places with it, and
/// in the injector, so that the task goes into the yield queue.
const WAYS: [fn(&Log); 2] = [queue_here, inject];

fn queue_here(log: &Log) {
    let log = log.clone();
    giveway::spawn(async move { log.add("work") });
}

fn inject(log: &Log) {
    let (handle, log) = (Handle::current(), log.clone());
    outside(move || handle.spawn(async move { log.add("work") }));
}

/// Polls the future once.
async fn look<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

async fn yield_and_log(log: &Log, event: &str) {
    yield_now_if_busy().await;
    log.add(event);
}

/// Asserts that `leave_no_trace`, which makes a yield point pending and gets rid of it, leaves no
/// request behind. Work waits in the injector, and a task waits in the yield queue. A task that is
/// still asked to give way then waits behind both. One that is not goes to the back of its own
/// queue, which is empty, and so goes on before the task in the yield queue. The work may run first
/// even so, if the poll took long, because the worker looks at the injector sooner then.
fn assert_not_marked<F>(leave_no_trace: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send,
{
    on_one_worker(async move {
        let log = Log::default();
        let parked = log.clone();
        let parked = spawn_background(async move { parked.add("parked") });
        inject(&log);
        leave_no_trace().await;
        log.assert(&[]);
        yield_now().await;
        assert!(!log.has("parked"), "the task has given way");
        // The work is not forgotten.
        yield_now_if_busy().await;
        parked.await.unwrap();
        log.assert(&["work", "parked"]);
    });
}

#[test]
fn dropped_while_pending_it_leaves_no_mark() {
    assert_not_marked(|| async {
        let mut turn = yield_now_if_busy();
        assert!(look(&mut turn).await.is_pending());
    });
}

#[test]
fn a_select_whose_other_branch_is_ready_does_not_give_way() {
    assert_not_marked(|| async {
        select_biased! {
            () = yield_now_if_busy().fuse() => unreachable!("work waits"),
            () = future::ready(()).fuse() => {}
        }
    });
}

/// One of two pending yield points is dropped. The other still makes its task give way.
#[test]
fn each_yield_point_takes_back_its_own_request_only() {
    on_one_worker(async {
        let log = Log::default();
        inject(&log);
        let mut stays = yield_now_if_busy();
        assert!(look(&mut stays).await.is_pending());
        let mut goes = yield_now_if_busy();
        assert!(look(&mut goes).await.is_pending());
        drop(goes);
        stays.await;
        log.assert(&["work"]);
    });
}

#[test]
fn in_a_join_the_whole_task_gives_way() {
    for make_work in WAYS {
        on_one_worker(async move {
            let log = Log::default();
            make_work(&log);
            join!(yield_and_log(&log, "a"), yield_and_log(&log, "b"));
            log.assert(&["work", "a", "b"]);
        });
    }
}

#[test]
fn in_a_select_the_whole_task_gives_way() {
    for make_work in WAYS {
        on_one_worker(async move {
            let log = Log::default();
            make_work(&log);
            let (polite, never) =
                (yield_and_log(&log, "polite").fuse(), future::pending::<()>().fuse());
            pin_mut!(polite, never);
            select_biased! { () = never => {}, () = polite => {} }
            log.assert(&["work", "polite"]);
        });
    }
}

/// `FuturesUnordered` polls a child that woke itself again before it returns.
#[test]
fn in_a_futures_unordered_the_whole_task_gives_way() {
    for make_work in WAYS {
        for children in [1, 2, 3, 10, 100, 3_000] {
            on_one_worker(async move {
                let log = Log::default();
                make_work(&log);
                let mut all: FuturesUnordered<_> =
                    (0..children).map(|_| yield_and_log(&log, "child")).collect();
                while all.next().await.is_some() {}
                let all = log.all();
                assert_eq!(all.len(), children + 1);
                assert_eq!(all[0], "work", "{children} children");
            });
        }
    }
}

#[test]
fn in_a_futures_unordered_inside_another_the_whole_task_gives_way() {
    for make_work in WAYS {
        on_one_worker(async move {
            let log = Log::default();
            make_work(&log);
            let inner = || async {
                let mut all: FuturesUnordered<_> =
                    (0..3).map(|_| yield_and_log(&log, "child")).collect();
                while all.next().await.is_some() {}
            };
            let mut all: FuturesUnordered<_> = (0..3).map(|_| inner()).collect();
            while all.next().await.is_some() {}
            assert_eq!(log.all()[0], "work");
        });
    }
}

/// Runs executors that poll until they are done, each with yield points.
fn nested_executors() {
    futures::executor::block_on(async {
        for _ in 0..100 {
            yield_now_if_busy().await;
        }
    });
    let mut pool = LocalPool::new();
    for _ in 0..3 {
        pool.spawner().spawn_local(async { yield_now_if_busy().await }).unwrap();
    }
    pool.run();
    pool.run_until(yield_now_if_busy());
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio.block_on(async { tokio::spawn(yield_now_if_busy()).await.unwrap() });
}

/// The task cannot give way inside of another executor, and must not hang there.
#[test]
fn an_executor_inside_a_task_goes_on() {
    for make_work in WAYS {
        on_one_worker(async move {
            let log = Log::default();
            make_work(&log);
            nested_executors();
            log.assert(&[]);
        });
    }
}

/// A request that the task could not obey inside of another executor is obeyed at the task's own
/// next yield point, in the same poll.
#[test]
fn a_task_gives_way_after_an_executor_inside_it_could_not() {
    for make_work in WAYS {
        on_one_worker(async move {
            let log = Log::default();
            make_work(&log);
            nested_executors();
            yield_now_if_busy().await;
            log.assert(&["work"]);
        });
    }
}

/// The loop in the documentation of `should_yield` makes no progress while that returns true.
#[test]
fn should_yield_is_obeyed_after_an_executor_inside_the_task_could_not() {
    for make_work in WAYS {
        on_one_worker(async move {
            make_work(&Log::default());
            nested_executors();
            let mut tries = 0;
            while should_yield() {
                tries += 1;
                assert!(tries < 100, "work waits, and the task is not let go");
                yield_now_if_busy().await;
            }
        });
    }
}

#[test]
fn an_executor_inside_a_task_leaves_no_mark() {
    assert_not_marked(|| async { nested_executors() });
}

/// Code that is not in a runtime does not wait for it, however busy the runtime is.
#[test]
fn outside_a_runtime_it_is_ready_at_once() {
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let held = occupy(runtime.handle(), 1, &gate);
    let queued = runtime.spawn(async {});
    assert!(!should_yield());
    assert_eq!(yield_now_if_busy().now_or_never(), Some(()));
    futures::executor::block_on(yield_now_if_busy());
    {
        // The thread is in the runtime, but no task there waits for this thread.
        let _inside = runtime.enter();
        assert!(!should_yield());
        assert_eq!(yield_now_if_busy().now_or_never(), Some(()));
    }
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    tokio.block_on(async {
        let task = tokio::spawn(async { (yield_now_if_busy().now_or_never(), should_yield()) });
        assert_eq!(task.await.unwrap(), (Some(()), false));
    });
    gate.open();
    held.into_iter().chain([queued]).for_each(|task| runtime.block_on(task).unwrap());
}

/// The thread waits until a worker takes it out of the yield queue, which happens when nothing else
/// waits.
#[test]
fn the_future_of_block_on_gives_way_to_queued_work() {
    let _watch = watch();
    let runtime = runtime(1);
    for _ in 0..20 {
        let (gate, ran) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let held = occupy(runtime.handle(), 1, &gate);
        let work = runtime.spawn({
            let ran = ran.clone();
            async move { ran.store(true, SeqCst) }
        });
        let polls = Polls::default();
        runtime.block_on(polls.clone().of(async {
            assert!(should_yield());
            let polite = async {
                yield_now_if_busy().await;
                assert!(ran.load(SeqCst));
            };
            join!(polite, async { gate.open() });
        }));
        assert_eq!(polls.count(), 2);
        held.into_iter().chain([work]).for_each(|task| runtime.block_on(task).unwrap());
    }
}

/// No work waits, so the thread does not wait either, although no worker is idle.
#[test]
fn the_future_of_block_on_goes_on_while_nobody_waits() {
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let held = occupy(runtime.handle(), 1, &gate);
    // Only this future opens the gate: if it waited for the worker, it would wait for ever.
    runtime.block_on(async {
        for _ in 0..1_000 {
            assert!(!should_yield());
            yield_now_if_busy().await;
        }
        gate.open();
    });
    held.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

/// Returns a yield point that is pending in a task, taken out of that task.
fn pending_elsewhere() -> Box<YieldNowIfBusy> {
    on_one_worker(async {
        inject(&Log::default());
        let mut turn = Box::new(yield_now_if_busy());
        assert!(look(&mut turn).await.is_pending());
        Some(turn)
    })
    .unwrap()
}

#[test]
fn a_pending_yield_point_may_be_awaited_elsewhere() {
    futures::executor::block_on(pending_elsewhere());
    let turn = pending_elsewhere();
    on_one_worker(turn);
    let turn = pending_elsewhere();
    runtime(2).block_on(turn);

    // In another task on the same worker.
    on_one_worker(async {
        let (log, (send, receive)) = (Log::default(), mpsc::channel::<Box<YieldNowIfBusy>>());
        let second = giveway::spawn({
            let log = log.clone();
            async move {
                recv(&receive).await;
                log.add("second");
            }
        });
        let mut turn = Box::new(yield_now_if_busy());
        assert!(look(&mut turn).await.is_pending());
        send.send(turn).unwrap();
        second.await.unwrap();
        log.assert(&["second"]);
    });
}

/// The yield point made its request in a poll that is over. It has none to take back in this poll.
#[test]
fn a_yield_point_of_another_poll_takes_back_nothing_here() {
    on_one_worker(async {
        for poll_it_first in [true, false] {
            let (log, send_work) = (Log::default(), Log::default());
            inject(&send_work);
            let mut old = Some(yield_now_if_busy());
            assert!(look(old.as_mut().unwrap()).await.is_pending());
            yield_now().await;
            yield_now_if_busy().await;
            send_work.assert(&["work"]);

            inject(&log);
            let mut turn = yield_now_if_busy();
            poll_fn(|cx| {
                let outcome = turn.poll_unpin(cx);
                if let Some(mut old) = old.take()
                    && poll_it_first
                {
                    assert!(old.poll_unpin(cx).is_ready(), "it has given way once");
                }
                outcome
            })
            .await;
            log.assert(&["work"]);
        }
    });
}

/// The yield point comes from another runtime of the same shape, whose worker and poll may have the
/// same numbers.
#[test]
fn a_yield_point_of_another_runtime_takes_back_nothing_here() {
    for _ in 0..20 {
        let mut foreign = Some(pending_elsewhere());
        on_one_worker(async move {
            let log = Log::default();
            inject(&log);
            let mut turn = yield_now_if_busy();
            poll_fn(|cx| {
                let outcome = turn.poll_unpin(cx);
                drop(foreign.take());
                outcome
            })
            .await;
            log.assert(&["work"]);
        });
    }
}

/// A loop that gives way to nobody, because a worker is idle. Its poll ends all the same, so that
/// the timeout around it is looked at: in the future of a `block_on`, and in one inside of a task.
#[test]
fn a_timeout_around_a_polite_loop_in_block_on_is_looked_at() {
    let _watch = watch();
    let polite = || async {
        loop {
            giveway::yield_now_if_busy().await;
        }
    };
    let short = Duration::from_millis(20);
    let runtime = Builder::new().workers(2).build().unwrap();
    assert!(runtime.block_on(timeout(short, polite())).is_err());
    let handle = runtime.handle().clone();
    let nested = runtime.spawn(async move { handle.block_on(timeout(short, polite())).is_err() });
    assert!(runtime.block_on(nested).unwrap());
}
