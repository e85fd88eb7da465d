//! The tokio runtime beside a runtime, for libraries that need tokio's clock, sockets and `spawn`.
//!
//! Each runtime is entered on the threads of the other:
//!
//! - Tokio's context is set on every Giveway thread that runs code of the user's (home threads and
//!   the threads of all pools, so stand-ins and lowered threads too), and around each `block_on`.
//! - Giveway is entered on every thread of tokio's, when that starts. [`Guest`] answers the yield
//!   points there.
//!
//! The user shuts Giveway down, and Giveway's monitor shuts tokio down. The order is:
//!
//! 1. Giveway's tasks are dropped. Their destructors may use tokio.
//! 2. Tokio's tasks are dropped ([`Beside::end`]). Their destructors may use Giveway, which refuses
//!    new tasks by now, as in any destructor during a shutdown, and does not start a default
//!    runtime in its place. Meanwhile the blocking jobs of both run to their end. Neither waits
//!    before step 2: a job may wait for something that a task of tokio's keeps, as a job of tokio's
//!    own may.
//! 3. The monitor joins all of tokio's threads ([`Beside::join`]) and ends. A drop of the runtime
//!    joins the monitor, so it waits for both.
//!
//! A shutdown that gives up on step 1 does step 2 all the same ([`Beside::give_up`]): a server that
//! runs under `tokio::spawn` must not go on because a task here is stuck.
//!
//! `Shared` owns the tokio runtime, and tokio's threads count `Shared`, as Giveway's own threads
//! do. That is no leak: the end of both is decided by the gate, and not by a count. What tokio
//! keeps for as long as it has handles, the functions that its threads call, counts nothing.

use super::host::{NEVER, NOBODY, NOTHING, ticket};
use super::{Phase, Shared, context, wait_while};
use crate::sched::{Way, Yielded};
use crate::task::{contain, drop_contained, panic_message};
use ::tokio::runtime::{self, EnterGuard, Handle, Runtime};
use giveway_yield::host::{Host, Signs, Ticket, set_host};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the tasks that a thread of tokio's polls go on past their yield points, in nanoseconds,
/// when nothing of Giveway's waits. Then the thread's other tasks have their turn, of which no
/// yield point can know.
const TURN: u64 = 100_000;

thread_local! {
    /// On a thread of tokio's: the runtime that this tokio is beside, which `context` counts there.
    /// Otherwise null.
    static BESIDE: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// When a yield point on this thread last gave way, by the clock of that runtime.
    static TURN_BEGAN: Cell<u64> = const { Cell::new(0) };
}

/// The tokio runtime beside a runtime, if the builder has started one.
#[derive(Default)]
pub(crate) struct Beside(OnceLock<Tokio>);

struct Tokio {
    handle: Handle,
    thread_name: String,
    /// The runtime itself. Taken by the thread that shuts it down.
    runtime: Arc<Mutex<Option<Runtime>>>,
    /// The thread that waits for tokio's threads. Written and taken by the monitor.
    ending: Mutex<Option<JoinHandle<()>>>,
    threads: Arc<Threads>,
}

/// What is known of tokio's threads.
#[derive(Default)]
struct Threads {
    state: Mutex<State>,
    /// Notified when a thread has ended, and when tokio has.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many threads have started and not ended.
    threads: usize,
    /// Whether tokio has been shut down, and all of its threads have ended or were given up.
    over: bool,
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock.
        lock(&self.state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until every thread that tokio has started is at its end.
    fn wait_without_joining(&self) {
        self.wait(None, |state| state.threads > 0);
        self.change(|state| state.over = true);
    }

    /// Waits while `waits` is true of the state, or for the deadline. Returns whether it is false.
    fn wait(&self, deadline: Option<Instant>, waits: impl Fn(&State) -> bool) -> bool {
        !waits(&wait_while(&self.changed, self.lock(), deadline, &waits))
    }
}

/// Settings that both runtimes have.
pub(super) struct Common<'a> {
    pub(super) thread_name: &'a str,
    pub(super) stack_size: Option<usize>,
    pub(super) max_blocking_threads: usize,
    pub(super) blocking_keep_alive: Duration,
}

