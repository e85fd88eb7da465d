//! Cancelling: aborts, dropped handles, dropped futures, and destructors that spawn and abort.

use crate::actor::{Actor, with_ticket};
use crate::ledger::Fate;
use crate::random::Random;
use crate::world::World;
use futures::FutureExt;
use futures::future::{Either, select};
use giveway::time::{Duration, sleep};
use giveway::yield_now;
use std::pin::pin;
use std::sync::Arc;

/// Starts tasks that wait for ever or for a while, and aborts them at any moment, from here or from
/// an outsider.
pub(crate) async fn aborts(actor: &mut Actor) {
    let mut tasks = Vec::new();
    for _ in 0..1 + actor.random.small(15) {
        let fate = actor.random.pick(&[
            Fate::Held,
            Fate::Held,
            Fate::HeldWithBomb,
            Fate::Finishes,
            Fate::Panics,
        ]);
        let mut random = actor.random.child();
        tasks.push(actor.start(fate, async move {
            match random.below(4) {
                0 => sleep(super::timers::nap(&mut random)).await,
                1 => (0..random.below(4)).for_each(|_| ()),
                _ => super::burst::tiny(random).await,
            }
        }));
    }
    (0..actor.random.below(3)).for_each(|_| ());
    for _ in 0..actor.random.below(3) {
        yield_now().await;
    }
    for mut task in tasks {
        let abort = task.handle.abort_handle();
        match actor.random.below(4) {
            0 => {
                task.expected.aborted = true;
                actor.world.outsiders.clone().run(&mut actor.random, move || abort.abort());
            }
            1 => {
                task.abort();
                abort.abort();
                drop(task);
                continue;
            }
            _ => task.abort(),
        }
        if !task.join().await {
            return;
        }
    }
}

/// Polls futures a few times and drops them.
pub(crate) async fn half_polled(actor: &mut Actor) {
    for _ in 0..1 + actor.random.small(15) {
        let body = super::burst::tiny(actor.random.child());
        let mut task = actor.start(Fate::Finishes, body);
        match actor.random.below(4) {
            0 => _ = (&mut task.handle).now_or_never().map(|result| task.expected.check(result)),
            1 => {
                let nap = pin!(sleep(Duration::from_micros(actor.random.below(50))));
                match select(task.handle, nap).await {
                    Either::Left((result, _)) => _ = task.expected.check(result),
                    Either::Right(((), handle)) => drop(handle),
                }
            }
            2 => {
                let other = giveway::spawn(async move {
                    // The joined task may be cancelled with its runtime. The ledger checks its end.
                    task.join().await;
                });
                _ = other.now_or_never();
            }
            _ => _ = pin!(task.join()).as_mut().now_or_never(),
        }
    }
}

/// Starts and aborts other tasks when it is dropped.
struct Meddler {
    world: Arc<World>,
    random: Random,
    number: u64,
    other: Option<crate::actor::Started>,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        let mut actor = Actor::new(&self.world, self.number, self.random.child());
        if let Some(mut other) = self.other.take() {
            other.abort();
        }
        for _ in 0..self.random.below(3) {
            // Through the handle: the dropping thread may belong to no runtime.
            let (ticket, _) = actor.ticket(Fate::Finishes);
            let body = super::burst::tiny(actor.random.child());
            let handle = self.world.handle();
            drop(handle.spawn(with_ticket(ticket, body)));
        }
        if self.random.once_in(4) {
            _ = sleep(Duration::from_secs(3_600)).now_or_never();
        }
    }
}

/// Starts and aborts tasks whose destructors start and abort other tasks.
pub(crate) async fn destructors(actor: &mut Actor) {
    let mut tasks: Vec<crate::actor::Started> = Vec::new();
    for _ in 0..1 + actor.random.small(7) {
        let other = if actor.random.once_in(2) { tasks.pop() } else { None };
        let number = actor.random.below(1 << 24) | 1 << 26;
        let meddler =
            Meddler { world: actor.world.clone(), random: actor.random.child(), number, other };
        tasks.push(actor.start(Fate::Held, async move {
            let _meddler = meddler;
            std::future::pending::<()>().await;
        }));
        if actor.random.once_in(2) {
            yield_now().await;
        }
    }
    for mut task in tasks {
        task.abort();
        if !task.join().await {
            return;
        }
    }
}
