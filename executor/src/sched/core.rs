//! A core: what a thread needs in order to run tasks. There are exactly as many as the runtime has workers, and spare ones
//! beside polls that do not return.
//!
//! [`Local`] is the half that only the thread which holds the core may touch (it is `!Sync`), [`Remote`] the half
//! that others may look at and steal from. Cores are apart from threads so that one can be handed to another thread
//! when its holder blocks.

use super::ring::Ring;
use super::turns::{InjectorTurn, InjectorTurns, QueueLength};
use super::{MAX_SLOT_STREAK, Manners, PointerSized, Slot};
use crossbeam_deque::{Steal, Stealer, Worker as Deque};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// What a core's holder has queued between two polls without telling anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quiet {
    Nothing,
    /// Tasks that have given way: an idle worker should know, a polite one need not.
    GaveWay,
    /// Tasks that wait for a worker.
    Work,
}

/// The private half of a core.
///
/// All interior mutability is by [`Cell`]: user code (a waker, a destructor) re-enters the scheduler at any point of
/// a poll, so nothing here may be borrowed across one.
pub(crate) struct Local<T> {
    index: usize,
    deque: Deque<T>,
    // Where an overflow passes through; empty otherwise.
    scratch: Deque<T>,
    tick: Cell<u32>,
    injector_turns: InjectorTurns,
    queue_length: QueueLength,
    // The last turn was not for what waits behind a stuck core: the next one may be.
    help_turn: Cell<bool>,
    // Polls in a row that came from the slot.
    slot_streak: Cell<u8>,
    // The last visit to the injector brought little.
    poor_visit: Cell<bool>,
    // The holder takes from the core's inbox: it is the home thread.
    at_home: Cell<bool>,
    // The deque had the last turn: the inbox has the next.
    inbox_turn: Cell<bool>,
    // A pinned task has given way: so many tasks go before the inbox, if it is alone there.
    go_first: Cell<usize>,
    // What was queued between two polls that nobody was told of.
    unannounced: Cell<Quiet>,
    manners: Manners,
    rng: RefCell<fastrand::Rng>,
}

impl<T> Local<T> {
    pub(crate) fn new(index: usize, manners: Manners) -> Self {
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
            at_home: Cell::new(true),
            inbox_turn: Cell::new(false),
            go_first: Cell::new(0),
            unannounced: Cell::new(Quiet::Nothing),
            manners,
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
    pub(crate) fn manners(&self) -> &Manners {
        &self.manners
    }

    pub(super) fn scratch(&self) -> &Deque<T> {
        &self.scratch
    }

    /// The number of the task about to be chosen. Wraps.
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

    /// Something waits in the injector: is this tick its turn? `now` is in nanoseconds, by any clock.
    pub(super) fn injector_turn(&self, tick: u32, now: u64) -> InjectorTurn {
        self.injector_turns.next(tick, now, self.deque.len())
    }

    /// The polls of late took so long each, in nanoseconds.
    pub(crate) fn learn_queue(&self, now: u64, poll: u64) {
        self.queue_length.learn(now, poll.saturating_mul(self.deque.len() as u64));
    }

    /// Whether what is in the deque takes long.
    #[inline]
    pub(super) fn queue_is_long(&self) -> bool {
        self.queue_length.is_long() && !self.deque.is_empty()
    }

    /// Whether this turn may go to what waits behind another core. Every second may.
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

    /// Whether the last visit to the injector brought little. Forgets it.
    pub(crate) fn take_poor_visit(&self) -> bool {
        self.poor_visit.replace(false)
    }

    /// Whether the holder is the core's home thread, which alone takes from its inbox.
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

    /// How many tasks go before a pinned one that has given way.
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
    // Tasks that stay on the core's home thread.
    pub(super) inbox: Ring<T>,
    // The tick of the poll the holder is in, written by the holder at each poll's start; zero is the start hook.
    polling: AtomicU32,
    // A tick that the monitor saw twice: a poll that goes on for long. Written by the monitor only.
    stuck_at: AtomicU32,
    // The tick of a poll that is to return at its next chance; zero for none. Set by whoever asks, cleared by the holder.
    return_asked: AtomicU32,
    // The deque may hold something. Written by the holder: set with every push, unset when it finds the deque empty.
    may_have_task: AtomicBool,
    // How often the holder has stolen from others, and how many tasks. Written by the holder.
    steals: AtomicU64,
    stolen: AtomicU64,
}

impl<T: PointerSized> Remote<T> {
    pub(super) fn new(local: &Local<T>) -> Self {
        Self {
            stealer: local.deque.stealer(),
            slot: Slot::new(),
            inbox: Ring::new(),
            polling: AtomicU32::new(0),
            // No poll that anybody waits for: it would be the four billionth.
            stuck_at: AtomicU32::new(u32::MAX),
            return_asked: AtomicU32::new(0),
            may_have_task: AtomicBool::new(false),
            steals: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
        }
    }

