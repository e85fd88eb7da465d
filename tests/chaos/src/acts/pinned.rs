//! Pinned tasks: they stay on one worker.

use crate::actor::{Actor, Started, with_ticket};
use crate::failure::ensure;
use crate::ledger::Fate;
use crate::random::Random;
use giveway::task::Builder;
use giveway::time::sleep;
use giveway::{block_in_place, spawn_pinned, yield_now, yield_now_if_busy};
use std::cell::Cell;
use std::rc::Rc;
use std::thread;

async fn stay(mut random: Random) {
    // The thread must stay the same; the `Rc` makes the future not `Send`.
    let (home, count) = (thread::current().id(), Rc::new(Cell::new(0)));
    for turn in 0..random.below(12) {
        ensure!(thread::current().id() == home, "a pinned task has moved");
        ensure!(count.get() == turn, "a pinned task has lost its state");
        count.set(turn + 1);
        match random.below(8) {
            0 => sleep(super::timers::nap(&mut random)).await,
            1 => yield_now_if_busy().await,
            2 => block_in_place(|| (0..random.below(300)).for_each(|_| std::hint::spin_loop())),
            3 if random.once_in(8) => {
                block_in_place(|| thread::sleep(std::time::Duration::from_micros(100)))
            }
            4 => giveway::budget::consume().await,
            _ => yield_now().await,
        }
    }
}

/// Starts tasks pinned to any worker or to a given one, and joins, aborts or detaches them.
pub(crate) async fn pinned(actor: &mut Actor) {
    let mut tasks = Vec::new();
    for _ in 0..1 + actor.random.small(7) {
        let fate = actor.random.pick(&[Fate::Finishes, Fate::Finishes, Fate::Panics, Fate::Held]);
        let (ticket, expected) = actor.ticket(fate);
        let random = actor.random.child();
        let make = move || with_ticket(ticket, stay(random));
        let handle = match actor.random.below(3) {
            0 => spawn_pinned(make),
            1 => actor.world.handle().spawn_pinned(make),
            _ => {
                let worker = actor.random.index(actor.world.handle().workers());
                Builder::new().on_worker(worker).spawn_pinned_on(make, actor.world.handle())
            }
        };
        tasks.push((Started { handle, expected }, fate));
    }
    if actor.random.once_in(2) {
        yield_now().await;
    }
    for (mut task, fate) in tasks {
        if fate == Fate::Held || actor.random.once_in(8) {
            task.abort();
        } else if actor.random.once_in(8) {
            drop(task);
            continue;
        }
        if !task.join().await {
            return;
        }
    }
}
