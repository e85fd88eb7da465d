//! What a worker runs next, as plain data and functions.
//!
//! Nothing in this module knows a thread, a clock or a file descriptor. A [`Scheduler`] is the
//! queues and the idle set of one runtime. A [`Local`] is the part of a core that only its holder
//! may touch. The order in which a worker looks at the queues is in `next.rs`, as a state machine.
//! The threads in `crate::worker` drive it in a loop. The seeded stepper in `stepper` drives the
//! same machine in random order with virtual workers, and checks the invariants after every step.
//!
//! How this differs from tokio and Go: there, the last searcher that finds work always wakes
//! another worker, needed or not. Here it looks first ([`Scheduler::found_work`]), and wakes one
//! only if something is queued. Reading a few queue heads costs less than a futex call and a
//! context switch.
//!
//! The sleep protocol is in `sleep.md` beside this file, giving way in `yielding/yielding.md`.

mod core;
mod idle;
mod linger;
mod next;
mod pinned;
mod queues;
mod rest;
mod spares;
#[cfg(all(test, not(giveway_loom)))]
mod spec_tests;
#[cfg(all(test, not(giveway_loom)))]
mod stepper;
mod turns;
mod yielding;

pub(crate) use self::core::{Local, Quiet, Remote};
pub(crate) use idle::{IdleSet, Queued, SecondLook, Ticket};
pub(crate) use linger::Linger;
pub(crate) use next::{Finder, Step};
pub(crate) use queues::{Entry, Injector, PointerSized, Slot, YieldQueue, Yielded};
pub(crate) use spares::{Move, Spare, Whereabouts, next_move};
#[cfg(all(test, not(giveway_loom)))]
use yielding::AlwaysAt;
pub(crate) use yielding::{Due, Interrupts, LookTimer, Outside, PollState, Settings, Way};

use crate::sync::{AtomicBool, AtomicUsize};
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::Relaxed;
use turns::InjectorTurn;

/// The most tasks that a core's deque holds. One more moves half of them to the injector.
///
/// Bounded so that a burst spawned on one core becomes the work of all cores, and so that a thief's
/// copy stays small.
pub(crate) const DEQUE_CAPACITY: usize = 256;

/// The most that one steal, or one visit to the injector, may take.
pub(crate) const MAX_BATCH: usize = DEQUE_CAPACITY / 2;

/// A worker looks at the injector before its own queue at most this many ticks apart, and sooner if
/// its polls are long (`turns.rs`). A prime, so that it does not fall into step with a load that
/// repeats itself; Go uses the same one.
pub(crate) const INJECTOR_TICK: u32 = 61;

/// How often in a row the slot may go before the deque.
pub(crate) const MAX_SLOT_STREAK: u8 = 3;

/// A visit to the injector that brings fewer tasks than this came too early: the pushing threads
/// had no time to queue more.
const POOR_VISIT: usize = 16;

/// How many rounds over the other cores a searcher makes. Slots are looked at in the last one only.
pub(crate) const SEARCH_ROUNDS: usize = 4;

/// What the caller owes after it has made a task runnable.
#[must_use = "work that nobody is told of may wait for ever"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announce {
    /// The task is where others can take it: the caller calls [`Scheduler::announce`] and unparks
    /// the worker that it names.
    Owed,
    /// The core's holder runs the task next, or will announce it before its next poll.
    NotNeeded,
}

/// Where a task was found. A task from the slot gets the rest of its predecessor's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Slot,
    Queue,
    /// The yield queue: nothing else waited.
    Yielded,
    /// The yield queue, because it had waited there for too long.
    Overdue,
}

/// The queues and the idle set of one runtime.
pub(crate) struct Scheduler<T: PointerSized> {
    /// The cores of the workers first, then the spare ones.
    cores: Box<[CachePadded<Remote<T>>]>,
    /// How many of `cores` may have a holder, counted from the first. Written by the monitor alone,
    /// before it lends a spare core and after it has it back. Read by every look at all cores.
    in_use: AtomicUsize,
    pub(crate) injector: Injector<T>,
    pub(crate) yielded: YieldQueue<T>,
    pub(crate) idle: IdleSet,
    pub(crate) interrupts: Interrupts,
    /// Every core that can is to give way, because the runtime closes. Set by `close`, never unset;
    /// read by every look for waiting work.
    closing: AtomicBool,
    /// Whether a core with work in its queues is stuck in a poll. A hint: set by the monitor, unset
    /// by it or by a worker that finds nothing behind such a core.
    stuck: AtomicBool,
    settings: Settings,
}

