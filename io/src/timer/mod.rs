//! Pending timers: a shard for each core, and one for all other threads.
//!
//! Most timers never fire: they are timeouts of operations that end in time. So creating and
//! dropping a timer has to be cheap. A timer that is dropped in the poll that created it never
//! comes here (see `deferred`). A timer that does is appended to a list. Only when a thread asks
//! which timer is next, those of the list that still exist are moved into a heap. A timer that is
//! dropped leaves its place in the list or the heap behind; both are swept when half of their
//! places are dead.
//!
//! Shards are never freed, and the next reactor uses them again. So a timer points to its shard
//! without a reference count, whatever becomes of its runtime. Serials are unique in the process: a
//! timer of an earlier runtime finds neither its own entry in the shard nor that of another.
//!
//! Times are nanoseconds since the clock was first read.

mod alarm;
pub(crate) mod deferred;
mod wake_lateness;

pub use alarm::Alarm;
pub use deferred::poll_task;
pub(crate) use wake_lateness::WakeLateness;

use crate::fork::{PerProcess, Process};
use crate::proxy::on_behalf;
use crate::reactor::Home;
use crossbeam_utils::CachePadded;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// The time of no timer.
pub(crate) const NEVER: u64 = u64::MAX;

/// The number of dead places up to which they are not swept.
const SWEEP_FROM: usize = 64;

/// Returns when the clock was first read.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// The number of timers whose memory is always kept.
const KEEP_ROOM: usize = 4_096;

/// Converts an instant to a time.
pub(crate) fn time_of(instant: Instant) -> u64 {
    instant.saturating_duration_since(epoch()).as_nanos().try_into().unwrap_or(NEVER - 1)
}

/// Converts a time to an instant, at most 30 years after the first: later instants may not exist.
pub(crate) fn instant_of(time: u64) -> Instant {
    let far = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    epoch() + Duration::from_nanos(time).min(far)
}

/// Returns the time on the clock of all reactors: nanoseconds since the clock was first read.
///
/// # Examples
///
/// ```
/// use giveway_io::driver::now;
///
/// let before = now();
/// assert!(now() >= before);
/// ```
pub fn now() -> u64 {
    time_of(Instant::now())
}

/// A shard of the pending timers.
#[derive(Debug)]
pub(crate) struct Shard {
    /// No user code runs under this lock.
    timers: Mutex<Timers>,
    /// No pending timer is due before this. May be too early, if the timer that it stood for was
    /// dropped; never too late. Written under the lock, read without it.
    earliest: AtomicU64,
    /// Whether a thread defers timers to this shard. See [`attend`](Self::attend).
    attended: AtomicBool,
    /// The process that the shard serves. In a child the shard counts as closed, and its lock may
    /// be held by a thread that does not exist there.
    process: Process,
}

/// What the lock of a shard guards.
#[derive(Debug, Default)]
struct Timers {
    /// The reactor to tell of a timer that comes first. `None` while the shard is closed.
    home: Option<Arc<Home>>,
    /// The waker of each pending timer, by its serial. A timer that is not in here has fired or was
    /// dropped.
    pending: HashMap<u64, Waker, BuildHasherDefault<SerialHasher>>,
    /// Deadlines and serials that are not sorted yet.
    fresh: Vec<(u64, u64)>,
    /// Deadlines and serials, the earliest first.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// The number of places in `fresh` and `heap` whose timer was dropped.
    dead: usize,
    /// Deferred timers up to this serial have come here, or never will.
    came: u64,
    /// Words about deferred timers that have yet to come, left by threads other than the one that
    /// defers them: dropped (`None`), or moved to another time. The last word about a timer counts.
    early: Vec<(u64, Option<Instant>)>,
}

/// A timer on its way to a shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) serial: u64,
    pub(crate) deadline: Instant,
}

/// A timer that is registered when the poll that created it returns.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) timer: Timer,
    /// `None` until then, and for a timer that was dropped.
    pub(crate) waker: Option<Waker>,
}

