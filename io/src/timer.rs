//! Pending timers: a shard a core, and one for everybody else.
//!
//! Most timers never fire: they are the timeouts of what comes in time. So making one and dropping it again has to be
//! cheap. One that is dropped in the poll that made it never comes here (see `deferred`). One that does is written down
//! in a list, and only when somebody asks which is next are those that are still there moved into a heap. One that is
//! dropped leaves its place in the list or the heap behind, and both are swept when half of their places are dead.
//!
//! Shards are never freed, and used again by the next reactor: a timer points to its shard without counting, whatever
//! becomes of its runtime. Serials are unique in the process, so a timer from before finds nothing of its own there, and
//! nothing of anybody else's.
//!
//! Times are nanoseconds since the first of them was asked for.

use crate::fork::{Birth, PerProcess};
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

/// No timer.
pub(crate) const NEVER: u64 = u64::MAX;

/// Below this many dead places they are not swept.
const SWEEP_FROM: usize = 64;

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Room for so many timers is kept.
const KEEP_ROOM: usize = 4_096;

/// When a moment is.
pub(crate) fn time_of(instant: Instant) -> u64 {
    instant.saturating_duration_since(epoch()).as_nanos().try_into().unwrap_or(NEVER - 1)
}

/// The moment at a time, as far as there are moments.
pub(crate) fn instant_of(time: u64) -> Instant {
    let far = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    epoch() + Duration::from_nanos(time).min(far)
}

/// The clock of every reactor: nanoseconds since somebody first looked at it.
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
    timers: Mutex<Timers>,
    // Nothing is due before this. May be too early, when the timer it stood for was dropped; never too late. Written
    // under the lock, read without it.
    earliest: AtomicU64,
    // A thread defers timers to this shard.
    attended: AtomicBool,
    // The process that it serves. In a child it is as good as closed; and its lock may be held by a thread that is not there.
    birth: Birth,
}

#[derive(Debug, Default)]
struct Timers {
    // Whom to tell of a timer that comes first. None while nobody serves the shard.
    home: Option<Arc<Home>>,
    // Whom each wakes, by its serial.
    pending: HashMap<u64, Waker, BuildHasherDefault<SerialHasher>>,
    // Deadlines and serials: those that nobody has sorted yet, and the others.
    fresh: Vec<(u64, u64)>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    // Places in the two whose timer was dropped.
    dead: usize,
    // Deferred timers up to this serial have come here.
    came: u64,
    // What has become of deferred timers that have yet to come, by the doing of another thread than the one that defers them:
    // dropped, or moved to another time. The last word counts.
    early: Vec<(u64, Option<Instant>)>,
}

/// A timer on its way to a shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) serial: u64,
    pub(crate) deadline: Instant,
}

/// A timer that is registered when the poll which made it returns.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) timer: Timer,
    /// None until then, and for a timer that was dropped.
    pub(crate) waker: Option<Waker>,
}

impl Shard {
    /// Shards that no reactor uses.
    fn free() -> MutexGuard<'static, Vec<&'static Self>> {
        static FREE: PerProcess<Mutex<Vec<&'static Shard>>> = PerProcess::new();
        FREE.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard of the reactor that lives there, until [`Self::release`].
    pub(crate) fn acquire(home: Arc<Home>) -> &'static Self {
        let free = on_behalf(|| Self::free().pop());
        let shard = free.unwrap_or_else(|| {
            let earliest = AtomicU64::new(NEVER);
            let attended = AtomicBool::new(false);
            let birth = Birth::here();
            Box::leak(Box::new(CachePadded::new(Self { timers: Mutex::default(), earliest, attended, birth })))
        });
        *shard.lock() = Timers { home: Some(home), ..Timers::default() };
        shard
    }

    /// Gives the shards of a reactor that is gone to the next. They were closed.
    pub(crate) fn release(shards: impl Iterator<Item = &'static Self>) {
        let shards: Vec<_> = shards.collect();
        on_behalf(|| Self::free().extend(shards));
    }

