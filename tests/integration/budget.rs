//! The operation budget, as the runtime grants it: 128 operations a poll. A task that runs from the
//! slot gets what the task before it has left.

use futures::FutureExt;
use futures::future::{FusedFuture, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use giveway::budget::{
    self, OPERATIONS, consume, cooperative, has_remaining, poll_proceed, unconstrained,
};
use giveway::task::{AbortHandle, JoinHandle, JoinSet};
use giveway::{spawn, yield_now};
use giveway_tests::{Polls, on_one_worker, with_runtimes};
use std::future::{Future, pending, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, ready};

/// More operations than any test needs. A loop that is never cut short fails at this count, and
/// does not hang.
const ENDLESS: usize = 1_000_000;

async fn spend(operations: usize) {
    for _ in 0..operations {
        consume().await;
    }
}

#[test]
fn every_poll_of_a_task_has_its_128_operations() {
    with_runtimes(|runtime| {
        let polls = Polls::default();
        let task = runtime.spawn(polls.clone().of(async {
            assert_eq!(budget::remaining(), Some(OPERATIONS));
            spend(1_000).await;
        }));
        runtime.block_on(task).unwrap();
        assert_eq!(polls.count(), 8, "1000 operations, 128 a poll");
    });
}

#[test]
fn the_future_of_block_on_has_a_budget_too_and_its_caller_none() {
    with_runtimes(|runtime| {
        assert_eq!(budget::remaining(), None);
        let polls = Polls::default();
        runtime.block_on(polls.clone().of(spend(1_000)));
        assert_eq!(polls.count(), 8);
        assert_eq!(budget::remaining(), None);
    });
}

#[test]
fn unconstrained_work_is_done_in_one_poll_and_spends_nothing() {
    on_one_worker(async {
        let polls = Polls::default();
        let task = spawn(polls.clone().of(async {
            unconstrained(spend(1_000)).await;
            budget::remaining()
        }));
        // This task goes to the back of the deque. The child runs next, from the slot, with the
        // budget that this poll has left, which is nearly all of it.
        yield_now().await;
        assert!(task.await.unwrap() >= Some(OPERATIONS - 1));
        assert_eq!(polls.count(), 1);
    });
}

/// A connection that always has data: a client that sends faster than it is served.
struct Flood;

impl Flood {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<u8> {
        ready!(poll_proceed(cx)).made_progress();
        Poll::Ready(7)
    }
}

/// Runs `serve` in a task until three neighbours on the same worker have had ten turns each.
fn assert_neighbours_get_turns<F: Future<Output = ()> + Send>(
    serve: impl Fn() -> F + Send + 'static,
) {
    on_one_worker(async move {
        let busy = Arc::new(AtomicUsize::new(3));
        for _ in 0..3 {
            let busy = busy.clone();
            spawn(async move {
                for _ in 0..10 {
                    yield_now().await;
                }
                busy.fetch_sub(1, SeqCst);
            });
        }
        let mut served = 0;
        while busy.load(SeqCst) > 0 {
            serve().await;
            served += 1;
            assert!(served < ENDLESS, "the neighbours starve");
        }
    });
}

#[test]
fn a_resource_that_is_always_ready_does_not_starve_its_neighbours() {
    assert_neighbours_get_turns(|| async {
        let mut flood = Flood;
        assert_eq!(poll_fn(|cx| flood.poll_read(cx)).await, 7);
    });
}

/// The channel knows nothing of budgets: `cooperative` makes it take part.
#[test]
fn a_channel_that_is_always_ready_does_not_starve_its_neighbours() {
    let (sender, receiver) = async_channel::bounded(1);
    sender.try_send(7).unwrap();
    assert_neighbours_get_turns(move || {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        async move {
            let data = cooperative(receiver.recv()).await.unwrap();
            sender.try_send(data).unwrap();
        }
    });
}

/// tokio PR 2549: a pending resource has to give back its operation. Otherwise the resources that
/// are polled after it never get one.
#[test]
fn a_thousand_pending_resources_leave_the_budget_to_the_one_that_is_ready() {
    fn budgeted(receiver: async_channel::Receiver<()>) -> impl Future<Output = ()> + Unpin {
        let mut received = Box::pin(async move { receiver.recv().await.unwrap() });
        poll_fn(move |cx| {
            let spent = ready!(poll_proceed(cx));
            received.as_mut().poll(cx).map(|()| spent.made_progress())
        })
    }
    with_runtimes(|runtime| {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..1_000).map(|_| async_channel::bounded::<()>(1)).unzip();
        let task = runtime.spawn(Polls::default().at_most(10_000, async move {
            let mut waiting: Vec<_> = receivers.into_iter().map(budgeted).collect();
            let sending = async {
                for sender in &senders {
                    consume().await;
                    sender.try_send(()).unwrap();
                }
            };
            // `last` is polled after all the others, every time.
            let mut last = pin!(sending.fuse());
            poll_fn(|cx| {
                waiting.retain_mut(|one| one.poll_unpin(cx).is_pending());
                let sent = last.as_mut().poll(cx).is_ready() || last.is_terminated();
                if sent && waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }));
        runtime.block_on(task).unwrap();
    });
}

/// A pending future in a `cooperative` wrapper spends nothing either: here, the branch of a
/// `select` that is never ready.
#[test]
fn what_is_pending_spends_nothing() {
    on_one_worker(async {
        for _ in 0..1_000 {
            let waits = cooperative(pending::<()>());
            select(pin!(waits), ready(())).await;
        }
        assert!(has_remaining());
    });
}

/// tokio 2390, 3493, futures-rs 2047: a spent budget had every child polled again and again.
#[test]
fn ten_thousand_budgeted_futures_in_one_task_are_polled_a_few_times_each() {
    const CHILDREN: usize = 10_000;
    with_runtimes(|runtime| {
        let polls = Polls::default();
        let counted = polls.clone();
        let task = runtime.spawn(async move {
            let mut all: FuturesUnordered<_> =
                (0..CHILDREN).map(|_| counted.clone().of(consume())).collect();
            while all.next().await.is_some() {}
            join_all((0..CHILDREN).map(|_| counted.clone().of(cooperative(ready(()))))).await;
        });
        runtime.block_on(task).unwrap();
        assert!(polls.count() <= 2 * 3 * CHILDREN, "{} polls", polls.count());
    });
}

/// All handles are ready. Each join spends an operation, so the task that joins them gives its
/// neighbours turns.
#[test]
fn joining_finished_tasks_spends_the_budget() {
    on_one_worker(async {
        let polls = [Polls::default(), Polls::default()];
        let tasks: Vec<_> = (0..1_000).map(|_| spawn(async {})).collect();
        let mut set = JoinSet::new();
        let in_set: Vec<_> = (0..1_000).map(|_| set.spawn(async {})).collect();
        while !(tasks.iter().all(JoinHandle::is_finished)
            && in_set.iter().all(AbortHandle::is_finished))
        {
            yield_now().await;
        }
        let one_by_one = spawn(polls[0].clone().of(async {
            for task in tasks {
                task.await.unwrap();
            }
        }));
        let as_a_set =
            spawn(polls[1].clone().of(async move { while set.join_next().await.is_some() {} }));
        one_by_one.await.unwrap();
        as_a_set.await.unwrap();
        for polls in polls {
            assert!(
                (8..=9).contains(&polls.count()),
                "1000 operations, 128 a poll: {} polls",
                polls.count()
            );
        }
    });
}

/// `try_join_next` cannot wait, and so cannot wait for the next poll's budget either.
#[test]
fn trying_to_join_works_on_a_spent_budget() {
    on_one_worker(async {
        let mut set = JoinSet::new();
        let finished = set.spawn(async { 7 });
        while !finished.is_finished() {
            yield_now().await;
        }
        while has_remaining() {
            consume().await;
        }
        assert_eq!(set.try_join_next().unwrap().unwrap(), 7);
    });
}

/// tokio PR 5686: a hand-off through the slot refreshed the budget.
#[test]
fn what_a_task_puts_into_its_slot_gets_the_rest_of_its_budget() {
    on_one_worker(async {
        // This task goes to the back of the deque, and so goes on with a fresh budget.
        yield_now().await;
        spend(100).await;
        let child = spawn(async {
            let left = budget::remaining().unwrap();
            spend(10).await;
            let grandchild = spawn(async { budget::remaining().unwrap() });
            (left, grandchild.await.unwrap())
        });
        assert_eq!(child.await.unwrap(), (28, 18));
    });
}

/// tokio PR 5686: two tasks that woke each other through the slot starved the queue.
#[test]
fn a_ping_pong_of_budgeted_operations_lets_a_third_task_run() {
    on_one_worker(async {
        let stop = Arc::new(AtomicBool::new(false));
        let (there, arrivals) = async_channel::bounded::<()>(1);
        let (back, returns) = async_channel::bounded::<()>(1);
        let pong = spawn(async move {
            while cooperative(arrivals.recv()).await.is_ok()
                && cooperative(back.send(())).await.is_ok()
            {}
        });
        let ping = spawn({
            let stop = stop.clone();
            async move {
                let mut trips = 0;
                while !stop.load(SeqCst) {
                    cooperative(there.send(())).await.unwrap();
                    cooperative(returns.recv()).await.unwrap();
                    trips += 1;
                    assert!(trips < ENDLESS, "the third task starves");
                }
            }
        });
        let third = spawn(async move {
            for _ in 0..100 {
                yield_now().await;
            }
            stop.store(true, SeqCst);
        });
        for task in [third, ping, pong] {
            task.await.unwrap();
        }
    });
}

/// A nested `with_budget` has a count of its own, and leaves that of the task as it was.
#[test]
fn a_budget_within_a_poll_does_not_touch_that_of_the_task() {
    on_one_worker(async {
        yield_now().await;
        budget::with_budget(1, || {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(pin!(consume()).poll(&mut cx).is_ready());
            assert!(!has_remaining());
        });
        assert_eq!(budget::remaining(), Some(OPERATIONS));
    });
}
