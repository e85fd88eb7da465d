//! Polite loops with nothing to give way to: what is beside the loop or around it gets its turn all
//! the same, and no request is left behind.

use futures::future::{Either, select};
use giveway::yield_now_if_busy;
use giveway_tests::{Gate, Polls, eventually, on_drop, on_one_worker, runtime, watch};
use std::pin::pin;

async fn polite_for_ever() {
    loop {
        std::hint::spin_loop();
        yield_now_if_busy().await;
    }
}

#[test]
fn an_abort_arrives_in_a_polite_loop_while_others_are_idle() {
    let _watch = watch();
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let (running, dropped) = (Gate::new(), Gate::new());
        let task = runtime.spawn({
            let (running, at_end) = (
                running.clone(),
                on_drop({
                    let dropped = dropped.clone();
                    move || dropped.open()
                }),
            );
            async move {
                let _at_end = at_end;
                running.open();
                polite_for_ever().await;
            }
        });
        running.wait();
        task.abort();
        dropped.wait();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    }
}

#[test]
fn what_is_beside_a_polite_loop_in_a_select_gets_its_turn_while_others_are_idle() {
    let _watch = watch();
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let running = Gate::new();
        let (stop, stopped) = futures::channel::oneshot::channel::<()>();
        let task = runtime.spawn({
            let running = running.clone();
            async move {
                running.open();
                let (loops, stopped) = (pin!(polite_for_ever()), pin!(stopped));
                matches!(select(loops, stopped).await, Either::Right(_))
            }
        });
        running.wait();
        stop.send(()).unwrap();
        assert!(runtime.block_on(task).unwrap(), "the loop does not end");
    }
}

/// A budgeted loop that spends fewer than 128 operations in its slice gives way too.
#[test]
fn an_abort_arrives_in_a_slow_budgeted_loop() {
    let _watch = watch();
    let runtime = runtime(2);
    let running = Gate::new();
    let task = runtime.spawn({
        let running = running.clone();
        async move {
            running.open();
            // Nothing has been spent, so the budget alone would not stop this task. The request to
            // return empties it.
            assert_eq!(giveway::budget::remaining(), Some(128));
            eventually(|| giveway::budget::remaining() == Some(0));
            giveway::budget::consume().await;
        }
    });
    running.wait();
    task.abort();
    assert!(runtime.block_on(task).is_err(), "it came to its end");
}

/// A background task that is cut short before its first operation makes no progress. Tasks that
/// share a queue beside an idle worker must not do that to each other.
#[test]
fn background_tasks_beside_an_idle_worker_do_not_cut_each_other_short() {
    const OPERATIONS: usize = 20_000;
    let _watch = watch();
    for workers in [3, 8] {
        let runtime = runtime(workers);
        let polls = Polls::default();
        let parent = runtime.spawn_background({
            let polls = polls.clone();
            async move {
                let child = || {
                    giveway::spawn(polls.clone().of(async {
                        for _ in 0..OPERATIONS {
                            giveway::budget::consume().await;
                        }
                    }))
                };
                for child in [child(), child(), child()] {
                    child.await.unwrap();
                }
            }
        });
        runtime.block_on(parent).unwrap();
        let ideal = 3 * OPERATIONS.div_ceil(128);
        assert!(polls.count() <= 4 * ideal, "{} polls, {ideal} would do", polls.count());
    }
}

#[test]
fn a_dropped_yield_point_and_a_question_leave_the_budget_alone() {
    on_one_worker(async {
        giveway::spawn(async {});
        let mut turn = Box::pin(yield_now_if_busy());
        assert!(futures::poll!(turn.as_mut()).is_pending());
        drop(turn);
        assert_eq!(giveway::budget::remaining(), Some(128));
        assert!(giveway::should_yield());
        assert_eq!(giveway::budget::remaining(), Some(128));
    });
}

#[test]
fn in_block_on_a_yield_point_agrees_with_should_yield() {
    let _watch = watch();
    let runtime = runtime(1);
    let (gate, queued) = (Gate::new(), Gate::new());
    let busy = runtime.spawn({
        let (gate, queued) = (gate.clone(), queued.clone());
        async move {
            // One stays in the slot, one goes into the deque. The injector is empty.
            giveway::spawn(async {});
            giveway::spawn(async {});
            queued.open();
            gate.wait();
        }
    });
    queued.wait();
    runtime.block_on(async {
        while !giveway::should_yield() {
            std::hint::spin_loop();
        }
        let mut turn = Box::pin(yield_now_if_busy());
        assert!(futures::poll!(turn.as_mut()).is_pending(), "it was told that work waits");
        gate.open();
        turn.await;
    });
    runtime.block_on(busy).unwrap();
}

/// The interrupt flag of the outer executor is lowered only when its poll returns. Until then it
/// must not cut the inner `block_on` short.
#[test]
fn block_on_inside_another_executor_is_not_cut_short_by_that_one() {
    let _watch = watch();
    let raised = std::sync::atomic::AtomicBool::new(true);
    giveway::budget::with_interrupt(&raised, || {
        giveway::budget::with_budget(3, || giveway::block_on(giveway::budget::consume()));
    });
}

#[test]
fn the_class_is_inherited_within_a_runtime_only() {
    let _watch = watch();
    let (one, other) = (runtime(1), runtime(1));
    let there = other.handle().clone();
    let class = one.spawn_background(async move {
        there.spawn(async { giveway::task::class() }).await.unwrap()
    });
    assert_eq!(one.block_on(class).unwrap(), giveway::task::Class::Foreground);
}
