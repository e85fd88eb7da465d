//! What a yield point asks of the executor it runs under.
//!
//! An executor implements [`Host`] and wraps [`with_host`] around whatever polls its tasks on a thread: the loop of a
//! worker, a `block_on`. From then on the yield points of every library in those tasks talk to it.
//!
//! # Examples
//!
//! An executor of one task, which counts how often the task gave way:
//!
//! ```
//! use giveway_yield::host::{with_host, Host, Signs, Ticket};
//! use std::cell::Cell;
//! use std::future::Future;
//! use std::num::NonZeroU64;
//! use std::pin::pin;
//! use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize};
//! use std::task::{Context, Poll, Waker};
//!
//! #[derive(Default)]
//! struct Counter {
//!     // Always zero: nobody is ever idle,
//!     idle: AtomicIsize,
//!     queued: AtomicUsize,
//!     // and every yield point has to ask.
//!     countdown: AtomicU32,
//!     asked_for: AtomicBool,
//!     // The number of the poll that goes on, and whether it is to give way.
//!     poll: Cell<u64>,
//!     asked: Cell<bool>,
//! }
//!
//! impl Host for Counter {
//!     fn signs(&self) -> Signs<'_> {
//!         Signs {
//!             idle: &self.idle,
//!             asked: &self.asked_for,
//!             queued: [&self.queued, &self.queued],
//!             countdown: &self.countdown,
//!         }
//!     }
//!     fn work_waits(&self) -> bool {
//!         true // somebody always waits
//!     }
//!     fn give_way(&self) -> Option<Ticket> {
//!         self.asked.set(true);
//!         NonZeroU64::new(self.poll.get()).map(Ticket::new)
//!     }
//!     fn take_back(&self, ticket: Ticket) -> bool {
//!         ticket.get().get() == self.poll.get() && self.asked.replace(false)
//!     }
//! }
//!
//! let host = Counter::default();
//! let mut task = pin!(async {
//!     giveway_yield::yield_now_if_busy().await;
//!     giveway_yield::yield_now_if_busy().await;
//! });
//! let mut cx = Context::from_waker(Waker::noop());
//! let gave_way = with_host(&host, || {
//!     let mut gave_way = 0;
//!     loop {
//!         host.poll.set(host.poll.get() + 1);
//!         host.asked.set(false);
//!         match task.as_mut().poll(&mut cx) {
//!             Poll::Ready(()) => return gave_way,
//!             Poll::Pending => gave_way += u32::from(host.asked.get()),
//!         }
//!     }
//! });
//! assert_eq!(gave_way, 2);
//! ```

pub use crate::elastic::admission::{Admission, Machine};

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// An executor that can say whether work waits.
///
/// # Examples
///
/// See the [module's page](self).
pub trait Host {
    /// What a yield point looks at by itself before it asks. Called by [`with_host`], and by [`renew_signs`].
    ///
    /// # Examples
    ///
    /// See the [module's page](self).
    fn signs(&self) -> Signs<'_>;

    /// Whether work waits that the running task should give way to. Called when the [signs](Signs) say that it may.
    ///
    /// # Examples
    ///
    /// See the [module's page](self).
    fn work_waits(&self) -> bool;

    /// The running task is at a yield point, and the [signs](Signs) say that work may wait. `None` if none does, and it
    /// goes on.
    ///
    /// Otherwise the host notes that this task is to give way when its poll returns. The yield point wakes the task and
    /// is pending.
    ///
    /// # Examples
    ///
    /// See the [module's page](self).
    fn give_way(&self) -> Option<Ticket>;

    /// The yield point that got this ticket is polled again, or dropped. If the poll in which it got it still goes on,
    /// the host forgets the note (unless another yield point of the task made it too) and answers true. Otherwise the
    /// task has given way since, or moved here from another thread, and the answer is false.
    ///
    /// # Examples
    ///
    /// See the [module's page](self).
    fn take_back(&self, ticket: Ticket) -> bool;

