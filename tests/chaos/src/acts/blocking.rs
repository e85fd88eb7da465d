//! Blocking calls: in place, in blocking jobs, and in nested executors.

use crate::actor::{Actor, Started};
use crate::failure::ensure;
use crate::ledger::Fate;
use crate::random::Random;
use giveway::task::{Builder, Class};
use giveway::time::{Duration, sleep};
use giveway::{block_in_place, block_on, yield_now};

/// Blocks for a short time, or long enough for another thread to take the core.
fn block(random: &mut Random) {
    match random.below(16) {
        0 => std::thread::sleep(Duration::from_micros(random.below(2_000))),
        1 | 2 => std::thread::sleep(Duration::from_micros(random.below(80))),
        3 => std::thread::yield_now(),
        _ => (0..random.below(300)).for_each(|_| std::hint::spin_loop()),
    }
}

/// Starts tasks that block in place, at call sites that are mostly short, mostly long, or mixed.
pub(crate) async fn in_place(actor: &mut Actor) {
    let count = 1 + actor.random.small(7);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let mut random = actor.random.child();
            actor.start(Fate::Finishes, async move {
                for _ in 0..1 + random.below(8) {
                    match random.below(4) {
                        0 => block_in_place(|| {
                            std::thread::sleep(Duration::from_micros(random.below(200)))
                        }),
                        1 => block_in_place(|| (0..20).for_each(|_| std::hint::spin_loop())),
                        2 => block_in_place(|| block_in_place(|| block(&mut random))),
                        _ => block_in_place(|| block(&mut random)),
                    }
                    if random.once_in(2) {
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    super::burst::join_all(tasks).await;
}

/// Starts blocking jobs of both classes. Some wait for tasks, some panic, some are aborted before
/// they begin.
pub(crate) async fn jobs(actor: &mut Actor) {
    let mut tasks = Vec::new();
    for _ in 0..1 + actor.random.small(7) {
        let fate = actor.random.pick(&[
            Fate::Finishes,
            Fate::Finishes,
            Fate::FinishesWithBomb,
            Fate::Panics,
        ]);
        let (ticket, expected) = actor.ticket(fate);
        let (mut random, world) = (actor.random.child(), actor.world.clone());
        let number = actor.random.below(1 << 24) | 1 << 27;
        let job = move || {
            block(&mut random);
            if random.once_in(4) {
                let mut own = Actor::new(&world, number, random.child());
                let child = own.start(Fate::Finishes, super::burst::tiny(random.child()));
                match random.below(3) {
                    0 => _ = world.handle().block_on(child.join()),
                    1 => _ = futures::executor::block_on(child.join()),
                    _ => _ = block_on(child.join()),
                }
            }
            if fate == Fate::Panics { ticket.panic() } else { ticket.finish() }
        };
        let handle = match actor.random.below(4) {
            0 => Builder::new().class(Class::Background).spawn_blocking(job),
            1 => actor.world.handle().spawn_blocking(job),
            _ => giveway::spawn_blocking(job),
        };
        tasks.push(Started { handle, expected });
    }
    for mut task in tasks {
        if actor.random.once_in(8) {
            task.abort();
        }
        if actor.random.once_in(8) {
            drop(task);
        } else if !task.join().await {
            return;
        }
    }
}

/// Runs nested executors in this task: of this runtime, of the runtime around it, and of another
/// crate.
pub(crate) async fn nested(actor: &mut Actor) {
    let body = super::burst::tiny(actor.random.child());
    let task = actor.start(Fate::Finishes, body);
    let nap = super::timers::nap(&mut actor.random);
    match actor.random.below(6) {
        0 => _ = block_on(task.join()),
        1 => _ = block_in_place(|| futures::executor::block_on(task.join())),
        2 => _ = block_in_place(|| block_on(async { futures::join!(sleep(nap), task.join()) })),
        3 => {
            // A timer of this task's own poll, beside a nested executor that waits.
            futures::join!(sleep(nap), async {
                block_on(async {
                    sleep(nap).await;
                    yield_now().await;
                    task.join().await
                });
            });
        }
        4 => {
            if let Some(parent) = actor.world.parent.clone()
                && let Some(handle) = parent.try_handle()
            {
                let result = handle.block_on(handle.spawn(async { 42 }));
                ensure!(
                    matches!(result, Ok(42)) || parent.closes() && result.is_err(),
                    "another runtime's task: {result:?}"
                );
            }
            task.join().await;
        }
        _ => {
            let (one, other) = (sleep(nap), sleep(nap));
            block_in_place(|| futures::executor::block_on(async { futures::join!(one, other) }));
            task.join().await;
        }
    }
}