impl Shard {
    /// Returns the shards that no reactor uses.
    fn free() -> MutexGuard<'static, Vec<&'static Self>> {
        static FREE: PerProcess<Mutex<Vec<&'static Shard>>> = PerProcess::new();
        FREE.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a shard for the reactor with this `home`, which has it until [`Self::release`].
    pub(crate) fn acquire(home: Arc<Home>) -> &'static Self {
        let free = on_behalf(|| Self::free().pop());
        let shard = free.unwrap_or_else(|| {
            let earliest = AtomicU64::new(NEVER);
            let attended = AtomicBool::new(false);
            let process = Process::current();
            Box::leak(Box::new(CachePadded::new(Self {
                timers: Mutex::default(),
                earliest,
                attended,
                process,
            })))
        });
        *shard.lock() = Timers { home: Some(home), ..Timers::default() };
        shard
    }

    /// Gives the shards of a reactor that is gone to the next. They are closed.
    pub(crate) fn release(shards: impl Iterator<Item = &'static Self>) {
        let shards: Vec<_> = shards.collect();
        on_behalf(|| Self::free().extend(shards));
    }

    /// Returns whether this process is a child of the one that the shard serves.
    #[inline]
    pub(crate) fn in_forked_child(&self) -> bool {
        self.process.in_forked_child()
    }

    /// Makes the calling thread the one whose deferred timers come here. Returns false if another
    /// thread is.
    ///
    /// One thread at a time, because the serial of a timer tells whether it has come, and only
    /// those of one thread come in order.
    #[must_use]
    pub(crate) fn attend(&self) -> bool {
        // Ordering: acquire, partner of the release in `cease`. The serials that the last thread
        // used were taken before those that this thread takes next, so they are smaller.
        !self.attended.swap(true, Acquire)
    }

    /// Ends what [`Self::attend`] began: another thread may attend the shard.
    pub(crate) fn cease(&self) {
        // Ordering: release, partner of the acquire in `attend`.
        self.attended.store(false, Release);
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        // No user code runs under the lock: wakers are cloned before and dropped after. A thread
        // that is served by a shard of its own takes the lock itself. For another one, which may be
        // lowered, the callers use `on_behalf`.
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a time before which no timer is due.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        // Ordering: relaxed. Against a thread that is about to block for too long there are fences:
        // see `wait_deadline`.
        self.earliest.load(Relaxed)
    }

    /// Adds a timer, and calls back the thread that blocks beyond its deadline. Returns false if
    /// the shard is closed.
    #[inline(never)]
    #[must_use]
    pub(crate) fn insert(&self, timer: Timer, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        // A waker that is refused is dropped by this thread, after the lock.
        on_behalf(|| {
            let mut timers = self.lock();
            if timers.home.is_none() {
                return false;
            }
            if let Some(waker) = waker.take() {
                let deadline = timers.add(timer, waker);
                self.advance(timers, deadline);
            }
            true
        })
    }

    /// Adds the timers that were deferred, in the order of their serials. For the thread that
    /// [attends](Self::attend) the shard. Returns false if the shard is closed and the timers were
    /// not added.
    #[must_use = "the task has to be woken if its timers were refused"]
    pub(crate) fn insert_deferred(&self, deferred: &mut [Deferred]) -> bool {
        let Some(last) = deferred.last() else { return true };
        if self.in_forked_child() {
            return false;
        }
        let mut timers = self.lock();
        // 1. From here on another thread that drops or moves one of these timers leaves no word: it
        //    finds the timer in the shard, or knows that it is gone.
        timers.came = last.timer.serial;
        // 2. Take the words that were left. They are of use for this list only, so they go also if
        //    the shard is closed.
        let mut early = std::mem::take(&mut timers.early);
        if timers.home.is_none() {
            return false;
        }
        // 3. Add the timers, each as the last word about it says. The sort is stable: of several
        //    words about one timer the last stays last.
        early.sort_by_key(|(serial, _)| *serial);
        let mut first = NEVER;
        for Deferred { timer: Timer { serial, deadline }, waker } in deferred {
            let upto = early.partition_point(|(of, _)| of <= serial);
            let word = early[..upto].last().filter(|(of, _)| of == serial).map(|(_, word)| *word);
            if let Some(deadline) = word.unwrap_or(Some(*deadline))
                && let Some(waker) = waker.take()
            {
                first = first.min(timers.add(Timer { serial: *serial, deadline }, waker));
            }
        }
        // 4. Tell a thread that blocks for too long.
        self.advance(timers, first);
        true
    }

