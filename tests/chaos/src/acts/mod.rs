//! The acts of actors. Cheap acts have large weights, so that there are many of them; expensive
//! acts are rare.

mod blocking;
mod burst;
mod cancel;
mod entered;
mod flow;
mod inner;
mod look;
mod panics;
mod pinned;
mod sockets;
mod timers;
mod yields;

pub(crate) use timers::nap;

use crate::actor::Actor;
use futures::future::BoxFuture;

/// Something that an actor can do.
pub(crate) struct Act {
    pub(crate) name: &'static str,
    /// How often the act is chosen, relative to the weights of the others.
    pub(crate) weight: u64,
    pub(crate) make: fn(&mut Actor) -> BoxFuture<'_, ()>,
}

macro_rules! acts {
    ($($weight:literal $module:ident::$act:ident,)+) => {
        &[$(Act { name: stringify!($act), weight: $weight, make: |actor| Box::pin($module::$act(actor)) }),+]
    };
}

/// All acts.
pub(crate) const ACTS: &[Act] = acts![
    400 burst::burst,
    60 burst::chain,
    60 burst::join_set,
    80 flow::ping_pong,
    40 flow::relay,
    60 flow::outside,
    80 yields::yields,
    40 yields::background,
    10 yields::paced,
    1 yields::stubborn,
    3 yields::overruns,
    60 timers::timers,
    30 timers::moved,
    50 cancel::aborts,
    40 cancel::half_polled,
    15 cancel::destructors,
    30 panics::in_polls,
    20 panics::in_destructors,
    20 panics::in_wakers,
    30 blocking::in_place,
    20 blocking::jobs,
    15 blocking::nested,
    25 pinned::pinned,
    10 entered::entered,
    20 sockets::pairs,
    6 sockets::tcp,
    12 sockets::faults,
    12 sockets::crowd,
    6 look::look,
    1 inner::inner,
];

/// The sum of all weights.
pub(crate) const TOTAL_WEIGHT: u64 = {
    let (mut sum, mut index) = (0, 0);
    while index < ACTS.len() {
        sum += ACTS[index].weight;
        index += 1;
    }
    sum
};