    /// Whether this process is a child of the one that the shard serves.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.birth.is_elsewhere()
    }

    /// Makes the calling thread the one whose deferred timers come here. False if there is one.
    ///
    /// One at a time: whether a timer has come is told by its serial, and those of one thread come in order.
    #[must_use]
    pub(crate) fn attend(&self) -> bool {
        // Ordering: acquire, partner of the release in `cease`: the serials that the last thread used were taken before those
        // that this one takes next, so they are smaller.
        !self.attended.swap(true, Acquire)
    }

    /// Ends what [`Self::attend`] began.
    pub(crate) fn cease(&self) {
        // Ordering: release, partner of the acquire in `attend`.
        self.attended.store(false, Release);
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        // No user code runs under it: wakers are cloned before and dropped after. Threads that are served by a shard of their own
        // take it themselves; those that are not, [on their behalf](on_behalf) if they are lowered.
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When to look next.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        // Ordering: relaxed. Against a thread that is about to block for too long there are fences: see `horizon`.
        self.earliest.load(Relaxed)
    }

    /// Adds a timer. Whoever waits for a later one is told. False if nobody serves the shard.
    #[inline(never)]
    #[must_use]
    pub(crate) fn insert(&self, timer: Timer, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        // Refused, the waker is dropped by the caller and without the lock.
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

    /// Adds the timers that were deferred, in the order of their serials. For the thread that [attends](Self::attend) the
    /// shard. False if the shard is closed, and the timers were not added.
    #[must_use = "the task has to be woken if its timers were refused"]
    pub(crate) fn insert_deferred(&self, deferred: &mut [Deferred]) -> bool {
        let Some(last) = deferred.last() else { return true };
        if self.is_elsewhere() {
            return false;
        }
        let mut timers = self.lock();
        timers.came = last.timer.serial;
        let mut early = std::mem::take(&mut timers.early);
        if timers.home.is_none() {
            return false;
        }
        // Stable: of several words about one timer the last stays last.
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
        self.advance(timers, first);
        true
    }

    /// Deferred timers up to this serial that have not come never will: nobody waits for them any more.
    pub(crate) fn expect_none_up_to(&self, serial: u64) {
        if self.is_elsewhere() {
            return;
        }
        let mut timers = self.lock();
        timers.came = serial;
        timers.early.clear();
    }

    /// A timer with this deadline was added, or none, under this lock.
    fn advance(&self, timers: MutexGuard<'_, Timers>, deadline: u64) {
        if deadline < self.earliest.load(Relaxed) {
            self.earliest.store(deadline, Relaxed);
            // The new deadline is written down before the look at who blocks: see `horizon`.
            let home = timers.home.as_ref().filter(|home| home.must_call_back(deadline)).cloned();
            drop(timers);
            if let Some(home) = home {
                home.notify();
            }
        }
    }

    /// Replaces the waker of a timer that has not fired. False if it has, or is not here yet.
    #[inline(never)]
    pub(crate) fn update(&self, serial: u64, waker: &Waker) -> bool {
        let known = on_behalf(|| self.lock().pending.get(&serial).map(|old| old.will_wake(waker)));
        match known {
            None => return false,
            Some(true) => return true,
            Some(false) => {}
        }
        // Cloned before the lock and dropped after it, the old one or, if the timer has fired meanwhile, the new one: either may
        // run anything.
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

    /// Drops a timer, if it has not fired. One that was `deferred` may not be here yet.
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
        // Without the lock, and by the caller: it may run anything.
        drop(waker);
    }

    /// Moves a timer to another time, if it has not fired: it wakes whom it would have woken. Its serial is `to`'s from then
    /// on, unless it was `deferred` and is not here yet. None if it has fired.
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

    /// Fires what is due: adds the wakers to `woken`.
    pub(crate) fn fire(&self, now: u64, woken: &mut Vec<Waker>) {
        if self.earliest() > now {
            return;
        }
        let mut timers = self.lock();
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
        let next = timers.heap.peek().map_or(NEVER, |Reverse((deadline, _))| *deadline);
        self.earliest.store(next, Relaxed);
        timers.shrink();
    }

    /// Nobody serves it any more: fires everything.
    pub(crate) fn close(&self, woken: &mut Vec<Waker>) {
        let mut timers = self.lock();
        self.earliest.store(NEVER, Relaxed);
        let all = std::mem::take(&mut *timers);
        woken.extend(all.pending.into_values());
    }

    /// Whether no timer is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().pending.is_empty()
    }

    /// How many are pending.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().pending.len()
    }

    /// How many words were left for timers that have yet to come.
    #[cfg(test)]
    pub(crate) fn words(&self) -> usize {
        self.lock().early.len()
    }
}

impl Timers {
    fn add(&mut self, Timer { serial, deadline }: Timer, waker: Waker) -> u64 {
        let deadline = time_of(deadline);
        self.pending.insert(serial, waker);
        self.fresh.push((deadline, serial));
        deadline
    }

    fn sort(&mut self) {
        for (deadline, serial) in self.fresh.drain(..) {
            match self.pending.contains_key(&serial) {
                true => self.heap.push(Reverse((deadline, serial))),
                false => self.dead -= 1,
            }
        }
    }

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

/// Serials are already as different as can be: one multiplication spreads them.
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

    /// The plainest thing that can be right, beside the real one, over many random steps.
    #[test]
    fn each_timer_fires_once_when_it_is_due_or_never_if_it_was_dropped() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let reactor = crate::reactor::Reactor::new(0).expect("a reactor starts");
        let shard = reactor.shard(0);
        // A waker of its own for each, so that they can be told apart.
        let mut pending: BTreeMap<u64, (u64, u64, Waker)> = BTreeMap::new();
        let mut now = 0;
        for name in 0..50_000 {
            match random(8) {
                0..4 => {
                    let (deadline, waker) = (now + random(1_000), Waker::from(std::sync::Arc::new(Nobody)));
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
                    let due: Vec<_> = pending.iter().filter(|(_, timer)| timer.0 <= now).map(|(n, _)| *n).collect();
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
        // Those that have come and gone leave nothing behind.
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
        // One that has yet to come, moved twice.
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

    /// A timer that is due so many nanoseconds after the epoch.
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
