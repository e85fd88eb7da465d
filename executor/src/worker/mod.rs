//! A worker: a thread that holds a core, and the loop that it runs.
//!
//! The decisions are made in `crate::sched`. This module applies them to a thread, its parking
//! place and user code. The loop is in `tasks.rs`, and in `sleep.rs` when there is nothing to run.
//! A worker leaves it for one of two reasons:
//!
//! - The runtime closes. The worker drops the tasks that are left: `end.rs` and
//!   `runtime/shutdown.md`.
//! - Its core has gone to another thread, while a task blocked or because the home thread wants it
//!   back: `away.rs` and `handoff/hand_off.md`.

mod away;
mod door;
mod end;
mod post;
mod reactor;
mod sleep;
mod tasks;

pub(crate) use away::stand_in;
pub(crate) use door::Door;
pub(crate) use post::Post;

use crate::handoff::Loan;
use crate::metrics::{Sampler, Tally};
use crate::runtime::{PanicPolicy, Shared, context, hint};
use crate::sched::{Announce, Local, Way, Yielded};
use crate::stopwatch::Stopwatch;
use crate::task::{Class, Id, Mark, Meta, Runnable};
use async_task::ScheduleInfo;
use giveway_budget::OPERATIONS;
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
    /// The worker holds its core, and may touch it.
    Core,
    /// The worker is in a blocking call, and any thread may take the core.
    Lent(Loan),
    /// Another thread has taken the core.
    Lost(Loan),
}

/// Why the loop of a worker has ended.
enum Stop {
    /// The runtime closes. The worker holds its core.
    Closed,
    /// A poll has returned that lost the core.
    Lost(Loan),
    /// The core was given back to its home thread, or a spare core to the monitor.
    GivenBack,
}

/// A core and the thread that holds it. Lives on the stack of that thread.
///
/// All of it belongs to that thread, except for what `shared` points to.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    /// Points into `shared`. Touched only while `hold` is `Core`.
    core: *const Local<Runnable>,
    /// Changed by `leave_core`, `take_core_back`, `lost` and `reclaim` alone.
    hold: Cell<Hold>,
    /// Whether this is the thread that was started with the core.
    home: bool,
    /// What the last poll left of its budget. A task from the slot goes on with it.
    budget_left: Cell<u8>,
    /// The number of operations that a background task gets at a time.
    ration: Cell<u8>,
    /// The number of polls from one look at the reactor to the next.
    polls_a_look: Cell<u32>,
    /// How many polls are left until the next look.
    polls_to_look: Cell<u32>,
    /// When the count of polls began, by the runtime's clock: at the last look. `None` if the
    /// worker has slept since.
    counting_since: Cell<Option<u64>>,
    /// When the worker last woke up, until it looks at the reactor. Set by `leave_door`, taken by
    /// `back_at_door`.
    away_since: Cell<Option<u64>>,
    /// The wakers that a turn at the reactor found. Empty between two turns.
    ready: RefCell<Vec<Waker>>,
    /// The number of the poll that has lent its core.
    left_tick: Cell<u32>,
    /// How many yield points of that poll want it to give way.
    left_asked: Cell<u32>,
    /// Whether a thread was sent for the core during this loan.
    offered: Cell<bool>,
    /// Chooses which of the tasks that become runnable here are timed.
    sampler: Sampler,
    /// Times the poll of a paced task, from its beginning or from the last call of `spent`.
    paced: Stopwatch,
    /// Whether the code that runs may lend the core. A task may. A waker or a destructor that the
    /// worker itself calls may not: the worker is in the middle of using the core.
    may_lend: Cell<bool>,
}

