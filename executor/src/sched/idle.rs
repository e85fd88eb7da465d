//! Who is idle and who searches, and whom to wake.
//!
//! One word holds both counts, so that "nobody searches and somebody is idle" is one load: the word that every push
//! reads, and every yield point. The list of sleepers behind it is locked, and touched only by a worker that goes to
//! sleep and a thread that must wake one, each of which is about to make a system call anyway.
//!
//! The protocol around it is in `sleep.md`.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, fence, lock};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// Idle workers in the upper half of the word, searching ones in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts(usize);

const SEARCHING: usize = 1;
const IDLE: usize = 1 << (usize::BITS / 2);

/// What a reason to ask takes from the hint: more than there are ever workers. There are few enough at a time, also for 32 bits:
/// one a core (`Remote::return_asked`), and the end of the runtime.
const DISTRACTED: isize = 1 << (isize::BITS / 2);

impl Counts {
    #[inline]
    pub(crate) fn searching(self) -> usize {
        self.0 & (IDLE - 1)
    }

    #[inline]
    pub(crate) fn idle(self) -> usize {
        self.0 / IDLE
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").field("idle", &self.idle()).field("searching", &self.searching()).finish()
    }
}

/// What a worker must do after it was counted out.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedOut {
    /// Nobody searches any more: look at everything once more, then park.
    LookAgain,
    /// Somebody else still searches, and inherits the duty to look.
    Park,
}

/// What waits in the queues, for the choice of a worker to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queued {
    Nothing,
    /// Only the yield queue holds something: workers that rest leave it alone.
    Yielded,
    /// Something that any worker runs.
    Foreground,
}

/// What a worker does after its second look.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecondLook {
    /// There is something for it: leave the set.
    Leave,
    /// Park, and unpark that one first, if any.
    Park(Option<usize>),
}

/// The idle workers of one runtime.
pub(crate) struct IdleSet {
    // Idle goes up and down under the lock of `sleepers` only, so it always agrees with the list. Searching goes up
    // for a woken worker under the lock too, and otherwise by the searcher itself, without it.
    counts: CachePadded<AtomicUsize>,
    // The idle half of `counts` again, on a line that changes only when somebody falls asleep or is woken, not with every
    // search. Written under the lock of `sleepers`. Not part of any protocol, and so not modelled.
    idle: CachePadded<std::sync::atomic::AtomicUsize>,
    // The same for yield points, who are sometimes told that nobody is idle: a poll is to return, or the runtime closes. The
    // idle workers, and `DISTRACTED` less for each such reason. A sum: workers are added and taken out under the lock of
    // `sleepers`, reasons without it.
    hint: CachePadded<std::sync::atomic::AtomicIsize>,
    // Last in, first out: the thread that slept the shortest has the warmest cache.
    sleepers: Mutex<Vec<usize>>,
    // Whether each worker is in the list. Written under its lock.
    asleep: Box<[AtomicBool]>,
    // How many workers there are, those on spare cores included. Written by the monitor. Half of those that are awake may
    // search: a bound that nothing else depends on, so it is not modelled.
    workers: std::sync::atomic::AtomicUsize,
    // How many workers rest, counted from the first. Written by the monitor.
    resting: AtomicUsize,
}

