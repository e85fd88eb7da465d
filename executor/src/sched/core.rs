//! A core: what a thread needs in order to run tasks. A runtime has exactly as many as workers, and
//! spare ones for use beside polls that do not return.
//!
//! [`Local`] is the half that only the thread which holds the core may touch (it is `!Sync`).
//! [`Remote`] is the half that other threads may look at and steal from. A core is apart from its
//! thread so that it can be handed to another thread when its holder blocks.

use super::queues::Ring;
use super::turns::{InjectorTurn, InjectorTurns, QueueLength};
use super::{Linger, MAX_SLOT_STREAK, PointerSized, PollState, Slot};
use crossbeam_deque::{Steal, Stealer, Worker as Deque};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// What a core's holder has queued between two polls without announcing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quiet {
    Nothing,
    /// Tasks that have given way. They are announced to an idle worker, and interrupt no polite
    /// one.
    GaveWay,
    /// Tasks that wait for a worker.
    Work,
}

/// The private half of a core.
///
/// Interior mutability is by [`Cell`]: user code (a waker, a destructor) re-enters the scheduler at
/// any point of a poll, so nothing here may be borrowed across one. The borrow of `rng` ends in the
/// function that takes it.
pub(crate) struct Local<T> {
    index: usize,
    deque: Deque<T>,
    /// Where the tasks of an overflow pass through. Empty otherwise.
    scratch: Deque<T>,
    /// The number of the turn, and of the poll that comes of it. Wraps.
    tick: Cell<u32>,
    injector_turns: InjectorTurns,
    queue_length: QueueLength,
    /// Whether the next turn may go to what waits behind a stuck core: the last one did not.
    help_turn: Cell<bool>,
    /// How many polls in a row came from the slot.
    slot_streak: Cell<u8>,
    /// Whether the last visit to the injector brought few tasks.
    poor_visit: Cell<bool>,
    /// Whether the idle set counts the holder as a searcher. Never in a poll, nor while no thread
    /// holds the core.
    searching: Cell<bool>,
    linger: Linger,
    /// Whether the holder is the core's home thread, and so takes from its inbox.
    at_home: Cell<bool>,
    /// Whether the inbox has the next turn: the deque had the last one.
    inbox_turn: Cell<bool>,
    /// How many tasks go before a pinned task that has given way, if it is alone in the inbox.
    go_first: Cell<usize>,
    /// What was queued between two polls and is not announced yet.
    unannounced: Cell<Quiet>,
    poll_state: PollState,
    rng: RefCell<fastrand::Rng>,
}

impl<T> Local<T> {
    pub(crate) fn new(index: usize, poll_state: PollState) -> Self {
        Self {
            index,
            deque: Deque::new_fifo(),
            scratch: Deque::new_fifo(),
            tick: Cell::new(0),
            injector_turns: InjectorTurns::default(),
            queue_length: QueueLength::default(),
            help_turn: Cell::new(true),
            slot_streak: Cell::new(0),
            poor_visit: Cell::new(false),
            searching: Cell::new(false),
            linger: Linger::new(),
            at_home: Cell::new(true),
            inbox_turn: Cell::new(false),
            go_first: Cell::new(0),
            unannounced: Cell::new(Quiet::Nothing),
            poll_state,
            rng: RefCell::new(fastrand::Rng::with_seed(index as u64 ^ 0x9e37_79b9_7f4a_7c15)),
        }
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(crate) fn deque(&self) -> &Deque<T> {
        &self.deque
    }

    #[inline]
    pub(crate) fn poll_state(&self) -> &PollState {
        &self.poll_state
    }

    pub(super) fn scratch(&self) -> &Deque<T> {
        &self.scratch
    }

    /// Returns the number of this turn, and of the poll that comes of it. Wraps.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.get()
    }

    #[inline]
    pub(super) fn advance_tick(&self) -> u32 {
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        tick
    }

    /// Decides whether this tick is the turn of the injector, in which something waits. `now` is in
    /// nanoseconds, by any clock.
    pub(super) fn injector_turn(&self, tick: u32, now: u64) -> InjectorTurn {
        self.injector_turns.next(tick, now, self.deque.len())
    }

    /// Learns from the polls of late, which took `poll` nanoseconds each, how long the deque takes.
    pub(crate) fn learn_queue(&self, now: u64, poll: u64) {
        self.queue_length.learn(now, poll.saturating_mul(self.deque.len() as u64));
    }

    /// Returns whether what is in the deque takes long.
    #[inline]
    pub(super) fn queue_is_long(&self) -> bool {
        self.queue_length.is_long() && !self.deque.is_empty()
    }

    /// Returns whether this turn may go to what waits behind another core. Every second call may.
    pub(super) fn help_turn(&self) -> bool {
        let turn = self.help_turn.get();
        self.help_turn.set(!turn);
        turn
    }

