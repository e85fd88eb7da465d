//! A worker: a thread that holds a core, and the loop it runs.
//!
//! The decisions are in `crate::sched`; here they meet a thread, its parking place and user code. The loop (`tasks.rs`,
//! and `search.rs` when there is nothing to run) leaves when the runtime closes, and drops what is left: `end.rs` and
//! `runtime/shutdown.md`. And when the core went to another thread while a task blocked: `away.rs` and
//! `blocking/hand_off.md`.

mod away;
mod door;
mod end;
mod linger;
mod search;
mod tasks;

pub(crate) use away::stand_in;
pub(crate) use door::Door;

use crate::blocking::Loan;
use crate::metrics::{Sampler, Tally};
use crate::runtime::{PanicPolicy, Post, Shared, context};
use crate::sched::{Announce, Local, Way, Yielded};
use crate::stopwatch::Stopwatch;
use crate::task::{Class, Id, Mark, Meta, Runnable};
use async_task::ScheduleInfo;
use giveway_budget::OPERATIONS;
use linger::Linger;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::task::Waker;

fn spin(hints: usize) {
    (0..hints).for_each(|_| std::hint::spin_loop());
}

/// Whether a worker may touch its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Core,
    /// In a blocking call: it is anybody's.
    Lent(Loan),
    /// It is another's.
    Lost(Loan),
}

/// Why a worker's loop has ended.
enum Stop {
    /// The runtime closes. The worker holds its core.
    Closed,
    /// A poll has returned that lost the core.
    Lost(Loan),
    /// The core was given back to its home thread.
    GivenBack,
}

/// A core and the thread that holds it. Lives on that thread's stack.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    // In `shared`. To be touched only while `hold` is `Core`.
    core: *const Local<Runnable>,
    hold: Cell<Hold>,
    // Whether this is the thread that was started with the core.
    home: bool,
    // Whether the idle set counts this worker as a searcher.
    searching: Cell<bool>,
    // Whether it lingers before it sleeps.
    linger: Linger,
    // What the last poll left of its budget: a task from the slot goes on with it.
    budget_left: Cell<u8>,
    // How many operations a task of the background gets at a time.
    ration: Cell<u8>,
    // After how many polls it looks at the reactor, how many of them are left, and since when it counts, by the runtime's
    // clock: since the last look, unless it has slept meanwhile.
    polls_a_look: Cell<u32>,
    polls_to_look: Cell<u32>,
    counting_since: Cell<Option<u64>>,
    // Since when it has not looked at the reactor, if it has slept since.
    away_since: Cell<Option<u64>>,
    // What a turn at the reactor found. Empty between two.
    ready: RefCell<Vec<Waker>>,
    // Of a poll that has lent its core: its number, and how many of its yield points want it to give way.
    left_tick: Cell<u32>,
    left_asked: Cell<u32>,
    // Whether somebody was sent for the core.
    offered: Cell<bool>,
    // Which of the tasks that become runnable here are timed.
    sampler: Sampler,
    // Times the poll of a paced task: from its beginning, or from the last time that it was told how long it takes.
    paced: Stopwatch,
    // Whether the code that runs may lend the core: a task's, and not a waker's or a destructor's that the worker itself
    // calls while it has the core in its hands.
    may_lend: Cell<bool>,
}

/// The home thread of a core.
pub(crate) fn run(shared: Arc<Shared>, index: usize) {
    let worker = Worker::new(shared, index, true);
    worker.post().home.bind();
    let mut stop = worker.at_work(|| worker.shared.hooks.thread_started());
    let away = loop {
        match stop {
            Stop::Closed => break None,
            Stop::Lost(loan) => {
                worker.poll_ended_away(loan);
                if !worker.reclaim() {
                    worker.drop_pinned();
                    break Some(loan);
                }
                worker.shared.crew.forget_away(index, loan);
                stop = worker.at_work(|| ());
            }
            Stop::GivenBack => unreachable!("a home thread gives its core to nobody"),
        }
    };
    // In the runtime, but not a worker any more: a task that the hook wakes must go to those that still are.
    let inside = context::Entered::new(worker.shared.clone());
    worker.shared.hooks.thread_stopping();
    drop(inside);
    match away {
        None => {
            worker.tally().rest(worker.shared.now());
            worker.shared.gate.core_ended(index);
        }
        Some(loan) => worker.shared.crew.forget_away(index, loan),
    }
}