    /// Tells that deferred timers up to this serial have come or never will: nothing waits for
    /// those that are missing. The words about them are dropped.
    pub(crate) fn expect_none_up_to(&self, serial: u64) {
        if self.in_forked_child() {
            return;
        }
        let mut timers = self.lock();
        timers.came = serial;
        timers.early.clear();
    }

    /// Lowers `earliest` to the deadline of a timer that was added under this lock ([`NEVER`] if
    /// none was), releases the lock, and calls back the thread that blocks beyond it.
    fn advance(&self, timers: MutexGuard<'_, Timers>, deadline: u64) {
        if deadline < self.earliest.load(Relaxed) {
            self.earliest.store(deadline, Relaxed);
            // `earliest` is lowered before the look at the thread that blocks: see `wait_deadline`.
            // In the other order that thread could read the old time in between, and sleep through
            // the new timer.
            let home = timers.home.as_ref().filter(|home| home.must_call_back(deadline)).cloned();
            drop(timers);
            // Without the lock: it is a system call.
            if let Some(home) = home {
                home.notify();
            }
        }
    }

    /// Replaces the waker of a timer that has not fired. Returns false if it has, or is not here
    /// yet.
    #[inline(never)]
    pub(crate) fn update(&self, serial: u64, waker: &Waker) -> bool {
        let known = on_behalf(|| self.lock().pending.get(&serial).map(|old| old.will_wake(waker)));
        match known {
            None => return false,
            Some(true) => return true,
            Some(false) => {}
        }
        // The waker is cloned before the lock is taken and the spare is dropped after it: the old
        // waker, or the new one if the timer has fired meanwhile. Both may run any code.
        let mut spare = waker.clone();
        on_behalf(|| {
            let mut timers = self.lock();
            let pending = timers.pending.get_mut(&serial);
            let is_pending = pending.is_some();
            if let Some(waker) = pending {
                std::mem::swap(waker, &mut spare);
            }
            is_pending
        })
    }

    /// Drops a timer, if it has not fired. A timer that was `deferred` and is not here yet is
    /// dropped when it comes.
    #[inline(never)]
    pub(crate) fn remove(&self, serial: u64, deferred: bool) {
        let waker = on_behalf(|| {
            let mut timers = self.lock();
            let waker = timers.pending.remove(&serial);
            if waker.is_some() {
                timers.dead += 1;
                timers.sweep_if_worthwhile();
            } else if deferred && serial > timers.came {
                timers.early.push((serial, None));
            }
            waker
        });
        // Dropped by this thread and without the lock: a waker may run any code.
        drop(waker);
    }

    /// Moves a timer to another time, if it has not fired. It keeps its waker. Returns the serial
    /// that the timer has from then on: `to`'s, or its old one if it was `deferred` and is not here
    /// yet. `None` if it has fired.
    #[inline(never)]
    pub(crate) fn reset(&self, serial: u64, deferred: bool, to: Timer) -> Option<u64> {
        on_behalf(|| {
            let mut timers = self.lock();
            if let Some(waker) = timers.pending.remove(&serial) {
                timers.dead += 1;
                let deadline = timers.add(to, waker);
                timers.sweep_if_worthwhile();
                self.advance(timers, deadline);
                return Some(to.serial);
            }
            if deferred && serial > timers.came {
                timers.early.push((serial, Some(to.deadline)));
                return Some(serial);
            }
            None
        })
    }

