//! A worker: a thread that holds a core, and the loop it runs.
//!
//! The decisions are in `crate::sched`; here they meet a thread, its parking place and user code. The loop leaves
//! when the runtime closes, and drops what is left: see `runtime/shutdown.md`.

use crate::runtime::{PanicPolicy, Phase, Post, Shared, context};
use crate::sched::{Announce, CountedOut, INJECTOR_TICK, Local, SEARCH_ROUNDS, Source, Way, Yielded};
use crate::task::{Class, Id, Meta, Runnable};
use async_task::ScheduleInfo;
use giveway_budget::{OPERATIONS, with_budget};
use giveway_io::driver::{Turn, Wait, wake_all};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::task::Waker;

/// How long the last searcher waits between two of its rounds, in spin hints (some 30 ns each on current CPUs).
///
/// All rounds together take some twenty microseconds: about what a sleep and a wake-up cost, so that lingering at most
/// doubles what an unlucky worker burns, and a lucky one saves its waker a system call. Only the last searcher
/// lingers: one is enough to take the next push, and the others' CPUs may be wanted by threads that are not ours. And
/// it looks rarely: each look takes a cache line away from whoever pushes there.
const LINGER_SPINS: usize = 200;

/// How long a worker that has run out of work waits before it goes back to the injector, if its last visit brought
/// little: some two microseconds.
///
/// A worker that is faster than the thread which feeds it would otherwise come for every single task, and each time
/// take from that thread the lines that it is about to write. Not when it was just woken: then somebody waits.
const GATHER_SPINS: usize = 64;

/// The task that was taken from the yield queue. A thread is woken instead.
fn task_of(yielded: Yielded<Runnable>) -> Option<Runnable> {
    match yielded {
        Yielded::Task(task) => Some(task),
        Yielded::Thread(waker) => {
            waker.wake();
            None
        }
    }
}

/// Asks the kernel not to let this thread oversleep for company: by default it may add 50 µs to any timeout, to wake several
/// threads at once. Timers here keep less than that.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: changes a setting of the calling thread, and reads no memory.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64);
    }
}

fn spin(hints: usize) {
    (0..hints).for_each(|_| std::hint::spin_loop());
}

/// A core and the thread that holds it. Lives on that thread's stack.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    core: Local<Runnable>,
    // Whether the idle set counts this worker as a searcher.
    searching: Cell<bool>,
    // What the last poll left of its budget: a task from the slot goes on with it.
    budget_left: Cell<u8>,
    // How many operations a task of the background gets at a time.
    ration: Cell<u8>,
    // What a turn at the reactor found. Empty between two.
    ready: RefCell<Vec<Waker>>,
}

/// The worker thread.
pub(crate) fn run(shared: Arc<Shared>, core: Local<Runnable>) {
    let worker = Worker {
        shared,
        core,
        searching: Cell::new(false),
        budget_left: Cell::new(OPERATIONS),
        ration: Cell::new(OPERATIONS),
        ready: RefCell::new(Vec::new()),
    };
    worker.post().parker.bind();
    sleep_precisely();
    let reactor = worker.shared.reactor.clone();
    context::on_worker(&worker, || {
        giveway_io::driver::enter(&reactor, worker.index(), || {
            worker.with_yield_points(|| {
                worker.shared.hooks.thread_started();
                worker.run_tasks();
                worker.drop_tasks();
            });
        });
    });
    // In the runtime, but not a worker any more: a task that the hook wakes must go to those that still are.
    let inside = context::Entered::new(worker.shared.clone());
    worker.shared.hooks.thread_stopping();
    drop(inside);
    worker.shared.gate.thread_ended(worker.index());
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
        _ => schedule_from_outside(shared, runnable),
    });
}

#[cold]
fn schedule_from_outside(shared: *const Shared, runnable: Runnable) {
    // SAFETY: the runtime is alive, as argued at `schedule`, and the pointer came from its `Arc`.
    unsafe { Arc::increment_strong_count(shared) };
    // SAFETY: the count just added is ours.
    let shared = unsafe { Arc::from_raw(shared) };
    shared.inject(runnable);
}