/// The schedule function of every task: called by async-task whenever a task becomes runnable.
///
/// The pointer to the runtime is not counted, so here is why it is good:
/// - on a worker of the runtime, the worker holds a count;
/// - elsewhere the caller is a waker that moved the task from waiting to runnable. A task that waits has been polled,
///   so it is registered, and stays so until its future is dropped. That cannot happen before `runnable` is in a
///   queue, and until it has happened the runtime's last worker does not leave, and holds its count.
///
/// Both end with the push: the task may be run, dropped and freed, and the runtime with it, before the push returns.
/// So from outside a count is taken first, and neither branch touches the task afterwards.
#[inline]
pub(crate) fn schedule(runnable: Runnable, info: ScheduleInfo) {
    let shared = runnable.metadata().shared;
    context::with_worker(|worker| match worker {
        Some(worker) if ptr::eq(Arc::as_ptr(&worker.shared), shared) => {
            worker.schedule(runnable, info.woken_while_running);
        }
        _ => schedule_from_outside(runnable, info),
    });
}

#[cold]
fn schedule_from_outside(runnable: Runnable, info: ScheduleInfo) {
    // SAFETY: the runtime is alive, as argued at `schedule`.
    let shared = unsafe { runnable.metadata().runtime() };
    if runnable.metadata().is_lowered() {
        // Its mark is of the poll that has ended, and no number.
        runnable.metadata().set_mark(Mark::QUEUED);
        // The thread that has just polled it queues it on its next visit there.
        let elsewhere = if info.woken_while_running { context::leave_again(runnable) } else { Some(runnable) };
        return elsewhere.into_iter().for_each(|runnable| shared.push_lowered(runnable));
    }
    shared.meter.queued_from_outside(runnable.metadata(), || shared.now());
    let gives_way = |away: &Worker| away.belongs_to(&shared) && away.left_asked.get() > 0;
    if info.woken_while_running && context::with_away(|away| away.is_some_and(gives_way)) {
        // It was at a yield point when its poll ended, on a thread that has lost its core.
        shared.meter.yield_point_outside(true);
        shared.push_yielded(Yielded::Task(runnable));
    } else {
        shared.inject(runnable);
    }
}

/// Asks the user's hook what to do about a task that panicked, and does it.
#[cold]
pub(crate) fn task_panicked(meta: &Meta, payload: &(dyn Any + Send)) {
    // SAFETY: the runtime is alive: whoever polls a task, or runs a job, is a thread of the runtime and holds a count.
    let shared = unsafe { meta.runtime() };
    match shared.hooks.task_panicked(meta, payload) {
        PanicPolicy::Continue => {}
        PanicPolicy::Shutdown => shared.close_after_panic(meta, payload),
        PanicPolicy::Abort => std::process::abort(),
    }
}

impl Worker {
    /// A worker that holds its core.
    fn new(shared: Arc<Shared>, index: usize, home: bool) -> Self {
        let core = shared.local(index);
        Self {
            shared,
            index,
            core,
            hold: Cell::new(Hold::Core),
            home,
            searching: Cell::new(false),
            linger: Linger::new(),
            budget_left: Cell::new(OPERATIONS),
            ration: Cell::new(OPERATIONS),
            polls_a_look: Cell::new(1),
            polls_to_look: Cell::new(1),
            counting_since: Cell::new(None),
            away_since: Cell::new(None),
            ready: RefCell::new(Vec::new()),
            left_tick: Cell::new(0),
            left_asked: Cell::new(0),
            offered: Cell::new(false),
            sampler: Sampler::new(index as u32),
            paced: Stopwatch::new(),
            may_lend: Cell::new(false),
        }
    }

