//! Many resources in one task: they share its budget, and must neither starve one another nor be
//! polled when they cannot go on.
//!
//! What went wrong elsewhere:
//! - A `FuturesUnordered` went on polling children that could only answer `Pending`: for ever
//!   (tokio 2390, futures-rs 2047), often enough in each layer that nested ones seemed to hang
//!   (tokio 3493), or once for each child, which makes the whole quadratic (futures-rs 2526). Today
//!   it stops when two of its children have woken themselves *during* their poll; so the wake must
//!   not be put off.
//! - An operation that a pending resource had taken was not given back, so that those which waited
//!   used up what the ready one needed: a deadlock (tokio PR 2549).

use futures::future::{Either, FutureExt, join, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use giveway_budget::{
    OPERATIONS, consume, cooperative, has_remaining, poll_proceed, remaining, with_budget,
};
use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker, ready};

const CHILDREN: usize = 10_000;

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Polls to the end with a fresh budget each time, as an executor does; panics where one would wait
/// or spin for ever.
fn run<T>(operations: u8, task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    for _ in 0..CHILDREN {
        if let Poll::Ready(output) = with_budget(operations, || task.as_mut().poll(&mut cx)) {
            return output;
        }
        assert!(woken.0.swap(false, Relaxed), "pending, and nobody will wake it");
    }
    panic!("woken again and again, and never done");
}

/// A child that counts how often it is polled, in vain or not.
fn counted(
    polls: &Cell<usize>,
    mut child: impl Future<Output = ()> + Unpin,
) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        polls.set(polls.get() + 1);
        child.poll_unpin(cx)
    })
}

/// A resource that takes part and never has anything.
fn never(cx: &mut Context<'_>) -> Poll<()> {
    let _spent = ready!(poll_proceed(cx));
    Poll::Pending
}

#[test]
fn futures_unordered_costs_no_more_than_its_children() {
    let polls = Cell::new(0);
    let done = run(OPERATIONS, async {
        let children: FuturesUnordered<_> =
            (0..CHILDREN).map(|_| counted(&polls, consume())).collect();
        children.count().await
    });
    assert_eq!(done, CHILDREN);
    assert!(polls.get() <= 3 * CHILDREN, "{} polls of {CHILDREN} children", polls.get());
}

#[test]
fn futures_unordered_of_cooperative_children_costs_no_more() {
    let polls = Cell::new(0);
    let done = run(OPERATIONS, async {
        // They spend twice, once inside and once outside.
        let children: FuturesUnordered<_> =
            (0..CHILDREN).map(|_| counted(&polls, cooperative(consume()))).collect();
        children.count().await
    });
    assert_eq!(done, CHILDREN);
    assert!(polls.get() <= 3 * CHILDREN, "{} polls of {CHILDREN} children", polls.get());
}

#[test]
fn join_all_costs_no_more_than_its_children() {
    let polls = Cell::new(0);
    run(OPERATIONS, join_all((0..CHILDREN).map(|_| counted(&polls, consume()))));
    assert!(polls.get() <= 3 * CHILDREN, "{} polls of {CHILDREN} children", polls.get());
}

#[test]
fn nested_futures_unordered_cost_no_more_than_their_leaves() {
    const FAN_OUT: usize = 6;
    const LAYERS: u32 = 5;

    fn layer(polls: &Cell<usize>, layers_below: u32) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            if layers_below == 0 {
                return counted(polls, consume()).await;
            }
            let mut children: FuturesUnordered<_> =
                (0..FAN_OUT).map(|_| layer(polls, layers_below - 1)).collect();
            while children.next().await.is_some() {}
        })
    }

    let (polls, leaves) = (Cell::new(0), FAN_OUT.pow(LAYERS));
    run(OPERATIONS, layer(&polls, LAYERS));
    assert!(polls.get() <= 3 * leaves, "{} polls of {leaves} leaves", polls.get());
}

#[test]
fn a_scheduler_that_asks_stops_before_it_polls_in_vain() {
    /// Runs its children to their ends, front to back, again and again.
    struct RoundRobin<'a>(Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>);

    impl Future for RoundRobin<'_> {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let mut gave_way = false;
            self.0.retain_mut(|child| {
                gave_way = gave_way || !has_remaining();
                gave_way || child.as_mut().poll(cx).is_pending()
            });
            if self.0.is_empty() {
                return Poll::Ready(());
            }
            if gave_way {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        }
    }

    let polls = Cell::new(0);
    run(
        OPERATIONS,
        RoundRobin((0..CHILDREN).map(|_| Box::pin(counted(&polls, consume())) as _).collect()),
    );
    assert_eq!(polls.get(), CHILDREN);
}

#[test]
fn pending_resources_leave_the_budget_to_the_ready_one() {
    run(1, async {
        let waiting = join_all((0..20).map(|_| poll_fn(never)));
        match select(waiting, consume()).await {
            Either::Left(_) => panic!("they are never ready"),
            Either::Right(((), _)) => assert_eq!(remaining(), Some(0)),
        }
    });
    run(1, async {
        let waiting = cooperative(pending::<()>());
        assert!(matches!(select(waiting, consume()).await, Either::Right(_)));
    });
}

#[test]
fn a_joined_resource_that_waits_for_the_other_gets_its_answer() {
    let sent = Cell::new(false);
    let receive = poll_fn(|cx| {
        let spent = ready!(poll_proceed(cx));
        if !sent.get() {
            // No waker is kept: `send` below wakes the same task.
            return Poll::Pending;
        }
        spent.made_progress();
        Poll::Ready(())
    });
    let send = poll_fn(|cx| {
        ready!(poll_proceed(cx)).made_progress();
        sent.set(true);
        cx.waker().wake_by_ref();
        Poll::Ready(())
    });
    run(1, join(receive, send));
}

/// An executor inside a task polls in a loop and never lets the task return, whatever it is
/// refused.
#[test]
fn an_executor_nested_in_a_task_is_let_go_in_the_end() {
    with_budget(3, || {
        futures::executor::block_on(async {
            for _ in 0..10 {
                giveway_budget::consume().await;
            }
        });
    });
    with_budget(1, || {
        assert_eq!(giveway_budget::remaining(), Some(1), "the next poll is constrained again")
    });
    let interrupted = std::sync::atomic::AtomicBool::new(true);
    giveway_budget::with_interrupt(&interrupted, || {
        with_budget(3, || futures::executor::block_on(giveway_budget::consume()));
    });
}

/// A scheduler that stops when nothing remains, and something unconstrained beside the work, do not
/// keep it from that.
#[test]
fn an_executor_nested_in_a_task_is_let_go_whatever_it_polls() {
    let consume_many = || async {
        for _ in 0..200 {
            giveway_budget::consume().await;
        }
    };
    with_budget(3, || {
        let never = giveway_budget::unconstrained(std::future::pending::<()>());
        let work = std::pin::pin!(consume_many());
        futures::executor::block_on(futures::future::select(never, work));
    });
    with_budget(3, || {
        let mut work = std::pin::pin!(consume_many());
        futures::executor::block_on(std::future::poll_fn(|cx| {
            if !giveway_budget::has_remaining() {
                cx.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            work.as_mut().poll(cx)
        }));
    });
}

#[test]
fn refusals_of_an_inner_budget_do_not_count_for_the_outer() {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    with_budget(0, || {
        for _ in 0..10 {
            with_budget(0, || {
                (0..20_000)
                    .for_each(|_| assert!(giveway_budget::poll_proceed(&mut cx).is_pending()))
            });
        }
        assert_eq!(giveway_budget::remaining(), Some(0));
    });
}
