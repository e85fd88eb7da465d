//! Any file descriptor, made async; and how the runtime finds the reactor of a thread.
//!
//! For sockets see [`net`](crate::net).

pub use giveway_io::Async;

use crate::blocking;
use crate::runtime::{context, try_default_runtime};
use giveway_io::driver::{Reactor, set_blocking, set_finder};
use std::io;
use std::panic::Location;
use std::sync::Arc;

/// Lets sockets and timers that are made outside of a worker find their runtime: the current one, or the default one.
pub(crate) fn serve_everybody() {
    set_finder(find_reactor);
    set_blocking(run_blocking);
}

/// Looks up names where blocking holds up nobody. A job that cannot be run is dropped, and says so.
fn run_blocking(job: Box<dyn FnOnce() + Send>) {
    let shared = match context::current_shared() {
        Some(shared) if !shared.reactor.is_closed() => Ok(shared),
        _ => try_default_runtime().map(|runtime| runtime.handle().shared.clone()),
    };
    if let Ok(shared) = shared {
        blocking::spawn_on(&shared, None, None, Location::caller(), job);
    }
}

fn find_reactor() -> io::Result<Arc<Reactor>> {
    match context::current_shared() {
        Some(shared) if !shared.reactor.is_closed() => Ok(shared.reactor.clone()),
        // The future of a `block_on` goes on when its runtime was shut down.
        _ => Ok(try_default_runtime()?.handle().shared.reactor.clone()),
    }
}
