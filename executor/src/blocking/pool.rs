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

pub(crate) use end::Left;

use crate::handoff::Loan;
use crate::lowered;
use crate::os::{self, TimeSlice};
use crate::parker::Parker;
use crate::runtime::{Phase, Shared, context};
use crate::task::{Class, Id, Runnable, refuse};
use crate::worker;
use giveway_io::driver::on_behalf;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// How many times as long as the others the last idle thread waits before it ends: a program that
/// blocks every now and then finds it there.
const LAST_STAYS: u32 = 20;

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

/// What a thread of the pool is called for.
enum Duty {
    Job(Runnable),
    /// Drops a job that the shutdown has given up on.
    Drop(Runnable),
    /// Holds a core, if the loan is still open.
    StandIn(usize, Loan),
}

/// What is left to the caller when the OS refuses a thread: jobs that no other thread is sure to
/// take.
#[must_use = "its handles have to be told"]
struct Unserved {
    jobs: VecDeque<Runnable>,
    given_up: VecDeque<Runnable>,
    error: io::Error,
}

/// What a thread of the pool does next.
enum Next {
    Duty(Duty),
    /// Waits to be called, for this many times as long as a thread is kept.
    Wait {
        patience: u32,
    },
    End,
}

/// What a thread is in, or a job that waits for a thread. For reports.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) id: Id,
    pub(crate) name: Option<String>,
    pub(crate) spawned_at: &'static Location<'static>,
    /// The worker that it ran on before it lost its core; none for a job.
    pub(crate) worker: Option<usize>,
    /// When a thread began it; none for a job that waits for one.
    pub(crate) since: Option<Instant>,
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

#[derive(Default)]
struct State {
    /// The cores that wait for a stand-in, each with its latest loan.
    loans: VecDeque<(usize, Loan)>,
    /// The jobs that were accepted and wait for a thread.
    jobs: VecDeque<Runnable>,
    /// The jobs that the shutdown has given up on, for a thread of the pool to drop.
    given_up: VecDeque<Runnable>,
    /// The threads that wait for a duty. The last is called first.
    idle: Vec<(u64, Arc<Parker>)>,
    /// How many threads will come for a duty, now or after the one they have.
    serving: usize,
    /// How many of those hold a core.
    standing_in: usize,
    /// How many of those are in a job.
    running: usize,
    /// How many jobs may run beyond [`PoolConfig::most`], because jobs wait and none was begun for
    /// long.
    relief: usize,
    /// The threads that have not ended.
    members: HashMap<u64, Member>,
    /// Polls that go on without a core, and home threads that wait for theirs.
    away: HashMap<(usize, Loan), Away>,
    /// Handles of threads that are about to end, for [`Pool::take_handles`].
    retired: Vec<JoinHandle<()>>,
    /// The number of the next thread.
    next: u64,
    /// Whether the pool accepts no more jobs. Those that it accepted before still run.
    closed: bool,
}

/// A thread that lent its core and has lost it, or will lose it if a taker wins.
#[derive(Default)]
struct Away {
    /// What it does without the core; none once its poll is over.
    work: Option<Work>,
    /// How many takers have noted this loan and have not lost it to another thread.
    takers: usize,
}