    /// The running task is [paced](crate::elastic), and has looked at the clock. None if this host paces nobody, which is what
    /// it does unless it says otherwise.
    ///
    /// From now on the host notes when a poll of this task begins, and calls [`paced_poll_begins`] then.
    ///
    /// See [`Paced`] and [`Admission`].
    fn paced(&self) -> Option<Paced> {
        None
    }
}

/// What a host knows of a paced task that it runs.
///
/// # Examples
///
/// ```
/// use giveway_yield::host::{Admission, Paced};
/// use std::sync::Arc;
///
/// /// For the `Host::paced` of a host that knows when the poll began, or was asked before.
/// fn paced(admission: &Arc<Admission>, now: u64, since: u64) -> Paced {
///     Paced::new(admission.clone(), now, now - since)
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Paced {
    /// Who admits paced work here: always the same.
    pub admission: Arc<Admission>,
    /// What the clock of its [`Machine`] says.
    pub now: u64,
    /// For how many nanoseconds this poll has gone on, since it began or since the last time this was asked. Zero if it is not
    /// known when it began.
    pub spent: u64,
}

impl Paced {
    /// What a host knows of a paced task: who admits it, what time it is, and how long it has run. See the fields.
    ///
    /// # Examples
    ///
    /// See [`Paced`].
    pub fn new(admission: Arc<Admission>, now: u64, spent: u64) -> Self {
        Self { admission, now, spent }
    }
}

/// The words that tell a yield point, without a call, that it need not ask.
///
/// It asks if no worker is idle, and it was asked to, something is queued, or the countdown has run out. All are read at
/// every yield point, so each should be on a cache line that is seldom written by others.
///
/// # Examples
///
/// See the [module's page](self).
#[derive(Debug, Clone, Copy)]
pub struct Signs<'a> {
    /// How many workers have nothing to do. While this is positive no yield point looks any further; a host that wants them to,
    /// whoever is idle, may take as much from it as it likes.
    pub idle: &'a AtomicIsize,
    /// Somebody wants the task on this thread to give way.
    pub asked: &'a AtomicBool,
    /// The lengths of queues that every worker takes from.
    pub queued: [&'a AtomicUsize; 2],
    /// How many more calls go by before one asks whatever the other words say. A yield point counts down; at one it
    /// asks, and it is the host's to set it anew.
    pub countdown: &'a AtomicU32,
}

impl Signs<'_> {
    #[inline]
    fn nothing_new(self) -> bool {
        // Ordering: relaxed, here and in `somebody_idle`. The answers are out of date as soon as they are given; a yield
        // point that just misses a change sees it the next time.
        if self.asked.load(Relaxed) || self.queued[0].load(Relaxed) != 0 || self.queued[1].load(Relaxed) != 0 {
            return false;
        }
        let left = self.countdown.load(Relaxed);
        if left <= 1 {
            return false;
        }
        // No read-modify-write: only this thread writes it.
        self.countdown.store(left - 1, Relaxed);
        true
    }
}

/// Names the poll in which a yield point asked to give way.
///
/// The host chooses the number: different for every poll on every thread, those of other executors included, as far as
/// that goes. A yield point may be moved.
///
/// # Examples
///
/// See the [module's page](self).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(NonZeroU64);

impl Ticket {
    /// A ticket with this number.
    ///
    /// # Examples
    ///
    /// See the [module's page](self).
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// The number.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::host::Ticket;
    /// use std::num::NonZeroU64;
    ///
    /// assert_eq!(Ticket::new(NonZeroU64::MIN).get(), NonZeroU64::MIN);
    /// ```
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:#x})", self.0)
    }
}

// What a thread without a host reads: somebody is always idle.
static IDLE: AtomicIsize = AtomicIsize::new(1);
static EMPTY: AtomicUsize = AtomicUsize::new(0);
static NEVER: AtomicBool = AtomicBool::new(false);
static NO_COUNT: AtomicU32 = AtomicU32::new(0);

