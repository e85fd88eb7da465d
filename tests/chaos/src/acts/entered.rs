//! Tasks that have entered several runtimes: guards that are nested, dropped in any order, and held
//! across awaits.

use crate::actor::{Actor, Started, with_ticket};
use crate::failure::ensure;
use crate::ledger::Fate;
use giveway::task::Builder;
use giveway::time::sleep;
use giveway::{Handle, block_in_place, block_on, yield_now};

/// Enters this runtime and the runtime around it, and spawns, sleeps and blocks in them.
pub(crate) async fn entered(actor: &mut Actor) {
    let (own, around) = (actor.world.clone(), actor.world.parent.clone());
    let around = around.filter(|parent| parent.try_handle().is_some());
    let mut elsewhere = None;
    if let Some(around) = &around {
        let guard = around.handle().enter();
        elsewhere = Some(giveway::spawn(async { Handle::current().workers() }));
        let inner = own.handle().enter();
        // Guards may be dropped in either order.
        if actor.random.once_in(2) {
            drop(guard);
            drop(inner);
        } else {
            drop(inner);
            drop(guard);
        }
    }
    // After both guards are dropped, a spawn goes to this actor's own runtime again.
    let body = super::burst::tiny(actor.random.child());
    let here = actor.start(Fate::Finishes, body);
    if let (Some(elsewhere), Some(around)) = (elsewhere, &around) {
        let result = elsewhere.await;
        let workers = around.handle().workers();
        ensure!(
            result.as_ref().is_ok_and(|found| *found == workers)
                || around.closes() && result.is_err(),
            "a task that was spawned in another runtime: {result:?}"
        );
    }
    if !here.join().await {
        return;
    }
    pinned(actor).await;
}

/// Spawns a pinned task that holds a guard across its awaits.
async fn pinned(actor: &mut Actor) {
    let (world, mut random) = (actor.world.clone(), actor.random.child());
    let (ticket, expected) = actor.ticket(Fate::Finishes);
    let make = move || {
        with_ticket(ticket, async move {
            let around = world.parent.as_ref().and_then(|parent| parent.try_handle());
            let entered = around.unwrap_or(world.handle()).clone();
            let guard = entered.enter();
            let nap = super::timers::nap(&mut random);
            match random.below(4) {
                0 => sleep(nap).await,
                1 => yield_now().await,
                2 => block_on(sleep(nap)),
                _ => block_in_place(|| futures::executor::block_on(sleep(nap))),
            }
            ensure!(
                Handle::current().workers() == entered.workers(),
                "a guard was lost on the way"
            );
            if random.once_in(8) {
                std::mem::forget(guard);
            }
        })
    };
    let handle = Builder::new().spawn_pinned_on(make, actor.world.handle());
    Started { handle, expected }.join().await;
}
