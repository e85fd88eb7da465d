//! A polite loop with nobody to give way to: what is beside it, and around it, gets its turn all the same.

use futures::future::{Either, select};
use giveway::yield_now_if_busy;
use giveway_tests::{Gate, on_drop, runtime, watch};
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
            for _ in 0..100 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                giveway::budget::consume().await;
            }
            // A hundred operations: the budget alone would not have stopped it.
        }
    });
    running.wait();
    task.abort();
    assert!(runtime.block_on(task).is_err(), "it came to its end");
}
