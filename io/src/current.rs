//! Which reactor serves this thread.
//!
//! An executor says so in two ways: it wraps [`enter`] around the loop of each worker, and it leaves a function that finds
//! the reactor of any other thread ([`set_finder`]). Where neither has an answer (no runtime was ever started in this
//! process, and a foreign executor makes a socket) a reactor of our own serves, with a thread that does nothing else.

use crate::deferred;
use crate::reactor::{Reactor, Wait, wake_all};
use crate::sys::sleep_precisely;
use crate::timer::Shard;
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

type Served = (&'static Arc<Reactor>, usize);

thread_local! {
    // The reactor of the worker that runs on this thread, and which of its shards. Not really static: `enter` puts it in
    // and takes it out again.
    static ENTERED: Cell<Option<Served>> = const { Cell::new(None) };
    // What was there before `step_out`, and which poll went on.
    static LEFT: Cell<(Option<Served>, *const Waker)> = const { Cell::new((None, ptr::null())) };
}

/// Finds the reactor of a thread that is not inside [`enter`].
pub type Finder = fn() -> io::Result<Arc<Reactor>>;

static FINDER: OnceLock<Finder> = OnceLock::new();

/// Says how to find the reactor of a thread that is not inside [`enter`]. The first call counts.
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

/// Runs `f`, with this reactor serving this thread, and the timers it makes in the shard with this number; then puts back
/// what was there before, even if `f` panics.
///
/// # Examples
///
/// See the page of the [module](crate::driver).
pub fn enter<R>(reactor: &Arc<Reactor>, shard: usize, f: impl FnOnce() -> R) -> R {
    struct PutBack(Option<Served>);
    impl Drop for PutBack {
        fn drop(&mut self) {
            deferred::leave();
            LEFT.set((None, ptr::null()));
            ENTERED.set(self.0);
        }
    }
    // SAFETY: only the lifetime changes. The reference is used by `with` alone, on this thread, which does not let it out;
    // and the guard takes it out before the borrow ends.
    let reactor = unsafe { std::mem::transmute::<&Arc<Reactor>, &'static Arc<Reactor>>(reactor) };
    let _put_back = PutBack(ENTERED.replace(Some((reactor, shard))));
    deferred::enter();
    f()
}

/// The thread is not to be served as in [`enter`] for a while: another may come to serve its shard. The timers of the poll
/// that goes on are registered, and those that it makes from now on are the [finder](set_finder)'s.
///
/// # Examples
///
/// ```
/// use giveway_io::driver::{Reactor, enter, step_in, step_out};
/// use giveway::net::UnixStream;
///
/// let reactor = Reactor::new(1)?;
/// enter(&reactor, 0, || {
///     step_out();
///     let _elsewhere = UnixStream::pair()?;
///     assert!(!reactor.has_sources());
///     step_in();
///     let _here = UnixStream::pair()?;
///     assert!(reactor.has_sources());
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn step_out() {
    let task = deferred::step_out();
    LEFT.set((ENTERED.take(), task));
}

/// Undoes [`step_out`], in the same poll: nobody else has come to serve the shard.
///
/// # Examples
///
/// See [`step_out`].
pub fn step_in() {
    let (entered, task) = LEFT.replace((None, ptr::null()));
    if entered.is_some() {
        ENTERED.set(entered);
        deferred::step_in(task);
    }
}

/// Undoes [`step_out`] between two polls, whoever has served the shard meanwhile.
///
/// # Examples
///
/// ```
/// use giveway_io::driver::{Reactor, enter, step_in_anew, step_out};
/// use giveway::net::UnixStream;
///
/// let reactor = Reactor::new(1)?;
/// enter(&reactor, 0, || {
///     step_out();
///     // Another thread serves the shard, and leaves it again.
///     std::thread::scope(|threads| threads.spawn(|| enter(&reactor, 0, || ())).join().unwrap());
///     step_in_anew();
///     let _here = UnixStream::pair()?;
///     assert!(reactor.has_sources());
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn step_in_anew() {
    let (entered, _) = LEFT.replace((None, ptr::null()));
    if entered.is_some() {
        ENTERED.set(entered);
        deferred::enter();
    }
}

/// Calls `f` with the reactor that serves this thread, and the number of the shard for its timers.
pub(crate) fn with<R>(f: impl FnOnce(&Arc<Reactor>, usize) -> R) -> io::Result<R> {
    if let Some((reactor, shard)) = ENTERED.get() {
        return Ok(f(reactor, shard));
    }
    let reactor = match FINDER.get() {
        Some(finder) => finder()?,
        None => fallback()?,
    };
    Ok(f(&reactor, usize::MAX))
}

/// Whether this thread is inside [`enter`] with this reactor.
pub(crate) fn drives(reactor: &Reactor) -> bool {
    ENTERED.get().is_some_and(|(entered, _)| ptr::eq(&raw const **entered, reactor))
}

/// The shard for a timer made on this thread.
pub(crate) fn timers() -> io::Result<&'static Shard> {
    with(|reactor, shard| reactor.shard(shard))
}

/// The shard of the worker that runs on this thread.
#[inline]
pub(crate) fn own_timers() -> Option<&'static Shard> {
    ENTERED.get().map(|(reactor, shard)| reactor.shard(shard))
}

/// The reactor that serves when there is no runtime.
fn fallback() -> io::Result<Arc<Reactor>> {
    static FALLBACK: Mutex<Option<Arc<Reactor>>> = Mutex::new(None);
    let mut fallback = FALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
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
    sleep_precisely();
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
