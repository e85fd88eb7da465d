//! The threads that block: they run the jobs of `spawn_blocking`, and stand in for workers that
//! block in a task.
//!
//! One lock guards everything, and each thread has its own place to park. Threads that wait for a
//! duty are called in reverse order: those that have waited longest reach the end of their
//! patience, and end.
//!
//! Growth is in two steps. Some threads are started at once when a job comes and no thread is free
//! to take it. After that the monitor adds a few at a time while jobs wait. That throttles growth,
//! so a burst of ten thousand short jobs does not make hundreds of threads, but never stops it,
//! because jobs may wait for each other. There are at most as many lowered threads as workers, and
//! more only if jobs wait and none of the running ones comes to its end.
//!
//! This is not the `blocking` crate, because that has one pool for the process, which cannot be
//! shut down or asked what it is stuck in; a job there waits for ever if the OS refuses its first
//! thread; and it cannot lend a thread to a core.

mod end;
mod serve;
mod state;

pub(crate) use end::Left;
use state::State;
pub(crate) use state::Work;

use crate::handoff::Loan;
use crate::os;
use crate::runtime::{Shared, context};
use crate::task::{Class, Runnable, refuse};
use giveway_io::driver::on_behalf;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How a pool is made up.
#[derive(Debug, Clone)]
pub(crate) struct PoolConfig {
    pub(crate) thread_name: String,
    pub(crate) stack_size: Option<usize>,
    /// The most threads that run jobs, not counting those that stand in for workers.
    pub(crate) most: usize,
    /// How many threads are started as soon as there is something to do.
    pub(crate) prompt: usize,
    /// As [`Self::most`], plus the threads that are started because no other comes back from its
    /// job.
    pub(crate) most_with_relief: usize,
    /// How long a thread waits for the next duty before it ends.
    pub(crate) keep_alive: Duration,
    pub(crate) kind: Kind,
}

/// What the threads of a pool are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blocking jobs, and standing in for workers.
    Blocking,
    /// Blocking jobs of the background, on lowered threads.
    Background,
    /// Polls of background tasks that the OS is to preempt (`lowered.rs`), on lowered threads.
    Lowered,
}

impl Kind {
    fn class(self) -> Class {
        if self == Self::Blocking { Class::Foreground } else { Class::Background }
    }

    /// Returns the part of the threads' names that says the kind.
    fn suffix(self) -> &'static str {
        match self {
            Self::Blocking => "bl",
            Self::Background => "bg",
            Self::Lowered => "lo",
        }
    }
}

/// What is left to the caller when the OS refuses a thread: jobs that no other thread is sure to
/// take.
#[must_use = "its handles have to be told"]
struct Unserved {
    jobs: VecDeque<Runnable>,
    given_up: VecDeque<Runnable>,
    error: io::Error,
}

/// How many jobs and threads there are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolStats {
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) threads: usize,
}