/// Starts a tokio runtime beside `shared`, whose own threads have not been started yet.
pub(super) fn start(shared: &Arc<Shared>, common: &Common<'_>) -> io::Result<()> {
    let threads = Arc::new(Threads::default());
    let thread_name = format!("{}-tokio", common.thread_name);
    let mut builder = runtime::Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .thread_name(&thread_name)
        .max_blocking_threads(common.max_blocking_threads)
        .thread_keep_alive(common.blocking_keep_alive);
    if let Some(bytes) = common.stack_size {
        builder.thread_stack_size(bytes);
    }
    builder.on_thread_start({
        let (shared, threads) = (Arc::downgrade(shared), threads.clone());
        move || {
            threads.change(|state| state.threads += 1);
            // Tokio starts no thread after its end, before which the monitor counts `shared`.
            if let Some(shared) = shared.upgrade() {
                begin_thread(&shared);
            }
        }
    });
    builder.on_thread_stop({
        let (shared, threads) = (Arc::downgrade(shared), threads.clone());
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.hooks.thread_stopping();
            }
            threads.change(|state| state.threads -= 1);
        }
    });
    // Tokio returns an error if it gets no file descriptor, and panics if it gets no thread.
    let runtime = match contain(|| builder.build()) {
        Ok(Ok(runtime)) => runtime,
        Ok(Err(error)) => {
            return Err(io::Error::new(
                error.kind(),
                format!("tokio could not be started: {error}"),
            ));
        }
        Err(payload) => {
            let error = panic_message(&*payload).unwrap_or("it panicked");
            let error = io::Error::other(format!("tokio could not be started: {error}"));
            drop_contained(payload);
            return Err(error);
        }
    };
    let tokio = Tokio {
        handle: runtime.handle().clone(),
        thread_name,
        runtime: Arc::new(Mutex::new(Some(runtime))),
        ending: Mutex::new(None),
        threads,
    };
    let started_before = shared.tokio.0.set(tokio).is_err();
    debug_assert!(!started_before, "the builder starts one tokio for each runtime");
    Ok(())
}

/// Enters Giveway on a new thread of tokio's.
fn begin_thread(shared: &Arc<Shared>) {
    BESIDE.set(Arc::as_ptr(shared));
    // Never left: the thread's own end gives the count back. Until then its thread-locals'
    // destructors find the runtime too.
    std::mem::forget(context::Entered::new(shared.clone()));
    set_host(&Guest);
    shared.hooks.thread_started();
}

impl Beside {
    /// Returns whether there is a tokio beside the runtime.
    pub(crate) fn is_there(&self) -> bool {
        self.0.get().is_some()
    }