    /// The time for which this thread holds the core: runs tasks until there is a reason to stop, with this as the worker of
    /// the calling thread for all who may ask. Calls `begin` first. If the runtime closes, drops what is left.
    fn at_work(&self, begin: impl FnOnce()) -> Stop {
        self.post().bind();
        self.core().set_at_home(self.home);
        let work = || {
            begin();
            let stop = self.run_tasks();
            if let Stop::Closed = stop {
                self.drop_tasks();
            }
            stop
        };
        context::on_worker(self, || {
            giveway_io::driver::enter(&self.shared.reactor, self.index, || self.with_yield_points(work))
        })
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[inline]
    pub(crate) fn belongs_to(&self, shared: &Shared) -> bool {
        ptr::eq(&*self.shared, shared)
    }

    #[inline]
    pub(crate) fn core(&self) -> &Local<Runnable> {
        debug_assert_eq!(self.hold.get(), Hold::Core, "worker {} touches a core that it does not hold", self.index);
        // SAFETY: it lives as long as `shared`. And no other thread touches it: this one holds the core. Whoever asks is
        // the worker's own loop, which ends when the core is lost, or came by `context::with_worker`, which knows only
        // workers that hold theirs.
        unsafe { &*self.core }
    }

    #[inline]
    pub(crate) fn hold(&self) -> Hold {
        self.hold.get()
    }

    #[inline]
    pub(crate) fn runs_background(&self) -> bool {
        self.core().manners().runs_background()
    }

    /// The class of the task that runs here.
    #[inline]
    pub(crate) fn class(&self) -> Class {
        if self.runs_background() { Class::Background } else { Class::Foreground }
    }

    pub(crate) fn running_id(&self) -> Option<Id> {
        self.post().running().map(|(id, _)| id)
    }

    #[inline]
    fn post(&self) -> &Post {
        &self.shared.posts[self.index()]
    }

    /// What this core counts. To be touched only while this thread holds it.
    #[inline]
    pub(crate) fn tally(&self) -> &Tally {
        self.shared.meter.core(self.index)
    }

    /// Takes a new task from the task that runs on this worker, or from a destructor or hook that does.
    pub(crate) fn submit(&self, runnable: Runnable) {
        if self.shared.admits(&runnable) {
            self.schedule(runnable, false);
        } else {
            drop(runnable);
        }
    }

    #[inline]
    fn schedule(&self, runnable: Runnable, woken_while_running: bool) {
        let scheduler = &self.shared.scheduler;
        runnable.metadata().set_mark(Mark::QUEUED);
        if self.sampler.is_due() {
            self.time(runnable.metadata());
        }
        if woken_while_running {
            // Only the task that ran here last comes this way, right after its poll.
            self.schedule_again(runnable);
        } else if runnable.metadata().is_background() && runnable.metadata().is_lowered() {
            self.shared.push_lowered(runnable);
        } else if runnable.metadata().is_background() && scheduler.defers_background() {
            self.shared.push_background(runnable);
        } else {
            let foreground = !runnable.metadata().is_background();
            if scheduler.push_woken(self.core(), runnable) == Announce::Owed {
                match scheduler.announce() {
                    None if scheduler.idle.counts().searching() > 0 => Tally::count(&self.tally().wake_ups_avoided),
                    worker => self.shared.unpark(worker),
                }
            }
            if foreground {
                self.mind_the_slot();
            }
            // Not for what the reactor woke between two polls: that runs next, whoever looks.
            if self.post().is_running() && !scheduler.idle.nobody_idle() {
                self.shared.monitor.watch_slots();
            }
        }
    }

    /// A task that becomes runnable here is to be timed.
    #[cold]
    #[inline(never)]
    fn time(&self, meta: &Meta) {
        meta.set_mark(self.shared.meter.time(&self.sampler, self.index, meta, self.shared.now()));
    }

    /// Whether this is the home thread of that core, and holds it.
    pub(crate) fn is_home_of(&self, core: usize) -> bool {
        self.home && self.index == core
    }

    /// A task that is pinned here becomes runnable on this very worker: it is awake, and nobody has to be told.
    pub(crate) fn push_pinned(&self, runnable: Runnable) {
        self.shared.scheduler.push_pinned_here(self.core(), runnable);
        // A polite task that runs here goes on while somebody is idle, who cannot help: its next yield point asks.
        giveway_yield::host::ask_once();
    }

    /// A pinned task goes to the back of its inbox: also if it gives way, but then after everything else.
    pub(crate) fn pinned_again(&self, runnable: Runnable) {
        let gives_way = self.core().manners().asked().is_some();
        if gives_way {
            Tally::count(&self.tally().yields_taken);
            runnable.metadata().set_swapped();
        }
        self.shared.scheduler.pinned_again(self.core(), runnable, gives_way);
    }

    /// A foreground task is in the slot, and nobody was told: the slot's own worker runs it next. If the task that runs
    /// here now means to give way, somebody has to see to it that it does, or that another worker comes for the slot.
    #[inline]
    fn mind_the_slot(&self) {
        let scheduler = &self.shared.scheduler;
        if scheduler.idle.nobody_idle() {
            scheduler.interrupt_own(self.core());
        } else if self.runs_background() {
            self.shared.unpark(scheduler.hand_over_slot(self.core()));
        } else {
            // It goes on at its yield points, because somebody is idle: but the next one asks.
            giveway_yield::host::ask_once();
        }
    }

    #[inline]
    fn schedule_again(&self, runnable: Runnable) {
        let scheduler = &self.shared.scheduler;
        // Its poll is over, and what is queued below is announced before the next one. Said first: to the monitor work that is queued
        // in a poll, beside an idle worker, is a lost wake-up.
        self.post().end();
        let way = match self.core().manners().asked() {
            Some(way) => {
                Tally::count(&self.tally().yields_taken);
                way
            }
            None if runnable.metadata().is_background() && scheduler.defers_background() => Way::Park,
            None => return scheduler.push_yielded(self.core(), runnable),
        };
        let since = match way {
            Way::Swap => {
                runnable.metadata().set_swapped();
                0
            }
            Way::Park => self.shared.meter.gives_way(runnable.metadata()),
        };
        scheduler.give_way(self.core(), runnable, way, since, || self.shared.now());
    }
}
