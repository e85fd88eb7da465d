//! The reactor: waits for file descriptors and timers on behalf of everybody.
//!
//! It has no thread. Whoever has nothing better to do takes a *turn*: one system call that asks the kernel, without
//! waiting or with, and then hands out the wakers of whatever is ready or due. One thread at a time: the others find
//! it taken and go on. A thread that blocks in its turn can be called back ([`Reactor::notify`]).
//!
//! On Linux a turn waits on `polling`'s epoll descriptor directly, with an eventfd of our own in edge mode to be called
//! back by: one system call. `Poller::wait` makes five, to arm a timer and its own eventfd anew each time. It is the
//! portable way, and is used elsewhere (and with the feature `portable`).
//!
//! The protocols are in `reactor.md`.

use crate::fork::{self, Birth};
use crate::holder::{Holder, Who};
use crate::horizon::Horizon;
use crate::proxy::on_behalf;
use crate::punctual::Punctual;
use crate::scope;
use crate::second::{Place, Second, must_hear, try_lock};
use crate::source::{Direction, Source};
use crate::sources::Sources;
use crate::sys::{Events, TWO_MAY_WAIT, Waiter};
use crate::timer::{self, NEVER, Shard};
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// What timers need of their reactor.
///
/// Not dropped in the child of a fork while the parent may use it, for its end would reach the parent's poller: a reactor that
/// is dropped there leaves its shards behind, and they have it.
#[derive(Debug)]
pub(crate) struct Home {
    waiter: Waiter,
    birth: Birth,
    horizon: CachePadded<Horizon>,
}

impl Home {
    /// A timer was added, and is the first of its shard: does somebody block for longer?
    pub(crate) fn must_call_back(&self, deadline: u64) -> bool {
        self.horizon.must_call_back(deadline)
    }

    /// Calls back the thread that waits in its turn.
    pub(crate) fn notify(&self) {
        // In the child of a fork there is none, and it would be the parent's that is called.
        if !self.birth.is_elsewhere() {
            self.waiter.notify(Place::First);
        }
    }
}

/// The second sleeps for so many nanoseconds beyond the first timer: if the first is there, it has fired it by then.
const SECOND_IS_LATER: u64 = 100_000;

/// What whoever has the turn needs.
#[derive(Debug)]
struct Seat {
    events: Events,
    punctual: Punctual,
}

/// Somebody has the turn. Even if user code panics he takes back what he has said, and then gives it back.
struct Sitting<'a> {
    reactor: &'a Reactor,
    seat: MutexGuard<'a, Seat>,
}

impl Drop for Sitting<'_> {
    fn drop(&mut self) {
        self.reactor.home.horizon.awake();
        self.reactor.holder.is(Who::Passes);
    }
}

/// Waits for file descriptors and timers.
///
/// # Examples
///
/// See the page of the [module](crate::driver).
pub struct Reactor {
    home: Arc<Home>,
    // Held by whoever takes a turn.
    turn: Mutex<Seat>,
    // The place of a thread that waits beside the one that has the turn.
    second: Second,
    sources: Mutex<Sources>,
    // How many there are, to know without the lock whether the kernel has to be asked.
    registered: AtomicUsize,
    shards: Box<[&'static Shard]>,
    // Nobody takes turns any more.
    closed: AtomicBool,
    // When the kernel was asked last.
    looked_at: AtomicU64,
    // What becomes of whoever has the turn. Written by him.
    holder: Holder,
    // Names that its tasks wait for: see `net/resolve.rs`.
    pub(crate) look_ups: AtomicUsize,
    // The process that has its threads. In a child nothing here is locked, and the poller is left alone: both are as the
    // parent's threads had them at the moment of the fork.
    birth: Birth,
}

/// How long a turn may take.
///
/// # Examples
///
/// See the page of the [module](crate::driver).
#[expect(missing_debug_implementations, reason = "a closure has none")]
pub enum Wait<'a> {
    /// Looks and returns.
    Not,
    /// Until something is ready or due, or somebody calls back; unless this says that it is not to wait. It is asked with the
    /// turn in hand: from then on nobody else can take a call-back away. It may be asked more than once.
    Unless(&'a dyn Fn() -> bool),
}

/// What has become of a turn.
///
/// # Examples
///
/// See the page of the [module](crate::driver).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It was taken.
    Taken,
    /// Somebody else has it, and is done in a moment. He is not one of those who drive this reactor: whoever wanted to wait has
    /// to come again, or nobody might be there.
    Looks,
    /// Somebody else has it, and is done in a moment. He is inside [`enter`](crate::driver::enter) with this reactor, and is to
    /// take a turn that waits before he sleeps: whoever wanted to wait may do so elsewhere.
    Returns,
    /// Somebody else has it, and waits there.
    Waits,
}