    /// Sets tokio's context on the calling thread until the guard is dropped.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.get().map(|tokio| tokio.handle.enter())
    }

    /// Sets tokio's context on the calling thread, one of Giveway's, to its end.
    ///
    /// The guard is never dropped: a task may have left one of its own behind, and tokio's guards
    /// panic if they are not dropped in reverse order. The end of the thread frees what they hold.
    pub(crate) fn enter_for_good(&self) {
        std::mem::forget(self.enter());
    }

    /// Waits until tokio has been shut down, or for the deadline. Returns whether it has been.
    pub(super) fn wait_ended(&self, deadline: Option<Instant>) -> bool {
        self.0.get().is_none_or(|tokio| tokio.threads.wait(deadline, |state| !state.over))
    }

    /// Returns how many threads of tokio's have not ended.
    pub(super) fn threads(&self) -> usize {
        self.0.get().map_or(0, |tokio| tokio.threads.lock().threads)
    }

    /// Shuts tokio down, because no task of Giveway's is left. The monitor calls it.
    ///
    /// Does not wait. Another thread does, because the monitor still has jobs to look after. That
    /// thread is in no context in which tokio forbids to wait, and tokio joins its threads there.
    pub(crate) fn end(&self) {
        let Some(tokio) = self.0.get() else { return };
        let (runtime, threads) = (tokio.runtime.clone(), tokio.threads.clone());
        let thread = std::thread::Builder::new().name(format!("{}-end", tokio.thread_name));
        let ending = thread.spawn(move || {
            let runtime = lock(&runtime).take();
            // Tokio contains the panics of its tasks' destructors.
            if let Err(payload) = contain(|| drop(runtime)) {
                drop_contained(payload);
            }
            threads.change(|state| state.over = true);
        });
        match ending {
            Ok(thread) => *lock(&tokio.ending) = Some(thread),
            // The OS has refused the thread. Those of tokio's are not joined, then.
            Err(_) => self.give_up(),
        }
    }

    /// Waits for the end that [`end`](Self::end) has begun. The monitor calls it.
    pub(crate) fn join(&self) {
        let Some(tokio) = self.0.get() else { return };
        let ending = lock(&tokio.ending).take();
        match ending {
            // Nothing in it can panic.
            Some(thread) => _ = thread.join(),
            None => tokio.threads.wait_without_joining(),
        }
    }

    /// Shuts tokio down without waiting, although tasks of Giveway's are left. Runs no destructors
    /// on the calling thread.
    pub(super) fn give_up(&self) {
        let runtime = self.0.get().and_then(|tokio| lock(&tokio.runtime).take());
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }

    /// Shuts tokio down because the builder could not start the monitor's thread or one before it.
    pub(super) fn never_used(&self) {
        let Some(tokio) = self.0.get() else { return };
        self.give_up();
        tokio.threads.wait_without_joining();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the calling thread is one of the tokio runtime beside `shared`. Such a thread
/// cannot wait for the end of either.
pub(super) fn is_thread_of(shared: &Shared) -> bool {
    ptr::eq(BESIDE.get(), shared)
}

/// Runs `f`, which may block, on a thread that is in no task of Giveway's.
///
/// On the thread that drives tokio, tokio moves its driver to another thread first: what `f` waits
/// for may be a timer or a socket of tokio's.
pub(crate) fn in_place<R>(f: impl FnOnce() -> R) -> R {
    if BESIDE.get().is_null() { f() } else { ::tokio::task::block_in_place(f) }
}

/// Answers the yield points of tasks that tokio polls.
///
/// Tokio's queue is not Giveway's to see, and no thread interrupts a poll there. So every yield
/// point asks, and the answer depends on the clock:
///
/// - While every worker is busy and foreground work waits for one, the task gives way to it: its
///   waker waits in the yield queue, until a worker finds nothing else to do.
/// - Otherwise, after [`TURN`], the task lets the other tasks of its thread and tokio's driver go
///   first.
struct Guest;

/// In the number of a ticket: the task waits in the yield queue.
const WAITS: u64 = 1;

static NO_COUNT: AtomicU32 = AtomicU32::new(0);

impl Guest {
    /// Returns how the task is to give way, if it is to.
    fn look(&self) -> Option<Way> {
        let shared = context::entered()?;
        if shared.process.in_forked_child() {
            // No worker of the parent's would wake the task here.
            return None;
        }
        let scheduler = &shared.scheduler;
        let every_worker_is_busy =
            scheduler.idle.idle_hint().load(Relaxed) <= 0 && shared.gate.phase() == Phase::Open;
        if every_worker_is_busy && !scheduler.injector.is_empty() {
            return Some(Way::YieldQueue);
        }
        if shared.now().saturating_sub(TURN_BEGAN.get()) < TURN {
            return None;
        }
        let waits = every_worker_is_busy && scheduler.work_waits();
        Some(if waits { Way::YieldQueue } else { Way::Swap })
    }
}

impl Host for Guest {
    fn signs(&self) -> Signs<'_> {
        Signs { idle: &NOBODY, asked: &NEVER, queued: [&NOTHING; 2], countdown: &NO_COUNT }
    }

    fn work_waits(&self) -> bool {
        self.look().is_some()
    }

    fn give_way(&self) -> Option<Ticket> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let way = self.look()?;
        // Ordering: relaxed; the number only has to be unique.
        let number = NUMBER.fetch_add(1, Relaxed) << 1;
        let waits = if way == Way::YieldQueue { WAITS } else { 0 };
        if let Some(shared) = context::entered() {
            TURN_BEGAN.set(shared.now());
        }
        Some(ticket(3 << 61 | number | waits))
    }

    fn take_back(&self, _: Ticket) -> bool {
        // Which poll goes on is not known here. The waker that is somewhere in a queue wakes the
        // task once too often.
        false
    }

    fn wake(&self, ticket: Ticket, waker: &Waker) {
        match context::entered() {
            Some(shared) if ticket.get().get() & WAITS != 0 => {
                // Counted: the clone of the waker is the user's code, and may leave this runtime.
                let shared = Arc::clone(&shared);
                let entry = Waker::from(Arc::new(Waiting(Some(waker.clone()))));
                shared.meter.yield_point_outside(true);
                shared.push_to_yield_queue(Yielded::Thread(entry));
                // Closing wakes what is in the queue, under its lock, after the gate is closed. If
                // that has passed before the push, the lock makes the closed gate visible here.
                if shared.gate.phase() != Phase::Open {
                    waker.wake_by_ref();
                }
            }
            _ => {
                // Tokio keeps the waker until it has run what is queued and has looked at its
                // sockets and timers.
                let behind_others = pin!(::tokio::task::yield_now());
                let _pending = behind_others.poll(&mut Context::from_waker(waker));
            }
        }
    }
}

/// The waker of a task that gave way, in the yield queue. The user may have made it, so its panics
/// are contained: it is woken and dropped by a worker. It is there until the drop.
struct Waiting(Option<Waker>);

impl Drop for Waiting {
    fn drop(&mut self) {
        drop_contained(self.0.take());
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Err(payload) = contain(|| self.0.iter().for_each(Waker::wake_by_ref)) {
            drop_contained(payload);
        }
    }
}
