//! The reactor: waits for file descriptors and timers on behalf of all tasks.
//!
//! It has no thread of its own. A thread that has nothing better to do takes a *turn*: one system
//! call that asks the kernel, with or without waiting, after which the thread hands out the wakers
//! of what is ready or due. One thread has the turn at a time; another that finds it taken goes on.
//! A thread that blocks in its turn can be called back ([`Reactor::notify`]).
//!
//! On Linux a turn waits on `polling`'s epoll descriptor directly, and is called back through an
//! eventfd of our own in edge mode: one system call. `Poller::wait` makes five, since it arms a
//! timer and its own eventfd each time. It is the portable way, used on other systems and with the
//! feature `portable`.
//!
//! The protocols are in `reactor.md`.

mod interest;
#[cfg(all(test, giveway_loom))]
mod models;
mod second;
mod source;
mod sources;
mod turn_owner;
mod wait_deadline;

pub use interest::{Interest, Ready};
pub(crate) use second::Place;
pub(crate) use source::{Direction, Source};

use crate::fork::{self, Process};
use crate::proxy::on_behalf;
use crate::scope;
use crate::sys::{Events, TWO_MAY_WAIT, Waiter};
use crate::timer::{self, NEVER, Shard, WakeLateness};
use crossbeam_utils::CachePadded;
use second::{Second, must_hear, try_lock};
use sources::Sources;
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
use turn_owner::{TurnOwner, Who};
use wait_deadline::WaitDeadline;

/// The part of a reactor that its timers need. Each shard holds a reference to it.
///
/// It must not be dropped in the child of a fork while the parent may use it, because its drop
/// would reach the parent's poller. A reactor that is dropped in a child therefore keeps its
/// shards, and these keep their `Home`.
#[derive(Debug)]
pub(crate) struct Home {
    /// The system call, and what calls threads back from it.
    waiter: Waiter,
    process: Process,
    /// Until when the thread that has the turn blocks. Alone on its cache line: it is read for each
    /// timer that comes first in its shard.
    wait_deadline: CachePadded<WaitDeadline>,
}

impl Home {
    /// Returns whether the thread that has the turn blocks beyond `deadline` and has to be called
    /// back. For a thread that has added the first timer of a shard, after it has lowered the
    /// shard's `earliest`.
    pub(crate) fn must_call_back(&self, deadline: u64) -> bool {
        self.wait_deadline.must_call_back(deadline)
    }

    /// Calls back the thread that waits in its turn.
    pub(crate) fn notify(&self) {
        // In the child of a fork no thread waits, and the call would reach the parent's.
        if !self.process.in_forked_child() {
            self.waiter.notify(Place::First);
        }
    }
}

/// How much later than the first timer the second wakes up, in nanoseconds. A thread that has the
/// turn has fired the timer by then.
const SECOND_IS_LATER: u64 = 100_000;

/// What the thread that has the turn needs.
#[derive(Debug)]
struct Seat {
    /// The events of the last question. Empty between turns.
    events: Events,
    /// How late earlier sleeps were.
    wake_lateness: WakeLateness,
}

/// Holds the turn. Its drop takes back what the thread has said in `wait_deadline` and
/// `turn_owner`, and then gives the turn back; also if user code panics. In the other order a
/// thread that finds the turn taken could act on the word of a thread that has left.
struct Sitting<'a> {
    reactor: &'a Reactor,
    seat: MutexGuard<'a, Seat>,
}

impl Drop for Sitting<'_> {
    fn drop(&mut self) {
        self.reactor.home.wait_deadline.awake();
        self.reactor.turn_owner.is(Who::Passes);
    }
}

