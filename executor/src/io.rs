//! Any file descriptor, made async; and how the runtime finds the reactor of a thread.
//!
//! For sockets see [`net`](crate::net).

pub use giveway_io::{Async, Interest, Ready};

use crate::runtime::{context, default_runtime_for_io};
use giveway_io::driver::{Reactor, set_finder};
use std::io;
use std::sync::Arc;

/// Lets sockets and timers that are made outside of a worker find their runtime: the current one,
/// or the default one.
pub(crate) fn serve_everybody() {
    set_finder(find_reactor);
}

fn find_reactor() -> io::Result<Arc<Reactor>> {
    match context::current_shared() {
        Some(shared) if !shared.reactor.is_closed() => Ok(shared.reactor.clone()),
        // The future of a `block_on` goes on after its runtime was shut down. Then the default
        // runtime serves it.
        _ => Ok(default_runtime_for_io()?.reactor.clone()),
    }
}
