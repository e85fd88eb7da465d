//! Many small tasks.

use crate::actor::{Actor, Started, with_ticket};
use crate::ledger::{Expected, Fate};
use crate::random::Random;
use crate::world::World;
use giveway::task::{Id, JoinSet};
use giveway::{budget, yield_now, yield_now_if_busy};
use std::collections::HashMap;
use std::sync::Arc;

/// The body of a small task: a few steps.
pub(crate) async fn tiny(mut random: Random) {
    for _ in 0..random.below(4) {
        match random.below(4) {
            0 | 1 => yield_now().await,
            2 => yield_now_if_busy().await,
            _ => budget::consume().await,
        }
    }
}

/// Starts up to 64 small tasks and joins them, in the order of their start or in reverse. Detaches
/// some.
pub(crate) async fn burst(actor: &mut Actor) {
    let count = 1 + actor.random.small(63);
    let mut tasks = Vec::with_capacity(count);
    for _ in 0..count {
        let body = tiny(actor.random.child());
        let fate = if actor.random.once_in(64) { Fate::FinishesWithBomb } else { Fate::Finishes };
        let task = actor.start(fate, body);
        if !actor.random.once_in(16) {
            tasks.push(task);
        }
    }
    if actor.random.once_in(2) {
        tasks.reverse();
    }
    for task in tasks {
        if !task.join().await {
            return;
        }
    }
}

/// Starts a task that starts a task, and so on.
pub(crate) async fn chain(actor: &mut Actor) {
    fn link(
        world: Arc<World>,
        mut random: Random,
        number: u64,
        left: usize,
    ) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            if left == 0 || world.closes() {
                return;
            }
            let mut next = Actor::new(&world, number, random.child());
            let body = link(world.clone(), random.child(), number ^ left as u64, left - 1);
            let task = next.start(Fate::Finishes, body);
            if random.once_in(4) {
                return;
            }
            task.join().await;
        })
    }
    let (world, left) = (actor.world.clone(), actor.random.small(40));
    let number = actor.random.below(1 << 24);
    link(world, actor.random.child(), number, left).await;
}

/// Starts small tasks in a set, which is joined, aborted, detached, shut down or dropped.
pub(crate) async fn join_set(actor: &mut Actor) {
    let (mut set, mut expected) = (JoinSet::new(), HashMap::<Id, Expected>::new());
    let shut_down = actor.random.once_in(4);
    for _ in 0..1 + actor.random.small(31) {
        // No bombs before a shutdown: it drops the outputs in this task.
        let bomb = if shut_down { Fate::Finishes } else { Fate::FinishesWithBomb };
        let fate = actor.random.pick(&[Fate::Finishes, Fate::Finishes, bomb, Fate::Panics]);
        let (ticket, expect) = actor.ticket(fate);
        let body = tiny(actor.random.child());
        let task = match actor.random.below(8) {
            0 => set.spawn_background(with_ticket(ticket, body)),
            1 if fate == Fate::Finishes => set.spawn_blocking(move || ticket.finish()),
            2 => set.spawn_on(with_ticket(ticket, body), actor.world.handle()),
            _ => set.spawn(with_ticket(ticket, body)),
        };
        expected.insert(task.id(), expect);
    }
    // Only errors are checked: `join_next` returns an output without its task's id.
    let keep = actor.random.index(set.len() + 1);
    while set.len() > keep {
        let Some(result) = set.join_next().await else { break };
        match result {
            Ok(receipt) => drop_quietly(receipt),
            Err(error) => {
                let Some(expect) = expected.remove(&error.id()) else {
                    crate::failure::fail(&format!(
                        "a set joined a task that it did not have: {error}"
                    ))
                };
                if !expect.check(Err(error)) {
                    return;
                }
            }
        }
    }
    match actor.random.below(3) {
        _ if shut_down => set.shutdown().await,
        0 => set.abort_all(),
        1 => set.detach_all(),
        _ => {}
    }
}

/// Drops the output of a task, which may panic.
fn drop_quietly(receipt: crate::ledger::Receipt) {
    let _panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(receipt)));
}

/// Waits for all tasks. Returns false as soon as one has ended because its runtime did.
pub(crate) async fn join_all(tasks: Vec<Started>) -> bool {
    for task in tasks {
        if !task.join().await {
            return false;
        }
    }
    true
}
