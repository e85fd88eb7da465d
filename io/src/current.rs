//! Which reactor serves this thread.
//!
//! An executor says so in two ways: it wraps [`enter`](crate::driver::enter) around the loop of each worker, and it leaves a
//! function that finds the reactor of any other thread ([`set_finder`]). Where neither has an answer (no runtime was ever
//! started in this process, and a foreign executor makes a socket) a reactor of our own serves, with a thread that does
//! nothing else.

use crate::fork::PerProcess;
use crate::proxy::on_behalf;
use crate::reactor::{Reactor, Wait, wake_all};
use crate::scope;
use crate::timer::Shard;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Finds the reactor of a thread that is not inside of [`enter`](crate::driver::enter).
pub type Finder = fn() -> io::Result<Arc<Reactor>>;

static FINDER: OnceLock<Finder> = OnceLock::new();

/// Says how to find the reactor of a thread that is not inside of [`enter`](crate::driver::enter). The first call counts.
///
/// # Examples
///
/// ```
/// use giveway::net::UnixStream;
/// use std::io;
///
/// giveway_io::driver::set_finder(|| Err(io::Error::other("there is no runtime")));
/// assert!(UnixStream::pair().is_err());
/// ```
pub fn set_finder(finder: Finder) {
    let _first = FINDER.set(finder);
}

/// Calls `f` with the reactor that serves this thread, and the number of the shard for its timers.
pub(crate) fn with<R>(f: impl FnOnce(&Arc<Reactor>, usize) -> R) -> io::Result<R> {
    // SAFETY: `f` is called in this frame, and cannot keep the reference.
    if let Some((reactor, shard)) = unsafe { scope::served() } {
        reactor.check_here()?;
        return Ok(f(reactor, shard));
    }
    let reactor = find()?;
    reactor.check_here()?;
    Ok(f(&reactor, usize::MAX))
}

/// The reactor of a thread that is served by none. Apart, so that threads that are do not pay for it.
#[inline(never)]
fn find() -> io::Result<Arc<Reactor>> {
    match FINDER.get() {
        Some(finder) => finder(),
        // Its thread is for everybody, and inherits the priority of the thread that starts it.
        None => on_behalf(fallback),
    }
}

/// The shard for a timer made on this thread.
pub(crate) fn timers() -> io::Result<&'static Shard> {
    with(|reactor, shard| reactor.shard(shard))
}

/// The reactor that serves when there is no runtime.
fn fallback() -> io::Result<Arc<Reactor>> {
    // That of a parent has no thread in the child.
    static FALLBACK: PerProcess<Mutex<Option<Arc<Reactor>>>> = PerProcess::new();
    let mut fallback = FALLBACK.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reactor) = &*fallback {
        return Ok(reactor.clone());
    }
    let reactor = Reactor::new(0)?;
    let driven = reactor.clone();
    std::thread::Builder::new().name("giveway-io".into()).spawn(move || drive(&driven))?;
    *fallback = Some(reactor.clone());
    Ok(reactor)
}

fn drive(reactor: &Reactor) {
    let mut woken = Vec::new();
    loop {
        if let Err(error) = reactor.turn(Wait::Unless(&|| false), &mut woken) {
            // Nothing that a descriptor of ours can do; and without a way to tell anybody, waiting is better than burning.
            eprintln!("giveway-io: waiting for I/O failed: {error}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        wake_all(&mut woken);
    }
}