impl Reactor {
    /// A reactor whose timers are spread over so many shards, and one more for whoever has none.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses a descriptor.
    ///
    /// # Examples
    ///
    /// See the page of the [module](crate::driver).
    pub fn new(shards: usize) -> io::Result<Arc<Self>> {
        let birth = Birth::here();
        let home = Arc::new(Home { waiter: Waiter::new()?, birth, horizon: CachePadded::new(Horizon::new()) });
        Ok(Arc::new(Self {
            turn: Mutex::new(Seat { events: Events::new(), punctual: Punctual::default() }),
            second: Second::new(),
            sources: Mutex::default(),
            registered: AtomicUsize::new(0),
            shards: (0..=shards).map(|_| Shard::acquire(home.clone())).collect(),
            closed: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            holder: Holder::new(),
            look_ups: AtomicUsize::new(0),
            birth,
            home,
        }))
    }

    /// The clock of reactors: nanoseconds since the first of them looked at it.
    ///
    /// # Examples
    ///
    /// ```
    /// let reactor = giveway_io::driver::Reactor::new(1)?;
    /// let before = reactor.now();
    /// assert!(before <= reactor.now());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn now(&self) -> u64 {
        timer::now()
    }

    /// Whether anything is registered that a turn could find.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::driver::{Reactor, enter};
    /// use giveway::net::UnixStream;
    ///
    /// let reactor = Reactor::new(1)?;
    /// let pair = enter(&reactor, 0, UnixStream::pair)?;
    /// assert!(reactor.has_sources());
    /// drop(pair);
    /// assert!(!reactor.has_sources());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn has_sources(&self) -> bool {
        // Ordering: relaxed; who registered something takes part in a turn himself, or is woken by one.
        self.registered.load(Relaxed) != 0
    }

    fn earliest(&self) -> u64 {
        self.shards.iter().map(|shard| shard.earliest()).min().unwrap_or(NEVER)
    }

    /// Whether a turn may find something: a source is registered, or a timer is due.
    ///
    /// # Examples
    ///
    /// See [`has_something`](Self::has_something).
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.has_sources() || {
            let earliest = self.earliest();
            earliest != NEVER && earliest <= self.now()
        }
    }

    /// Whether there is anything to look for on behalf of a worker with these timers, or of those who are none.
    ///
    /// # Examples
    ///
    /// See [`has_something`](Self::has_something).
    #[inline]
    pub fn has_anything_for(&self, shard: usize) -> bool {
        self.has_sources() || self.shard(shard).earliest() != NEVER || self.shard(usize::MAX).earliest() != NEVER
    }

    /// Whether there is anything to wait for.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::driver::{Reactor, enter};
    /// use giveway::time::{Duration, sleep};
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Waker};
    ///
    /// let reactor = Reactor::new(2)?;
    /// assert!(!reactor.has_something());
    ///
    /// let mut sleep = pin!(sleep(Duration::from_secs(3_600)));
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(enter(&reactor, 0, || sleep.as_mut().poll(&mut cx)).is_pending());
    /// assert!(reactor.has_something() && reactor.is_waited_for());
    /// assert!(reactor.has_anything_for(0) && !reactor.has_anything_for(1));
    /// assert!(!reactor.wants_turn(), "it is not due");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_something(&self) -> bool {
        self.has_sources() || self.earliest() != NEVER
    }

    /// Whether anybody waits for a descriptor, a timer or the address of a name, or has and left without a word. Takes every
    /// lock: for rare occasions.
    ///
    /// # Examples
    ///
    /// See [`has_something`](Self::has_something).
    pub fn is_waited_for(&self) -> bool {
        // Ordering: acquire, partner of the release when a look-up is answered: then its wake-up is seen too.
        self.look_ups.load(Acquire) != 0
            || self.shards.iter().any(|shard| !shard.is_empty())
            || self.lock_sources().iter().any(Source::is_waited_for)
    }

    /// Nobody will take a turn any more: whoever waits is told.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::driver::{Reactor, enter};
    /// use giveway::net::UnixDatagram;
    ///
    /// let reactor = Reactor::new(1)?;
    /// let (here, _there) = enter(&reactor, 0, UnixDatagram::pair)?;
    /// assert!(!reactor.is_closed());
    /// reactor.close();
    /// assert!(reactor.is_closed());
    /// assert!(giveway::block_on(here.recv(&mut [0; 16])).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) {
        // Ordering: release, partner of the acquire in `is_closed`. Who registers a source after this has gone over them
        // takes their lock after us, and sees it.
        self.closed.store(true, Release);
        if self.birth.is_elsewhere() {
            return;
        }
        let mut woken = Vec::new();
        for source in self.lock_sources().iter() {
            source.close(&mut woken);
        }
        self.shards.iter().for_each(|shard| shard.close(&mut woken));
        wake_all(&mut woken);
    }

    /// Whether it was closed.
    ///
    /// # Examples
    ///
    /// See [`close`](Self::close).
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Ordering: acquire, partner of the release in `close`.
        self.closed.load(Acquire)
    }

    /// An error in the child of a fork, where nobody serves this reactor.
    #[inline]
    pub(crate) fn check_here(&self) -> io::Result<()> {
        if self.birth.is_elsewhere() { Err(fork::no_threads()) } else { Ok(()) }
    }

    /// An error if nothing will be reported of the sources any more.
    #[inline]
    pub(crate) fn check_reports(&self) -> io::Result<()> {
        if self.is_closed() || self.birth.is_elsewhere() { Err(self.no_report()) } else { Ok(()) }
    }

    #[cold]
    fn no_report(&self) -> io::Error {
        if self.birth.is_elsewhere() {
            return fork::no_report();
        }
        io::Error::other("the runtime that this descriptor belongs to was shut down; make it anew in another")
    }

    /// When the last turn was taken, by the reactor's clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::driver::{Reactor, Wait};
    ///
    /// let reactor = Reactor::new(1)?;
    /// let before = reactor.now();
    /// reactor.turn(Wait::Not, &mut Vec::new())?;
    /// assert!(reactor.looked_at() >= before);
    /// assert!(reactor.alone_for() <= reactor.now() - before);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn looked_at(&self) -> u64 {
        // Ordering: relaxed; a hint, after which somebody looks or does not.
        self.looked_at.load(Relaxed)
    }

    /// For how many nanoseconds nobody has taken a turn.
    ///
    /// # Examples
    ///
    /// See [`looked_at`](Self::looked_at).
    pub fn alone_for(&self) -> u64 {
        self.now().saturating_sub(self.looked_at())
    }

    /// Takes a turn, unless somebody else has it. Adds whom to wake to `woken`; the caller wakes them, with no lock held.
    ///
    /// # Errors
    ///
    /// What the system says, other than that it was interrupted. And in the child of a fork, if the reactor was made before: a
    /// turn would take events away from the parent.
    ///
    /// # Examples
    ///
    /// See the page of the [module](crate::driver).
    pub fn turn(&self, wait: Wait<'_>, woken: &mut Vec<Waker>) -> io::Result<Turn> {
        self.check_here()?;
        let Some(seat) = try_lock(&self.turn) else {
            return Ok(match self.holder.ask() {
                Who::Passes => Turn::Looks,
                Who::Returns => Turn::Returns,
                Who::Waits => Turn::Waits,
            });
        };
        let mut sitting = Sitting { reactor: self, seat };
        if scope::drives(self) {
            self.holder.is(Who::Returns);
        }
        let result = match wait {
            Wait::Not => self.look(&mut sitting.seat.events),
            Wait::Unless(not_to) if not_to() => return Ok(Turn::Taken),
            Wait::Unless(not_to) => self.block(&mut sitting.seat, not_to),
        };
        let now = self.now();
        self.looked_at.store(now, Relaxed);
        let result = result.map(|()| self.dispatch(Place::First, &mut sitting.seat.events, woken));
        drop(sitting);
        self.shards.iter().for_each(|shard| shard.fire(now, woken));
        result.map(|()| Turn::Taken)
    }

    /// Waits beside the thread that has the turn, until something is ready or due, or [`notify_second`](Self::notify_second)
    /// is called; unless `not_to` says that it is not to wait. It is asked with the place in hand. Adds whom to wake to
    /// `woken`; the caller wakes them, with no lock held.
    ///
    /// For executors whose polls are long: a worker that leaves its turn with a task in hand leaves a second behind, and a
    /// socket that becomes ready meanwhile does not wait for the end of the poll.
    ///
    /// False if another thread is in this place, or the system knows no such thing: the caller waits elsewhere. A thread that
    /// could have the [turn](Self::turn) is to take that instead; timers are looked at here, but only those that were known
    /// when the wait began, and a tenth of a millisecond late.
    ///
    /// # Errors
    ///
    /// As for [`turn`](Self::turn).
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::driver::{Reactor, Turn, Wait};
    /// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    /// use std::thread;
    ///
    /// let reactor = Reactor::new(2)?;
    /// let called = AtomicBool::new(false);
    /// thread::scope(|threads| {
    ///     let second = threads.spawn(|| {
    ///         while !called.load(SeqCst) {
    ///             if !reactor.wait_second(&|| called.load(SeqCst), &mut Vec::new()).unwrap() {
    ///                 break; // not on this system
    ///             }
    ///         }
    ///     });
    ///     // The turn is free meanwhile.
    ///     assert_eq!(reactor.turn(Wait::Not, &mut Vec::new()).unwrap(), Turn::Taken);
    ///     called.store(true, SeqCst);
    ///     reactor.notify_second();
    ///     second.join().unwrap();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_second(&self, not_to: &dyn Fn() -> bool, woken: &mut Vec<Waker>) -> io::Result<bool> {
        self.check_here()?;
        let Some(mut seated) = self.second.take().filter(|_| TWO_MAY_WAIT) else { return Ok(false) };
        if not_to() {
            return Ok(true);
        }
        let timeout = match self.earliest() {
            NEVER => None,
            earliest => {
                let until = earliest.saturating_add(SECOND_IS_LATER);
                Some(Duration::from_nanos(until.saturating_sub(self.now())))
            }
        };
        self.home.waiter.wait(&mut seated.events, timeout)?;
        let now = self.now();
        self.looked_at.store(now, Relaxed);
        self.dispatch(Place::Second, &mut seated.events, woken);
        drop(seated);
        self.shards.iter().for_each(|shard| shard.fire(now, woken));
        Ok(true)
    }

    /// Whether a thread waits in the reactor, in either place: a hint.
    ///
    /// # Examples
    ///
    /// ```
    /// let reactor = giveway_io::driver::Reactor::new(1)?;
    /// assert!(!reactor.is_attended());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_attended(&self) -> bool {
        self.holder.ask() == Who::Waits || self.second.is_taken()
    }

    /// Asks the kernel, if there is anything to ask for.
    fn look(&self, events: &mut Events) -> io::Result<()> {
        if self.has_sources() { self.home.waiter.wait(events, Some(Duration::ZERO)) } else { Ok(()) }
    }

    fn block(&self, seat: &mut Seat, not_to: &dyn Fn() -> bool) -> io::Result<()> {
        let until = self.home.horizon.plan(|| self.earliest());
        self.holder.is(Who::Waits);
        match until {
            NEVER => self.home.waiter.wait(&mut seat.events, None),
            until => self.wait_until(until, seat, not_to),
        }
    }

    fn wait_until(
        &self,
        until: u64,
        Seat { events, punctual }: &mut Seat,
        not_to: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut now = self.now();
        if until <= now {
            return self.look(events);
        }
        // More than once, if he gets up far too soon.
        while let Some(sleep) = punctual.sleep_for(until.saturating_sub(now)) {
            self.home.waiter.wait(events, Some(Duration::from_nanos(sleep.shortest)))?;
            let slept = self.now().saturating_sub(now);
            now += slept;
            if slept < sleep.shortest || !events.is_empty() {
                // Called back, or something is ready.
                return Ok(());
            }
            punctual.slept(sleep, slept);
        }
        // Too late to sleep. A timer that is made meanwhile may come first.
        let awake_since = now;
        while now < until.min(self.earliest()) && events.is_empty() && !not_to() {
            std::hint::spin_loop();
            self.look(events)?;
            now = self.now();
        }
        punctual.stayed_awake(now.saturating_sub(awake_since));
        Ok(())
    }

    /// Hands out what a thread in that place was told.
    fn dispatch(&self, place: Place, events: &mut Events, woken: &mut Vec<Waker>) {
        if events.is_empty() {
            return;
        }
        if events.calls(place.other()) {
            self.pass_on(place.other());
        }
        let sources = self.lock_sources();
        for event in events.iter() {
            // None: it is gone, and the event was on its way.
            let Some(source) = sources.get(event.key) else { continue };
            if event.readable {
                source.set_ready(Direction::Read, event.more_to_read, woken);
            }
            if event.writable {
                source.set_ready(Direction::Write, event.more_to_write, woken);
            }
        }
        events.clear();
    }

    /// Passes on a call for that place, which a thread in the other one was handed.
    #[cold]
    fn pass_on(&self, place: Place) {
        let must_hear = match place {
            Place::First => must_hear(&self.turn),
            Place::Second => self.second.must_hear(),
        };
        if must_hear {
            self.home.waiter.notify(place);
            // The thread there may have lost its CPU on the way to its wait, and the call would come back at once.
            std::thread::yield_now();
        }
    }

    /// Calls back the thread that waits in its turn. One that is about to has to find out by itself, by what it is asked
    /// when it has the turn ([`Wait::Unless`]): another turn may come first, and take the call with it.
    ///
    /// # Examples
    ///
    /// See the page of the [module](crate::driver).
    pub fn notify(&self) {
        self.home.notify();
    }

    /// Calls back the thread that waits [beside the one that has the turn](Self::wait_second). One that is about to has to find
    /// out by itself, as for [`notify`](Self::notify).
    ///
    /// # Examples
    ///
    /// See [`wait_second`](Self::wait_second).
    pub fn notify_second(&self) {
        if TWO_MAY_WAIT && !self.birth.is_elsewhere() {
            self.home.waiter.notify(Place::Second);
        }
    }

    fn lock_sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a descriptor, which must stay open until it is deregistered.
    pub(crate) fn register(&self, fd: BorrowedFd<'_>) -> io::Result<(usize, Arc<Source>)> {
        self.check_here()?;
        let (key, source) = on_behalf(|| self.lock_sources().insert())?;
        self.registered.fetch_add(1, Relaxed);
        if self.is_closed() {
            // `close` may have gone over the sources before this one was among them.
            source.close(&mut Vec::new());
        }
        match self.home.waiter.add(fd, key) {
            Ok(()) => Ok((key, source)),
            Err(error) => {
                self.forget(key);
                Err(error)
            }
        }
    }

    /// Deregisters a descriptor; in the child of a fork, where it is registered with the parent, does nothing.
    pub(crate) fn deregister(&self, fd: BorrowedFd<'_>, key: usize) {
        if self.birth.is_elsewhere() {
            return;
        }
        // Fails only for a descriptor that the user has closed behind our back, and then it is not registered.
        let _closed = self.home.waiter.delete(fd);
        self.forget(key);
    }

    fn forget(&self, key: usize) {
        let source = on_behalf(|| self.lock_sources().remove(key));
        self.registered.fetch_sub(1, Relaxed);
        drop(source);
    }

    /// The shard of timers with this number; the last one if there are fewer.
    #[inline]
    pub(crate) fn shard(&self, index: usize) -> &'static Shard {
        self.shards[index.min(self.shards.len() - 1)]
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.close();
        if !self.birth.is_elsewhere() {
            Shard::release(self.shards.iter().copied());
        }
    }
}

/// Wakes them all, with no lock held. A waker is anybody's code: one that panics must not keep the others from being woken,
/// nor end the thread that serves everybody. (What it says has been printed by then.)
///
/// # Examples
///
/// See the page of the [module](crate::driver).
pub fn wake_all(woken: &mut Vec<Waker>) {
    for waker in woken.drain(..) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            drop_payload(payload);
        }
    }
}

/// Drops what a waker has panicked with. That may panic as well, with something that does so when it is dropped: not for ever.
fn drop_payload(mut payload: Box<dyn Any + Send>) {
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            Ok(()) => return,
            Err(again) => payload = again,
        }
    }
    std::mem::forget(payload);
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("sources", &self.registered.load(Relaxed)).finish_non_exhaustive()
    }
}
