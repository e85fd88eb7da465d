//! The idle set: which workers are idle, which search, and which one a push wakes.
//!
//! One word, `counts`, holds the number of idle workers and that of searchers, so that "no worker
//! searches and one is idle" is one load. Every push reads it. The list of sleepers behind it is
//! locked. Only a worker that goes to sleep and a thread that must wake one touch the list, and
//! each of them is about to make a system call anyway.
//!
//! Yield points read a word of their own, `hint`.
//!
//! The protocol is in `sleep.md`; P1 to F3 in the comments here are its steps.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, fence, lock};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

/// A value of `IdleSet::counts`: idle workers in the upper half of the word, searchers in the
/// lower.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts(usize);

const SEARCHING: usize = 1;
const IDLE: usize = 1 << (usize::BITS / 2);

/// What one reason to ask takes from `IdleSet::hint`: more than there are ever workers. At any time
/// there is at most one reason for each core (`Remote::return_asked`), and one for the end of the
/// runtime: few enough for 32 bits, too.
const LOOK_REQUIRED: isize = 1 << (isize::BITS / 2);

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
        f.debug_struct("Counts")
            .field("idle", &self.idle())
            .field("searching", &self.searching())
            .finish()
    }
}

/// The place of a worker in the idle set: it was counted out, and has not come back.
///
/// It ends by [`IdleSet::settle`] or [`IdleSet::leave`] if the worker comes back by itself, or by
/// [`Ticket::woken`] once another thread has taken the worker out.
#[must_use = "a worker that forgets that it is idle is counted twice"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    worker: usize,
    looks_again: bool,
}

impl Ticket {
    /// Returns whether the worker has to look at everything once more: no worker searches any more.
    /// If another still does, that one inherits the duty.
    pub(crate) fn looks_again(&self) -> bool {
        self.looks_again
    }

    /// Ends the stay of a worker that found its token: another thread has taken it out, and has
    /// counted it as a searcher.
    pub(crate) fn woken(self) {}
}

/// What waits in the queues. Decides which worker is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queued {
    Nothing,
    /// Only the yield queue holds something, which workers that rest leave alone.
    Yielded,
    /// Something that any worker runs.
    Foreground,
}

/// What a worker does after its second look.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecondLook {
    /// There is something for this worker to run: leave the set.
    Leave,
    /// Park. Before that, unpark the named worker, if any.
    Park(Option<usize>),
}

/// The idle workers of one runtime.
pub(crate) struct IdleSet {
    /// Idle workers and searchers, as [`Counts`]. The idle half changes only under the lock of
    /// `sleepers`, so it always agrees with the list. The searching half goes up under that lock
    /// for a worker that is woken; otherwise the searcher itself raises it, without the lock.
    counts: CachePadded<AtomicUsize>,
    /// The word that yield points read first: the number of idle workers, less `LOOK_REQUIRED` for
    /// each reason to ask although a worker is idle (a poll is to return, or the runtime closes). A
    /// sum: workers are added and taken out under the lock of `sleepers`, reasons without it. On a
    /// line of its own, because `counts` changes with every search. Part of no protocol, and so not
    /// modelled.
    hint: CachePadded<std::sync::atomic::AtomicIsize>,
    /// The idle workers. Last in, first out: the thread that slept the shortest has the warmest
    /// cache.
    sleepers: Mutex<Vec<usize>>,
    /// For each worker, whether it is in `sleepers`. Written under that lock, read without it.
    asleep: Box<[AtomicBool]>,
    /// How many workers there are, those on spare cores included. Written by the monitor. At most
    /// half of those that are awake search: a bound that nothing else depends on, so it is not
    /// modelled.
    workers: std::sync::atomic::AtomicUsize,
    /// How many workers rest, counted from the first. Written by the monitor, read by every worker.
    resting: AtomicUsize,
}