/// The blocking threads of one runtime.
pub(crate) struct Pool {
    config: PoolConfig,
    /// Guards everything that the threads share. No user code runs under it.
    state: Mutex<State>,
    /// Notified when a thread has ended or is away no more: what [`Self::wait_ended`] waits for.
    one_fewer: Condvar,
    /// Whether jobs wait and no thread was free to take them. Set by the thread that finds that,
    /// cleared by the monitor under the lock.
    stalled: AtomicBool,
    /// How many jobs wait. Written under the lock; read by the yield points of lowered polls, by
    /// dumps, and by the monitor before it sleeps.
    queued: AtomicUsize,
    /// How many jobs were begun. Written under the lock, read by the monitor.
    begun: AtomicU64,
    /// How many threads are in a job. Written under the lock, read by workers that would linger.
    running: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            config,
            state: Mutex::default(),
            one_fewer: Condvar::new(),
            stalled: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            running: AtomicUsize::new(0),
        }
    }

    /// Returns the count of the jobs, or polls, that wait for a thread.
    pub(crate) fn queued(&self) -> &AtomicUsize {
        &self.queued
    }

    /// Returns whether any job, or poll, waits for a thread.
    pub(crate) fn has_queue(&self) -> bool {
        // Ordering: relaxed. It is a hint to all callers but one. The monitor that goes to sleep
        // must not miss a job: it has the fence of `Monitor::sleep` before this load. A thread that
        // queues a job and calls no other thread for it (`queue`, `take_turns`) has the fence of
        // `Monitor::rouse` after its store.
        self.queued.load(Relaxed) > 0
    }

    /// Returns the stack size that was set for the runtime's threads.
    pub(crate) fn stack_size(&self) -> Option<usize> {
        self.config.stack_size
    }

    pub(crate) fn kind(&self) -> Kind {
        self.config.kind
    }

    /// Returns whether any thread was in a job a moment ago.
    pub(crate) fn is_at_work(&self) -> bool {
        // Ordering: relaxed; a hint.
        self.running.load(Relaxed) > 0
    }

    /// Publishes how many jobs wait, and how many run.
    fn publish(&self, state: &State) {
        // Ordering: relaxed, both; hints. For the monitor that goes to sleep see `has_queue`.
        self.queued.store(state.jobs.len(), Relaxed);
        self.running.store(state.running, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job. Gives it back if the pool is closed.
    pub(crate) fn submit(&self, shared: &Arc<Shared>, job: Runnable) -> Result<(), Runnable> {
        on_behalf(|| self.queue(shared, job)).map(|unserved| self.refuse(shared, unserved))
    }

    fn queue(&self, shared: &Arc<Shared>, job: Runnable) -> Result<Option<Unserved>, Runnable> {
        let mut state = self.lock();
        if state.closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.publish(&state);
        if state.running < self.most_running(&state) {
            return Ok(self.call_one(shared, state, self.config.prompt.min(self.config.most)));
        }
        // A thread that is done with its job takes this one. The monitor starts one more if none
        // is.
        drop(state);
        shared.monitor.rouse();
        Ok(None)
    }

    /// Sends a thread of the pool for a core. If no thread can be had, the lender keeps its core.
    pub(crate) fn send_stand_in(&self, shared: &Arc<Shared>, core: usize, loan: Loan) {
        let unserved = on_behalf(|| {
            let mut state = self.lock();
            // An earlier loan of this core is over.
            state.loans.retain(|(other, _)| *other != core);
            state.loans.push_back((core, loan));
            if shared.is_spare(core) {
                state.hurry_next();
            }
            self.call_one(shared, state, usize::MAX)
        });
        self.refuse(shared, unserved);
    }

    /// Wakes an idle thread for what was just queued, or starts one if fewer than `limit` threads
    /// are there for jobs.
    fn call_one(
        &self,
        shared: &Arc<Shared>,
        mut state: MutexGuard<'_, State>,
        limit: usize,
    ) -> Option<Unserved> {
        if let Some((_, parker)) = state.idle.pop() {
            drop(state);
            parker.unpark();
            None
        } else if state.job_threads() < limit && state.members.len() < self.most_threads(shared) {
            let number = state.reserve();
            drop(state);
            self.start(shared, number)
        } else {
            // A loan needs nothing more: the next thread that is done with its duty looks for loans
            // first.
            let jobs_wait = !state.jobs.is_empty();
            drop(state);
            if jobs_wait {
                self.stall(shared);
            }
            None
        }
    }

    /// Tells the monitor that jobs wait and no thread is free to take them.
    fn stall(&self, shared: &Shared) {
        self.stalled.store(true, Relaxed);
        shared.monitor.call();
    }

    fn most_threads(&self, shared: &Shared) -> usize {
        self.config.most_with_relief.saturating_mul(2).saturating_add(shared.posts.len())
    }

    /// Returns whether jobs wait that no thread was free to take.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// Starts a few more threads if jobs wait. Only the monitor may call this.
    pub(crate) fn grow(&self, shared: &Arc<Shared>) {
        let mut state = self.lock();
        let room = self.most_running(&state).saturating_sub(state.job_threads());
        let some = (state.job_threads() / 4 + 1).min(room).min(state.jobs.len());
        let all_run = state.running >= self.most_running(&state);
        if state.jobs.is_empty() || all_run || room == 0 && state.idle.is_empty() {
            // Nothing waits, or there are as many threads as there may be, and one that is done
            // with a job takes the next.
            self.stalled.store(false, Relaxed);
        } else if let Some((_, parker)) = state.idle.pop() {
            parker.unpark();
        }
        let numbers: Vec<_> = (0..some).map(|_| state.reserve()).collect();
        drop(state);
        for number in numbers {
            let unserved = self.start(shared, number);
            self.refuse(shared, unserved);
        }
    }

    /// Returns how many jobs may run at a time.
    fn most_running(&self, state: &State) -> usize {
        self.config.most + state.relief
    }

    /// Returns how many jobs were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// Lets one more job run than usual, until none waits. No thread has come back for a job for
    /// long, and the running jobs may wait for queued ones. Only the monitor may call this.
    ///
    /// A closed pool may be in the same state, because the jobs that it has accepted still run.
    pub(crate) fn relieve(&self, shared: &Arc<Shared>) {
        let mut state = self.lock();
        if state.jobs.is_empty() || self.most_running(&state) >= self.config.most_with_relief {
            return;
        }
        state.relief += 1;
        let limit = self.most_running(&state);
        let unserved = self.call_one(shared, state, limit);
        self.refuse(shared, unserved);
    }

    /// Starts a thread. If the OS refuses it, returns what is left for the caller to
    /// [refuse](Self::refuse).
    fn start(&self, shared: &Arc<Shared>, number: u64) -> Option<Unserved> {
        let kind = self.config.kind;
        let name = format!("{}-{}{number}", self.config.thread_name, kind.suffix());
        let mut thread = thread::Builder::new().name(name);
        if let Some(bytes) = self.config.stack_size {
            thread = thread.stack_size(bytes);
        }
        let (serving, hurried) = (shared.clone(), os::is_hurried());
        let serve = move || {
            if hurried {
                os::note_hurried();
            }
            serve::serve(&serving, kind, number);
        };
        match thread.spawn(serve) {
            Ok(handle) => {
                let mut state = self.lock();
                match state.members.get_mut(&number) {
                    Some(member) => member.handle = Some(handle),
                    None => state.retired.push(handle),
                }
                None
            }
            Err(error) => Some(self.refused(shared, number, error)),
        }
    }

    /// Accounts for a thread that the OS refused. Other threads come to the jobs when they can. If
    /// there are no others, no thread does, and the jobs are returned.
    #[cold]
    fn refused(&self, shared: &Arc<Shared>, number: u64, error: io::Error) -> Unserved {
        let mut state = self.lock();
        state.members.remove(&number);
        state.serving -= 1;
        let left = if state.job_threads() > 0 {
            if !state.jobs.is_empty() {
                // The monitor tries again.
                self.stall(shared);
            }
            VecDeque::new()
        } else {
            state.loans.clear();
            std::mem::take(&mut state.jobs)
        };
        self.publish(&state);
        // No thread is sure to come to these, and they own things of the user's that must not wait
        // for one.
        let given_up = std::mem::take(&mut state.given_up);
        drop(state);
        self.one_fewer.notify_all();
        // The monitor may wait for the queue to be empty.
        shared.monitor.call();
        Unserved { jobs: left, given_up, error }
    }

    /// Ends the jobs that no thread is sure to take.
    ///
    /// Called with no lock held, by the thread that called the pool, because it runs destructors.
    fn refuse(&self, shared: &Arc<Shared>, unserved: Option<Unserved>) {
        let Some(Unserved { jobs, given_up, error }) = unserved else { return };
        // What a destructor spawns is for this runtime to take or to refuse, and not for the
        // default one.
        let _inside = context::Entered::new(shared.clone());
        drop(given_up);
        for job in jobs {
            match self.config.kind {
                // Workers poll these tasks then, and the OS does not preempt them.
                Kind::Lowered => shared.raise(job),
                Kind::Blocking | Kind::Background => refuse(job, &error),
            }
        }
    }

    /// Notes that the poll which lent its core goes on without it. The taker calls this before it
    /// takes the core (T1), so that no thread is away unnoted.
    pub(crate) fn note_away(&self, core: usize, loan: Loan, work: Work) {
        let mut state = self.lock();
        let away = state.away.entry((core, loan)).or_default();
        away.takers += 1;
        away.work.get_or_insert(work);
    }

    /// Undoes [`Self::note_away`] for a taker that did not get the core.
    pub(crate) fn not_away(&self, core: usize, loan: Loan) {
        let mut state = self.lock();
        if let Some(away) = state.away.get_mut(&(core, loan)) {
            away.takers -= 1;
            if away.takers == 0 {
                state.away.remove(&(core, loan));
            }
        }
        drop(state);
        self.one_fewer.notify_all();
    }

    /// Notes that the poll of a thread that is away is over.
    pub(crate) fn poll_ended(&self, core: usize, loan: Loan) {
        if let Some(away) = self.lock().away.get_mut(&(core, loan)) {
            away.work = None;
        }
    }

    /// Forgets the thread that lost its core by this loan: it is no longer away.
    pub(crate) fn forget_away(&self, core: usize, loan: Loan) {
        self.lock().away.remove(&(core, loan));
        self.one_fewer.notify_all();
    }

    /// Returns what a snapshot tells of the pool.
    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.lock();
        PoolStats { queued: state.jobs.len(), running: state.running, threads: state.members.len() }
    }

    /// Returns what the threads do, including polls that go on without a core, then the first
    /// `most` jobs that wait, and how many jobs wait beyond those.
    pub(crate) fn look_at(&self, most: usize) -> (Vec<Work>, Vec<Work>, usize) {
        let state = self.lock();
        let going_on = state.going_on().cloned().collect();
        let queued = state.jobs.iter().take(most).map(Work::of).collect();
        (going_on, queued, state.jobs.len().saturating_sub(most))
    }

    pub(crate) fn class(&self) -> Class {
        self.config.kind.class()
    }

    /// Returns the threads that are in a job, by the numbers the OS gives them.
    pub(crate) fn threads_in_jobs(&self) -> Vec<i32> {
        let state = self.lock();
        state
            .members
            .values()
            .filter(|member| member.doing.is_some())
            .map(|member| member.number)
            .collect()
    }

    /// Returns whether any job is queued or running.
    pub(crate) fn has_jobs(&self) -> bool {
        let state = self.lock();
        !state.jobs.is_empty()
            || !state.away.is_empty()
            || state.members.values().any(|member| member.doing.is_some())
    }
}
