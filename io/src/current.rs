//! Which reactor serves a thread.
//!
//! An executor says so in two ways. It wraps [`enter`](crate::driver::enter) around the loop of
//! each worker, and it leaves a function that finds the reactor of any other thread
//! ([`set_finder`]). Where neither has an answer (a foreign executor makes a socket, and no runtime
//! was ever started in this process), a reactor of our own serves, with a thread that does nothing
//! else.

use crate::fork::PerProcess;
use crate::proxy::on_behalf;
use crate::reactor::{Reactor, Wait, wake_all};
use crate::scope;
use crate::timer::Shard;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Finds the reactor of a thread that is not inside of [`enter`](crate::driver::enter).
pub type Finder = fn() -> io::Result<Arc<Reactor>>;

/// Set once, by the first [`set_finder`].
static FINDER: OnceLock<Finder> = OnceLock::new();

/// Sets the function that finds the reactor of a thread that is not inside of
/// [`enter`](crate::driver::enter). The first call counts; later ones have no effect.
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
    // SAFETY: the reference must not outlive this frame. `f` is called in this frame, and cannot
    // keep the reference: it has to accept one of any lifetime, so neither `R` nor what `f`
    // captures can hold it.
    if let Some((reactor, shard)) = unsafe { scope::served() } {
        reactor.check_here()?;
        return Ok(f(reactor, shard));
    }
    let reactor = find()?;
    reactor.check_here()?;
    Ok(f(&reactor, usize::MAX))
}

/// Returns the reactor of a thread that is not inside of `enter`. Not inlined, so that other
/// threads do not pay for it.
#[inline(never)]
fn find() -> io::Result<Arc<Reactor>> {
    match FINDER.get() {
        Some(finder) => finder(),
        // By a proxy if the thread is lowered: the thread that is started serves all tasks, and
        // inherits the priority of the one that starts it.
        None => on_behalf(fallback),
    }
}

/// Returns the shard for a timer made on this thread.
pub(crate) fn timers() -> io::Result<&'static Shard> {
    with(|reactor, shard| reactor.shard(shard))
}

/// Returns the reactor that serves when there is no runtime.
fn fallback() -> io::Result<Arc<Reactor>> {
    // One for each process: the parent's reactor has no thread in the child.
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

/// Takes turns for ever.
fn drive(reactor: &Reactor) {
    let mut woken = Vec::new();
    loop {
        if let Err(error) = reactor.turn(Wait::Unless(&|| false), &mut woken) {
            // No descriptor of ours causes an error. There is no caller to return one to, and a
            // pause is better than a busy loop.
            eprintln!("giveway-io: waiting for I/O failed: {error}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        wake_all(&mut woken);
    }
}
