//! `Builder::yield_patience`: a task that gave way gets its turn, though the foreground leaves no
//! worker free.
//!
//! cockroach PR 159473: yielded work that never runs on an overloaded machine, so that a test suite
//! hangs.

use giveway::{Runtime, budget, yield_now, yield_now_if_busy};
use giveway_tests::{Polls, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// How often the tested task gives way. Each time, it has to get a turn again.
const TURNS: usize = 5;

/// Runs `test` beside foreground tasks that keep the only worker busy until it is done. There are
/// two, so that one is always queued.
fn beside_an_endless_foreground(patience: Duration, test: impl FnOnce(&Runtime)) {
    let _watch = watch();
    let runtime = giveway::Builder::new()
        .workers(1)
        .max_spare_workers(0)
        .yield_patience(patience)
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = [(); 2].map(|()| {
        let stop = stop.clone();
        runtime.spawn(async move {
            while !stop.load(SeqCst) {
                yield_now().await;
            }
        })
    });
    test(&runtime);
    stop.store(true, SeqCst);
    busy.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

#[test]
fn an_overdue_polite_task_gets_a_turn_beside_an_endless_foreground() {
    for patience in [Duration::ZERO, Duration::from_millis(1)] {
        beside_an_endless_foreground(patience, |runtime| {
            let polls = Polls::default();
            let polite = runtime.spawn(polls.clone().of(async move {
                while polls.count() < TURNS {
                    yield_now_if_busy().await;
                }
            }));
            runtime.block_on(polite).unwrap();
        });
    }
}

#[test]
fn an_overdue_background_task_gets_a_turn_beside_an_endless_foreground() {
    for patience in [Duration::ZERO, Duration::from_millis(1)] {
        beside_an_endless_foreground(patience, |runtime| {
            let polls = Polls::default();
            let background = runtime.spawn_background(polls.clone().of(async move {
                while polls.count() < TURNS {
                    budget::consume().await;
                }
            }));
            runtime.block_on(background).unwrap();
        });
    }
}

/// Here a thread waits in the yield queue, and not a task.
#[test]
fn an_overdue_block_on_gets_a_turn_beside_an_endless_foreground() {
    for patience in [Duration::ZERO, Duration::from_millis(1)] {
        beside_an_endless_foreground(patience, |runtime| {
            let polls = Polls::default();
            runtime.block_on(polls.clone().of(async {
                while polls.count() < TURNS {
                    yield_now_if_busy().await;
                }
            }));
        });
    }
}

/// Many are overdue at once: the foreground goes on all the same.
#[test]
fn the_overdue_do_not_starve_the_foreground() {
    beside_an_endless_foreground(Duration::ZERO, |runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let background: Vec<_> = (0..100)
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn_background(async move {
                    while !stop.load(SeqCst) {
                        budget::consume().await;
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            runtime.block_on(runtime.spawn(yield_now())).unwrap();
        }
        stop.store(true, SeqCst);
        background.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}
