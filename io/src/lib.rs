//! Sockets and timers for the Giveway runtime, on [`polling`].
//!
//! Every operation spends one of the task's [budget](giveway_budget), so that a socket which always has data does not
//! starve its neighbours. Everything works in tasks of any executor: where no Giveway runtime is current the default one
//! serves, or, if none was ever started, a thread of this crate.

mod async_io;
mod current;
mod deferred;
mod horizon;
pub mod net;
mod reactor;
mod source;
mod sys;
pub mod time;
mod timer;

pub mod driver {
    //! For executors: how to drive a reactor.

    pub use crate::current::{Finder, enter, set_finder, step_in, step_in_anew, step_out};
    pub use crate::deferred::poll_task;
    pub use crate::net::resolve::{Blocking, set_blocking};
    pub use crate::reactor::{Reactor, Turn, Wait, wake_all};
}

pub use async_io::Async;