    #[inline]
    pub(super) fn may_run_slot(&self) -> bool {
        self.slot_streak.get() < MAX_SLOT_STREAK
    }

    #[inline]
    pub(super) fn count_slot_run(&self) {
        self.slot_streak.set(self.slot_streak.get() + 1);
    }

    #[inline]
    pub(super) fn reset_slot_streak(&self) {
        self.slot_streak.set(0);
    }

    pub(super) fn set_poor_visit(&self, poor: bool) {
        self.poor_visit.set(poor);
    }

    /// Returns whether the last visit to the injector brought few tasks, and forgets it.
    pub(crate) fn take_poor_visit(&self) -> bool {
        self.poor_visit.replace(false)
    }

    /// Returns whether the idle set counts the holder as a searcher.
    #[inline]
    pub(crate) fn is_searching(&self) -> bool {
        self.searching.get()
    }

    /// Notes whether the idle set counts the holder as a searcher. Returns whether it did before.
    #[inline]
    pub(crate) fn set_searching(&self, searching: bool) -> bool {
        self.searching.replace(searching)
    }

    /// Returns what is known of whether lingering before a sleep pays.
    #[inline]
    pub(crate) fn linger(&self) -> &Linger {
        &self.linger
    }

    /// Sets whether the holder is the core's home thread, which alone takes from the inbox.
    pub(crate) fn set_at_home(&self, at_home: bool) {
        self.at_home.set(at_home);
    }

    #[inline]
    pub(super) fn is_at_home(&self) -> bool {
        self.at_home.get()
    }

    #[inline]
    pub(super) fn inbox_turn(&self) -> bool {
        self.inbox_turn.get()
    }

    #[inline]
    pub(super) fn set_inbox_turn(&self, turn: bool) {
        self.inbox_turn.set(turn);
    }

    /// Returns how many tasks go before a pinned one that has given way.
    pub(super) fn go_first(&self) -> usize {
        self.go_first.get()
    }

    pub(super) fn let_go_first(&self, tasks: usize) {
        self.go_first.set(tasks);
    }

    #[inline]
    pub(super) fn set_unannounced(&self, what: Quiet) {
        self.unannounced.set(self.unannounced.get().max(what));
    }

    /// Adds to what is not announced yet. [`Quiet::Work`] outranks [`Quiet::GaveWay`].
    #[inline]
    pub(super) fn take_unannounced(&self) -> Quiet {
        self.unannounced.replace(Quiet::Nothing)
    }

    #[cfg(test)]
    pub(super) fn unannounced(&self) -> Quiet {
        self.unannounced.get()
    }

    pub(super) fn random_below(&self, n: usize) -> usize {
        self.rng.borrow_mut().usize(..n)
    }
}

/// The shared half of a core.
pub(crate) struct Remote<T: PointerSized> {
    pub(super) stealer: Stealer<T>,
    pub(crate) slot: Slot<T>,
    /// Tasks that stay on the core's home thread. Pushed by any thread, taken by that one.
    pub(super) inbox: Ring<T>,
    /// The tick of the poll that the holder is in; zero is the start hook. Written by the holder as
    /// each poll begins, read by thieves and the monitor.
    polling: AtomicU32,
    /// A tick that the monitor saw twice, and so takes for that of a long poll. Written by the
    /// monitor only, read by looks for stuck workers.
    stuck_at: AtomicU32,
    /// The tick of the poll that is to return at its next chance; zero for none. Set by the thread
    /// that asks, cleared by the holder or the monitor.
    return_asked: AtomicU32,
    /// Whether the deque may hold something. Written by the holder: set with every push, unset when
    /// it finds the deque empty. Read by looks at all cores.
    may_have_task: AtomicBool,
    /// How often the holder has stolen from other cores. Written by the holder.
    steals: AtomicU64,
    /// How many tasks the holder has stolen. Written by the holder.
    stolen: AtomicU64,
}

impl<T: PointerSized> Remote<T> {
    pub(super) fn new(local: &Local<T>) -> Self {
        Self {
            stealer: local.deque.stealer(),
            slot: Slot::new(),
            inbox: Ring::new(),
            polling: AtomicU32::new(0),
            // No poll that will ever be: it would be the four billionth.
            stuck_at: AtomicU32::new(u32::MAX),
            return_asked: AtomicU32::new(0),
            may_have_task: AtomicBool::new(false),
            steals: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
        }
    }

    /// Notes that the poll with this tick is to return. Returns false if a poll was asked to
    /// already, which may have been another one, or if the tick is that of the start hook.
    pub(super) fn ask_to_return(&self, tick: u32) -> bool {
        // Ordering: release, partner of the acquire in `take_return_asked`. A read-modify-write, so
        // that one of the two comes first. If it is this one, the holder sees what was pushed
        // before the request. If it is the other, this request is the first one of the next poll.
        tick != 0 && self.return_asked.swap(tick, Release) == 0
    }