    /// Fires all timers that are due: adds their wakers to `woken`.
    pub(crate) fn fire(&self, now: u64, woken: &mut Vec<Waker>) {
        if self.earliest() > now {
            return;
        }
        let mut timers = self.lock();
        // Sort now: `fresh` may hold timers that are due.
        timers.sort();
        while let Some(&Reverse((deadline, serial))) = timers.heap.peek() {
            if deadline > now && timers.pending.contains_key(&serial) {
                break;
            }
            timers.heap.pop();
            match timers.pending.remove(&serial) {
                Some(waker) => woken.push(waker),
                None => timers.dead -= 1,
            }
        }
        // Raised only here, under the lock, when everything below has fired or was found dead; and
        // by `close`, when nothing is pending.
        let next = timers.heap.peek().map_or(NEVER, |Reverse((deadline, _))| *deadline);
        self.earliest.store(next, Relaxed);
        timers.shrink();
    }

    /// Closes the shard: adds the wakers of all timers to `woken`. It takes no timer until a
    /// reactor acquires it again.
    pub(crate) fn close(&self, woken: &mut Vec<Waker>) {
        let mut timers = self.lock();
        self.earliest.store(NEVER, Relaxed);
        let all = std::mem::take(&mut *timers);
        woken.extend(all.pending.into_values());
    }

    /// Returns whether no timer is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().pending.is_empty()
    }

    /// Returns how many timers are pending.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().pending.len()
    }

    /// Returns how many words are left for timers that have yet to come.
    #[cfg(test)]
    pub(crate) fn words(&self) -> usize {
        self.lock().early.len()
    }
}

impl Timers {
    /// Adds a timer. Returns its deadline as a time.
    fn add(&mut self, Timer { serial, deadline }: Timer, waker: Waker) -> u64 {
        let deadline = time_of(deadline);
        self.pending.insert(serial, waker);
        self.fresh.push((deadline, serial));
        deadline
    }

    /// Moves the timers of `fresh` that still exist into the heap.
    fn sort(&mut self) {
        for (deadline, serial) in self.fresh.drain(..) {
            match self.pending.contains_key(&serial) {
                true => self.heap.push(Reverse((deadline, serial))),
                false => self.dead -= 1,
            }
        }
    }

    /// Removes the dead places, if they are more than half of all.
    fn sweep_if_worthwhile(&mut self) {
        if self.dead > SWEEP_FROM && self.dead > (self.heap.len() + self.fresh.len()) / 2 {
            let pending = &self.pending;
            self.heap.retain(|Reverse((_, serial))| pending.contains_key(serial));
            self.fresh.retain(|(_, serial)| pending.contains_key(serial));
            self.dead = 0;
            self.shrink();
        }
    }

    /// Gives memory back after a great many timers.
    fn shrink(&mut self) {
        let (len, room) = (self.pending.len(), self.pending.capacity());
        if room > KEEP_ROOM && len < room / 8 {
            let keep = (2 * len).max(KEEP_ROOM);
            self.pending.shrink_to(keep);
            self.heap.shrink_to(keep);
            self.fresh.shrink_to(keep);
        }
    }
}

/// Hashes serials. They are unique, so one multiplication is enough to spread them.
#[derive(Debug, Default)]
struct SerialHasher(u64);

impl Hasher for SerialHasher {
    fn write_u64(&mut self, serial: u64) {
        let product = u128::from(serial) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("serials are hashed, and nothing else");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A model that is too plain to be wrong takes the same random steps as the shard.
    #[test]
    fn each_timer_fires_once_when_it_is_due_or_never_if_it_was_dropped() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = reactor.shard(0);
        // Each timer has a waker of its own, so that they can be told apart.
        let mut pending: BTreeMap<u64, (u64, u64, Waker)> = BTreeMap::new();
        let mut now = 0;
        for name in 0..50_000 {
            match random(8) {
                0..4 => {
                    let (deadline, waker) =
                        (now + random(1_000), Waker::from(std::sync::Arc::new(Nobody)));
                    let serial = name + 1;
                    assert!(shard.insert(timer(serial, deadline), &waker));
                    pending.insert(name, (deadline, serial, waker));
                }
                4..7 if !pending.is_empty() => {
                    let nth = random(pending.len() as u64) as usize;
                    let name = *pending.keys().nth(nth).expect("not empty");
                    shard.remove(pending.remove(&name).expect("there").1, false);
                }
                _ => {
                    now += random(200);
                    let mut woken = Vec::new();
                    shard.fire(now, &mut woken);
                    let due: Vec<_> = pending
                        .iter()
                        .filter(|(_, timer)| timer.0 <= now)
                        .map(|(n, _)| *n)
                        .collect();
                    assert_eq!(woken.len(), due.len());
                    for name in due {
                        let (_, serial, waker) = pending.remove(&name).expect("there");
                        assert!(woken.iter().any(|woken| woken.will_wake(&waker)));
                        shard.remove(serial, false);
                    }
                }
            }
            assert_eq!(shard.len(), pending.len());
            assert!(pending.values().all(|timer| shard.earliest() <= timer.0), "too late");
        }
    }

