//! The end of a runtime. The protocol is in `shutdown.md` beside this file.

use super::{Post, Shared, ShutdownReport, context, waiting};
use crate::blocking::Loan;
use crate::sched::{PointerSized, Scheduler};
use crate::sync::{AtomicU8, AtomicUsize, fence};
use crate::task::Meta;
use giveway_io::driver::on_behalf;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How far a runtime's end has come. Goes forward only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Tasks are taken and run.
    Open,
    /// No task is taken; those that are left are dropped.
    Closing,
    /// The last worker has left. Nothing of the runtime's own runs any more.
    Terminated,
}

/// The phase of a runtime, and who of its workers is still there.
pub(crate) struct Gate {
    phase: AtomicU8,
    // Cores whose holders may still poll or drop a task, and threads that are in a poll and have lost theirs. Whoever takes
    // it to zero waits for the stragglers.
    inside: AtomicUsize,
    // Per core, spare ones included: its holder has nothing left to do, or it has none. For those who wait with a deadline.
    ended: Mutex<Vec<bool>>,
    one_more_ended: Condvar,
}

impl Gate {
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        let ended = (0..workers + spares).map(|core| core >= workers);
        Self {
            phase: AtomicU8::new(Phase::Open as u8),
            inside: AtomicUsize::new(workers),
            ended: Mutex::new(ended.collect()),
            one_more_ended: Condvar::new(),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        // Ordering: acquire, partner of the stores in `close` and `terminate`: who sees a phase sees what was done
        // before it. Where a store-load order is needed too, a fence stands beside the call.
        match self.phase.load(Acquire) {
            0 => Phase::Open,
            1 => Phase::Closing,
            _ => Phase::Terminated,
        }
    }

    /// From open to closing. False if that had been done before.
    pub(crate) fn close(&self) -> bool {
        // Ordering: AcqRel, partner of `phase`. A worker that is about to sleep is caught by the lock of the sleepers.
        self.phase.compare_exchange(Phase::Open as u8, Phase::Closing as u8, AcqRel, Acquire).is_ok()
    }

    /// A thread that has a task is about to lose its core: see `blocking/hand_off.md`.
    pub(crate) fn join(&self) {
        // Ordering: acquire, partner of the release in `leave`: who comes after the last one has left sees that the gate is
        // closed. What it publishes is published by the lease, which is taken next.
        self.inside.fetch_add(1, Acquire);
    }

    /// A worker has dropped all it could reach. True for the last.
    pub(crate) fn leave(&self) -> bool {
        // Ordering: AcqRel: the last one sees all that the others did, their registrations above all.
        self.inside.fetch_sub(1, AcqRel) == 1
    }

    /// Takes the workers from this one on off the count: the OS refused their threads.
    pub(crate) fn never_started(&self, workers: std::ops::Range<usize>) {
        // Ordering: relaxed; the caller has yet to close the gate, which publishes it.
        self.inside.fetch_sub(workers.len(), Relaxed);
        self.lock_ended()[workers].fill(true);
    }

    /// From closing to terminated: the registry is empty, and so is every queue, but for spawns that saw the gate open
    /// and have not pushed yet.
    pub(crate) fn terminate(&self, drop_injected: impl FnOnce()) {
        // Ordering: release, partner of the acquire in `phase`: who sees it sees every result (`Waiter::verdict`). The SeqCst
        // fence behind it is the partner of the one in `after_inject`. Theirs stands between a push and a look at the phase,
        // ours between the phase and a look at the queue: one of us sees the other's, and drops the task.
        self.phase.store(Phase::Terminated as u8, Release);
        fence(SeqCst);
        drop_injected();
    }

    /// To be called by a spawn from outside after its push.
    pub(crate) fn after_inject(&self, drop_injected: impl FnOnce()) {
        // Ordering: SeqCst fence, partner of the one in `terminate`.
        fence(SeqCst);
        if self.phase() == Phase::Terminated {
            drop_injected();
        }
    }