/// Runs the home thread of the core `index`, from its start to its end.
pub(crate) fn run(shared: Arc<Shared>, index: usize) {
    let worker = Worker::new(shared, index, true);
    worker.post().home.bind();
    worker.shared.tokio.enter_for_good();
    let mut stop = worker.at_work(|| worker.shared.hooks.thread_started());
    let away = loop {
        match stop {
            Stop::Closed => break None,
            Stop::Lost(loan) => {
                // 1. The poll went on without the core. This thread leaves the gate, where the
                // taker of the core has counted it in.
                worker.poll_ended_away(loan);
                // 2. Pinned tasks run on this thread alone, so it waits for its core. If the
                // runtime closes first, it drops those tasks itself.
                if !worker.reclaim() {
                    worker.drop_pinned();
                    break Some(loan);
                }
                worker.shared.pool.forget_away(index, loan);
                stop = worker.at_work(|| ());
            }
            Stop::GivenBack => unreachable!("a home thread gives its core to nobody"),
        }
    };
    // The thread is in the runtime, but is no worker any more: a task that the hook wakes has to go
    // to a worker that is still there.
    let inside = context::Entered::new(worker.shared.clone());
    worker.shared.hooks.thread_stopping();
    drop(inside);
    match away {
        None => {
            worker.tally().rest(worker.shared.now());
            worker.shared.gate.core_ended(index);
        }
        Some(loan) => worker.shared.pool.forget_away(index, loan),
    }
}

/// Queues a task that has become runnable. This is the schedule function, called by async-task, of
/// every task that is neither pinned nor a blocking job.
///
/// The task's pointer to the runtime is not counted. It is valid until the push:
/// - On a worker of the runtime, the worker holds a count.
/// - Elsewhere the caller is a waker that moved the task from waiting to runnable. A task that
///   waits has been polled, so it is registered, and stays registered until its future is dropped.
///   The future cannot be dropped before `runnable` is in a queue. The runtime's last worker does
///   not leave before the registry is empty, and holds a count until then.
///
/// Neither holds after the push: the task may be run, dropped and freed, and the runtime with it,
/// before the push returns. So `schedule_from_outside` takes a count first, and neither branch
/// touches the task after its push.
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

/// Queues a task from a thread that holds no core of the task's runtime.
#[cold]
fn schedule_from_outside(runnable: Runnable, info: ScheduleInfo) {
    // SAFETY: the runtime is alive. If the task waited, it is registered and in no queue yet, and
    // the last worker holds a count until its future is dropped. If it was woken in its own poll,
    // that poll has just returned on a thread of the runtime, which holds a count.
    let shared = unsafe { runnable.metadata().runtime() };
    if runnable.metadata().is_lowered() {
        // The mark was left by the poll that has ended. It names no entry that would have to be
        // freed.
        runnable.metadata().set_mark(Mark::QUEUED);
        // If the poll was on this thread, a lowered one, the thread queues the task on its next
        // visit to the queue of its pool.
        let elsewhere =
            if info.woken_while_running { context::leave_again(runnable) } else { Some(runnable) };
        return elsewhere.into_iter().for_each(|runnable| shared.push_lowered(runnable));
    }
    shared.meter.queued_from_outside(runnable.metadata(), || shared.now());
    let gives_way = |away: &Worker| away.belongs_to(&shared) && away.left_asked.get() > 0;
    if info.woken_while_running && context::with_away(|away| away.is_some_and(gives_way)) {
        // The poll has lost its core, and one of its yield points wants to give way.
        shared.meter.yield_point_outside(true);
        shared.push_to_yield_queue(Yielded::Task(runnable));
    } else {
        shared.inject(runnable);
    }
}

/// Asks the user's hook what to do about a task that panicked, and does it.
#[cold]
pub(crate) fn task_panicked(meta: &Meta, payload: &(dyn Any + Send)) {
    // SAFETY: the runtime is alive. A thread that polls a task or runs a job is a thread of the
    // runtime, and holds a count.
    let shared = unsafe { meta.runtime() };
    hint::after_panic(&shared, payload);
    match shared.hooks.task_panicked(meta, payload) {
        PanicPolicy::Continue => {}
        PanicPolicy::Shutdown => shared.close_after_panic(meta, payload),
        PanicPolicy::Abort => std::process::abort(),
    }
}

