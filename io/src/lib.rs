//! Sockets and timers for the Giveway runtime, on [`polling`].
//!
//! Every operation spends one of the task's [budget](giveway_budget), so a socket that always has
//! data does not starve its neighbours. Everything works in tasks of any executor: where no Giveway
//! runtime is current the default one serves, or, if none was ever started, a thread of this crate.

mod async_io;
mod current;
pub mod driver;
mod fork;
#[cfg(feature = "hyper")]
pub mod hyper;
pub mod net;
mod proxy;
mod reactor;
mod readiness;
mod scope;
mod sys;
pub mod time;
mod timer;

pub use async_io::Async;
pub use reactor::{Interest, Ready};
