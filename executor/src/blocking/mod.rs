//! Work that blocks its thread.
//!
//! There are three ways. [`spawn_blocking`] runs the work on a thread of its own.
//! [`block_in_place`] runs it in the task that calls it, while another thread runs the tasks that
//! are queued on this worker. A nested [`block_on`](crate::block_on) is of the second kind by
//! itself.

mod lease;
mod lowered;
#[cfg(test)]
mod models;
mod place;
mod pool;
mod proxy;
mod spawn;

pub use place::block_in_place;
pub use spawn::spawn_blocking;

pub(crate) use lease::{Lease, Loan, Recall};
pub(crate) use place::on_any_thread;
pub(crate) use pool::{Kind, Left, Pool, PoolConfig, PoolStats, Work};
pub(crate) use proxy::Proxy;
pub(crate) use spawn::{spawn, spawn_on};