    /// The holder of this core has nothing left to do.
    pub(crate) fn core_ended(&self, core: usize) {
        self.lock_ended()[core] = true;
        self.one_more_ended.notify_all();
    }

    /// A thread has come to hold this core, which may be a spare one.
    pub(crate) fn core_held(&self, core: usize) {
        self.lock_ended()[core] = false;
    }

    /// Waits until every worker's thread has ended, or the deadline. The workers that have not.
    pub(super) fn wait_ended(&self, deadline: Option<Instant>) -> Vec<usize> {
        let ended = wait_while(&self.one_more_ended, self.lock_ended(), deadline, |ended| ended.contains(&false));
        (0..ended.len()).filter(|&worker| !ended[worker]).collect()
    }

    fn lock_ended(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for what is behind a lock to change, until `waits` says no, or for the deadline.
pub(crate) fn wait_while<'a, T>(
    changed: &Condvar,
    mut state: MutexGuard<'a, T>,
    deadline: Option<Instant>,
    waits: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    while waits(&state) {
        let left = match deadline {
            None => Duration::MAX,
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        };
        if left.is_zero() {
            break;
        }
        state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    state
}

/// Drops what is in the queues that belong to no core, with no lock held.
pub(crate) fn drop_injected<T: PointerSized>(scheduler: &Scheduler<T>) {
    while let Some(task) = scheduler.take_global() {
        drop(task);
    }
}

impl Shared {
    /// Closes the runtime and sends everybody to their end. Does not wait.
    pub(crate) fn close(self: &Arc<Self>) {
        // Before the gate: who sees that closed finds that jobs are refused.
        // So are polls on lowered threads; those that wait are for the workers to end, which may be gone once it is closed.
        let polls = || self.crews().iter().flat_map(|crew| crew.close()).collect::<Vec<_>>();
        // These, and what is offered below, may run destructors: by this thread, whichever it is.
        for task in on_behalf(polls) {
            self.end_lowered(task);
        }
        for (core, loan) in on_behalf(|| self.close_gate()) {
            self.offer(core, loan);
        }
    }

    /// Closes the gate, and wakes everybody. The cores that are on loan: a call may be waiting for what is queued behind it to be
    /// dropped.
    fn close_gate(&self) -> Vec<(usize, Loan)> {
        if !self.gate.close() {
            return Vec::new();
        }
        // Ordering: SeqCst fence, partner of the one in `Worker::leave_core`: either we see the loan below, or the lender sees
        // that the gate is closed.
        fence(SeqCst);
        self.scheduler.close();
        self.scheduler.yielded.wake_threads();
        self.wake_all_workers();
        self.posts.iter().for_each(|post| post.home.unpark());
        self.monitor.call();
        let on_loan = |(core, post): (usize, &Post)| Some((core, post.lease.on_loan()?));
        self.posts.iter().map(|post| &**post).enumerate().filter_map(on_loan).collect()
    }

    /// A poll has returned that had lost its core. The thread is done with its task. `drop_own` drops what nobody else may.
    pub(crate) fn leave_after_poll(self: &Arc<Self>, drop_own: impl Fn()) {
        if self.gate.phase() != Phase::Open {
            // C2: what registered in this poll may have been woken by nobody.
            drop_unattended(self);
            drop_own();
        }
        self.leave(drop_own);
    }

    /// One fewer inside; the last to leave does what the last does.
    pub(crate) fn leave(self: &Arc<Self>, drop_own: impl Fn()) {
        if self.gate.leave() {
            drop_own();
            without_workers(self);
        }
    }

    /// The last step: nothing is left but what came too late, and nobody takes turns at the reactor any more.
    pub(crate) fn terminate(&self) {
        self.meter.end(self.now());
        self.gate.terminate(|| drop_injected(&self.scheduler));
        self.monitor.call();
        self.reactor.close();
        // Another that was the last before this one may be asleep, waiting for what is gone now: a spare core may have been
        // taken after all others had left.
        self.wake_all_workers();
    }

    pub(crate) fn wake_all_workers(&self) {
        for worker in self.scheduler.idle.wake_all() {
            self.call(worker);
        }
    }
}

type Threads = Vec<thread::JoinHandle<()>>;

/// Closes the runtime, and gives back the threads to wait for. None in a forked child: there is nothing to wake and
/// nobody to wait for, and the handles are of threads that do not exist here.
fn close(shared: &Arc<Shared>, threads: Threads) -> Option<Threads> {
    if shared.birth.is_elsewhere() {
        std::mem::forget(threads);
        return None;
    }
    shared.close();
    Some(threads)
}

/// Shuts down and joins the threads; on one of them, without joining.
pub(crate) fn and_join(shared: &Arc<Shared>, threads: Threads) {
    let Some(threads) = close(shared, threads) else { return };
    if is_one_of(shared, &threads) {
        return;
    }
    waiting::until_ended(shared);
    for thread in threads {
        // A worker contains every panic of user code; if one of our own killed it, its message was printed.
        let _panicked = thread.join();
    }
    for thread in shared.crews().iter().flat_map(|crew| crew.take_handles()) {
        let _panicked = thread.join();
    }
    for thread in shared.proxy.take_handles() {
        let _panicked = thread.join();
    }
}

/// Shuts down without waiting. Blocking jobs that have no thread yet are cancelled.
pub(crate) fn and_give_up(shared: &Arc<Shared>, threads: Threads) {
    if let Some(_threads) = close(shared, threads) {
        shared.crews().iter().for_each(|crew| drop(crew.give_up(shared)));
    }
}

/// Shuts down and waits until the deadline. What is stuck by then.
pub(crate) fn with_timeout(shared: &Arc<Shared>, threads: Threads, timeout: Duration) -> ShutdownReport {
    let Some(threads) = close(shared, threads) else { return ShutdownReport::clean() };
    let closed = Instant::now();
    let inside = is_one_of(shared, &threads);
    let timeout = if inside { Duration::ZERO } else { timeout };
    // A timeout beyond the end of time is none.
    let deadline = Instant::now().checked_add(timeout);
    let mut stuck = shared.gate.wait_ended(deadline);
    // If one worker came to its end, it has dropped whatever could be reached. If all are held up, nobody has.
    let held_up = |&worker: &usize| shared.posts[worker].running().is_some();
    // Not from inside one of them: there the caller is the one that holds up, with whatever locks its task has taken.
    if !inside && stuck.len() >= shared.workers() && stuck.iter().all(held_up) {
        drop_unattended(shared);
        stuck = shared.gate.wait_ended(Some(Instant::now()));
    }
    let _in_time = shared.crews().map(|crew| crew.wait_ended(deadline));
    let left = shared.crews().map(|crew| crew.give_up(shared));
    let report = ShutdownReport::new(shared, &stuck, left, closed);
    if report.is_clean() {
        and_join(shared, threads);
    }
    report
}

/// Comes to the end in the place of workers that never started, after those that did have been joined.
pub(crate) fn without_workers(shared: &Arc<Shared>) {
    while {
        drop_unattended(shared);
        // What is left was claimed by a waker that has not queued it yet.
        shared.registry.len() > 0
    } {
        thread::yield_now();
    }
    let _inside = context::Entered::new(shared.clone());
    shared.terminate();
}

/// Whether this is one of the runtime's own threads, which cannot wait for itself. By id, and not by the worker that
/// runs here: hooks and thread-local destructors run when there is none any more.
fn is_one_of(shared: &Shared, threads: &Threads) -> bool {
    let me = thread::current().id();
    threads.iter().any(|thread| thread.thread().id() == me) || shared.crews().iter().any(|crew| crew.has(me))
}

/// Drops on this thread what waits or is queued, while the workers that should are stuck.
fn drop_unattended(shared: &Arc<Shared>) {
    // What a destructor spawns is refused by this runtime, and not taken by the default one.
    let _inside = context::Entered::new(shared.clone());
    shared.registry.for_each(Meta::wake);
    while let Some(task) = shared.scheduler.take_any() {
        drop(task);
    }
    // The last worker may be asleep, waiting for one of these.
    shared.wake_all_workers();
}
