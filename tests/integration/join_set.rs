//! Many tasks in a `JoinSet`.

use giveway::task::JoinSet;
use giveway_tests::{Alive, Gate, Wakers, eventually, hold, panic_of, with_runtimes};
use std::collections::HashSet;
use std::sync::Arc;

#[test]
fn tasks_are_joined_in_the_order_in_which_they_finish() {
    with_runtimes(|runtime| {
        let order = runtime.block_on(async {
            let mut set = JoinSet::new();
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..5).map(|_| async_channel::bounded::<()>(1)).unzip();
            for (i, receiver) in receivers.into_iter().enumerate() {
                set.spawn(async move {
                    receiver.recv().await.unwrap();
                    i
                });
            }
            assert!(set.try_join_next().is_none());
            let mut order = Vec::new();
            for i in [3, 0, 4, 1, 2] {
                senders[i].send(()).await.unwrap();
                order.push(set.join_next().await.unwrap().unwrap());
            }
            assert!(set.is_empty());
            assert!(set.join_next().await.is_none());
            order
        });
        assert_eq!(order, [3, 0, 4, 1, 2]);
    });
}

#[test]
fn join_all_returns_every_output() {
    with_runtimes(|runtime| {
        let mut set = JoinSet::new();
        (0..300).for_each(|i| _ = set.spawn_on(async move { i }, runtime.handle()));
        assert_eq!(set.len(), 300);
        assert_eq!(format!("{set:?}"), "JoinSet { len: 300 }");
        let outputs: HashSet<_> = runtime.block_on(set.join_all()).into_iter().collect();
        assert_eq!(outputs, (0..300).collect());
    });
}

#[test]
fn join_all_passes_a_panic_on_and_aborts_the_rest() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        let mut set = JoinSet::new();
        set.spawn_on(hold(alive.clone()), runtime.handle());
        set.spawn_on(async { panic!("one of the set") }, runtime.handle());
        assert_eq!(panic_of(|| runtime.block_on(set.join_all())), "one of the set");
        eventually(|| Arc::strong_count(&alive) == 1);

        let mut set = JoinSet::<()>::new();
        set.spawn_on(hold(()), runtime.handle()).abort();
        assert!(
            panic_of(|| runtime.block_on(set.join_all())).contains("met a task that was aborted")
        );
    });
}

#[test]
fn a_panic_and_an_abort_are_joined_like_outputs() {
    with_runtimes(|runtime| {
        let mut set = JoinSet::new();
        let aborted = set.spawn_on(hold(()), runtime.handle());
        set.spawn_on(async { panic!("one of the set") }, runtime.handle());
        aborted.abort();
        let errors = [(); 2].map(|()| runtime.block_on(set.join_next()).unwrap().unwrap_err());
        assert_eq!(errors.iter().filter(|error| error.is_panic()).count(), 1);
        let cancelled = errors.iter().find(|error| error.is_cancelled()).unwrap();
        assert_eq!(cancelled.id(), aborted.id());
    });
}

#[test]
fn abort_all_and_shutdown_end_every_task() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        let mut set = JoinSet::new();
        (0..50).for_each(|_| _ = set.spawn_on(hold(alive.clone()), runtime.handle()));
        set.abort_all();
        assert_eq!(set.len(), 50, "they stay to be joined");
        for _ in 0..50 {
            assert!(runtime.block_on(set.join_next()).unwrap().unwrap_err().is_cancelled());
        }
        (0..50).for_each(|_| _ = set.spawn_on(hold(alive.clone()), runtime.handle()));
        runtime.block_on(set.shutdown());
        assert!(set.is_empty());
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn dropping_the_set_aborts_and_detaching_does_not() {
    with_runtimes(|runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let mut set = JoinSet::new();
        (0..50).for_each(|_| _ = set.spawn_on(wakers.park(alive.clone()), runtime.handle()));
        eventually(|| wakers.len() == 50);
        drop(set);
        eventually(|| Arc::strong_count(&alive) == 1);

        let (gate, ran) = (Gate::new(), Gate::new());
        let mut set = JoinSet::new();
        let (go, done) = (gate.clone(), ran.clone());
        set.spawn_on(
            async move {
                go.wait();
                giveway::yield_now().await;
                done.open();
            },
            runtime.handle(),
        );
        set.detach_all();
        assert!(set.is_empty());
        drop(set);
        gate.open();
        ran.wait();
    });
}

/// async-executor 136: a panicking iterator in a batch spawn left a lock poisoned and the executor
/// dead.
#[test]
fn an_iterator_that_panics_half_way_aborts_what_it_spawned_and_leaves_the_runtime_alive() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        let text = panic_of(|| {
            runtime.block_on(async {
                (0..10)
                    .map(|i| {
                        assert!(i < 5, "the sixth is bad");
                        hold(alive.clone())
                    })
                    .collect::<JoinSet<()>>()
                    .len()
            })
        });
        assert_eq!(text, "the sixth is bad");
        eventually(|| Arc::strong_count(&alive) == 1);
        // The same on a worker.
        let held = alive.clone();
        let task = runtime.spawn(async move {
            let futures = (0..10).map(|i| {
                assert!(i < 5, "the sixth is bad");
                hold(held.clone())
            });
            futures.collect::<JoinSet<()>>().len()
        });
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        eventually(|| Arc::strong_count(&alive) == 1);
        let set = runtime.block_on(async {
            (0..10).map(|i| async move { i }).collect::<JoinSet<i32>>().join_all().await
        });
        assert_eq!(set.len(), 10);
    });
}

#[test]
fn giving_up_on_join_next_loses_no_task() {
    use futures::FutureExt;
    with_runtimes(|runtime| {
        let gate = Gate::new();
        let mut set = JoinSet::new();
        for i in 0..3 {
            let go = gate.clone();
            set.spawn_on(
                async move {
                    // The first task that runs keeps its worker. With one worker the others are
                    // queued behind it.
                    go.wait();
                    i
                },
                runtime.handle(),
            );
        }
        for _ in 0..10 {
            assert!(set.join_next().now_or_never().is_none());
        }
        gate.open();
        assert_eq!(runtime.block_on(set.join_all()).len(), 3);
    });
}

/// `try_join_next` has to poll the set as well, and must not take the wake-up from the task that
/// waits for it.
#[test]
fn a_try_in_between_does_not_lose_the_wake_up_of_the_one_who_joins() {
    with_runtimes(|runtime| {
        let gate = Gate::new();
        let mut set = JoinSet::new();
        set.spawn_on(
            {
                let gate = gate.clone();
                async move {
                    gate.wait();
                    7
                }
            },
            runtime.handle(),
        );
        let mut opened = false;
        let joined = runtime.block_on(std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(joined) = set.poll_join_next(cx) {
                return std::task::Poll::Ready(joined);
            }
            assert!(opened || set.try_join_next().is_none());
            if !std::mem::replace(&mut opened, true) {
                gate.open();
            }
            std::task::Poll::Pending
        }));
        assert_eq!(joined.unwrap().unwrap(), 7);
    });
}
