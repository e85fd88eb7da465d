//! Work that blocks its thread.
//!
//! Three ways, by who waits for whom: [`spawn_blocking`] puts it on a thread of its own; [`block_in_place`] does it here,
//! in a task, while the others that are queued on this worker go on elsewhere; and a nested
//! [`block_on`](crate::block_on) goes the second way by itself.

mod crew;
mod lease;
mod lowered;
#[cfg(test)]
mod models;
mod place;
mod proxy;
mod spawn;

pub use place::block_in_place;
pub use spawn::spawn_blocking;

pub(crate) use crew::{Articles, Census, Crew, Kind, Left, Work};
pub(crate) use lease::{Lease, Loan, Recall};
pub(crate) use place::on_any_thread;
pub(crate) use proxy::Proxy;
pub(crate) use spawn::{spawn, spawn_on};
