//! The end of a runtime. The protocol is in `shutdown.md` beside this file; C1, J1 and the like in
//! the comments are its steps.

use super::{Shared, ShutdownReport, context, tokio, waiting};
use crate::handoff::Loan;
use crate::sched::{PointerSized, Scheduler};
use crate::sync::{AtomicU8, AtomicUsize, fence};
use crate::task::Meta;
use crate::worker::Post;
use giveway_io::driver::on_behalf;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How far the end of a runtime has come. It only goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Tasks are accepted and run.
    Open,
    /// No task is accepted; those that are left are dropped.
    Closing,
    /// The last worker has left. Nothing of the runtime runs any more.
    Terminated,
}

/// The phase of a runtime, and which of its workers are still there.
pub(crate) struct Gate {
    /// A [`Phase`]. Written by the closing thread (`close`) and by the last worker (`terminate`),
    /// read by workers at each turn and by spawns.
    phase: AtomicU8,
    /// How many threads may still poll or drop a task: the holders of cores, threads that are in a
    /// poll and have lost their core, and lowered threads in a poll. The thread that takes it to
    /// zero is the last: it waits for tasks that a waker has claimed and not queued yet.
    inside: AtomicUsize,
    /// For each core, spare ones included: its holder has nothing left to do, or it has no holder.
    /// Read by threads that wait with a deadline.
    ended: Mutex<Vec<bool>>,
    /// Notified whenever a core ends.
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
        // Ordering: acquire, partner of the stores in `close` and `terminate`: a thread that sees a
        // phase sees what was done before it. Where a store-load order is needed too, a fence
        // stands beside the call.
        match self.phase.load(Acquire) {
            0 => Phase::Open,
            1 => Phase::Closing,
            _ => Phase::Terminated,
        }
    }

    /// Goes from open to closing. Returns false if another thread has done so before.
    pub(crate) fn close(&self) -> bool {
        // Ordering: AcqRel, partner of the load in `phase`. A worker that is about to sleep sees
        // the new phase through the lock of the sleepers.
        self.phase
            .compare_exchange(Phase::Open as u8, Phase::Closing as u8, AcqRel, Acquire)
            .is_ok()
    }

    /// Counts one more inside: a poll that is about to lose its core to the caller
    /// (`handoff/hand_off.md`), or one that the caller, a lowered thread, is about to make.
    pub(crate) fn join(&self) {
        // Ordering: acquire, partner of the release in `leave`: a thread that joins after the last
        // one has left sees that the gate is closed. No release: what the caller publishes goes by
        // the lease, which it takes next.
        self.inside.fetch_add(1, Acquire);
    }

    /// Counts one fewer inside: the caller has dropped all tasks that it could reach. Returns true
    /// for the last thread.
    pub(crate) fn leave(&self) -> bool {
        // Ordering: AcqRel: the last thread sees all that the others did, above all their
        // registrations.
        self.inside.fetch_sub(1, AcqRel) == 1
    }

    /// Takes `workers` off the count and marks them as ended: the OS refused their threads.
    pub(crate) fn never_started(&self, workers: std::ops::Range<usize>) {
        // Ordering: relaxed; the caller closes the gate afterwards, which publishes it.
        self.inside.fetch_sub(workers.len(), Relaxed);
        self.lock_ended()[workers].fill(true);
    }

    /// Goes from closing to terminated (C5). The registry is empty by now, and so is every queue,
    /// except for spawns that saw the gate open and have not pushed yet.
    pub(crate) fn terminate(&self, drop_injected: impl FnOnce()) {
        // Ordering: release, partner of the acquire in `phase`: a thread that sees this phase sees
        // every result (`Waiter::verdict`). The SeqCst fence behind the store is the partner of the
        // one in `after_inject`. The spawn's fence stands between its push and its look at the
        // phase; this one stands between the phase and a look at the queue. So at least one side
        // sees the other's write, and drops the task. Without the fences both could miss it.
        self.phase.store(Phase::Terminated as u8, Release);
        fence(SeqCst);
        drop_injected();
    }

    /// Drops what is in the injector if the runtime has terminated (N3). A spawn from outside calls
    /// it after its push.
    pub(crate) fn after_inject(&self, drop_injected: impl FnOnce()) {
        // Ordering: SeqCst fence, partner of the one in `terminate`.
        fence(SeqCst);
        if self.phase() == Phase::Terminated {
            drop_injected();
        }
    }

    /// Marks that the holder of this core has nothing left to do.
    pub(crate) fn core_ended(&self, core: usize) {
        self.lock_ended()[core] = true;
        self.one_more_ended.notify_all();
    }

    /// Marks that a thread has come to hold this core, which may be a spare one.
    pub(crate) fn core_held(&self, core: usize) {
        self.lock_ended()[core] = false;
    }

    /// Waits until the holder of every core has ended, or for the deadline. Returns the cores whose
    /// holders have not.
    pub(super) fn wait_ended(&self, deadline: Option<Instant>) -> Vec<usize> {
        let ended = wait_while(&self.one_more_ended, self.lock_ended(), deadline, |ended| {
            ended.contains(&false)
        });
        (0..ended.len()).filter(|&worker| !ended[worker]).collect()
    }

    fn lock_ended(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the state behind a lock to change until `waits` returns false, or for the deadline.
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

/// Drops what is in the queues that belong to no core. No lock is held meanwhile.
pub(crate) fn drop_injected<T: PointerSized>(scheduler: &Scheduler<T>) {
    while let Some(task) = scheduler.take_global() {
        drop(task);
    }
}

impl Shared {
    /// Closes the runtime and makes all its threads go to their end (J1 and C1). Does not wait.
    pub(crate) fn close(self: &Arc<Self>) {
        // 1. No job is accepted any more. This comes before the gate, so that a thread that sees
        //    the gate closed finds that jobs are refused. Polls on lowered threads are refused from
        //    here on, too.
        let polls = || self.pools().iter().flat_map(|pool| pool.close()).collect::<Vec<_>>();
        // 2. Polls that waited for a lowered thread go to the workers, which end them. Also before
        //    the gate: once the gate is closed, the last worker may be gone. This step and step 4
        //    may run destructors, on the calling thread, even if that is a lowered one.
        for task in on_behalf(polls) {
            self.end_lowered(task);
        }
        // 3. The gate, and the wake-ups behind it.
        for (core, loan) in on_behalf(|| self.close_gate()) {
            // 4. A thread is sent for each core on loan: a blocking call may wait for what is
            //    queued there.
            self.offer(core, loan);
        }
    }

    /// Closes the gate and wakes all threads of the runtime. Returns the cores that are on loan: a
    /// blocking call may wait for something that is queued on its core to be dropped, so another
    /// thread has to come for that core.
    fn close_gate(&self) -> Vec<(usize, Loan)> {
        // 1. The gate is closed before any thread is woken: a thread that looked before would go
        //    back to sleep.
        if !self.gate.close() {
            return Vec::new();
        }
        // Ordering: SeqCst fence, partner of the one in `Worker::leave_core`: either this thread
        // sees the loan in step 3, or the lender sees that the gate is closed. A weaker fence does
        // not order the store of the phase before the load of the lease.
        fence(SeqCst);
        // 2. Polite tasks are asked to give way. Then every thread that may be parked is woken:
        //    those of `block_on` in the yield queue, idle workers, home threads that wait for their
        //    core or their last pinned tasks, the monitor.
        self.scheduler.close();
        self.scheduler.yielded.wake_threads();
        self.wake_all_workers();
        self.posts.iter().for_each(|post| post.home.unpark());
        self.monitor.call();
        // 3. The loans that were open behind the fence.
        let on_loan = |(core, post): (usize, &Post)| Some((core, post.lease.on_loan()?));
        self.posts.iter().map(|post| &**post).enumerate().filter_map(on_loan).collect()
    }

    /// Leaves the gate after a poll that had no core when it returned. The thread is done with its
    /// task. `drop_own` drops what only the calling thread may drop.
    pub(crate) fn leave_after_poll(self: &Arc<Self>, drop_own: impl Fn()) {
        if self.gate.phase() != Phase::Open {
            // C2: a task that registered in this poll may not have been woken by any other thread.
            drop_unattended(self);
            drop_own();
        }
        self.leave(drop_own);
    }

    /// Counts one fewer inside. The last thread to leave also does C4 and C5.
    pub(crate) fn leave(self: &Arc<Self>, drop_own: impl Fn()) {
        if self.gate.leave() {
            drop_own();
            without_workers(self);
        }
    }

    /// Does the last step (C5). Nothing is left but tasks that came too late, and no worker takes
    /// turns at the reactor any more.
    pub(crate) fn terminate(&self) {
        self.meter.end(self.now());
        self.gate.terminate(|| drop_injected(&self.scheduler));
        self.monitor.call();
        self.reactor.close();
        // Another thread that was the last before this one may be asleep in C4, waiting for a task
        // that is gone now: a spare core may have been taken after all others had left.
        self.wake_all_workers();
    }

    /// Takes every worker out of the idle set and wakes it.
    pub(crate) fn wake_all_workers(&self) {
        for worker in self.scheduler.idle.wake_all() {
            self.call(worker);
        }
    }
}

type Threads = Vec<thread::JoinHandle<()>>;

/// Closes the runtime, and returns the threads to wait for. Returns `None` in a forked child: there
/// is nothing to wake and nothing to wait for, and the handles belong to threads that do not exist
/// there.
fn close(shared: &Arc<Shared>, threads: Threads) -> Option<Threads> {
    if shared.process.in_forked_child() {
        std::mem::forget(threads);
        return None;
    }
    shared.close();
    Some(threads)
}

/// Shuts down and joins the threads. Called on one of them, it does not join.
pub(crate) fn and_join(shared: &Arc<Shared>, threads: Threads) {
    let Some(threads) = close(shared, threads) else { return };
    if is_one_of(shared, &threads) {
        return;
    }
    waiting::until_ended(shared);
    for thread in threads {
        // A worker contains every panic of user code. If a panic of the runtime's own killed it,
        // the message was printed.
        let _panicked = thread.join();
    }
    for thread in shared.pools().iter().flat_map(|pool| pool.take_handles()) {
        let _panicked = thread.join();
    }
    // After the lowered threads, which call a proxy until they end.
    for thread in shared.proxy.take_handles() {
        let _panicked = thread.join();
    }
}

/// Shuts down without waiting. Blocking jobs that have no thread yet are cancelled.
pub(crate) fn and_give_up(shared: &Arc<Shared>, threads: Threads) {
    if let Some(_threads) = close(shared, threads) {
        shared.pools().iter().for_each(|pool| drop(pool.give_up(shared)));
    }
}

/// Shuts down and waits until the deadline. Reports what is stuck by then.
pub(crate) fn with_timeout(
    shared: &Arc<Shared>,
    threads: Threads,
    timeout: Duration,
) -> ShutdownReport {
    let Some(threads) = close(shared, threads) else { return ShutdownReport::clean() };
    let closed = Instant::now();
    let inside = is_one_of(shared, &threads);
    let timeout = if inside { Duration::ZERO } else { timeout };
    // A deadline that no `Instant` can express is none.
    let deadline = Instant::now().checked_add(timeout);
    let mut stuck = shared.gate.wait_ended(deadline);
    // If one worker came to its end, it has dropped every task that could be reached. If all are
    // held up, no worker has: the caller does it.
    let held_up = |&worker: &usize| shared.posts[worker].running().is_some();
    // Not on a thread of the runtime itself: there the caller is the one that is held up, and its
    // task may hold locks that a destructor takes.
    if !inside && stuck.len() >= shared.workers() && stuck.iter().all(held_up) {
        drop_unattended(shared);
        stuck = shared.gate.wait_ended(Some(Instant::now()));
    }
    let _in_time = shared.pools().map(|pool| pool.wait_ended(deadline));
    let left = shared.pools().map(|pool| pool.give_up(shared));
    let mut report = ShutdownReport::new(shared, &stuck, left, closed);
    if !inside && !shared.tokio.wait_ended(deadline) {
        if shared.gate.phase() == Phase::Terminated {
            report.add_tokio(shared);
        } else {
            // The monitor does not come to it before the tasks that are stuck are gone.
            shared.tokio.give_up();
        }
    }
    if report.is_clean() {
        and_join(shared, threads);
    }
    report
}

/// Does C4 and C5 on a thread without a core: the builder's, when the OS refused a thread, or the
/// last thread to leave the gate if that is not a worker in its loop.
pub(crate) fn without_workers(shared: &Arc<Shared>) {
    while {
        drop_unattended(shared);
        // What is left in the registry was claimed by a waker that has not queued it yet.
        shared.registry.len() > 0
    } {
        thread::yield_now();
    }
    let _inside = context::Entered::new(shared.clone());
    shared.terminate();
}

/// Returns whether the calling thread is one of the runtime's own, which cannot wait for itself.
/// Compares ids, and does not ask for the worker of the thread: in hooks and thread-local
/// destructors there is none any more.
fn is_one_of(shared: &Shared, threads: &Threads) -> bool {
    let me = thread::current().id();
    threads.iter().any(|thread| thread.thread().id() == me)
        || shared.pools().iter().any(|pool| pool.has(me))
        || tokio::is_thread_of(shared)
}

/// Drops on the calling thread what waits or is queued (C2 without a core).
fn drop_unattended(shared: &Arc<Shared>) {
    // A task that a destructor spawns is refused by this runtime, and not accepted by the default
    // one.
    let _inside = context::Entered::new(shared.clone());
    shared.registry.for_each(Meta::wake);
    // Taken on behalf of this thread, and dropped by it, because destructors run.
    while let Some(task) = on_behalf(|| shared.scheduler.take_any()) {
        drop(task);
    }
    // The last worker may be asleep, waiting for one of these tasks.
    shared.wake_all_workers();
}