    /// Notes that the poll with this tick is to return. False if one was asked to already, which may have been another.
    pub(super) fn ask_to_return(&self, tick: u32) -> bool {
        // Ordering: release, partner of the acquire in `take_return_asked`, and a read-modify-write: comes it before that one, the
        // holder sees what was pushed before the request; comes it after, it is the first of the next poll.
        tick != 0 && self.return_asked.swap(tick, Release) == 0
    }

    /// Whether the poll with this tick is to return.
    pub(super) fn is_asked_to_return(&self, tick: u32) -> bool {
        self.return_asked.load(Relaxed) == tick
    }

    /// Forgets such a request. True if there was one.
    #[inline]
    pub(super) fn take_return_asked(&self) -> bool {
        // Ordering: acquire, partner of the release in `ask_to_return`. Relaxed for the load: a request that it misses holds for
        // the next poll.
        self.return_asked.load(Relaxed) != 0 && self.return_asked.swap(0, Acquire) != 0
    }

    /// The holder starts a poll.
    #[inline]
    pub(crate) fn begin_poll(&self, tick: u32) {
        // Ordering: relaxed. A thief that reads an old tick either leaves the slot alone or takes a task that it may
        // take at any time; being wrong costs locality, never a task.
        self.polling.store(tick, Relaxed);
    }

    /// The poll the holder was in a moment ago.
    pub(crate) fn polling(&self) -> u32 {
        self.polling.load(Relaxed)
    }

    /// Marks the poll with this tick as stuck. The monitor's to call.
    pub(crate) fn mark_stuck(&self, tick: u32) {
        // Ordering: release, partner of the acquire in `is_stuck`. The wake-up that follows orders them anyway.
        self.stuck_at.store(tick, Release);
    }

    /// Whether the holder is still in a poll that was marked as stuck.
    pub(crate) fn is_stuck(&self) -> bool {
        // Ordering: acquire, partner of the release in `mark_stuck`.
        self.stuck_at.load(Acquire) == self.polling.load(Relaxed)
    }

    /// Whether the deque holds something. Callers that must not miss a push have a fence before this: one for all cores.
    pub(crate) fn has_task(&self) -> bool {
        // Ordering: relaxed. The holder says so before the fence with which it announces what it pushed (`IdleSet::announce`).
        // The deque is asked only if that may be: the question has a fence of its own, and most cores have nothing.
        self.may_have_task.load(Relaxed) && !self.stealer.is_empty()
    }

    /// The deque may hold something from now on, or was found empty. The holder's to say.
    #[inline]
    pub(super) fn set_may_have_task(&self, may: bool) {
        // Ordering: relaxed; see `has_task`. Written only if it changes: others read the line.
        if self.may_have_task.load(Relaxed) != may {
            self.may_have_task.store(may, Relaxed);
        }
    }

    /// The holder has stolen so many tasks.
    pub(super) fn count_steal(&self, tasks: usize) {
        // Ordering: relaxed; one thread at a time writes, others look.
        self.steals.store(self.steals.load(Relaxed) + 1, Relaxed);
        self.stolen.store(self.stolen.load(Relaxed) + tasks as u64, Relaxed);
    }

    /// How often the holder has stolen from others, and how many tasks.
    pub(crate) fn steals(&self) -> (u64, u64) {
        (self.steals.load(Relaxed), self.stolen.load(Relaxed))
    }

    /// How many tasks the deque held a moment ago.
    pub(crate) fn deque_len(&self) -> usize {
        self.stealer.len()
    }

    /// Calls `f` with the first so many of the inbox, under a lock: it must not run user code.
    pub(crate) fn look_at_inbox(&self, most: usize, f: impl FnMut(&T)) {
        self.inbox.look_at(most, f);
    }

    /// How many tasks the inbox held a moment ago.
    pub(crate) fn inbox_len(&self) -> usize {
        self.inbox.count()
    }

    /// Whether a task is stuck behind the poll that the holder is in.
    pub(super) fn has_stuck_task(&self) -> bool {
        !self.slot.is_empty_relaxed() && self.is_stuck()
    }

    /// The oldest task of the deque.
    pub(super) fn steal_one(&self) -> Option<T> {
        retry(|| self.stealer.steal())
    }
}

/// Steals until it is clear whether there is something. Each retry means that somebody else made progress.
pub(super) fn retry<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