impl<T: PointerSized> Scheduler<T> {
    /// Creates a scheduler for `workers` cores, and the private half of each. Those of the spare
    /// cores, which are not in use, come last.
    pub(crate) fn new(workers: usize, settings: Settings) -> (Self, Vec<Local<T>>) {
        let spares = settings.spares;
        let local = |index| Local::new(index, PollState::new(settings.wide_look_interval));
        let locals: Vec<_> = (0..workers + spares).map(local).collect();
        let scheduler = Self {
            cores: locals.iter().map(|local| CachePadded::new(Remote::new(local))).collect(),
            in_use: AtomicUsize::new(workers),
            injector: Injector::new(),
            yielded: YieldQueue::new(),
            idle: IdleSet::new(workers, spares),
            interrupts: Interrupts::new(workers + spares, settings.clock),
            closing: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            settings,
        };
        (scheduler, locals)
    }

    /// Returns the cores that may have a holder, and so may have tasks queued.
    ///
    /// A look that must not miss a push has a fence before this, and so sees the core that was
    /// pushed to: the monitor wrote `in_use` before it lent the core, and the holder has the core
    /// by a release and an acquire.
    #[inline]
    pub(crate) fn cores(&self) -> &[CachePadded<Remote<T>>] {
        // Ordering: relaxed. The loan publishes `in_use` to the core's holder (release, acquire).
        // The fence after the holder's push and the one before this load publish it to the caller.
        &self.cores[..self.in_use.load(Relaxed)]
    }

    /// Returns this core, in use or not.
    #[inline]
    pub(crate) fn core(&self, index: usize) -> &Remote<T> {
        &self.cores[index]
    }

    #[inline]
    pub(crate) fn remote(&self, core: &Local<T>) -> &Remote<T> {
        self.core(core.index())
    }

    /// Queues a task that was woken or spawned by the task that runs on `core`. It goes into the
    /// slot. What was there goes to the back of the deque or, if the deque takes long, of the
    /// injector.
    #[inline]
    pub(crate) fn push_woken(&self, core: &Local<T>, task: T) -> Announce {
        core.poll_state().disturb();
        match self.remote(core).slot.put(task) {
            None => Announce::NotNeeded,
            Some(displaced) if core.queue_is_long() => {
                self.injector.push(displaced);
                Announce::Owed
            }
            Some(displaced) => {
                self.push_back(core, displaced);
                Announce::Owed
            }
        }
    }

    /// Queues a task that woke itself while it ran. It goes to the back of the deque, so that
    /// everything queued goes first.
    ///
    /// It is not announced yet, because the holder is between two polls. Either the holder takes
    /// this very task next, or it announces what its deque holds before it starts another
    /// ([`Self::before_poll`]).
    #[inline]
    pub(crate) fn requeue(&self, core: &Local<T>, task: T) {
        self.push_back(core, task);
        core.set_unannounced(Quiet::Work);
    }

    #[inline]
    fn push_back(&self, core: &Local<T>, task: T) {
        if core.deque().len() >= DEQUE_CAPACITY {
            self.overflow(core);
        }
        core.deque().push(task);
        self.remote(core).set_may_have_task(true);
    }

    #[cold]
    fn overflow(&self, core: &Local<T>) {
        // One compare-and-swap moves half of the deque, as for a thief. Popping each task would be
        // as many read-modify-writes of the very word that the thieves contend for.
        let scratch = core.scratch();
        let first = core::retry(|| {
            self.remote(core).stealer.steal_batch_with_limit_and_pop(scratch, MAX_BATCH)
        });
        let rest = std::iter::from_fn(|| scratch.pop());
        self.injector.push_batch(first.into_iter().chain(rest));
    }

    /// Takes the next task by steps 1 to 3 of the order, then the inbox, by a clock that stands
    /// still.
    #[cfg(all(test, not(giveway_loom)))]
    pub(crate) fn next(&self, core: &Local<T>) -> Option<(T, Source)> {
        let mut finder = Finder::new();
        loop {
            match self.step(core, &mut finder, || 0) {
                Step::Run(task, source) => return Some((task, source)),
                Step::Look => return self.take_pinned(core),
                Step::GoOn | Step::Gather => {}
                _ => unreachable!("the look at the reactor comes first"),
            }
        }
    }