/// Waits for file descriptors and timers.
///
/// See the [module](crate::driver) for an example.
pub struct Reactor {
    /// Shared with the shards.
    home: Arc<Home>,
    /// The turn: locked by the thread that takes it. Only ever tried, never waited for.
    turn: Mutex<Seat>,
    /// The place of a thread that waits beside the one that has the turn.
    second: Second,
    /// The registered sources. No user code runs under this lock.
    sources: Mutex<Sources>,
    /// The number of registered sources. It tells without the lock whether the kernel has to be
    /// asked.
    registered: AtomicUsize,
    /// The pending timers: a shard for each number, and as the last one the shard of threads
    /// without a number.
    shards: Box<[&'static Shard]>,
    /// Set by [`close`](Self::close): no thread takes turns any more.
    closed: AtomicBool,
    /// When a thread last asked the kernel. Written after the answer.
    looked_at: AtomicU64,
    /// What the thread that has the turn does next. Written by that thread; read by those that find
    /// the turn taken.
    turn_owner: TurnOwner,
    /// The number of look-ups of names that tasks wait for: see `net/resolve.rs`.
    pub(crate) look_ups: AtomicUsize,
    /// The process that has the threads which serve this reactor. In a child no lock is taken and
    /// the poller is left alone: both are as the parent's threads had them at the moment of the
    /// fork.
    process: Process,
}

/// How long a turn may take.
///
/// See the [module](crate::driver) for an example.
#[expect(missing_debug_implementations, reason = "a closure has none")]
pub enum Wait<'a> {
    /// Asks the kernel and returns.
    Not,
    /// Waits until something is ready or due, or the thread is called back; unless this closure
    /// returns true. It is called with the turn in hand: from then on no other turn can take the
    /// call-back away. It may be called more than once.
    Unless(&'a dyn Fn() -> bool),
}

/// What has become of a turn.
///
/// See the [module](crate::driver) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The turn was taken.
    Taken,
    /// Another thread has the turn, and gives it back in a moment. It is not one of the threads
    /// that drive this reactor: a caller that wants to wait has to come again, or no thread might
    /// wait there.
    Looks,
    /// Another thread has the turn, and gives it back in a moment. It is inside of
    /// [`enter`](crate::driver::enter) with this reactor, and has to take a turn that waits before
    /// it sleeps: a caller that wants to wait may do so elsewhere.
    Returns,
    /// Another thread has the turn, and waits there.
    Waits,
}

impl Reactor {
    /// Makes a reactor whose timers are spread over `shards` shards, and one more for threads that
    /// have none.
    ///
    /// See the [module](crate::driver) for an example.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses a descriptor.
    pub fn new(shards: usize) -> io::Result<Arc<Self>> {
        let process = Process::current();
        let home = Arc::new(Home {
            waiter: Waiter::new()?,
            process,
            wait_deadline: CachePadded::new(WaitDeadline::new()),
        });
        Ok(Arc::new(Self {
            turn: Mutex::new(Seat {
                events: Events::new(),
                wake_lateness: WakeLateness::default(),
            }),
            second: Second::new(),
            sources: Mutex::default(),
            registered: AtomicUsize::new(0),
            shards: (0..=shards).map(|_| Shard::acquire(home.clone())).collect(),
            closed: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            turn_owner: TurnOwner::new(),
            look_ups: AtomicUsize::new(0),
            process,
            home,
        }))
    }

    /// Returns the time on the clock of all reactors: nanoseconds since the clock was first read.
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

