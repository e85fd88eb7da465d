//! Yield points, budgets and pacing.

use crate::actor::Actor;
use crate::acts::burst::join_all;
use crate::ledger::Fate;
use crate::random::Random;
use futures::FutureExt;
use giveway::elastic::Pacer;
use giveway::{budget, should_yield, yield_now, yield_now_if_busy};
use std::future::ready;
use std::time::{Duration, Instant};

async fn polite(mut random: Random, steps: usize) {
    for _ in 0..steps {
        match random.below(10) {
            0 => yield_now().await,
            1 => futures::select_biased! {
                () = yield_now_if_busy().fuse() => {}
                () = ready(()).fuse() => {}
            },
            2 => _ = futures::join!(yield_now_if_busy(), yield_now_if_busy()),
            3 if should_yield() => yield_now_if_busy().await,
            4 => budget::consume().await,
            5 => {
                budget::unconstrained(async {
                    (0..200).for_each(|_| _ = budget::consume().now_or_never())
                })
                .await
            }
            6 => {
                budget::with_budget(random.below(8) as u8, || _ = budget::consume().now_or_never())
            }
            7 => (0..random.below(2_000)).for_each(|_| std::hint::spin_loop()),
            _ => yield_now_if_busy().await,
        }
    }
}

/// Starts tasks with yield points of all kinds, and reaches some in this task as well.
pub(crate) async fn yields(actor: &mut Actor) {
    let (count, steps) = (1 + actor.random.small(7), 1 + actor.random.small(255));
    let tasks = (0..count).map(|_| {
        let random = actor.random.child();
        actor.start(Fate::Finishes, polite(random, steps))
    });
    let tasks = tasks.collect();
    polite(actor.random.child(), actor.random.clone().index(32)).await;
    join_all(tasks).await;
}

/// Starts background tasks that only spend budget, and tasks with yield points that they wait for.
pub(crate) async fn background(actor: &mut Actor) {
    let count = 1 + actor.random.small(7);
    let mut tasks = Vec::new();
    for _ in 0..count {
        let (mut random, world) = (actor.random.child(), actor.world.clone());
        let number = actor.random.below(1 << 24) | 1 << 25;
        let (ticket, expected) = actor.ticket(Fate::Finishes);
        let body = async move {
            let mut own = Actor::new(&world, number, random.child());
            for _ in 0..random.small(127) {
                budget::consume().await;
                if random.once_in(16) {
                    let child = own.start(Fate::Finishes, polite(random.child(), 3));
                    if random.once_in(2) && !child.join().await {
                        return;
                    }
                }
            }
        };
        let handle = giveway::spawn_background(crate::actor::with_ticket(ticket, body));
        tasks.push(crate::actor::Started { handle, expected });
    }
    join_all(tasks).await;
}

/// Starts paced tasks. The slice is so small that they use it up and wait for the next.
pub(crate) async fn paced(actor: &mut Actor) {
    let count = 1 + actor.random.small(3);
    let tasks = (0..count).map(|_| {
        let (mut random, slice) = (actor.random.child(), 20 + actor.random.below(500));
        actor.start(Fate::Finishes, async move {
            let pacer = Pacer::with_slice(Duration::from_micros(slice));
            for _ in 0..1 + random.below(8) {
                (0..random.below(3_000)).for_each(|_| std::hint::spin_loop());
                if random.once_in(8) {
                    // Drops the future while it waits.
                    _ = pacer.pace().now_or_never();
                } else {
                    pacer.pace().await;
                }
            }
        })
    });
    let tasks = tasks.collect();
    join_all(tasks).await;
}

/// Starts tasks whose polls are so long that spare workers are added: up to as many tasks as there
/// are workers and more. Tasks with short polls run beside them.
pub(crate) async fn stubborn(actor: &mut Actor) {
    let count = 1 + actor.random.small(7);
    let mut tasks = Vec::new();
    for _ in 0..count {
        let mut random = actor.random.child();
        tasks.push(actor.start(Fate::Finishes, async move {
            for _ in 0..1 + random.below(2) {
                std::thread::sleep(Duration::from_millis(random.below(40)));
                polite(random.child(), 2).await;
            }
        }));
        let random = actor.random.child();
        tasks.push(actor.start(Fate::Finishes, polite(random, 16)));
    }
    join_all(tasks).await;
}

/// Starts background tasks whose polls are sometimes long. The runtime learns this for each spawn
/// location, and forgets it again, so they move from workers to lowered threads and back.
pub(crate) async fn overruns(actor: &mut Actor) {
    let count = 1 + actor.random.small(7);
    let mut tasks = Vec::new();
    for _ in 0..count {
        let (mut random, world) = (actor.random.child(), actor.world.clone());
        let number = actor.random.below(1 << 24) | 1 << 26;
        let (ticket, expected) = actor.ticket(Fate::Finishes);
        let long_once_in = actor.random.pick(&[1, 8, 1_000]);
        let body = async move {
            let mut own = Actor::new(&world, number, random.child());
            for _ in 0..random.small(63) {
                if random.once_in(long_once_in) {
                    let until = Instant::now() + Duration::from_micros(random.below(1_000));
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                }
                match random.below(4) {
                    0 => yield_now().await,
                    1 => giveway::time::sleep(Duration::from_micros(random.below(100))).await,
                    2 if !own.start(Fate::Finishes, polite(random.child(), 3)).join().await => {
                        return;
                    }
                    _ => polite(random.child(), 3).await,
                }
            }
        };
        let body = crate::actor::with_ticket(ticket, body);
        let handle = match actor.random.below(3) {
            // Two spawn locations: the runtime keeps a history for each.
            0 => giveway::spawn_background(body),
            1 => giveway::spawn_background(body),
            _ => actor.world.handle().spawn_background(body),
        };
        tasks.push(crate::actor::Started { handle, expected });
    }
    join_all(tasks).await;
}