    /// Takes the next task by steps 1 and 2 of the order: from this core alone, unless it is the
    /// injector's turn, or another core is stuck. Counts as a turn even if it finds nothing: the
    /// tick is the number of the poll. Calls `now` only if something waits in the injector.
    #[inline]
    pub(crate) fn next_local(
        &self,
        core: &Local<T>,
        now: impl FnOnce() -> u64,
    ) -> Option<(T, Source)> {
        let tick = core.advance_tick();
        if !self.injector.is_empty()
            && let Some(task) = self.take_injected_first(core, tick, now())
        {
            return Some((task, Source::Queue));
        }
        if let Some(task) = self.help_the_stuck(core) {
            return Some((task, Source::Queue));
        }
        if core.may_run_slot()
            && let Some(task) = self.remote(core).slot.take()
        {
            core.count_slot_run();
            return Some((task, Source::Slot));
        }
        // After its three turns the slot waits for the deque. It still goes before the worker
        // idles, because only a task in the deque can be starved by it.
        core.reset_slot_streak();
        let pinned = self.has_pinned(core) && self.may_run_pinned(core);
        if pinned && core.inbox_turn() {
            return self.take_pinned(core);
        }
        core.set_inbox_turn(true);
        let task = core.deque().pop().or_else(|| {
            self.remote(core).set_may_have_task(false);
            self.remote(core).slot.take()
        });
        match task {
            Some(task) => Some((task, Source::Queue)),
            None if pinned => self.take_pinned(core),
            None => None,
        }
    }

    #[cold]
    fn take_injected_first(&self, core: &Local<T>, tick: u32, now: u64) -> Option<T> {
        match core.injector_turn(tick, now) {
            InjectorTurn::Not => None,
            InjectorTurn::One => self.injector.take_one(),
            InjectorTurn::Share => self.take_injected(core),
        }
    }

    /// Takes a fair share of the injector. Returns one task to run; the rest goes to the back of
    /// the deque.
    pub(crate) fn take_injected(&self, core: &Local<T>) -> Option<T> {
        if self.injector.is_empty() {
            return None;
        }
        let room = DEQUE_CAPACITY.saturating_sub(core.deque().len()) + 1;
        let task =
            self.injector.take_share(self.cores().len(), MAX_BATCH.min(room), core.deque())?;
        core.set_poor_visit(core.deque().len() + 1 < POOR_VISIT);
        if !core.deque().is_empty() {
            self.remote(core).set_may_have_task(true);
            core.set_unannounced(Quiet::Work);
        }
        Some(task)
    }

    /// Announces foreground work that was queued: wakes an idle worker, or interrupts one that can
    /// give way. Returns a worker to unpark.
    #[inline]
    pub(crate) fn announce(&self) -> Option<usize> {
        self.idle.announce(|| self.interrupts.raise_some())
    }

    /// Notes whether a core with work in its queues is stuck in a poll. The monitor says so; a
    /// worker that then finds nothing there takes it back.
    pub(crate) fn set_stuck(&self, stuck: bool) {
        // Ordering: relaxed: a hint. The queues order what is taken from them.
        if self.stuck.load(Relaxed) != stuck {
            self.stuck.store(stuck, Relaxed);
        }
    }

    /// Takes the oldest task that waits behind a stuck core. For workers that always find something
    /// else to do, at the reactor for instance, and so never search.
    ///
    /// Takes one task, and not twice in a row. Otherwise two cores with nothing but long polls
    /// would take half of each other's queues for ever, and tasks in the middle would go from queue
    /// to queue and never run.
    #[inline]
    fn help_the_stuck(&self, core: &Local<T>) -> Option<T> {
        if self.stuck.load(Relaxed) && core.help_turn() { self.help_now(core) } else { None }
    }

    #[cold]
    fn help_now(&self, core: &Local<T>) -> Option<T> {
        let mut stuck = self.others(core).filter(|other| other.is_stuck());
        let task = stuck.find_map(|other| other.steal_one().or_else(|| other.slot.take()));
        match task {
            Some(_) => self.remote(core).count_steal(1),
            // Until the monitor finds a stuck core again.
            None => self.set_stuck(false),
        }
        task
    }