#[derive(Default)]
struct Member {
    /// Written by the thread itself when it starts, because the handle may come later.
    thread: Option<ThreadId>,
    /// The number by which the OS knows the thread.
    number: i32,
    handle: Option<JoinHandle<()>>,
    doing: Option<Work>,
    /// Whether the thread may have a short time slice: it was called for a spare core, or is new
    /// and has the slice of the thread that started it.
    prompt: bool,
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
        let serving = shared.clone();
        match thread.spawn(move || serve(&serving, kind, number)) {
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

    /// Notes which thread of the OS the calling one is.
    fn started(&self, me: u64) {
        let (thread, number) = (thread::current().id(), os::this_thread());
        on_behalf(|| {
            if let Some(member) = self.lock().members.get_mut(&me) {
                (member.thread, member.number) = (Some(thread), number);
            }
        });
    }

    /// Waits for the next duty. Returns none when the thread is to end.
    fn next(&self, shared: &Shared, me: u64, parker: &Arc<Parker>) -> Option<Duty> {
        loop {
            let patience = match on_behalf(|| self.take_duty(shared, me, parker)) {
                Next::Duty(duty) => return Some(duty),
                Next::End => return None,
                Next::Wait { patience } => patience,
            };
            let deadline =
                Instant::now().checked_add(self.config.keep_alive.saturating_mul(patience));
            let called = match deadline {
                Some(deadline) => parker.park_until(deadline),
                None => {
                    parker.park();
                    true
                }
            };
            if !called {
                if on_behalf(|| self.give_up_waiting(me)) {
                    return None;
                }
                // It was called just before it gave up, so its token is there or about to be.
                parker.park();
            }
        }
    }

    /// Has the calling thread compete with others as any thread does from now on.
    fn slow_down(&self, state: &mut State, me: u64) {
        // Lowered threads have a slice of their own, and run this on their proxy.
        if self.class() == Class::Foreground
            && let Some(member) = state.members.get_mut(&me)
            && std::mem::take(&mut member.prompt)
        {
            TimeSlice::Ordinary.ask();
        }
    }

    /// Returns what a thread that is done with its duty does next. If there is nothing, the thread
    /// is among the idle ones from now on.
    fn take_duty(&self, shared: &Shared, me: u64, parker: &Arc<Parker>) -> Next {
        let mut state = self.lock();
        state.doing(me, None);
        // 1. A core, before any job: what is queued on the core waits for it. Also while the
        //    runtime closes, because what is queued there is to be dropped.
        if let Some((core, loan)) = state.loans.pop_front() {
            state.standing_in += 1;
            if !shared.is_spare(core) {
                self.slow_down(&mut state, me);
            }
            if !state.jobs.is_empty() && !self.is_stalled() {
                // This thread may have been called for one of the jobs.
                self.stall(shared);
            }
            return Next::Duty(Duty::StandIn(core, loan));
        }
        // 2. A job.
        if state.running < self.most_running(&state)
            && let Some(job) = state.jobs.pop_front()
        {
            self.begin(&mut state, me, &job);
            self.slow_down(&mut state, me);
            if state.is_drained() {
                shared.monitor.call();
            }
            return Next::Duty(Duty::Job(job));
        }
        // 3. A job to be dropped, after those that are to run.
        if let Some(job) = state.given_up.pop_front() {
            state.doing(me, Some(Work::of(&job)));
            return Next::Duty(Duty::Drop(job));
        }
        // 4. The end, when nothing is left. Idle threads do not wait for a closed pool.
        if state.closed {
            // If jobs are left, as many threads as may be are in one, and take these next.
            state.serving -= 1;
            return Next::End;
        }
        // 5. Nothing. Under the same lock as the looks above, so that what is queued later finds
        //    this thread idle.
        self.publish(&state);
        let patience = if state.idle.is_empty() { LAST_STAYS } else { 1 };
        state.idle.push((me, parker.clone()));
        Next::Wait { patience }
    }

    /// Notes that a thread has taken a job from the queue.
    fn begin(&self, state: &mut State, me: u64, job: &Runnable) {
        // Ordering: relaxed; a count.
        self.begun.fetch_add(1, Relaxed);
        if state.jobs.is_empty() {
            state.relief = 0;
        }
        state.doing(me, Some(Work::of(job)));
        self.publish(state);
    }

    /// Puts a task to the back of the queue and takes the first one, in a single visit, because
    /// each visit costs a lowered thread a call of the proxy.
    ///
    /// Returns none if the thread is to look for its next duty as usual, and gives the task back if
    /// the pool is closed.
    fn take_turns(
        &self,
        shared: &Shared,
        me: u64,
        again: Runnable,
    ) -> Result<Option<Runnable>, Runnable> {
        let mut state = self.lock();
        if state.closed {
            return Err(again);
        }
        let is_one_too_many = state.running > self.most_running(&state);
        if is_one_too_many && !state.jobs.is_empty() {
            // This thread is there because no other came back for those that wait (`relieve`), and
            // the first of them has begun. The others may wait for this task, and no thread is
            // called for it, so the monitor has to know: it may be about to sleep.
            state.jobs.push_back(again);
            self.publish(&state);
            drop(state);
            shared.monitor.rouse();
            return Ok(None);
        }
        // Nothing else waits, or this thread would take the first job anyway.
        state.jobs.push_back(again);
        let first = state.jobs.pop_front();
        first.iter().for_each(|job| self.begin(&mut state, me, job));
        Ok(first)
    }

    /// Takes a thread that has waited for long enough off the idle ones, so that it may end.
    /// Returns false if it was called at this moment.
    fn give_up_waiting(&self, me: u64) -> bool {
        let mut state = self.lock();
        let place = state.idle.iter().position(|(number, _)| *number == me);
        if let Some(place) = place {
            state.idle.remove(place);
            state.serving -= 1;
        }
        place.is_some()
    }

    /// Notes that a thread has done its job, for the detection of deadlocks and for reports of a
    /// shutdown.
    fn idle_again(&self, me: u64) {
        on_behalf(|| self.lock().doing(me, None));
    }

    /// Notes that a thread that has held a core is back.
    fn stood_in(&self) {
        self.lock().standing_in -= 1;
    }

    /// Takes a thread that has nothing left to do off the pool.
    fn ended(&self, me: u64) {
        on_behalf(|| {
            let mut state = self.lock();
            let handle = state.members.remove(&me).and_then(|member| member.handle);
            state.retired.retain(|thread| !thread.is_finished());
            state.retired.extend(handle);
            drop(state);
            self.one_fewer.notify_all();
        });
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

impl State {
    /// Returns what the threads do, with and without a core.
    fn going_on(&self) -> impl Iterator<Item = &Work> {
        let away = self.away.values().filter_map(|away| away.work.as_ref());
        self.members.values().filter_map(|member| member.doing.as_ref()).chain(away)
    }

    /// Returns whether no job is left to begin, and none will come.
    fn is_drained(&self) -> bool {
        self.closed && self.jobs.is_empty()
    }

    /// Returns how many threads there are for jobs.
    fn job_threads(&self) -> usize {
        self.serving - self.standing_in
    }

    /// Counts a thread that is about to be started, and returns its number.
    fn reserve(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.serving += 1;
        self.members.insert(number, Member { prompt: true, ..Member::default() });
        number
    }

    /// Has the thread that is called next run as soon as it is woken: the poll for whose sake it is
    /// called may be on the same CPU.
    fn hurry_next(&mut self) {
        if let Some((number, _)) = self.idle.last()
            && let Some(member) = self.members.get_mut(number)
            && !std::mem::replace(&mut member.prompt, true)
        {
            TimeSlice::Short.ask_for(member.number);
        }
    }

    fn doing(&mut self, me: u64, work: Option<Work>) {
        let work = work.map(|work| Work { since: Some(Instant::now()), ..work });
        if let Some(member) = self.members.get_mut(&me) {
            self.running =
                self.running + usize::from(work.is_some()) - usize::from(member.doing.is_some());
            member.doing = work;
        }
    }
}

impl Work {
    fn of(job: &Runnable) -> Self {
        let meta = job.metadata();
        Self {
            id: meta.id,
            name: meta.name().map(str::to_owned),
            spawned_at: meta.location(),
            worker: None,
            since: None,
        }
    }
}

/// Runs a thread of the pool.
fn serve(shared: &Arc<Shared>, kind: Kind, me: u64) {
    let pool = shared.pool_of(kind);
    match kind.class() {
        Class::Foreground => pool.serve(shared, me),
        Class::Background => lowered::run(shared, &pool.config, || pool.serve(shared, me)),
    }
}

impl Pool {
    fn serve(&self, shared: &Arc<Shared>, me: u64) {
        let (pool, kind, class) = (self, self.kind(), self.class());
        let parker = Arc::new(Parker::new());
        parker.bind();
        pool.started(me);
        let inside = context::Entered::new(shared.clone());
        shared.hooks.thread_started();
        while let Some(duty) = pool.next(shared, me, &parker) {
            match duty {
                Duty::Job(job) => {
                    if kind == Kind::Lowered {
                        pool.serve_polls(shared, me, job);
                        if shared.gate.phase() != Phase::Open {
                            // The thread may drop other tasks below: those are not the job that it
                            // is said to do.
                            pool.idle_again(me);
                        }
                        shared.leave_after_poll(|| ());
                    } else {
                        let id = job.metadata().id;
                        context::in_job(shared, id, class, || job.run());
                    }
                    if shared.deadlocks.is_some() {
                        pool.idle_again(me);
                        shared.monitor.call();
                    }
                }
                Duty::Drop(job) => drop(job),
                Duty::StandIn(core, loan) => {
                    worker::stand_in(shared, core, loan);
                    pool.stood_in();
                }
            }
        }
        shared.hooks.thread_stopping();
        drop(inside);
        pool.ended(me);
    }

    /// Polls a task on this lowered thread, and then others for as long as each goes to the back of
    /// the queue. The caller owes [`Shared::leave_after_poll`].
    ///
    /// At the gate the whole series is one poll. A thread that leaves the gate may have to wait
    /// until all tasks are dropped, so it leaves with none in its hands.
    fn serve_polls(&self, shared: &Arc<Shared>, me: u64, task: Runnable) {
        shared.gate.join();
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let Some(again) = lowered::poll(shared, task) else { return };
            match on_behalf(|| self.take_turns(shared, me, again)) {
                Ok(first) => next = first,
                // With no lock held, and on this thread, because it may run destructors.
                Err(again) => shared.end_lowered(again),
            }
        }
    }
}