const NO_HOST: Signs<'static> = Signs { idle: &IDLE, asked: &NEVER, queued: [&EMPTY, &EMPTY], countdown: &NO_COUNT };

/// Who answers the yield points of a thread.
#[derive(Clone)]
struct Seat {
    // The first sign is apart from the others: together they would all be loaded before the first is looked at.
    idle: Cell<&'static AtomicIsize>,
    signs: Cell<Signs<'static>>,
    host: Cell<Option<&'static dyn Host>>,
    // The poll of a paced task has begun, and it has not looked at the clock since.
    new_poll: Cell<bool>,
}

thread_local! {
    // Constant-initialised and without a destructor, so that reading a field is one load and works while the thread ends. The
    // references are not really static: `with_host` puts them in and takes them out again.
    static SEAT: Seat = const {
        Seat {
            idle: Cell::new(NO_HOST.idle),
            signs: Cell::new(NO_HOST),
            host: Cell::new(None),
            new_poll: Cell::new(false),
        }
    };
}

impl Seat {
    /// Makes this one as the other is.
    fn replace(&self, other: &Self) {
        self.idle.set(other.idle.get());
        self.signs.set(other.signs.get());
        self.host.set(other.host.get());
        self.new_poll.set(other.new_poll.get());
    }

    fn renew(&self, signs: Signs<'static>) {
        self.signs.set(signs);
        self.idle.set(signs.idle);
    }
}

/// Runs `f` with `host` answering the yield points of this thread, then puts back everything that was there before, even
/// if `f` panics.
///
/// # Examples
///
/// See the [module's page](self).
pub fn with_host<R>(host: &dyn Host, f: impl FnOnce() -> R) -> R {
    struct PutBack(Seat);
    impl Drop for PutBack {
        fn drop(&mut self) {
            SEAT.with(|seat| seat.replace(&self.0));
        }
    }
    // SAFETY: the reference is used by this module's functions only, on this thread, none of which keeps or returns it;
    // and `put_back` takes it out of the thread-local before the borrow ends, whichever way `f` is left.
    #[expect(unsafe_code, reason = "a borrow that the thread-local cannot express")]
    let host: &'static dyn Host = unsafe { std::mem::transmute::<&dyn Host, &'static dyn Host>(host) };
    let put_back = PutBack(SEAT.with(Seat::clone));
    let signs = host.signs();
    SEAT.with(|seat| {
        seat.renew(signs);
        seat.host.set(Some(host));
        seat.new_poll.set(false);
    });
    let result = f();
    drop(put_back);
    result
}

/// Asks the host of this thread for its [signs](Signs) again: others tell from now on. Without a host nothing happens.
///
/// # Examples
///
/// ```
/// giveway_yield::host::renew_signs();
/// assert!(!giveway_yield::should_yield(), "there is no host to ask");
/// ```
pub fn renew_signs() {
    if let Some(host) = host() {
        let signs = host.signs();
        SEAT.with(|seat| seat.renew(signs));
    }
}

/// Who answers on this thread. Not to be kept: it is borrowed by a `with_host` further up the stack.
fn host() -> Option<&'static dyn Host> {
    SEAT.with(|seat| seat.host.get())
}

#[inline]
fn signs() -> Signs<'static> {
    SEAT.with(|seat| seat.signs.get())
}

/// The next yield point looks at its first sign again, if [`ask_once`] had told it not to.
fn look_again() {
    SEAT.with(|seat| seat.idle.set(seat.signs.get().idle));
}

/// Whether a worker is idle, or there is no host.
#[inline]
fn somebody_idle() -> bool {
    SEAT.with(|seat| seat.idle.get()).load(Relaxed) > 0
}

/// Whether work waits.
#[inline]
pub(crate) fn work_waits() -> bool {
    !somebody_idle() && !signs().nothing_new() && ask_whether()
}

#[cold]
fn ask_whether() -> bool {
    look_again();
    host().is_some_and(Host::work_waits)
}