    #[test]
    fn what_was_dropped_leaves_no_heap_behind() {
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = reactor.shard(0);
        let mut serials = 1..;
        for round in 0..100 {
            let made: Vec<_> = serials.by_ref().take(1_000).collect();
            for &serial in &made {
                assert!(shard.insert(timer(serial, 1_000_000 + serial), Waker::noop()));
            }
            if round % 2 == 0 {
                // Into the heap.
                shard.lock().sort();
            }
            made.into_iter().for_each(|serial| shard.remove(serial, false));
        }
        let timers = shard.lock();
        let places = timers.heap.len() + timers.fresh.len();
        assert!(places <= 2 * SWEEP_FROM + 1, "{places} places");
        assert_eq!(places, timers.dead);
    }

    #[test]
    fn a_deferred_timer_that_was_dropped_by_another_thread_never_comes() {
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = reactor.shard(0);
        shard.remove(5, true);
        assert!(shard.insert_deferred(&mut [deferred(4, 1), deferred(5, 2)]));
        assert_eq!((shard.len(), shard.earliest()), (1, 1));
        // Timers that have come and gone leave no words behind.
        shard.fire(10, &mut Vec::new());
        shard.remove(4, true);
        assert!(shard.lock().early.is_empty());
    }

    #[test]
    fn a_timer_that_is_moved_fires_once_at_its_new_time() {
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let (shard, mut woken) = (reactor.shard(0), Vec::new());
        assert!(shard.insert(timer(1, 10), Waker::noop()));
        assert_eq!(shard.reset(1, false, timer(2, 30)), Some(2), "later");
        shard.fire(20, &mut woken);
        assert_eq!(woken.len(), 0);
        assert_eq!(shard.reset(2, false, timer(3, 25)), Some(3), "sooner");
        shard.fire(25, &mut woken);
        assert_eq!(woken.len(), 1);
        assert_eq!(shard.reset(3, false, timer(4, 50)), None);
        // A timer that has yet to come, moved twice.
        assert_eq!(shard.reset(7, true, timer(8, 40)), Some(7));
        assert_eq!(shard.reset(7, true, timer(9, 60)), Some(7));
        assert!(shard.insert_deferred(&mut [deferred(7, 1)]));
        assert_eq!(shard.earliest(), 60);
    }

    #[test]
    fn a_closed_shard_takes_nothing_and_is_used_again() {
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = reactor.shard(0);
        assert!(shard.insert(timer(1, 5), Waker::noop()));
        let mut woken = Vec::new();
        shard.close(&mut woken);
        assert_eq!((woken.len(), shard.len(), shard.earliest()), (1, 0, NEVER));
        assert!(!shard.insert(timer(2, 5), Waker::noop()));
        assert!(!shard.insert_deferred(&mut [deferred(3, 5)]));
        assert_eq!((shard.len(), shard.earliest()), (0, NEVER));
    }

    /// Makes a timer that is due `deadline` nanoseconds after the epoch.
    fn timer(serial: u64, deadline: u64) -> Timer {
        Timer { serial, deadline: epoch() + std::time::Duration::from_nanos(deadline) }
    }

    fn deferred(serial: u64, deadline: u64) -> Deferred {
        Deferred { timer: timer(serial, deadline), waker: Some(Waker::noop().clone()) }
    }

    struct Nobody;
    impl std::task::Wake for Nobody {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
