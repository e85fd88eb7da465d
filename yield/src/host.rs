//! The interface between a yield point and the executor that it runs under.
//!
//! An executor implements [`Host`] and wraps [`with_host`] around the code that polls its tasks on
//! a thread: the loop of a worker, or a `block_on`. Inside of that, the yield points of every
//! library in those tasks ask this host.
//!
//! # Examples
//!
//! An executor of one task, which counts how often the task gave way:
//!
//! ```
//! use giveway_yield::host::{Host, Signs, Ticket, with_host};
//! use std::cell::Cell;
//! use std::future::Future;
//! use std::num::NonZeroU64;
//! use std::pin::pin;
//! use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize};
//! use std::task::{Context, Poll, Waker};
//!
//! #[derive(Default)]
//! struct Counter {
//!     // Always zero: no worker is ever idle,
//!     idle: AtomicIsize,
//!     queued: AtomicUsize,
//!     // and the countdown has always run out, so every yield point asks.
//!     countdown: AtomicU32,
//!     asked_for: AtomicBool,
//!     // The number of the current poll, and whether the task is to give way when it returns.
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
//!         true // work always waits
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
use std::task::Waker;

/// An executor that can say whether work waits.
///
/// See the [module's page](self) for an example.
pub trait Host {
    /// Returns the words that a yield point reads before it asks the host.
    ///
    /// Called by [`with_host`] and by [`renew_signs`]. See the [module's page](self) for an
    /// example.
    fn signs(&self) -> Signs<'_>;

    /// Returns whether work waits that the running task should give way to.
    ///
    /// Called when the [signs](Signs) say that work may wait. See the [module's page](self) for an
    /// example.
    fn work_waits(&self) -> bool;

    /// Decides whether the running task gives way when its poll returns.
    ///
    /// Called at a yield point whose [signs](Signs) say that work may wait. Returns `None` if no
    /// work waits; the task then goes on. Otherwise the host notes that this task is to give way
    /// when its poll returns, and returns a ticket. The yield point then wakes the task and is
    /// pending.
    ///
    /// See the [module's page](self) for an example.
    fn give_way(&self) -> Option<Ticket>;

    /// Takes back a request to give way.
    ///
    /// Called when the yield point that got this ticket is polled again, or dropped. If the poll in
    /// which it got the ticket still goes on, the host forgets the note, unless another yield point
    /// of the task made it too, and returns true. Otherwise the task has given way since, or has
    /// moved here from another thread, and the host returns false.
    ///
    /// See the [module's page](self) for an example.
    fn take_back(&self, ticket: Ticket) -> bool;

    /// Wakes the task that gives way.
    ///
    /// Called by a yield point that is about to be pending, with the ticket that it got from
    /// [`give_way`](Self::give_way) and the waker of its task. By default the task is woken at
    /// once: an executor that polls its own tasks knows of the request, and queues the task where
    /// it belongs. A host whose tasks another executor polls may keep the waker, and wake it when
    /// the task is to go on.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::host::{Host, Signs, Ticket};
    /// use std::cell::RefCell;
    /// use std::task::Waker;
    ///
    /// /// Answers yield points on a thread of another executor.
    /// struct Guest<H> {
    ///     decides: H,
    ///     // Woken when nothing else is to run.
    ///     waiting: RefCell<Vec<Waker>>,
    /// }
    ///
    /// impl<H: Host> Host for Guest<H> {
    ///     fn signs(&self) -> Signs<'_> {
    ///         self.decides.signs()
    ///     }
    ///     fn work_waits(&self) -> bool {
    ///         self.decides.work_waits()
    ///     }
    ///     fn give_way(&self) -> Option<Ticket> {
    ///         self.decides.give_way()
    ///     }
    ///     fn take_back(&self, ticket: Ticket) -> bool {
    ///         self.decides.take_back(ticket)
    ///     }
    ///     fn wake(&self, _ticket: Ticket, waker: &Waker) {
    ///         self.waiting.borrow_mut().push(waker.clone());
    ///     }
    /// }
    /// ```
    fn wake(&self, ticket: Ticket, waker: &Waker) {
        let _ = ticket;
        waker.wake_by_ref();
    }