/// Whether a yield point need not ask: somebody is idle, or nothing is new.
#[inline]
pub(crate) fn need_not_ask() -> bool {
    somebody_idle() || signs().nothing_new()
}

/// Asks the host, if there is something to ask.
pub(crate) fn give_way() -> Option<Ticket> {
    if need_not_ask() { None } else { ask() }
}

/// Asks the host.
pub(crate) fn ask() -> Option<Ticket> {
    look_again();
    host()?.give_way()
}

/// The next yield point on this thread asks its host, whoever is idle. For a host that has something to do then.
///
/// Once: the one after it does not, unless its [signs](Signs) say so. Without a host nothing happens.
///
/// # Examples
///
/// ```
/// giveway_yield::host::ask_once();
/// assert!(!giveway_yield::should_yield(), "there is no host to ask");
/// ```
#[inline]
pub fn ask_once() {
    static NOBODY: AtomicIsize = AtomicIsize::new(0);
    SEAT.with(|seat| seat.idle.set(&NOBODY));
}

pub(crate) fn take_back(ticket: Ticket) -> bool {
    host().is_some_and(|host| host.take_back(ticket))
}

/// A poll of a [paced](Host::paced) task begins on this thread.
///
/// # Examples
///
/// ```
/// use giveway_yield::{elastic::Pacer, host::paced_poll_begins};
///
/// paced_poll_begins();
/// futures::executor::block_on(Pacer::new().pace()); // looks at the clock, if there is one
/// ```
#[inline]
pub fn paced_poll_begins() {
    SEAT.with(|seat| seat.new_poll.set(true));
}

#[inline]
pub(crate) fn is_new_poll() -> bool {
    SEAT.with(|seat| seat.new_poll.get())
}

pub(crate) fn take_new_poll() -> bool {
    SEAT.with(|seat| seat.new_poll.replace(false))
}

/// What the host of this thread knows of the task that runs, if it paces any.
pub(crate) fn paced() -> Option<Paced> {
    host()?.paced()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Busy(AtomicIsize);

    impl Host for Busy {
        fn signs(&self) -> Signs<'_> {
            Signs { idle: &self.0, ..NO_HOST }
        }
        fn work_waits(&self) -> bool {
            true
        }
        fn give_way(&self) -> Option<Ticket> {
            None
        }
        fn take_back(&self, _ticket: Ticket) -> bool {
            false
        }
    }

    #[test]
    fn a_yield_point_asks_when_a_sign_says_so_or_the_countdown_has_run_out() {
        let (zero, queued) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (idle, asked, countdown) = (AtomicIsize::new(0), AtomicBool::new(false), AtomicU32::new(3));
        let signs = Signs { idle: &idle, asked: &asked, queued: [&zero, &queued], countdown: &countdown };
        assert!(signs.nothing_new());
        queued.store(1, Relaxed);
        assert!(!signs.nothing_new());
        queued.store(0, Relaxed);
        asked.store(true, Relaxed);
        assert!(!signs.nothing_new());
        asked.store(false, Relaxed);
        assert!(signs.nothing_new());
        assert!(!signs.nothing_new(), "the third call");
        assert!(!signs.nothing_new(), "until the host sets it anew");
    }

    #[test]
    fn a_thread_without_a_host_never_has_to_yield() {
        assert!(!crate::should_yield());
    }

    #[test]
    fn the_outer_host_answers_again_after_the_inner_even_after_a_panic() {
        let (busy, relaxed) = (Busy(AtomicIsize::new(0)), Busy(AtomicIsize::new(1)));
        with_host(&busy, || {
            assert!(crate::should_yield());
            let inner = AssertUnwindSafe(|| {
                with_host(&relaxed, || {
                    assert!(!crate::should_yield(), "somebody is idle there");
                    panic!("in the inner host");
                })
            });
            assert!(catch_unwind(inner).is_err());
            assert!(crate::should_yield());
        });
        assert!(!crate::should_yield());
    }
}
