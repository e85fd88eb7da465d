//! Blocking jobs: work that runs on a thread of its own and may block it.
//!
//! The other ways to block are to do it in the task ([`block_in_place`](crate::block_in_place)) and
//! a nested [`block_on`](crate::block_on): see `handoff/`.

mod pool;
mod spawn;

pub use spawn::spawn_blocking;

pub(crate) use pool::{Kind, Left, Pool, PoolConfig, PoolStats, Work};
pub(crate) use spawn::{spawn, spawn_on};