    /// Returns whether the poll with this tick is to return.
    pub(super) fn is_asked_to_return(&self, tick: u32) -> bool {
        self.return_asked.load(Relaxed) == tick
    }

    /// Forgets the request to return. Returns true if there was one.
    #[inline]
    pub(super) fn take_return_asked(&self) -> bool {
        // Ordering: acquire, partner of the release in `ask_to_return`. Relaxed for the load: a
        // request that it misses holds for the next poll.
        self.return_asked.load(Relaxed) != 0 && self.return_asked.swap(0, Acquire) != 0
    }

    /// Forgets the request that was made of the poll with this tick. Returns true if it was there.
    ///
    /// The monitor calls this for a poll that it has seen. If that poll has ended meanwhile, a
    /// request that stands now is for another poll, which is to hear it.
    pub(super) fn take_request_back(&self, tick: u32) -> bool {
        // Ordering: relaxed; the monitor reads nothing because of it.
        tick != 0 && self.return_asked.compare_exchange(tick, 0, Relaxed, Relaxed).is_ok()
    }

    /// Notes that the holder starts a poll.
    #[inline]
    pub(crate) fn begin_poll(&self, tick: u32) {
        // Ordering: relaxed. A thief that reads an old tick either leaves the slot alone, or takes
        // a task that it may take at any time. A wrong answer costs locality, never a task.
        self.polling.store(tick, Relaxed);
    }

    /// Returns the tick of the poll that the holder was in a moment ago.
    pub(crate) fn polling(&self) -> u32 {
        self.polling.load(Relaxed)
    }

    /// Marks the poll with this tick as stuck. Called by the monitor.
    pub(crate) fn mark_stuck(&self, tick: u32) {
        // Ordering: release, partner of the acquire in `is_stuck`. The wake-up that follows orders
        // the two anyway.
        self.stuck_at.store(tick, Release);
    }

    /// Returns whether the holder is still in a poll that was marked as stuck.
    pub(crate) fn is_stuck(&self) -> bool {
        // Ordering: acquire, partner of the release in `mark_stuck`.
        self.stuck_at.load(Acquire) == self.polling.load(Relaxed)
    }

    /// Returns whether the deque holds something. A caller that must not miss a push has a SeqCst
    /// fence before this: one for all cores.
    pub(crate) fn has_task(&self) -> bool {
        // Ordering: relaxed. The holder sets the flag before the fence with which it announces what
        // it pushed (`IdleSet::announce`). The deque is asked only if the flag is set: that
        // question has a fence of its own, and most cores have nothing.
        self.may_have_task.load(Relaxed) && !self.stealer.is_empty()
    }

    /// Notes that the deque may hold something from now on, or was found empty. Called by the
    /// holder.
    #[inline]
    pub(super) fn set_may_have_task(&self, may: bool) {
        // Ordering: relaxed; `has_task` says why. Written only if it changes, because others read
        // the line.
        if self.may_have_task.load(Relaxed) != may {
            self.may_have_task.store(may, Relaxed);
        }
    }

    /// Counts a steal of `tasks` tasks by the holder.
    pub(super) fn count_steal(&self, tasks: usize) {
        // Ordering: relaxed. One thread at a time writes, the others only look.
        self.steals.store(self.steals.load(Relaxed) + 1, Relaxed);
        self.stolen.store(self.stolen.load(Relaxed) + tasks as u64, Relaxed);
    }

    /// Returns how often the holder has stolen from others, and how many tasks.
    pub(crate) fn steals(&self) -> (u64, u64) {
        (self.steals.load(Relaxed), self.stolen.load(Relaxed))
    }

    /// Returns how many tasks the deque held a moment ago.
    pub(crate) fn deque_len(&self) -> usize {
        self.stealer.len()
    }

    /// Calls `f` with at most the first `most` tasks of the inbox, under a lock: `f` must not run
    /// user code.
    pub(crate) fn look_at_inbox(&self, most: usize, f: impl FnMut(&T)) {
        self.inbox.look_at(most, f);
    }

    /// Returns how many tasks the inbox held a moment ago.
    pub(crate) fn inbox_len(&self) -> usize {
        self.inbox.count()
    }

    /// Returns whether a task is stuck in the slot, behind the poll that the holder is in.
    pub(super) fn has_stuck_task(&self) -> bool {
        !self.slot.is_empty_relaxed() && self.is_stuck()
    }

    /// Steals the oldest task of the deque.
    pub(super) fn steal_one(&self) -> Option<T> {
        retry(|| self.stealer.steal())
    }
}

/// Steals until it is clear whether there is anything. Each retry means that another thread made
/// progress.
pub(super) fn retry<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