    /// Returns the admission of paced work here, the time, and how long the running task has run.
    ///
    /// Called when a [paced](crate::elastic) task looks at the clock. `None`, the default, means
    /// that this host paces no task. Otherwise the host notes from then on when a poll of this task
    /// begins, and calls [`paced_poll_begins`] at that moment.
    ///
    /// See [`Paced`] for an example, and [`Admission`].
    fn paced(&self) -> Option<Paced> {
        None
    }
}

/// What a host knows of a paced task that it runs; see [`Host::paced`].
///
/// # Examples
///
/// ```
/// use giveway_yield::host::{Admission, Paced};
/// use std::sync::Arc;
///
/// /// For the `Host::paced` of a host that knows when the poll began, or when it was last asked.
/// fn paced(admission: &Arc<Admission>, now: u64, since: u64) -> Paced {
///     Paced::new(admission.clone(), now, now - since)
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Paced {
    /// The admission of this host. It is always the same one.
    pub admission: Arc<Admission>,
    /// The time by the clock of the admission's [`Machine`].
    pub now: u64,
    /// How many nanoseconds this poll has gone on, since it began or since the host was last asked.
    /// Zero if the host does not know when the poll began.
    pub spent: u64,
}

impl Paced {
    /// Creates a `Paced` from its fields.
    ///
    /// See [`Paced`] for an example.
    pub fn new(admission: Arc<Admission>, now: u64, spent: u64) -> Self {
        Self { admission, now, spent }
    }
}

/// The words from which a yield point learns, without a call, that it need not ask the host.
///
/// A yield point asks if no worker is idle and at least one of the other words says so: it was
/// asked to give way, something is queued, or the countdown has run out. It reads `idle` first, and
/// the others only if no worker is idle. Every yield point reads them, so each should be on a cache
/// line that other threads seldom write.
///
/// See the [module's page](self) for an example.
#[derive(Debug, Clone, Copy)]
pub struct Signs<'a> {
    /// The number of workers that have nothing to do. While it is positive, no yield point looks
    /// any further. A host whose yield points should look further although a worker is idle may
    /// subtract any amount from it.
    pub idle: &'a AtomicIsize,
    /// Whether the task on this thread was asked to give way.
    pub asked: &'a AtomicBool,
    /// The lengths of the queues that every worker takes from.
    pub queued: [&'a AtomicUsize; 2],
    /// How many yield points go by before one asks, whatever `asked` and `queued` say. A yield
    /// point that does not ask decrements it. At one, a yield point asks, and the host has to set
    /// it anew.
    pub countdown: &'a AtomicU32,
}

impl Signs<'_> {
    /// Returns false if a yield point has to ask the host. Otherwise counts down.
    #[inline]
    fn nothing_new(self) -> bool {
        // Ordering: relaxed, here and in `somebody_idle`. The partners are the host's stores to
        // these words, and no other data is read because of them. An answer is out of date as soon
        // as it is given; a yield point that just misses a change sees it the next time.
        if self.asked.load(Relaxed)
            || self.queued[0].load(Relaxed) != 0
            || self.queued[1].load(Relaxed) != 0
        {
            return false;
        }
        let left = self.countdown.load(Relaxed);
        if left <= 1 {
            return false;
        }
        // No read-modify-write is needed: only this thread writes the countdown.
        self.countdown.store(left - 1, Relaxed);
        true
    }
}

/// Names the poll in which a yield point asked to give way.
///
/// The host chooses the number. As far as possible it is different for every poll on every thread,
/// those of other executors included, because a yield point may be moved from one to another.
///
/// See the [module's page](self) for an example.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(NonZeroU64);