    /// Announces the tasks that were queued quietly. Called before each poll, because a poll may
    /// take any length of time. Returns a worker to unpark.
    #[inline(always)]
    pub(crate) fn before_poll(&self, core: &Local<T>) -> Option<usize> {
        match core.take_unannounced() {
            Quiet::Nothing => None,
            Quiet::Work if !core.deque().is_empty() => self.announce(),
            // A task that changed places is in the deque, where any idle worker may take it. No
            // core is interrupted for it.
            _ if !core.deque().is_empty() => self.idle.announce(|| ()),
            _ if self.yielded.is_empty() => None,
            _ => self.announce_yielded(),
        }
    }

    /// Makes one of the four rounds of a searcher: over every other core from a random start,
    /// taking ⌈k/2⌉ of its deque in one move. The last round also takes from slots, but only those
    /// whose worker is stuck in a poll, or any if `closing`.
    pub(crate) fn steal(&self, core: &Local<T>, round: usize, closing: bool) -> Option<T> {
        for victim in self.others(core) {
            if let Some(task) = self.steal_from(victim, core) {
                return Some(task);
            }
            if round + 1 == SEARCH_ROUNDS
                && (closing || victim.is_stuck())
                && let Some(task) = victim.slot.take()
            {
                self.remote(core).count_steal(1);
                return Some(task);
            }
        }
        None
    }

    /// Returns every other core, beginning with a random one.
    fn others(&self, core: &Local<T>) -> impl Iterator<Item = &Remote<T>> {
        let (cores, own) = (self.cores(), core.index());
        let n = cores.len();
        let start = core.random_below(n);
        (0..n).map(move |i| (start + i) % n).filter(move |&i| i != own).map(move |i| &*cores[i])
    }

    fn steal_from(&self, victim: &Remote<T>, core: &Local<T>) -> Option<T> {
        // Takes 1 + ⌊(k-1)/2⌋ = ⌈k/2⌉ of k tasks, at most MAX_BATCH, with one compare-and-swap on
        // the front of the victim's deque. The owner pops with a fetch-add on the same word, so a
        // batch never reaches past what is there.
        let before = core.deque().len();
        let task =
            core::retry(|| victim.stealer.steal_batch_with_limit_and_pop(core.deque(), MAX_BATCH))?;
        self.remote(core).set_may_have_task(true);
        // Saturating: another thread may have stolen from this core meanwhile.
        self.remote(core).count_steal(core.deque().len().saturating_sub(before) + 1);
        Some(task)
    }

    /// Takes any one task from anywhere, for a thread without a core that drops what is left.
    pub(crate) fn take_any(&self) -> Option<T> {
        self.take_global().or_else(|| {
            self.cores().iter().find_map(|core| core.steal_one().or_else(|| core.slot.take()))
        })
    }

    /// Takes any one task from the queues that belong to no core, to be dropped.
    pub(crate) fn take_global(&self) -> Option<T> {
        self.injector.take_one().or_else(|| self.yielded.take_task())
    }

    /// Ends the search of a worker that found work. Returns a worker to unpark, if this was the
    /// last searcher and more is queued.
    pub(crate) fn found_work(&self) -> Option<usize> {
        let interrupt = || {
            if self.foreground_queued() {
                self.interrupts.raise_some();
            }
        };
        self.idle.found_work(|| self.queued(), interrupt)
    }

    /// Returns whether any queue that other workers may take from holds something. A slot counts
    /// only once its worker is stuck: until then only that worker looks at it.
    pub(crate) fn anything_queued(&self) -> bool {
        self.queued() != Queued::Nothing
    }

    /// Returns what [`Self::anything_queued`] finds, by which workers may run it.
    pub(crate) fn queued(&self) -> Queued {
        if self.foreground_queued() {
            Queued::Foreground
        } else if !self.yielded.is_empty() {
            Queued::Yielded
        } else {
            Queued::Nothing
        }
    }

    /// Returns whether any queue holds something that a thread has announced, or is about to
    /// announce, to a worker that is idle now. Slots do not count, even if their worker is stuck:
    /// the task that fills a slot does not announce it.
    pub(crate) fn anything_announced(&self) -> bool {
        !self.injector.is_empty()
            || !self.yielded.is_empty() && self.idle.any_serves_idle()
            || self.cores().iter().any(|core| core.has_task())
    }

    /// Returns whether a polite task is to give way: something waits in the injector, in a deque or
    /// behind a stuck worker, or the runtime closes.
    pub(crate) fn work_waits(&self) -> bool {
        self.closing.load(Relaxed) || self.foreground_queued()
    }

    fn foreground_queued(&self) -> bool {
        !self.injector.is_empty()
            || self.cores().iter().any(|core| core.has_task() || core.has_stuck_task())
    }
}