impl IdleSet {
    /// Creates the set with every worker busy, and with room for workers on `spares` spare cores.
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        Self {
            counts: CachePadded::new(AtomicUsize::new(0)),
            hint: CachePadded::new(std::sync::atomic::AtomicIsize::new(0)),
            sleepers: Mutex::new(Vec::with_capacity(workers + spares)),
            asleep: (0..workers + spares).map(|_| AtomicBool::new(false)).collect(),
            workers: std::sync::atomic::AtomicUsize::new(workers),
            resting: AtomicUsize::new(0),
        }
    }

    /// Returns how many workers there are now, those on spare cores included.
    #[inline]
    pub(crate) fn workers(&self) -> usize {
        // Ordering: relaxed, here and in `set_workers`: a bound on the searchers, and a figure for
        // the monitor, which is also what writes it.
        self.workers.load(Relaxed)
    }

    /// Sets how many workers there are. Called by the monitor.
    pub(super) fn set_workers(&self, workers: usize) {
        self.workers.store(workers, Relaxed);
    }

    /// Returns how many workers rest, counted from the first.
    #[inline]
    pub(crate) fn resting(&self) -> usize {
        // Ordering: relaxed. A reader that must not miss a change has a SeqCst fence before this
        // load. Its partner is the fence that the monitor has after its store, in
        // `announce_yielded`.
        self.resting.load(Relaxed)
    }

    /// Returns whether a worker rests: it leaves the yield queue to the others.
    #[inline]
    pub(crate) fn rests(&self, worker: usize) -> bool {
        worker < self.resting()
    }

    /// Has the first `workers` workers rest. If that is fewer than before, the caller owes
    /// [`Self::announce_yielded`].
    pub(crate) fn set_resting(&self, workers: usize) {
        // Ordering: relaxed. The fence in `announce_yielded` comes after this store and orders it
        // against a worker that goes to sleep, which reads it after the fence in `enter`.
        self.resting.store(workers, Relaxed);
    }

    /// Returns both counts as they were at one moment.
    #[inline]
    pub(crate) fn counts(&self) -> Counts {
        // Ordering: relaxed. A caller that needs more has a SeqCst fence before this load.
        Counts(self.counts.load(Relaxed))
    }

    /// Returns the word that yield points read first. While it is positive a worker is idle, and no
    /// yield point has to ask.
    #[inline]
    pub(crate) fn idle_hint(&self) -> &std::sync::atomic::AtomicIsize {
        &self.hint
    }

    /// Returns whether every worker was busy or searching a moment ago.
    #[inline]
    pub(crate) fn nobody_idle(&self) -> bool {
        // The reasons to ask are subtracted as multiples of `LOOK_REQUIRED`, so the lower half of
        // the word is the number of workers.
        self.hint.load(Relaxed) & (LOOK_REQUIRED - 1) == 0
    }

    /// Returns whether work would wait although a worker is idle, because no worker searches.
    /// Called after a fence, or under the lock of `sleepers`.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        let counts = self.counts();
        counts.searching() == 0 && counts.idle() > 0
    }

    /// Announces work that the caller has queued. Returns the one worker to unpark, if one must be.
    /// If no worker is idle and none searches, calls `interrupt` instead.
    #[inline]
    pub(crate) fn announce(&self, interrupt: impl FnOnce()) -> Option<usize> {
        // 1. (P2; the caller's push is P1.) Ordering: SeqCst fence, partner of those in
        //    `enter`, `found_work` and `Interrupts::arm`. The push is before this fence and the
        //    look at the counts (and at the bits, in `interrupt`) after it. The other side changes
        //    the counts or sets its bit before its own fence, and looks at the queues after it. So
        //    either this thread sees the other side's change, or the other side sees the push. A
        //    SeqCst load would not do: the push into a queue is no SeqCst operation, so nothing
        //    would order it before the load.
        fence(SeqCst);
        let counts = self.counts();
        // 2. (P3) A searcher that is seen here looks at the queues again before the last one stops.
        if counts.searching() > 0 {
            return None;
        }
        if counts.idle() > 0 {
            return self.wake_one();
        }
        // 3. (P4 of `yielding.md`) Every worker is busy.
        interrupt();
        None
    }

    /// Announces that something was put into the yield queue, or that fewer workers rest. Returns a
    /// worker to unpark, if one must be.
    pub(crate) fn announce_yielded(&self) -> Option<usize> {
        // Ordering: SeqCst fence, partner of those in `enter` and `found_work`. The push, or
        // the new number of resting workers, is before this fence and the look at the counts after
        // it. The other side changes the counts before its fence and looks after it. So one of them
        // sees the other.
        fence(SeqCst);
        self.wake_for_more(|| Queued::Yielded)
    }

    /// Ends the search of a worker that has found work. Returns a worker to unpark, if it was the
    /// last searcher and more is queued. If it was the last and no worker is idle, calls
    /// `interrupt` instead.
    pub(crate) fn found_work(
        &self,
        queued: impl FnOnce() -> Queued,
        interrupt: impl FnOnce(),
    ) -> Option<usize> {
        // 1. (F1) Before the look: a push beside a searcher wakes no worker, and relies on this
        //    look.
        if !self.stop_search() {
            return None;
        }
        // 2. (F2) Ordering: SeqCst fence, partner of those in `announce` and `announce_yielded`. A
        //    thread that saw this worker searching, and so woke none, had pushed before its own
        //    fence, and its push is visible to the look below.
        fence(SeqCst);
        // 3. (F3) The look.
        if self.nobody_idle() {
            interrupt();
        }
        self.wake_for_more(queued)
    }

    /// Returns a worker to unpark in the place of the last searcher, if anything is queued that an
    /// idle worker may run. Called after a fence.
    pub(crate) fn wake_for_more(&self, queued: impl FnOnce() -> Queued) -> Option<usize> {
        let queued = if self.must_wake() { queued() } else { Queued::Nothing };
        match queued {
            Queued::Nothing => None,
            Queued::Yielded => self.wake_one_that(|worker| !self.rests(worker)),
            Queued::Foreground => self.wake_one(),
        }
    }

    /// Decides what a worker does that was counted out, left no worker searching, and found
    /// `queued` when it looked again.
    ///
    /// What is in the yield queue is not for a worker that rests. But as the last to look it has
    /// another worker woken for it.
    pub(crate) fn second_look(&self, worker: usize, queued: Queued) -> SecondLook {
        match queued {
            Queued::Nothing => SecondLook::Park(None),
            Queued::Yielded if self.rests(worker) => {
                SecondLook::Park(self.wake_for_more(|| Queued::Yielded))
            }
            Queued::Yielded | Queued::Foreground => SecondLook::Leave,
        }
    }

    /// Returns whether a worker that serves the yield queue is idle. Called after a fence.
    pub(crate) fn any_serves_idle(&self) -> bool {
        (self.resting()..self.asleep.len()).any(|worker| self.is_asleep(worker))
    }

    /// Moves a worker that found nothing into the set.
    pub(crate) fn enter(&self, worker: usize, searching: bool) -> Ticket {
        // 1. (S1) From here on a push finds this worker idle. A push between an earlier look and
        //    this would find no sleeper, and its task no worker.
        let looks_again = self.insert(worker, searching);
        // 2. (S2) Ordering: SeqCst fence, partner of those in `announce`, `announce_yielded` and
        //    `Scheduler::push_pinned`. The worker is in the set before this fence and looks at the
        //    queues after it; a pushing thread pushes before its fence and looks at the set after
        //    it. So either the worker sees the push, or the pushing thread sees the worker.
        fence(SeqCst);
        Ticket { worker, looks_again }
    }

    /// Has a worker that has entered look again (S3), and takes it out at once if it saw work (S4).
    /// Then it is counted as a searcher. Otherwise it gets its ticket back, and parks: nothing
    /// waits, or a waker has taken it out and its token is on the way.
    pub(crate) fn settle(
        &self,
        ticket: Ticket,
        look_again: impl FnOnce(&Ticket) -> bool,
    ) -> Result<(), Ticket> {
        // After the entry and its fence. In the other order, a push between the look and the entry
        // would wake no worker: the pushing thread saw none idle.
        if look_again(&ticket) { self.leave(ticket) } else { Err(ticket) }
    }

    /// Takes a worker out that comes back by itself, and counts it as a searcher. Returns the ticket
    /// if another thread has taken it out: then its token is on the way, and it parks for it.
    pub(crate) fn leave(&self, ticket: Ticket) -> Result<(), Ticket> {
        if self.remove(ticket.worker) { Ok(()) } else { Err(ticket) }
    }

    /// Starts a search, unless half of the workers that are not idle search already. Returns
    /// whether it has started.
    #[must_use]
    pub(crate) fn try_start_search(&self) -> bool {
        let mut counts = self.counts();
        loop {
            if 2 * counts.searching() >= self.workers().saturating_sub(counts.idle()) {
                return false;
            }
            // Ordering: AcqRel, so that starts stand in one chain with the entries. A start
            // publishes nothing.
            match self.counts.compare_exchange_weak(counts.0, counts.0 + SEARCHING, AcqRel, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => counts = Counts(now),
            }
        }
    }

    /// Stops a search that found work. Returns true if no worker searches any more.
    #[must_use = "the last searcher has to look whether more is queued"]
    pub(crate) fn stop_search(&self) -> bool {
        // Ordering: AcqRel. What orders it against a push is the fence that follows: in
        // `found_work`, or in `Interrupts::arm` if the worker turns to the yield queue.
        let before = Counts(self.counts.fetch_sub(SEARCHING, AcqRel));
        debug_assert!(before.searching() > 0, "stopped a search that nobody made: {before:?}");
        before.searching() == 1
    }

    /// Adds a worker that found nothing. Returns true if no worker searches now.
    #[must_use = "the last searcher has to look again"]
    fn insert(&self, worker: usize, searching: bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        debug_assert!(!sleepers.contains(&worker), "worker {worker} sleeps twice");
        sleepers.push(worker);
        self.asleep[worker].store(true, Relaxed);
        let change = IDLE.wrapping_sub(if searching { SEARCHING } else { 0 });
        // Ordering: AcqRel. What orders it against a push is the fence that `enter` has after
        // it.
        let before = Counts(self.counts.fetch_add(change, AcqRel));
        self.hint(1);
        before.searching() == usize::from(searching)
    }

    /// Ends a search whose result no longer matters, because the runtime closes.
    pub(crate) fn abandon_search(&self) {
        let _last = self.stop_search();
    }

    /// Takes one sleeper out, and counts it as a searcher on its behalf. The caller unparks it.
    ///
    /// Returns `None` if a worker searches by now, or none is idle: two threads that push at once
    /// wake one worker.
    #[must_use]
    pub(crate) fn wake_one(&self) -> Option<usize> {
        self.wake_one_that(|_| true)
    }

    /// Takes out one of the sleepers that `may` be woken, as [`Self::wake_one`] does.
    fn wake_one_that(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let mut sleepers = lock(&self.sleepers);
        // Again under the lock: another thread may have woken a worker since the caller looked.
        if !self.must_wake() {
            return None;
        }
        let place = sleepers.iter().rposition(|&worker| may(worker))?;
        let worker = sleepers.remove(place);
        self.asleep[worker].store(false, Relaxed);
        self.idle_to_searching(1);
        Some(worker)
    }

    /// Takes this worker out, and counts it as a searcher. Called by the worker itself when it
    /// looked again and saw work, and by a thread that has to wake this very worker. Returns false
    /// if another thread has taken it out: then its wake-up is on the way, and it is counted as a
    /// searcher already.
    #[must_use]
    pub(crate) fn remove(&self, worker: usize) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let Some(place) = sleepers.iter().rposition(|&sleeper| sleeper == worker) else {
            return false;
        };
        sleepers.remove(place);
        self.asleep[worker].store(false, Relaxed);
        self.idle_to_searching(1);
        true
    }

    /// Returns whether a worker is in the set. A worker that goes to sleep enters it before the
    /// fence of its entry; the caller has a fence before this, too.
    #[inline]
    pub(crate) fn is_asleep(&self, worker: usize) -> bool {
        // Ordering: relaxed. The caller's fence and the one in `enter` order it against what
        // the worker looks at before it parks.
        self.asleep[worker].load(Relaxed)
    }

    /// Takes every sleeper out, and counts each as a searcher. The caller unparks them all.
    pub(crate) fn wake_all(&self) -> Vec<usize> {
        let mut sleepers = lock(&self.sleepers);
        let woken = std::mem::take(&mut *sleepers);
        woken.iter().for_each(|&worker| self.asleep[worker].store(false, Relaxed));
        self.idle_to_searching(woken.len());
        woken
    }

    #[cfg(test)]
    pub(super) fn with_list_locked(&self, f: impl FnOnce()) {
        let _locked = lock(&self.sleepers);
        f();
    }

    /// Moves `workers` workers from the idle count to the searching one. Called under the lock of
    /// `sleepers`, from which they were just taken.
    fn idle_to_searching(&self, workers: usize) {
        // Ordering: AcqRel. A thread that sees the new searcher relies on what the searcher does
        // next, and the searcher's own entry orders that.
        let before = Counts(self.counts.fetch_sub(workers * (IDLE - SEARCHING), AcqRel));
        debug_assert!(
            before.idle() >= workers,
            "woke a worker that was not counted as idle: {before:?}"
        );
        self.hint(-(workers as isize));
    }

    /// Publishes that the length of `sleepers` has changed by `change`. Called under its lock.
    fn hint(&self, change: isize) {
        // Ordering: relaxed, here, in `require_look` and in `release_look`. A sum, of which no
        // change is lost, and which publishes nothing: a yield point that just misses a change sees
        // it the next time.
        self.hint.fetch_add(change, Relaxed);
    }

    /// Has every yield point ask from now on, even while a worker is idle.
    pub(super) fn require_look(&self) {
        self.hint.fetch_sub(LOOK_REQUIRED, Relaxed);
    }

    /// Takes one `require_look` back.
    pub(super) fn release_look(&self) {
        self.hint.fetch_add(LOOK_REQUIRED, Relaxed);
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
        let _ticket = idle.enter(0, false);
        let _ticket = idle.enter(1, false);
        // Both pushing threads saw that no worker searches before either took the lock.
        assert_eq!(idle.wake_one(), Some(1), "the one that slept the shortest");
        assert_eq!(idle.wake_one(), None, "somebody searches now, and will see both");
    }

    /// tokio PR 8372: waking a worker outside the idle accounting let the count underflow. After
    /// that no worker was ever woken again.
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
                    idle.require_look();
                    distractions += 1;
                }
                4 if distractions > 0 => {
                    idle.release_look();
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