impl IdleSet {
    /// Everybody starts out busy. There is room for workers on `spares` spare cores.
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        Self {
            counts: CachePadded::new(AtomicUsize::new(0)),
            idle: CachePadded::new(std::sync::atomic::AtomicUsize::new(0)),
            hint: CachePadded::new(std::sync::atomic::AtomicIsize::new(0)),
            sleepers: Mutex::new(Vec::with_capacity(workers + spares)),
            asleep: (0..workers + spares).map(|_| AtomicBool::new(false)).collect(),
            workers: std::sync::atomic::AtomicUsize::new(workers),
            resting: AtomicUsize::new(0),
        }
    }

    /// How many workers there are now, those on spare cores included.
    #[inline]
    pub(crate) fn workers(&self) -> usize {
        // Ordering: relaxed, here and below: a bound, and a figure for the monitor, which writes it.
        self.workers.load(Relaxed)
    }

    /// From now on there are `workers` workers. The monitor's to call.
    pub(super) fn set_workers(&self, workers: usize) {
        self.workers.store(workers, Relaxed);
    }

    /// How many workers rest, counted from the first.
    #[inline]
    pub(crate) fn resting(&self) -> usize {
        // Ordering: relaxed. Who must not miss a change has a fence before it, as the monitor has one after it.
        self.resting.load(Relaxed)
    }

    /// Whether a worker leaves the yield queue to the others.
    #[inline]
    pub(crate) fn rests(&self, worker: usize) -> bool {
        worker < self.resting()
    }

    /// From now on the first `workers` workers rest. If that is fewer than before, the caller owes
    /// [`Self::announce_yielded`].
    pub(super) fn set_resting(&self, workers: usize) {
        // Ordering: relaxed; the fence of the announcement orders it against a worker that goes to sleep.
        self.resting.store(workers, Relaxed);
    }

    #[inline]
    pub(crate) fn counts(&self) -> Counts {
        // Ordering: relaxed. Where more is needed the caller has a SeqCst fence before it.
        Counts(self.counts.load(Relaxed))
    }

    /// What yield points read. While it is positive a worker is idle, and none has to ask.
    #[inline]
    pub(crate) fn idle_hint(&self) -> &std::sync::atomic::AtomicIsize {
        &self.hint
    }

    /// Whether every worker was busy or searching a moment ago.
    #[inline]
    pub(crate) fn nobody_idle(&self) -> bool {
        self.idle.load(Relaxed) == 0
    }

    /// Whether work would wait though a worker is idle: nobody searches. To be asked after a fence.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        let counts = self.counts();
        counts.searching() == 0 && counts.idle() > 0
    }

    /// Somebody has queued work. Returns the one worker to unpark, if one must be. If nobody is idle and nobody searches
    /// it calls `interrupt` instead.
    #[inline]
    pub(crate) fn announce(&self, interrupt: impl FnOnce()) -> Option<usize> {
        // Ordering: SeqCst fence, partner of those in `count_out` and `found_work`. Our push is before it, our look at
        // the counts after it; theirs the other way round. So either we see that nobody searches, or they see the
        // push. A SeqCst load would not do: the push into a queue is no SeqCst operation.
        fence(SeqCst);
        let counts = self.counts();
        if counts.searching() > 0 {
            return None;
        }
        if counts.idle() > 0 {
            return self.wake_one();
        }
        interrupt();
        None
    }

    /// Something was put into the yield queue, or fewer workers rest. Returns a worker to unpark, if one must be.
    pub(crate) fn announce_yielded(&self) -> Option<usize> {
        // Ordering: SeqCst fence, partner of those in `count_out` and `found_work`, as in `announce`.
        fence(SeqCst);
        self.wake_for_more(|| Queued::Yielded)
    }

    /// A searcher has found work. Returns a worker to unpark, if it was the last searcher and more is queued. If it was,
    /// and nobody is idle, it calls `interrupt` instead.
    pub(crate) fn found_work(&self, queued: impl FnOnce() -> Queued, interrupt: impl FnOnce()) -> Option<usize> {
        if !self.stop_search() {
            return None;
        }
        // Ordering: SeqCst fence, partner of the one in `announce`: whoever saw us searching, and so woke nobody, had
        // pushed before, and its push is visible to the look below.
        fence(SeqCst);
        if self.nobody_idle() {
            interrupt();
        }
        self.wake_for_more(queued)
    }

    /// The last searcher has gone: another worker takes its place if anything is queued that an idle one may run. Called after
    /// a fence.
    pub(crate) fn wake_for_more(&self, queued: impl FnOnce() -> Queued) -> Option<usize> {
        let queued = if self.must_wake() { queued() } else { Queued::Nothing };
        match queued {
            Queued::Nothing => None,
            Queued::Yielded => self.wake_one_that(|worker| !self.rests(worker)),
            Queued::Foreground => self.wake_one(),
        }
    }

    /// Decides what a worker does that was counted out, left nobody searching, and found `queued` when it looked again. What is
    /// in the yield queue is not for a worker that rests, but as the last searcher it sees to it that another comes.
    pub(crate) fn second_look(&self, worker: usize, queued: Queued) -> SecondLook {
        match queued {
            Queued::Nothing => SecondLook::Park(None),
            Queued::Yielded if self.rests(worker) => SecondLook::Park(self.wake_for_more(|| Queued::Yielded)),
            Queued::Yielded | Queued::Foreground => SecondLook::Leave,
        }
    }

    /// Whether a worker is idle that serves the yield queue. To be asked after a fence.
    pub(crate) fn any_serves_idle(&self) -> bool {
        (self.resting()..self.asleep.len()).any(|worker| self.is_asleep(worker))
    }

    /// Moves a worker that found nothing into the set.
    pub(crate) fn count_out(&self, worker: usize, searching: bool) -> CountedOut {
        let nobody_searches = self.insert(worker, searching);
        // Ordering: SeqCst fence, partner of the one in `announce`.
        fence(SeqCst);
        if nobody_searches { CountedOut::LookAgain } else { CountedOut::Park }
    }

    /// The worker's side of the protocol in one piece: counts it out, and parks unless `look_again` finds a reason not
    /// to. `park` answers whether it came back by itself, and has [removed](Self::remove) the worker; otherwise it was
    /// woken. The worker is counted as a searcher when this returns. True if it left by itself: nobody woke it, so nobody
    /// has told the monitor either.
    pub(crate) fn sleep(
        &self,
        worker: usize,
        searching: bool,
        look_again: impl FnOnce(CountedOut) -> bool,
        park: impl FnOnce() -> bool,
    ) -> bool {
        let counted_out = self.count_out(worker, searching);
        let left = look_again(counted_out) && self.remove(worker);
        left || park()
    }

    /// Becomes a searcher, unless half of those who are not idle search already.
    #[must_use]
    pub(crate) fn try_start_search(&self) -> bool {
        let mut counts = self.counts();
        loop {
            if 2 * counts.searching() >= self.workers().saturating_sub(counts.idle()) {
                return false;
            }
            // Ordering: AcqRel, to stand in one chain with the count-outs; nothing is published by starting.
            match self.counts.compare_exchange_weak(counts.0, counts.0 + SEARCHING, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => counts = Counts(now),
            }
        }
    }

    /// Stops searching because work was found. True if nobody searches any more.
    #[must_use = "the last searcher has to look whether more is queued"]
    pub(crate) fn stop_search(&self) -> bool {
        // Ordering: AcqRel; the fence that `found_work` puts behind it is what orders it against a push.
        let before = Counts(self.counts.fetch_sub(SEARCHING, AcqRel));
        debug_assert!(before.searching() > 0, "stopped a search that nobody made: {before:?}");
        before.searching() == 1
    }

    /// Adds a worker that found nothing. True if nobody searches now.
    #[must_use = "whoever leaves nobody searching has to look again"]
    fn insert(&self, worker: usize, searching: bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        debug_assert!(!sleepers.contains(&worker), "worker {worker} sleeps twice");
        sleepers.push(worker);
        self.asleep[worker].store(true, Relaxed);
        let change = IDLE.wrapping_sub(if searching { SEARCHING } else { 0 });
        // Ordering: AcqRel; the fence that `count_out` puts behind it is what orders it against a push.
        let before = Counts(self.counts.fetch_add(change, AcqRel));
        self.hint(&sleepers, 1);
        before.searching() == usize::from(searching)
    }

    /// Ends a search whose result does not matter any more, because the runtime closes.
    pub(crate) fn abandon_search(&self) {
        let _last = self.stop_search();
    }

    /// Takes one sleeper out, and counts it as a searcher on its behalf. The caller unparks it.
    ///
    /// None if somebody searches by now, or nobody is idle: two threads that push at once wake one worker.
    #[must_use]
    pub(crate) fn wake_one(&self) -> Option<usize> {
        self.wake_one_that(|_| true)
    }

    /// As [`Self::wake_one`], of those that `may` be woken.
    fn wake_one_that(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let mut sleepers = lock(&self.sleepers);
        if !self.must_wake() {
            return None;
        }
        let place = sleepers.iter().rposition(|&worker| may(worker))?;
        let worker = sleepers.remove(place);
        self.asleep[worker].store(false, Relaxed);
        self.idle_to_searching(1, &sleepers);
        Some(worker)
    }

    /// A worker that looked again and saw work leaves the set as a searcher. False if somebody is waking it: then its
    /// wake-up is on the way, and it is counted as a searcher already.
    #[must_use]
    pub(crate) fn remove(&self, worker: usize) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let Some(place) = sleepers.iter().rposition(|&sleeper| sleeper == worker) else { return false };
        sleepers.remove(place);
        self.asleep[worker].store(false, Relaxed);
        self.idle_to_searching(1, &sleepers);
        true
    }

    /// Whether a worker is in the set. A worker that goes to sleep is, before the fence of its count-out; the caller has one too.
    #[inline]
    pub(crate) fn is_asleep(&self, worker: usize) -> bool {
        // Ordering: relaxed; the fences order it against what the worker looks at before it parks.
        self.asleep[worker].load(Relaxed)
    }

    /// Takes every sleeper out, each counted as a searcher. The caller unparks them all.
    pub(crate) fn wake_all(&self) -> Vec<usize> {
        let mut sleepers = lock(&self.sleepers);
        let woken = std::mem::take(&mut *sleepers);
        woken.iter().for_each(|&worker| self.asleep[worker].store(false, Relaxed));
        self.idle_to_searching(woken.len(), &sleepers);
        woken
    }

    #[cfg(test)]
    pub(super) fn with_list_locked(&self, f: impl FnOnce()) {
        let _locked = lock(&self.sleepers);
        f();
    }

    // Under the lock of `sleepers`, which has so many fewer now.
    fn idle_to_searching(&self, workers: usize, sleepers: &[usize]) {
        // Ordering: AcqRel, as above: whoever sees the new searcher relies on what the searcher does next, and that
        // is ordered by its own count-out.
        let before = Counts(self.counts.fetch_sub(workers * (IDLE - SEARCHING), AcqRel));
        debug_assert!(before.idle() >= workers, "woke a worker that was not counted as idle: {before:?}");
        self.hint(sleepers, -(workers as isize));
    }

    // Under the lock of `sleepers`, whose number has changed by so many.
    fn hint(&self, sleepers: &[usize], change: isize) {
        self.idle.store(sleepers.len(), Relaxed);
        // Ordering: relaxed, here and below. A sum, of which no change is lost, and nothing is published by it: a yield point
        // that just misses a change sees it the next time.
        self.hint.fetch_add(change, Relaxed);
    }

    /// From now on every yield point asks, whoever is idle.
    pub(super) fn distract(&self) {
        self.hint.fetch_sub(DISTRACTED, Relaxed);
    }

    /// Takes one `distract` back.
    pub(super) fn attract(&self) {
        self.hint.fetch_add(DISTRACTED, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_half_of_those_awake_search() {
        let idle = IdleSet::new(4, 0);
        assert!(idle.try_start_search());
        assert!(idle.try_start_search());
        assert!(!idle.try_start_search(), "two of four search");
        assert!(!idle.insert(0, true));
        assert!(idle.try_start_search(), "half of three, rounded up, is two");
        assert!(!idle.try_start_search());
    }

    #[test]
    fn one_worker_may_always_search() {
        let idle = IdleSet::new(1, 0);
        assert!(idle.try_start_search());
        assert!(idle.stop_search());
    }

    #[test]
    fn two_pushes_at_once_wake_one_worker() {
        let idle = IdleSet::new(3, 0);
        let _ = idle.count_out(0, false);
        let _ = idle.count_out(1, false);
        // Both saw that nobody searches before either took the lock.
        assert_eq!(idle.wake_one(), Some(1), "the one that slept the shortest");
        assert_eq!(idle.wake_one(), None, "somebody searches now, and will see both");
    }

    /// tokio PR 8372: waking a worker outside the idle accounting let the count underflow, and then nobody was
    /// ever woken again.
    #[test]
    fn counts_agree_with_the_list_however_workers_come_and_go() {
        let idle = IdleSet::new(3, 0);
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut asleep, mut distractions) = ([false; 3], 0);
        for _ in 0..10_000 {
            let worker = rng.usize(..3);
            match rng.u8(..6) {
                0 if !asleep[worker] => {
                    let searching = idle.try_start_search();
                    let _ = idle.insert(worker, searching);
                    asleep[worker] = true;
                }
                1 => {
                    if let Some(woken) = idle.wake_one() {
                        assert!(std::mem::replace(&mut asleep[woken], false));
                        let _ = idle.stop_search();
                    }
                }
                2 => {
                    assert_eq!(idle.remove(worker), asleep[worker]);
                    if std::mem::replace(&mut asleep[worker], false) {
                        let _ = idle.stop_search();
                    }
                }
                3 if distractions < 4_097 => {
                    idle.distract();
                    distractions += 1;
                }
                4 if distractions > 0 => {
                    idle.attract();
                    distractions -= 1;
                }
                _ => {
                    for woken in idle.wake_all() {
                        assert!(std::mem::replace(&mut asleep[woken], false));
                        let _ = idle.stop_search();
                    }
                }
            }
            let counts = idle.counts();
            assert_eq!(counts.idle(), asleep.iter().filter(|&&a| a).count());
            assert_eq!(counts.searching(), 0);
            let told = idle.idle_hint().load(Relaxed) > 0;
            assert_eq!(told, counts.idle() > 0 && distractions == 0, "what yield points are told");
        }
    }
}