    /// Returns whether a source is registered, so that a turn has to ask the kernel.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixStream;
    /// use giveway_io::driver::{Reactor, enter};
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
        // Ordering: relaxed; a stale answer costs one look. The thread that has registered a source
        // takes a turn itself, or is woken by the turn of another.
        self.registered.load(Relaxed) != 0
    }

    /// Returns when the first timer of all shards is due, or earlier.
    fn earliest(&self) -> u64 {
        self.shards.iter().map(|shard| shard.earliest()).min().unwrap_or(NEVER)
    }

    /// Returns whether a turn may find something: a source is registered, or a timer is due.
    ///
    /// See [`has_something`](Self::has_something) for an example.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.has_sources() || {
            let earliest = self.earliest();
            earliest != NEVER && earliest <= self.now()
        }
    }

    /// Returns whether a worker with this shard has anything to look for: a source is registered,
    /// or a timer is pending in its shard or in the shared one.
    ///
    /// See [`has_something`](Self::has_something) for an example.
    #[inline]
    pub fn has_anything_for(&self, shard: usize) -> bool {
        self.has_sources()
            || self.shard(shard).earliest() != NEVER
            || self.shard(usize::MAX).earliest() != NEVER
    }

    /// Returns whether there is anything to wait for: a source is registered, or a timer is
    /// pending.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::time::{Duration, sleep};
    /// use giveway_io::driver::{Reactor, enter};
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

    /// Returns whether a task waits for a descriptor, a timer or the address of a name. Also true
    /// while a future that was dropped has left its waker at a descriptor. Takes every lock: for
    /// rare occasions.
    ///
    /// See [`has_something`](Self::has_something) for an example.
    pub fn is_waited_for(&self) -> bool {
        // Ordering: acquire, partner of the release when a look-up is answered (`net/resolve.rs`):
        // a thread that sees the look-up gone also sees its wake-up.
        self.look_ups.load(Acquire) != 0
            || self.shards.iter().any(|shard| !shard.is_empty())
            || self.lock_sources().iter().any(Source::is_waited_for)
    }

    /// Closes the reactor: no thread will take a turn any more, and every task that waits is woken.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixDatagram;
    /// use giveway_io::driver::{Reactor, enter};
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
        // 1. Set the mark before the sources are gone over. `register` inserts its source and then
        //    looks at the mark: one of the two closes the source.
        //
        // Ordering: release, partner of the acquire in `is_closed`. A thread that registers a
        // source after step 2 takes the lock of the sources after this thread, and sees the mark.
        self.closed.store(true, Release);
        // In the child of a fork the parent's threads may hold the locks.
        if self.process.in_forked_child() {
            return;
        }
        // 2. Take all wakers.
        let mut woken = Vec::new();
        for source in self.lock_sources().iter() {
            source.close(&mut woken);
        }
        self.shards.iter().for_each(|shard| shard.close(&mut woken));
        // 3. Wake them, with no lock held: a waker is code of others.
        wake_all(&mut woken);
    }

    /// Returns whether the reactor was closed.
    ///
    /// See [`close`](Self::close) for an example.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Ordering: acquire, partner of the release in `close`.
        self.closed.load(Acquire)
    }

    /// Returns an error in the child of a fork, where no thread serves this reactor.
    #[inline]
    pub(crate) fn check_here(&self) -> io::Result<()> {
        if self.process.in_forked_child() { Err(fork::no_threads()) } else { Ok(()) }
    }

    /// Returns an error if nothing will be reported of the sources any more.
    #[inline]
    pub(crate) fn check_reports(&self) -> io::Result<()> {
        if self.is_closed() || self.process.in_forked_child() {
            Err(self.no_report())
        } else {
            Ok(())
        }
    }

    #[cold]
    fn no_report(&self) -> io::Error {
        if self.process.in_forked_child() {
            return fork::no_report();
        }
        io::Error::other(
            "the runtime that this descriptor belongs to was shut down; make it anew in another",
        )
    }

    /// Returns when a thread last asked the kernel, by the reactor's clock: in a turn or in the
    /// [second place](Self::wait_second).
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
        // Ordering: relaxed; a hint by which a thread decides whether to look.
        self.looked_at.load(Relaxed)
    }

    /// Returns for how many nanoseconds no thread has asked the kernel.
    ///
    /// See [`looked_at`](Self::looked_at) for an example.
    pub fn alone_for(&self) -> u64 {
        self.now().saturating_sub(self.looked_at())
    }

    /// Takes a turn, unless another thread has it. Adds the wakers of what is ready or due to
    /// `woken`; the caller wakes them with no lock held.
    ///
    /// See the [module](crate::driver) for an example.
    ///
    /// # Errors
    ///
    /// What the system says, other than that the call was interrupted. Also in the child of a fork,
    /// if the reactor was made before the fork: a turn would take events away from the parent.
    pub fn turn(&self, wait: Wait<'_>, woken: &mut Vec<Waker>) -> io::Result<Turn> {
        self.check_here()?;
        // 1. Try to get the turn. Waiting for it would be waiting for a thread that may block for
        //    long.
        let Some(seat) = try_lock(&self.turn) else {
            return Ok(match self.turn_owner.ask() {
                Who::Passes => Turn::Looks,
                Who::Returns => Turn::Returns,
                Who::Waits => Turn::Waits,
            });
        };
        // 2. Say that this thread returns before it sleeps, if it drives the reactor: a worker that
        //    finds the turn taken may then park elsewhere. `sitting` comes first, because its drop
        //    takes the word back.
        let mut sitting = Sitting { reactor: self, seat };
        if scope::drives(self) {
            self.turn_owner.is(Who::Returns);
        }
        // 3. Ask the kernel. `not_to` is called with the turn in hand. If it were called before, a
        //    thread that looks could come in between and take the call for this one, which would
        //    then sleep beside its token (model `call_back_against_look`).
        let result = match wait {
            Wait::Not => self.look(&mut sitting.seat.events),
            Wait::Unless(not_to) if not_to() => return Ok(Turn::Taken),
            Wait::Unless(not_to) => self.block(&mut sitting.seat, not_to),
        };
        // 4. Hand out the events while the turn is held: they are in its seat.
        let now = self.now();
        self.looked_at.store(now, Relaxed);
        let result = result.map(|()| self.dispatch(Place::First, &mut sitting.seat.events, woken));
        // 5. Give the turn back. What is left needs only the locks of shards, and another thread
        //    may ask the kernel meanwhile.
        drop(sitting);
        // 6. Fire what is due, also if the kernel has refused: timers go on.
        self.shards.iter().for_each(|shard| shard.fire(now, woken));
        result.map(|()| Turn::Taken)
    }

    /// Waits beside the thread that has the turn, until something is ready or due, or
    /// [`notify_second`](Self::notify_second) is called; unless `not_to` returns true. It is called
    /// with the place in hand. Adds the wakers of what is ready or due to `woken`; the caller wakes
    /// them with no lock held.
    ///
    /// For executors whose polls are long: a worker that leaves its turn with a task in hand leaves
    /// a second behind, and a socket that becomes ready meanwhile does not wait for the end of the
    /// poll.
    ///
    /// Returns false if another thread is in this place, or the system does not let two threads
    /// wait: the caller waits elsewhere. A thread that could have the [turn](Self::turn) has to
    /// take that instead. Timers are looked at here too, but only those that were known when the
    /// wait began, and a tenth of a millisecond late.
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
    pub fn wait_second(
        &self,
        not_to: &dyn Fn() -> bool,
        woken: &mut Vec<Waker>,
    ) -> io::Result<bool> {
        self.check_here()?;
        // 1. Take the place before `not_to` is called. `pass_on` drops a call if the place is free:
        //    what was written before that call is seen by a thread that takes the place later
        //    (model `call_against_second`).
        let Some(mut seated) = self.second.take().filter(|_| TWO_MAY_WAIT) else {
            return Ok(false);
        };
        if not_to() {
            return Ok(true);
        }
        // 2. Wait, without a word to `wait_deadline` and `turn_owner`: those are the first's.
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
        // 3. Hand out the events while the place is held: they are in it.
        self.dispatch(Place::Second, &mut seated.events, woken);
        // 4. Leave the place. Timers need only the locks of their shards.
        drop(seated);
        self.shards.iter().for_each(|shard| shard.fire(now, woken));
        Ok(true)
    }

    /// Returns whether a thread waits in the reactor, in either place. A hint.
    ///
    /// # Examples
    ///
    /// ```
    /// let reactor = giveway_io::driver::Reactor::new(1)?;
    /// assert!(!reactor.is_attended());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_attended(&self) -> bool {
        self.turn_owner.ask() == Who::Waits || self.second.is_taken()
    }

    /// Asks the kernel without waiting, if a source is registered.
    fn look(&self, events: &mut Events) -> io::Result<()> {
        if self.has_sources() {
            self.home.waiter.wait(events, Some(Duration::ZERO))
        } else {
            Ok(())
        }
    }

    /// Waits until something is ready or due, or the thread is called back.
    fn block(&self, seat: &mut Seat, not_to: &dyn Fn() -> bool) -> io::Result<()> {
        // First say until when: a timer that is added from here on is in `until`, or its thread
        // calls this one back.
        let until = self.home.wait_deadline.plan(|| self.earliest());
        self.turn_owner.is(Who::Waits);
        match until {
            NEVER => self.home.waiter.wait(&mut seat.events, None),
            until => self.wait_until(until, seat, not_to),
        }
    }

    /// Sleeps until shortly before `until`, and spends the rest awake. Returns early if something
    /// is ready, or the thread is called back.
    fn wait_until(
        &self,
        until: u64,
        Seat { events, wake_lateness }: &mut Seat,
        not_to: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut now = self.now();
        // A timer that is due already is no reason not to ask the kernel: a thread that takes no
        // other turns would never hear of a socket.
        if until <= now {
            return self.look(events);
        }
        // 1. Sleep: more than once, if the kernel wakes the thread far too soon.
        while let Some(sleep) = wake_lateness.sleep_for(until.saturating_sub(now)) {
            self.home.waiter.wait(events, Some(Duration::from_nanos(sleep.shortest)))?;
            let slept = self.now().saturating_sub(now);
            now += slept;
            if slept < sleep.shortest || !events.is_empty() {
                // Something is ready, or the thread was called back or interrupted: the caller
                // comes again if it has nothing to do.
                return Ok(());
            }
            wake_lateness.slept(sleep, slept);
        }
        // 2. Too late to sleep: stay awake. A timer that is added meanwhile may come first, and a
        //    call may come that another thread is handed, so `earliest` and `not_to` are asked each
        //    time.
        let awake_since = now;
        while now < until.min(self.earliest()) && events.is_empty() && !not_to() {
            std::hint::spin_loop();
            self.look(events)?;
            now = self.now();
        }
        wake_lateness.stayed_awake(now.saturating_sub(awake_since));
        Ok(())
    }

    /// Hands out the events of the thread in `place`, and passes on calls for the other place.
    fn dispatch(&self, place: Place, events: &mut Events, woken: &mut Vec<Waker>) {
        if events.is_empty() {
            return;
        }
        // Before the sources are locked: it makes a system call and offers the CPU.
        if events.calls(place.other()) {
            self.pass_on(place.other());
        }
        let sources = self.lock_sources();
        for event in events.iter() {
            // `None`: the source was deregistered while the event was on its way.
            let Some(source) = sources.get(event.key) else { continue };
            if let Some(report) = event.read {
                source.set_ready(Direction::Read, report, woken);
            }
            if let Some(report) = event.write {
                source.set_ready(Direction::Write, report, woken);
            }
        }
        events.clear();
    }

    /// Passes on a call for `place`, which the thread in the other place was handed. Drops the call
    /// if no thread is in `place`.
    #[cold]
    fn pass_on(&self, place: Place) {
        let must_hear = match place {
            Place::First => must_hear(&self.turn),
            Place::Second => self.second.must_hear(),
        };
        if must_hear {
            self.home.waiter.notify(place);
            // The thread in `place` may have lost its CPU on the way to its wait. Without a pause
            // the call would come back at once.
            std::thread::yield_now();
        }
    }

    /// Calls back the thread that waits in its turn. A thread that is about to wait has to find out
    /// by itself, by the closure that it is asked with the turn in hand ([`Wait::Unless`]): another
    /// turn may come first and take the call with it.
    ///
    /// See the [module](crate::driver) for an example.
    pub fn notify(&self) {
        self.home.notify();
    }

    /// Calls back the thread that waits [beside the one that has the turn](Self::wait_second). A
    /// thread that is about to wait there has to find out by itself, as for
    /// [`notify`](Self::notify).
    ///
    /// See [`wait_second`](Self::wait_second) for an example.
    pub fn notify_second(&self) {
        if TWO_MAY_WAIT && !self.process.in_forked_child() {
            self.home.waiter.notify(Place::Second);
        }
    }

    fn lock_sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a descriptor, which must stay open until it is deregistered. Returns its key and
    /// its source.
    pub(crate) fn register(&self, fd: BorrowedFd<'_>) -> io::Result<(usize, Arc<Source>)> {
        self.check_here()?;
        on_behalf(|| self.add(fd))
    }

    /// Adds a source and tells the kernel, which has a lock of its own around its list.
    fn add(&self, fd: BorrowedFd<'_>) -> io::Result<(usize, Arc<Source>)> {
        // 1. Insert the source before the kernel knows of it: an event under an unknown key is
        //    dropped.
        let (key, source) = self.lock_sources().insert()?;
        self.registered.fetch_add(1, Relaxed);
        // 2. Look at the mark after the source was inserted. In the other order `close` could set
        //    the mark and go over the sources in between, and this one would stay open.
        if self.is_closed() {
            // `close` may have gone over the sources before this one was among them. No task waits
            // for it yet.
            source.close(&mut Vec::new());
        }
        // 3. Tell the kernel.
        match self.home.waiter.add(fd, key) {
            Ok(()) => Ok((key, source)),
            Err(error) => {
                // No task waits for it, so nothing of the user's is dropped with it.
                self.lock_sources().remove(key);
                self.registered.fetch_sub(1, Relaxed);
                Err(error)
            }
        }
    }

    /// Deregisters a descriptor. Does nothing in the child of a fork, where the descriptor is
    /// registered with the parent.
    pub(crate) fn deregister(&self, fd: BorrowedFd<'_>, key: usize) {
        if self.process.in_forked_child() {
            return;
        }
        let source = on_behalf(|| {
            // 1. Tell the kernel first: a key that is forgotten must bring no new events. An error
            //    means that the user has closed the descriptor without our knowledge, and then it
            //    is not registered.
            let _closed = self.home.waiter.delete(fd);
            // 2. Free the key. An event that is on its way finds nothing under it.
            self.lock_sources().remove(key)
        });
        self.registered.fetch_sub(1, Relaxed);
        // By the caller: the wakers in it are the user's code.
        drop(source);
    }

    /// Returns the shard of timers with this number, or the shared one if there are fewer.
    #[inline]
    pub(crate) fn shard(&self, index: usize) -> &'static Shard {
        self.shards[index.min(self.shards.len() - 1)]
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.close();
        // In the child of a fork the shards and their `Home` are left as they are.
        if !self.process.in_forked_child() {
            Shard::release(self.shards.iter().copied());
        }
    }
}

/// Wakes all of `woken`. The caller holds no lock.
///
/// A waker is code of others. One that panics neither keeps the rest from being woken nor ends the
/// thread, which serves all tasks. (The panic's message is printed by the panic hook.)
///
/// See the [module](crate::driver) for an example.
pub fn wake_all(woken: &mut Vec<Waker>) {
    for waker in woken.drain(..) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            drop_payload(payload);
        }
    }
}

/// Drops the payload of a waker's panic. Its drop may panic as well, with another payload that does
/// the same: after eight of them the payload is leaked.
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
        f.debug_struct("Reactor")
            .field("sources", &self.registered.load(Relaxed))
            .finish_non_exhaustive()
    }
}