/// Asks the user's hook what to do about a task that panicked, and does it.
#[cold]
pub(crate) fn task_panicked(meta: &Meta, payload: &(dyn Any + Send)) {
    context::with_worker(|worker| {
        // Tasks are polled by workers only.
        let Some(worker) = worker else { return };
        match worker.shared.hooks.task_panicked(meta, payload) {
            PanicPolicy::Continue => {}
            PanicPolicy::Shutdown => worker.shared.close(),
            PanicPolicy::Abort => std::process::abort(),
        }
    });
}

impl Worker {
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.core.index()
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
        &self.core
    }

    #[inline]
    pub(crate) fn runs_background(&self) -> bool {
        self.core.manners().runs_background()
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
        if woken_while_running {
            // Only the task that ran here last comes this way, right after its poll.
            self.schedule_again(runnable);
        } else if runnable.metadata().is_background() && scheduler.idle.nobody_idle() {
            self.shared.push_background(runnable);
        } else {
            let foreground = !runnable.metadata().is_background();
            if scheduler.push_woken(&self.core, runnable) == Announce::Owed {
                self.shared.unpark(scheduler.announce());
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

    /// A foreground task is in the slot, and nobody was told: the slot's own worker runs it next. If the task that runs
    /// here now means to give way, somebody has to see to it that it does, or that another worker comes for the slot.
    #[inline]
    fn mind_the_slot(&self) {
        let scheduler = &self.shared.scheduler;
        if scheduler.idle.nobody_idle() {
            scheduler.interrupt_own(&self.core);
        } else if self.runs_background() {
            self.shared.unpark(scheduler.hand_over_slot(&self.core));
        } else {
            // It goes on at its yield points, because somebody is idle: but the next one asks.
            giveway_yield::host::ask_once();
        }
    }

    #[inline]
    fn schedule_again(&self, runnable: Runnable) {
        let scheduler = &self.shared.scheduler;
        let way = match self.core.manners().asked() {
            Some(way) => way,
            None if runnable.metadata().is_background() && scheduler.idle.nobody_idle() => Way::Park,
            None => return scheduler.push_yielded(&self.core, runnable),
        };
        if way == Way::Swap {
            runnable.metadata().set_swapped();
        }
        scheduler.give_way(&self.core, runnable, way, || self.shared.now());
    }

    fn run_tasks(&self) {
        while self.shared.gate.phase() == Phase::Open {
            if self.core.tick().is_multiple_of(INJECTOR_TICK) {
                self.poll_io_now_and_then();
                self.shared.scheduler.help_the_stuck(&self.core);
            }
            // The yield queue before a search: what is queued elsewhere keeps it shut, and then the search finds it.
            let found = self
                .next()
                .or_else(|| self.next_after_io())
                .or_else(|| self.resume())
                .or_else(|| self.search())
                .or_else(|| self.resume());
            match found {
                Some((task, source)) => self.poll(task, source),
                None => self.sleep(),
            }
        }
    }

    #[inline]
    fn next(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        let found = self.overdue().or_else(|| scheduler.next_local(&self.core)).or_else(|| {
            if self.core.take_poor_visit() && scheduler.yielded.is_empty() {
                spin(GATHER_SPINS);
            }
            scheduler.take_injected(&self.core).map(|task| (task, Source::Queue))
        });
        if found.is_some() && self.searching.get() {
            self.stop_search();
        }
        found
    }

    #[inline]
    fn poll(&self, task: Runnable, source: Source) {
        let scheduler = &self.shared.scheduler;
        self.shared.unpark(scheduler.before_poll(&self.core));
        let meta = task.metadata();
        scheduler.begin_poll(&self.core, source, meta.is_background(), meta.take_swapped());
        self.post().begin(meta);
        let rationed = meta.is_background() && self.shared.reactor.has_anything_for(self.index());
        let budget = match source {
            Source::Slot => self.budget_left.get(),
            _ if rationed => self.ration.get(),
            Source::Queue | Source::Yielded | Source::Overdue => OPERATIONS,
        };
        let left = with_budget(budget, || {
            task.run();
            giveway_budget::remaining()
        });
        // A poll that was cut short has not spent its budget: the slot's task, which is what it was cut short for, starts
        // afresh.
        let cut_short = scheduler.polite.is_interrupted(self.index());
        self.budget_left.set(if cut_short { OPERATIONS } else { left.unwrap_or(0) });
        if rationed && left == Some(0) {
            self.adapt_ration();
        }
        self.post().end();
        scheduler.has_returned(self.index());
    }

    /// A task of the background has used up its ration. It may have no yield points, so nobody has looked at the reactor
    /// meanwhile, unless another worker did; one that returns makes room for a look. The ration is what takes about as
    /// long as the reactor may be left alone: 128 operations of 20 µs each would be a hundred times that.
    #[cold]
    fn adapt_ration(&self) {
        let (ration, bearable) = (self.ration.get(), self.core.manners().pace.reactor_interval());
        let alone = self.shared.reactor.alone_for();
        if alone > 2 * bearable {
            self.ration.set((ration / 2).max(1));
        } else if alone < bearable / 2 {
            self.ration.set(ration.saturating_mul(2).min(OPERATIONS));
        }
    }

    fn search(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        if !self.searching.get() {
            if !scheduler.idle.try_start_search() {
                return None;
            }
            self.searching.set(true);
        }
        for round in 0..SEARCH_ROUNDS {
            let found = scheduler.steal(&self.core, round, false).or_else(|| scheduler.take_injected(&self.core));
            if let Some(task) = found {
                self.stop_search();
                return Some((task, Source::Queue));
            }
            if let Some(found) = self.next_after_io() {
                return Some(found);
            }
            // With something to resume there is no use in waiting for something better.
            if scheduler.yielded.is_empty() {
                self.linger();
            }
        }
        None
    }

    /// Looks at the reactor, if there is anything that it could find, and wakes what is ready or due. True if anything is.
    fn poll_io(&self) -> bool {
        self.shared.reactor.wants_turn() && self.take_turn()
    }

    /// As `poll_io`, unless somebody has looked just now: a worker with short polls comes by every few microseconds.
    fn poll_io_now_and_then(&self) {
        let reactor = &self.shared.reactor;
        if reactor.has_anything_for(self.index()) && reactor.alone_for() >= self.core.manners().pace.reactor_interval()
        {
            self.take_turn();
        }
    }

    /// As `poll_io`, but looks at everybody's timers, whatever there may be.
    pub(crate) fn take_turn(&self) -> bool {
        let mut ready = self.ready.take();
        // An error here is one of our own making, and the next turn that waits tells of it.
        let _looked = self.shared.reactor.turn(Wait::Not, &mut ready);
        self.wake_ready(ready)
    }

    fn wake_ready(&self, mut ready: Vec<Waker>) -> bool {
        let any = !ready.is_empty();
        // The wakers are anybody's code: nothing is borrowed while they run.
        wake_all(&mut ready);
        self.ready.replace(ready);
        any
    }

    fn next_after_io(&self) -> Option<(Runnable, Source)> {
        if self.poll_io() { self.next() } else { None }
    }

    /// Takes something from the yield queue, if nothing else is queued anywhere.
    fn resume(&self) -> Option<(Runnable, Source)> {
        let scheduler = &self.shared.scheduler;
        while !scheduler.yielded.is_empty() {
            // Not as a searcher: what is pushed while somebody searches interrupts nobody. See `sched/yielding.md`.
            let searched = self.searching.replace(false);
            let was_last = searched && scheduler.idle.stop_search();
            let Some(yielded) = scheduler.resume(&self.core) else {
                if searched {
                    // Refused if others search; they find what is there.
                    self.searching.set(scheduler.idle.try_start_search());
                }
                return None;
            };
            if was_last {
                self.shared.unpark(scheduler.idle.wake_for_more(|| scheduler.anything_queued()));
            }
            if let Some(task) = task_of(yielded) {
                return Some((task, Source::Yielded));
            }
        }
        None
    }

    /// A task that has waited in the yield queue for longer than it may.
    #[inline]
    fn overdue(&self) -> Option<(Runnable, Source)> {
        let overdue = self.shared.scheduler.take_overdue(&self.core, || self.shared.now())?;
        task_of(overdue).map(|task| (task, Source::Overdue))
    }

    /// Stays awake a little longer, so that work which comes now needs no system call to be noticed.
    fn linger(&self) {
        for _ in 0..LINGER_SPINS {
            if self.shared.scheduler.idle.counts().searching() > 1 {
                return;
            }
            std::hint::spin_loop();
        }
        // The thread that would push next may be waiting for this very CPU: the kernel likes to wake us beside whoever
        // woke us. Without this a pusher was held up by each worker it woke for as long as that lingered.
        std::thread::yield_now();
    }

    fn stop_search(&self) {
        self.searching.set(false);
        self.shared.unpark(self.shared.scheduler.found_work());
    }

    /// Parks until there is something to do; see `sched/sleep.md`. Returns as a searcher.
    fn sleep(&self) {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        let look_again = |counted_out| {
            let work = counted_out == CountedOut::LookAgain && scheduler.anything_queued();
            // The gate is closed first and the sleepers are woken second: if that passed before we were one of them,
            // the lock of their list, which both sides took, shows us the closed gate.
            work || gate.phase() != Phase::Open
        };
        let mut ready = self.ready.take();
        let left = scheduler.idle.sleep(self.index(), self.searching.get(), look_again, || self.wait(&mut ready));
        if left {
            // All were idle for a moment. The monitor may have seen that, and whoever wakes a worker did not wake us.
            self.shared.monitor.rouse();
        }
        self.core.take_poor_visit();
        self.searching.set(true);
        self.wake_ready(ready);
    }

    /// Waits to be woken: in the reactor, or if somebody has the turn there, in the worker's own place. True if the
    /// reactor found something, and the worker has left the idle set by itself.
    fn wait(&self, ready: &mut Vec<Waker>) -> bool {
        let (parker, reactor) = (&self.post().parker, &self.shared.reactor);
        // It was filled while nobody was idle, and so nobody minds it.
        if self.shared.slot_waits() {
            self.shared.monitor.watch_slots();
        }
        while !parker.take_token() {
            let mut turn = Ok(Turn::Taken);
            parker.park_elsewhere(|has_token| turn = reactor.turn(Wait::Unless(has_token), ready));
            match turn {
                // Called back, or about to be.
                Ok(Turn::Taken) if ready.is_empty() => continue,
                Ok(Turn::Taken) => {
                    if self.shared.scheduler.idle.remove(self.index()) {
                        return true;
                    }
                    // Somebody is waking us.
                }
                // He is gone in a moment, and then nobody would be there.
                Ok(Turn::Looks) => {
                    std::thread::yield_now();
                    continue;
                }
                // One is enough.
                Ok(Turn::Waits) => {}
                Err(error) => eprintln!("giveway: waiting for I/O failed: {error}"),
            }
            parker.park();
            break;
        }
        false
    }

    /// The worker's side of `runtime/shutdown.md`: drops every task that is not being polled elsewhere.
    fn drop_tasks(&self) {
        let (gate, scheduler) = (&self.shared.gate, &self.shared.scheduler);
        if self.searching.replace(false) {
            scheduler.idle.abandon_search();
        }
        self.drop_reachable();
        if !gate.leave() {
            return;
        }
        // The last one out. What is registered now is being woken by a thread from outside that has claimed the task
        // and not queued it yet: it will, and will then announce it to us. Or it is being dropped by the thread that
        // shuts down with a deadline, which wakes us afterwards.
        self.drop_reachable();
        while self.shared.registry.len() > 0 {
            let look_again = |_| scheduler.anything_queued() || self.shared.registry.len() == 0;
            let park = || {
                self.post().parker.park();
                false
            };
            scheduler.idle.sleep(self.index(), false, look_again, park);
            scheduler.idle.abandon_search();
            self.drop_reachable();
        }
        self.shared.terminate();
    }

    /// Makes every task that waits runnable, and drops whatever is runnable.
    fn drop_reachable(&self) {
        let scheduler = &self.shared.scheduler;
        self.shared.registry.for_each(Meta::wake);
        let steal = || scheduler.steal(&self.core, SEARCH_ROUNDS - 1, true);
        let next = || scheduler.next(&self.core).map(|(task, _)| task);
        while let Some(task) = next().or_else(steal).or_else(|| scheduler.take_global()) {
            self.post().begin(task.metadata());
            drop(task);
            self.post().end();
        }
    }
}