impl Ticket {
    /// Creates a ticket with this number.
    ///
    /// See the [module's page](self) for an example.
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// Returns the number.
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

// What a thread without a host reads: a worker always seems idle, so no yield point asks.
static IDLE: AtomicIsize = AtomicIsize::new(1);
static EMPTY: AtomicUsize = AtomicUsize::new(0);
static NEVER: AtomicBool = AtomicBool::new(false);
static NO_COUNT: AtomicU32 = AtomicU32::new(0);

const NO_HOST: Signs<'static> =
    Signs { idle: &IDLE, asked: &NEVER, queued: [&EMPTY, &EMPTY], countdown: &NO_COUNT };

/// The host that answers the yield points of a thread, and its signs. Only that thread uses it.
#[derive(Clone)]
struct Seat {
    /// The `idle` word of `signs`, or [`ask_once`]'s zero. It is apart from the other words:
    /// together they would all be loaded before the first is looked at.
    idle: Cell<&'static AtomicIsize>,
    /// The signs of `host`, or `NO_HOST`.
    signs: Cell<Signs<'static>>,
    /// Set while a [`with_host`] further up the stack lends it.
    host: Cell<Option<&'static dyn Host>>,
    /// Set when a poll of a paced task begins, until that task looks at the clock.
    new_poll: Cell<bool>,
}

thread_local! {
    // Constant-initialised and without a destructor, so that reading a field is one load and works
    // while the thread ends. The references are not really static: `with_host` puts them in and
    // takes them out again.
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
    /// Copies every field of `other`.
    fn replace(&self, other: &Self) {
        self.idle.set(other.idle.get());
        self.signs.set(other.signs.get());
        self.host.set(other.host.get());
        self.new_poll.set(other.new_poll.get());
    }

    /// Sets the signs, `idle` included.
    fn renew(&self, signs: Signs<'static>) {
        self.signs.set(signs);
        self.idle.set(signs.idle);
    }
}

/// Runs `f` with `host` answering the yield points of this thread.
///
/// Afterwards everything that was there before is put back, even if `f` panics. See the
/// [module's page](self) for an example.
pub fn with_host<R>(host: &dyn Host, f: impl FnOnce() -> R) -> R {
    struct PutBack(Seat);
    impl Drop for PutBack {
        fn drop(&mut self) {
            SEAT.with(|seat| seat.replace(&self.0));
        }
    }
    // SAFETY: the transmute only extends the lifetime, so no copy of the reference, and no sign
    // that is borrowed from it, may be used after the borrow of `host` ends. They are in `SEAT`
    // only, which this thread alone reads. The functions of this module use them from there, and
    // none keeps them or returns them out of the module. `put_back` takes them out of `SEAT` before
    // the borrow ends, whether `f` returns or panics.
    #[expect(unsafe_code, reason = "a borrow that the thread-local cannot express")]
    let host: &'static dyn Host =
        unsafe { std::mem::transmute::<&dyn Host, &'static dyn Host>(host) };
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

/// Makes `host` answer the yield points of this thread from now on, to its end.
///
/// For a thread whose loop belongs to another executor, so that [`with_host`] cannot be wrapped
/// around it. A `with_host` further up the stack ends this when it returns, and one that is called
/// later answers while it runs.
///
/// # Examples
///
/// ```
/// use giveway_yield::host::{Host, Signs, Ticket, set_host};
/// use std::num::NonZeroU64;
/// use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize};
///
/// /// Work always waits.
/// struct Strict;
///
/// static IDLE: AtomicIsize = AtomicIsize::new(0);
/// static QUEUED: AtomicUsize = AtomicUsize::new(1);
/// static ASKED: AtomicBool = AtomicBool::new(true);
/// static COUNTDOWN: AtomicU32 = AtomicU32::new(0);
///
/// impl Host for Strict {
///     fn signs(&self) -> Signs<'_> {
///         Signs { idle: &IDLE, asked: &ASKED, queued: [&QUEUED; 2], countdown: &COUNTDOWN }
///     }
///     fn work_waits(&self) -> bool {
///         true
///     }
///     fn give_way(&self) -> Option<Ticket> {
///         Some(Ticket::new(NonZeroU64::MIN))
///     }
///     fn take_back(&self, _: Ticket) -> bool {
///         false
///     }
/// }
///
/// std::thread::spawn(|| {
///     assert!(!giveway_yield::should_yield(), "there is no host to ask");
///     set_host(&Strict);
///     assert!(giveway_yield::should_yield());
/// })
/// .join()
/// .unwrap();
/// ```
pub fn set_host(host: &'static dyn Host) {
    let signs = host.signs();
    SEAT.with(|seat| {
        seat.renew(signs);
        seat.host.set(Some(host));
        seat.new_poll.set(false);
    });
}

/// Asks the host of this thread for its [signs](Signs) again, because other words are valid from
/// now on.
///
/// Without a host this has no effect.
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

/// Returns the host of this thread. The caller must not keep it: a `with_host` further up the stack
/// borrows it.
fn host() -> Option<&'static dyn Host> {
    SEAT.with(|seat| seat.host.get())
}

#[inline]
fn signs() -> Signs<'static> {
    SEAT.with(|seat| seat.signs.get())
}

/// Makes the next yield point read the host's `idle` again, after [`ask_once`] has hidden it.
fn look_again() {
    SEAT.with(|seat| seat.idle.set(seat.signs.get().idle));
}

/// Returns whether a worker is idle, or there is no host.
#[inline]
fn somebody_idle() -> bool {
    SEAT.with(|seat| seat.idle.get()).load(Relaxed) > 0
}

/// Returns whether work waits.
#[inline]
pub(crate) fn work_waits() -> bool {
    !somebody_idle() && !signs().nothing_new() && ask_whether()
}

#[cold]
fn ask_whether() -> bool {
    look_again();
    host().is_some_and(Host::work_waits)
}

/// Returns whether a yield point need not ask the host: a worker is idle, or nothing is new.
#[inline]
pub(crate) fn need_not_ask() -> bool {
    somebody_idle() || signs().nothing_new()
}

/// Asks the host, unless the signs say that a yield point need not.
pub(crate) fn give_way() -> Option<Ticket> {
    if need_not_ask() { None } else { ask() }
}

/// Asks the host, whatever the signs say.
pub(crate) fn ask() -> Option<Ticket> {
    look_again();
    host()?.give_way()
}

/// Makes the next yield point on this thread look past idle workers, for a host that has something
/// to do then.
///
/// That yield point asks its host although a worker is idle, provided that another of its
/// [signs](Signs) says so. After it has asked, an idle worker counts again. Without a host this has
/// no effect.
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

/// Has the host that gave the ticket wake the task.
pub(crate) fn wake(ticket: Ticket, waker: &Waker) {
    match host() {
        Some(host) => host.wake(ticket, waker),
        None => waker.wake_by_ref(),
    }
}

/// Gives the ticket back to the host. Returns false if there is no host.
pub(crate) fn take_back(ticket: Ticket) -> bool {
    host().is_some_and(|host| host.take_back(ticket))
}

/// Notes that a poll of a [paced](Host::paced) task begins on this thread. Called by the host.
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

/// Returns whether a poll of a paced task has begun, and that task has not looked at the clock
/// since.
#[inline]
pub(crate) fn is_new_poll() -> bool {
    SEAT.with(|seat| seat.new_poll.get())
}

/// Returns what `is_new_poll` does, and makes it false.
pub(crate) fn take_new_poll() -> bool {
    SEAT.with(|seat| seat.new_poll.replace(false))
}

/// Returns what the host of this thread knows of the running task, if it paces any.
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
        let (idle, asked, countdown) =
            (AtomicIsize::new(0), AtomicBool::new(false), AtomicU32::new(3));
        let signs =
            Signs { idle: &idle, asked: &asked, queued: [&zero, &queued], countdown: &countdown };
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