impl Worker {
    /// Creates the worker of a thread that holds the core `index`.
    fn new(shared: Arc<Shared>, index: usize, home: bool) -> Self {
        let core = shared.local(index);
        Self {
            shared,
            index,
            core,
            hold: Cell::new(Hold::Core),
            home,
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

    /// Runs tasks for as long as this thread holds the core. Returns the reason why it stopped.
    ///
    /// Calls `begin` first. Meanwhile this is the worker of the calling thread: what the thread
    /// wakes is queued here, and its yield points ask this worker. If the runtime closes, the
    /// worker drops the tasks that are left.
    fn at_work(&self, begin: impl FnOnce()) -> Stop {
        // From here on, a thread that unparks the worker of this core wakes the calling thread.
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
            giveway_io::driver::enter(&self.shared.reactor, self.index, || {
                self.with_yield_points(work)
            })
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
        debug_assert_eq!(
            self.hold.get(),
            Hold::Core,
            "worker {} touches a core that it does not hold",
            self.index
        );
        // SAFETY:
        // - `core` points into `shared`, which `self` counts, so it is valid for as long as `self`.
        // - No other thread touches the core, because this one holds it. The caller is the worker's
        //   own loop, which ends when the core is lost, or it came by `context::with_worker`, which
        //   knows only workers that hold their core.
        // - A core is only ever borrowed shared: it changes through cells.
        unsafe { &*self.core }
    }

    #[inline]
    pub(crate) fn hold(&self) -> Hold {
        self.hold.get()
    }

    #[inline]
    pub(crate) fn runs_background(&self) -> bool {
        self.core().poll_state().runs_background()
    }

    /// Returns the class of the task that runs here.
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

    /// Returns the counters of this core. Only the thread that holds the core may touch them.
    #[inline]
    pub(crate) fn tally(&self) -> &Tally {
        self.shared.meter.core(self.index)
    }

    /// Queues a new task, spawned by the task that runs on this worker or by a destructor or hook
    /// that does. Drops it if the runtime closes.
    pub(crate) fn submit(&self, runnable: Runnable) {
        if self.shared.admits(&runnable) {
            self.schedule(runnable, false);
        } else {
            drop(runnable);
        }
    }

    /// Queues a task that has become runnable on this worker.
    #[inline]
    fn schedule(&self, runnable: Runnable, woken_while_running: bool) {
        let scheduler = &self.shared.scheduler;
        // 1. The mark comes before the push: once the task is queued, its mark belongs to the
        // thread that takes it. The time of a task that is timed goes into the mark too.
        runnable.metadata().set_mark(Mark::QUEUED);
        if self.sampler.is_due() {
            self.time(runnable.metadata());
        }
        if woken_while_running {
            // 2. A task that was woken in its own poll, which has just returned here. It goes
            // behind everything that is queued here; in the slot it would run next.
            self.schedule_again(runnable);
        } else if runnable.metadata().is_background() && runnable.metadata().is_lowered() {
            // Only a lowered thread polls it.
            self.shared.push_lowered(runnable);
        } else if runnable.metadata().is_background() && scheduler.defers_background() {
            // Every worker is busy, or some rest: the task waits in the yield queue until nothing
            // else is runnable.
            self.shared.push_background(runnable);
        } else {
            // 3. Into the slot, while the data that the waker wrote is in this CPU's cache. The
            // class is read first: after the push the task belongs to the queue.
            let foreground = !runnable.metadata().is_background();
            // 4. The task that was in the slot is now where others can take it, so it is announced:
            // an idle worker is woken, or polite ones are interrupted. A worker that searches finds
            // it by itself.
            if scheduler.push_woken(self.core(), runnable) == Announce::Owed {
                match scheduler.announce() {
                    None if scheduler.idle.counts().searching() > 0 => {
                        Tally::count(&self.tally().wake_ups_avoided)
                    }
                    worker => self.shared.unpark(worker),
                }
            }
            // 5. No other worker is told of the task in the slot. The task that runs here may be a
            // polite one, which has to leave its core to it.
            if foreground {
                self.mind_the_slot();
            }
            // 6. A poll goes on here, and if it does not return the slot waits for it. The monitor
            // then hands the slot to the idle worker. Between two polls (the reactor has woken the
            // task) this worker runs the slot next, and the monitor is not needed.
            if self.post().is_running() && !scheduler.idle.nobody_idle() {
                self.shared.monitor.watch_slots();
            }
        }
    }

    /// Notes in the task's mark when it became runnable.
    #[cold]
    #[inline(never)]
    fn time(&self, meta: &Meta) {
        meta.set_mark(self.shared.meter.time(&self.sampler, self.index, meta, self.shared.now()));
    }

    /// Returns whether this is the home thread of `core`. A worker that can be asked holds its
    /// core.
    pub(crate) fn is_home_of(&self, core: usize) -> bool {
        self.home && self.index == core
    }

    /// Queues a task that is pinned to this very worker. The worker is awake, so no thread is
    /// woken.
    pub(crate) fn push_pinned(&self, runnable: Runnable) {
        self.shared.scheduler.push_pinned_here(self.core(), runnable);
        // A polite task that runs here goes on while a worker is idle, but no idle worker can run
        // what is pinned here. So its next yield point asks.
        giveway_yield::host::ask_once();
    }

    /// Puts a pinned task whose poll has just returned at the back of its inbox. If the task gives
    /// way, what else is queued now goes first.
    pub(crate) fn pinned_again(&self, runnable: Runnable) {
        let gives_way = self.core().poll_state().asked().is_some();
        if gives_way {
            Tally::count(&self.tally().yields_taken);
            runnable.metadata().set_swapped();
        }
        self.shared.scheduler.pinned_again(self.core(), runnable, gives_way);
    }

    /// Sees to a foreground task in the slot, of which no other worker was told: this worker runs
    /// it next.
    ///
    /// The task that runs here may be one that gives way to such a task. Then either it is asked
    /// to, or another worker comes for the slot.
    #[inline]
    fn mind_the_slot(&self) {
        let scheduler = &self.shared.scheduler;
        if scheduler.idle.nobody_idle() {
            // A background task may have no yield points, so its next budgeted operation becomes
            // one. The yield points of a foreground task look at the slot by themselves while no
            // worker is idle.
            scheduler.interrupt_own(self.core());
        } else if self.runs_background() {
            // It might go on for long without giving way. The idle worker takes the slot's task.
            self.shared.unpark(scheduler.hand_over_slot(self.core()));
        } else {
            // Its yield points go on without a look while a worker is idle. The next one asks, and
            // hands the slot to the idle worker.
            giveway_yield::host::ask_once();
        }
    }

    /// Queues a task whose poll has just returned here, and which was woken in that poll.
    #[inline]
    fn schedule_again(&self, runnable: Runnable) {
        let scheduler = &self.shared.scheduler;
        // 1. The poll is over, and this is said before the push. To the monitor, work that is
        // queued in a poll beside an idle worker is a lost wake-up; what is queued below is
        // announced only before the next poll.
        self.post().end();
        // 2. The yield point that asked says how the task gives way. A task that was not asked goes
        // to the back of the deque, but for a background task while every worker is busy or some
        // rest: it waits in the yield queue, as when any other waker makes it runnable.
        let way = match self.core().poll_state().asked() {
            Some(way) => {
                Tally::count(&self.tally().yields_taken);
                way
            }
            None if runnable.metadata().is_background() && scheduler.defers_background() => {
                Way::YieldQueue
            }
            None => return scheduler.requeue(self.core(), runnable),
        };
        // 3. The mark comes before the push: once the task is queued, its mark belongs to the
        // thread that takes it.
        let since = match way {
            Way::Swap => {
                runnable.metadata().set_swapped();
                0
            }
            Way::YieldQueue => self.shared.meter.gives_way(runnable.metadata()),
        };
        scheduler.queue_after_yield(self.core(), runnable, way, since, || self.shared.now());
    }
}
