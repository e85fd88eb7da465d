//! How long a task lives.

use giveway_tests::with_runtimes;
use std::sync::Arc;

/// async-task frees a task without dropping its future if the task is detached, waits, and no waker
/// of it exists. The registry has to count as a waker.
#[test]
fn a_task_that_nobody_can_wake_any_more_is_dropped_with_its_runtime_and_not_before() {
    let alive = Arc::new(());
    with_runtimes(|runtime| {
        for _ in 0..100 {
            let (alive, (polled, was_polled)) =
                (alive.clone(), futures::channel::oneshot::channel());
            runtime.spawn(async move {
                polled.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(alive);
            });
            runtime.block_on(was_polled).unwrap();
        }
        assert_eq!(Arc::strong_count(&alive), 101);
    });
    assert_eq!(Arc::strong_count(&alive), 1, "each future was dropped, with what it owned");
}

#[test]
fn a_task_that_ends_drops_what_it_owns_before_its_handle_is_ready() {
    with_runtimes(|runtime| {
        let alive = Arc::new(());
        let task = runtime.spawn({
            let alive = alive.clone();
            async move {
                giveway::yield_now().await;
                let _owned = alive;
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}
