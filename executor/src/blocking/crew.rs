//! The threads that block: they run the jobs of `spawn_blocking`, and stand in for workers that block in a task.
//!
//! One lock, and a parking place for each thread. Who waits for a duty is called in reverse order, so that those who wait
//! the longest get to the end of their patience, and leave. Growth is in two steps: some threads are started at once when
//! there is a job and nobody to take it; after that the monitor adds a few at a time while jobs wait (*throttled*: a burst
//! of ten thousand short jobs does not make hundreds of threads), but always some (jobs may wait for each other). Of lowered
//! threads there are as many as workers, and more only if jobs wait and none of those that run comes to its end.
//!
//! Written here and not taken from the `blocking` crate: that has one pool for the process, which nobody can shut down or
//! ask what it is stuck in; a job waits for ever if the OS refuses its first thread; and it cannot lend a thread to a core.

mod end;

pub(crate) use end::Left;

use super::lease::Loan;
use super::{lowered, proxy};
use crate::os;
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

/// The last thread waits for so many times as long as the others: whoever blocks every now and then finds it there.
const LAST_STAYS: u32 = 20;

/// How a crew is made up.
#[derive(Debug, Clone)]
pub(crate) struct Articles {
    pub(crate) thread_name: String,
    pub(crate) stack_size: Option<usize>,
    /// How many threads there may be, those that stand in for workers not counted.
    pub(crate) most: usize,
    /// How many are started as soon as there is something to do.
    pub(crate) prompt: usize,
    /// As [`Self::most`], with those that are started because no other comes back from what it does.
    pub(crate) most_with_relief: usize,
    /// How long a thread waits for the next duty before it ends.
    pub(crate) keep_alive: Duration,
    pub(crate) kind: Kind,
}

/// What the threads of a crew are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blocking jobs, and standing in for workers.
    Blocking,
    /// Blocking jobs of the background. Lowered threads.
    Background,
    /// Polls of background tasks that the OS is to preempt (`lowered.rs`). Lowered threads.
    Lowered,
}

impl Kind {
    fn class(self) -> Class {
        if self == Self::Blocking { Class::Foreground } else { Class::Background }
    }

    /// How threads are named.
    fn suffix(self) -> &'static str {
        match self {
            Self::Blocking => "bl",
            Self::Background => "bg",
            Self::Lowered => "lo",
        }
    }
}

/// What a thread of the crew is called for.
enum Duty {
    Job(Runnable),
    /// To drop a job that the shutdown has given up on.
    Drop(Runnable),
    /// To hold a core, if it is still to be had.
    StandIn(usize, Loan),
}

/// What is left when the OS refuses a thread and there is no other.
#[must_use = "its handles have to be told"]
struct Unserved {
    jobs: VecDeque<Runnable>,
    given_up: VecDeque<Runnable>,
    error: io::Error,
}

/// What a thread of the crew does next.
enum Next {
    Duty(Duty),
    /// Waits to be called, for this many times as long as a thread is kept.
    Wait {
        patience: u32,
    },
    End,
}

/// What a thread is stuck in.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) id: Id,
    pub(crate) name: Option<String>,
    pub(crate) spawned_at: &'static Location<'static>,
    /// The worker that it ran on before it lost its core; none for a job.
    pub(crate) worker: Option<usize>,
    /// When a thread came to it; none for a job that waits for one.
    pub(crate) since: Option<Instant>,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Census {
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) threads: usize,
}

/// The blocking threads of one runtime.
pub(crate) struct Crew {
    articles: Articles,
    state: Mutex<State>,
    one_fewer: Condvar,
    // Jobs wait and nobody was free to take them.
    stalled: AtomicBool,
    // How many jobs wait. Written under the lock, read by the yield points of lowered polls.
    queued: AtomicUsize,
    // How many jobs were begun. Written under the lock, read by the monitor.
    begun: AtomicU64,
    // How many threads are in a job. Written under the lock, read by workers that would linger.
    running: AtomicUsize,
}

#[derive(Default)]
struct State {
    loans: VecDeque<(usize, Loan)>,
    // Jobs that were accepted and wait for a thread.
    jobs: VecDeque<Runnable>,
    // Jobs that the shutdown has given up on, to be dropped by a thread of the crew.
    given_up: VecDeque<Runnable>,
    // Who waits for a duty. The last is called first.
    idle: Vec<(u64, Arc<Parker>)>,
    // Threads that will come for a duty, now or when they are done with theirs.
    serving: usize,
    // Those of them that hold a core.
    standing_in: usize,
    // Those of them that are in a job.
    running: usize,
    // How many more may be than usual: jobs wait, and none of those that run has ended for long.
    relief: usize,
    // Threads that have not ended.
    members: HashMap<u64, Member>,
    // Polls that go on without a core, and home threads that wait for theirs.
    away: HashMap<(usize, Loan), Away>,
    // Threads that are about to end, for whoever waits for that.
    retired: Vec<JoinHandle<()>>,
    // The number of the next thread.
    next: u64,
    // No job is accepted any more. Those that were still run.
    closed: bool,
}

/// Somebody who has lent his core, and does not have it any more; or so it will be if one of the takers succeeds.
#[derive(Default)]
struct Away {
    work: Option<Work>,
    takers: usize,
}

#[derive(Default)]
struct Member {
    // By itself, when it starts: the handle may come later.
    thread: Option<ThreadId>,
    // The same, as the OS calls it.
    number: i32,
    handle: Option<JoinHandle<()>>,
    doing: Option<Work>,
}

impl Crew {
    pub(crate) fn new(articles: Articles) -> Self {
        Self {
            articles,
            state: Mutex::default(),
            one_fewer: Condvar::new(),
            stalled: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            running: AtomicUsize::new(0),
        }
    }

    /// How many jobs, or polls, wait for a thread.
    pub(crate) fn queued(&self) -> &AtomicUsize {
        &self.queued
    }

    /// Whether any job, or poll, waits for a thread.
    pub(crate) fn has_queue(&self) -> bool {
        // Ordering: relaxed; a hint, but for the monitor that goes to sleep: it has a fence before this, and `submit` one in
        // `Monitor::rouse` after its store.
        self.queued.load(Relaxed) > 0
    }

    pub(crate) fn kind(&self) -> Kind {
        self.articles.kind
    }

    /// Whether any thread was in a job a moment ago.
    pub(crate) fn is_at_work(&self) -> bool {
        // Ordering: relaxed; a hint.
        self.running.load(Relaxed) > 0
    }

    /// Publishes how many wait, and how many run.
    fn publish(&self, state: &State) {
        // Ordering: relaxed, both; hints.
        self.queued.store(state.jobs.len(), Relaxed);
        self.running.store(state.running, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job. Gives it back if none is accepted any more.
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
            return Ok(self.call_one(shared, state, self.articles.prompt.min(self.articles.most)));
        }
        // A thread that is done with its job takes it. The monitor sees to it that there is one.
        drop(state);
        shared.monitor.rouse();
        Ok(None)
    }

    /// Sends somebody for a core. If there is nobody to be had its holder keeps it.
    pub(crate) fn send_stand_in(&self, shared: &Arc<Shared>, core: usize, loan: Loan) {
        let unserved = on_behalf(|| {
            let mut state = self.lock();
            // An earlier one of this core is out of date.
            state.loans.retain(|(other, _)| *other != core);
            state.loans.push_back((core, loan));
            self.call_one(shared, state, usize::MAX)
        });
        self.refuse(shared, unserved);
    }

    /// There is something to do: wakes somebody, or starts a thread if there are fewer than `limit`.
    fn call_one(&self, shared: &Arc<Shared>, mut state: MutexGuard<'_, State>, limit: usize) -> Option<Unserved> {
        if let Some((_, parker)) = state.idle.pop() {
            drop(state);
            parker.unpark();
            None
        } else if state.job_threads() < limit && state.members.len() < self.most_threads(shared) {
            let number = state.reserve();
            drop(state);
            self.start(shared, number)
        } else {
            // Whoever is done with its duty next comes for a core first.
            let jobs_wait = !state.jobs.is_empty();
            drop(state);
            if jobs_wait {
                self.stall(shared);
            }
            None
        }
    }

    /// Jobs wait, and nobody is free to take them: the monitor is to see to it.
    fn stall(&self, shared: &Shared) {
        self.stalled.store(true, Relaxed);
        shared.monitor.call();
    }

    fn most_threads(&self, shared: &Shared) -> usize {
        self.articles.most_with_relief.saturating_mul(2).saturating_add(shared.posts.len())
    }

    /// Whether jobs wait that nobody was free to take.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// Starts some more threads if jobs wait. The monitor's to call.
    pub(crate) fn grow(&self, shared: &Arc<Shared>) {
        let mut state = self.lock();
        let room = self.most_running(&state).saturating_sub(state.job_threads());
        let some = (state.job_threads() / 4 + 1).min(room).min(state.jobs.len());
        if state.jobs.is_empty() || room == 0 && state.idle.is_empty() {
            // Nothing waits; or there are as many threads as there may be, and whoever is done with a job takes the next.
            self.stalled.store(false, Relaxed);
        } else if state.running < self.most_running(&state)
            && let Some((_, parker)) = state.idle.pop()
        {
            parker.unpark();
        }
        let numbers: Vec<_> = (0..some).map(|_| state.reserve()).collect();
        drop(state);
        for number in numbers {
            let unserved = self.start(shared, number);
            self.refuse(shared, unserved);
        }
    }

    /// How many jobs may run at a time.
    fn most_running(&self, state: &State) -> usize {
        self.articles.most + state.relief
    }

    /// How many jobs were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// Lets one more job run than usual, until none waits: no thread has come back for one for long, and those that run may wait
    /// for those that do not. The monitor's to call.
    pub(crate) fn relieve(&self, shared: &Arc<Shared>) {
        let mut state = self.lock();
        if state.jobs.is_empty() || state.closed || self.most_running(&state) >= self.articles.most_with_relief {
            return;
        }
        state.relief += 1;
        let limit = self.most_running(&state);
        let unserved = self.call_one(shared, state, limit);
        self.refuse(shared, unserved);
    }

    /// Starts a thread. What is left to the caller if the OS refuses it: see [`Self::refuse`].
    fn start(&self, shared: &Arc<Shared>, number: u64) -> Option<Unserved> {
        let kind = self.articles.kind;
        let name = format!("{}-{}{number}", self.articles.thread_name, kind.suffix());
        let mut thread = thread::Builder::new().name(name);
        if let Some(bytes) = self.articles.stack_size {
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

    /// The OS refused a thread. The others come to the jobs when they can; but if there are no others, nobody does.
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
        // No thread is sure to come to these, and nothing of the user's must wait for them.
        let given_up = std::mem::take(&mut state.given_up);
        drop(state);
        self.one_fewer.notify_all();
        // It may wait for the queue to be empty.
        shared.monitor.call();
        Unserved { jobs: left, given_up, error }
    }

    /// Ends what no thread is sure to come to. With no lock held, and by the thread that called the crew: it runs destructors.
    fn refuse(&self, shared: &Arc<Shared>, unserved: Option<Unserved>) {
        let Some(Unserved { jobs, given_up, error }) = unserved else { return };
        // What a destructor spawns is this runtime's to take or to refuse.
        let _inside = context::Entered::new(shared.clone());
        drop(given_up);
        for job in jobs {
            match self.articles.kind {
                // Workers poll them, and they are preempted by nobody.
                Kind::Lowered => shared.raise(job),
                Kind::Blocking | Kind::Background => refuse(job, &error),
            }
        }
    }

    /// A thread has started.
    fn started(&self, me: u64) {
        let (thread, number) = (thread::current().id(), os::this_thread());
        on_behalf(|| {
            if let Some(member) = self.lock().members.get_mut(&me) {
                (member.thread, member.number) = (Some(thread), number);
            }
        });
    }

    /// Waits for something to do. None: the thread is to end.
    fn next(&self, shared: &Shared, me: u64, parker: &Arc<Parker>) -> Option<Duty> {
        loop {
            let patience = match on_behalf(|| self.take_duty(shared, me, parker)) {
                Next::Duty(duty) => return Some(duty),
                Next::End => return None,
                Next::Wait { patience } => patience,
            };
            let deadline = Instant::now().checked_add(self.articles.keep_alive.saturating_mul(patience));
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
                // It has just been called.
                parker.park();
            }
        }
    }

    /// What a thread is to do next that is done with its duty. If there is nothing it is among the idle ones from now on.
    fn take_duty(&self, shared: &Shared, me: u64, parker: &Arc<Parker>) -> Next {
        let mut state = self.lock();
        state.doing(me, None);
        // Also when the runtime closes: what is queued on that core is to be dropped.
        if let Some((core, loan)) = state.loans.pop_front() {
            state.standing_in += 1;
            if !state.jobs.is_empty() && !self.is_stalled() {
                // It was on its way to one of them.
                self.stall(shared);
            }
            return Next::Duty(Duty::StandIn(core, loan));
        }
        if state.running < self.most_running(&state)
            && let Some(job) = state.jobs.pop_front()
        {
            self.begin(&mut state, me, &job);
            if state.is_drained() {
                shared.monitor.call();
            }
            return Next::Duty(Duty::Job(job));
        }
        if let Some(job) = state.given_up.pop_front() {
            state.doing(me, Some(Work::of(&job)));
            return Next::Duty(Duty::Drop(job));
        }
        if state.closed {
            // If jobs are left, as many threads as there may be are in one, and take these next.
            state.serving -= 1;
            return Next::End;
        }
        self.publish(&state);
        let patience = if state.idle.is_empty() { LAST_STAYS } else { 1 };
        state.idle.push((me, parker.clone()));
        Next::Wait { patience }
    }

    /// A thread has taken a job from the queue.
    fn begin(&self, state: &mut State, me: u64, job: &Runnable) {
        // Ordering: relaxed; a count.
        self.begun.fetch_add(1, Relaxed);
        if state.jobs.is_empty() {
            state.relief = 0;
        }
        state.doing(me, Some(Work::of(job)));
        self.publish(state);
    }

    /// A thread has done a job that goes to the back of the queue, and takes the first, in one visit: each costs a lowered thread
    /// a call of the proxy. None if it is to look for its next duty as usual. The job comes back if none is accepted any more.
    fn take_turns(&self, me: u64, again: Runnable) -> Result<Option<Runnable>, Runnable> {
        let mut state = self.lock();
        if state.closed {
            return Err(again);
        }
        // No thread is called for it: this one takes a job, or is one too many.
        state.jobs.push_back(again);
        self.publish(&state);
        if state.running > self.most_running(&state) {
            return Ok(None);
        }
        let first = state.jobs.pop_front();
        first.iter().for_each(|job| self.begin(&mut state, me, job));
        Ok(first)
    }

    /// A thread has waited for long enough, and is to end. False if it was called at this moment.
    fn give_up_waiting(&self, me: u64) -> bool {
        let mut state = self.lock();
        let place = state.idle.iter().position(|(number, _)| *number == me);
        if let Some(place) = place {
            state.idle.remove(place);
            state.serving -= 1;
        }
        place.is_some()
    }

    /// A thread has done its job, and the detection of deadlocks or the end of the runtime needs to know.
    fn idle_again(&self, me: u64) {
        on_behalf(|| self.lock().doing(me, None));
    }

    /// A thread that has held a core is back.
    fn stood_in(&self) {
        self.lock().standing_in -= 1;
    }

    /// A thread has nothing left to do.
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

    /// The poll that goes on there, by the thread that has lent its core, goes on without one. Before the core is taken.
    pub(crate) fn note_away(&self, core: usize, loan: Loan, work: Work) {
        let mut state = self.lock();
        let away = state.away.entry((core, loan)).or_default();
        away.takers += 1;
        away.work.get_or_insert(work);
    }

    /// The core was not taken, at least not by this one.
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

    /// That poll is over.
    pub(crate) fn poll_ended(&self, core: usize, loan: Loan) {
        if let Some(away) = self.lock().away.get_mut(&(core, loan)) {
            away.work = None;
        }
    }

    /// Nobody is away any more by that loan.
    pub(crate) fn forget_away(&self, core: usize, loan: Loan) {
        self.lock().away.remove(&(core, loan));
        self.one_fewer.notify_all();
    }

    /// What a snapshot tells of the crew.
    pub(crate) fn census(&self) -> Census {
        let state = self.lock();
        Census { queued: state.jobs.len(), running: state.running, threads: state.members.len() }
    }

    /// What its threads do, and the polls that go on without a core; and the first so many jobs that wait. How many jobs
    /// there are beyond those.
    pub(crate) fn look_at(&self, most: usize) -> (Vec<Work>, Vec<Work>, usize) {
        let state = self.lock();
        let going_on = state.going_on().cloned().collect();
        let queued = state.jobs.iter().take(most).map(Work::of).collect();
        (going_on, queued, state.jobs.len().saturating_sub(most))
    }

    pub(crate) fn class(&self) -> Class {
        self.articles.kind.class()
    }

    /// The threads that are in a job, as the OS calls them.
    pub(crate) fn threads_in_jobs(&self) -> Vec<i32> {
        let state = self.lock();
        state.members.values().filter(|member| member.doing.is_some()).map(|member| member.number).collect()
    }

    /// Whether any job is queued or running.
    pub(crate) fn has_jobs(&self) -> bool {
        let state = self.lock();
        !state.jobs.is_empty() || !state.away.is_empty() || state.members.values().any(|member| member.doing.is_some())
    }
}

impl State {
    /// What threads do, with and without a core.
    fn going_on(&self) -> impl Iterator<Item = &Work> {
        let away = self.away.values().filter_map(|away| away.work.as_ref());
        self.members.values().filter_map(|member| member.doing.as_ref()).chain(away)
    }

    /// Whether no job is left to begin, nor will ever be.
    fn is_drained(&self) -> bool {
        self.closed && self.jobs.is_empty()
    }

    /// How many threads there are for jobs.
    fn job_threads(&self) -> usize {
        self.serving - self.standing_in
    }

    /// Counts a thread that is about to be started.
    fn reserve(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.serving += 1;
        self.members.insert(number, Member::default());
        number
    }

    fn doing(&mut self, me: u64, work: Option<Work>) {
        let work = work.map(|work| Work { since: Some(Instant::now()), ..work });
        if let Some(member) = self.members.get_mut(&me) {
            self.running = self.running + usize::from(work.is_some()) - usize::from(member.doing.is_some());
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

/// A thread of the crew.
fn serve(shared: &Arc<Shared>, kind: Kind, me: u64) {
    let crew = shared.crew_of(kind);
    match kind.class() {
        Class::Foreground => crew.serve(shared, me),
        Class::Background => proxy::lowered(shared, &crew.articles, || crew.serve(shared, me)),
    }
}

impl Crew {
    fn serve(&self, shared: &Arc<Shared>, me: u64) {
        let (crew, kind, class) = (self, self.kind(), self.class());
        let parker = Arc::new(Parker::new());
        parker.bind();
        crew.started(me);
        let inside = context::Entered::new(shared.clone());
        shared.hooks.thread_started();
        while let Some(duty) = crew.next(shared, me, &parker) {
            match duty {
                Duty::Job(job) => {
                    if kind == Kind::Lowered {
                        crew.serve_polls(shared, me, job);
                        if shared.gate.phase() != Phase::Open {
                            // What it drops now is not its task's.
                            crew.idle_again(me);
                        }
                        shared.leave_after_poll(|| ());
                    } else {
                        let id = job.metadata().id;
                        context::in_job(shared, id, class, || job.run());
                    }
                    if shared.deadlocks.is_some() {
                        crew.idle_again(me);
                        shared.monitor.call();
                    }
                }
                Duty::Drop(job) => drop(job),
                Duty::StandIn(core, loan) => {
                    worker::stand_in(shared, core, loan);
                    crew.stood_in();
                }
            }
        }
        shared.hooks.thread_stopping();
        drop(inside);
        crew.ended(me);
    }

    /// Polls a task on this thread, which is a lowered one, and then others for as long as each goes to the back of the queue. The
    /// caller owes [`Shared::leave_after_poll`].
    ///
    /// At the gate it is one poll: a thread that leaves there may have to wait for all tasks to be dropped, so it has none in its
    /// hands.
    fn serve_polls(&self, shared: &Arc<Shared>, me: u64, task: Runnable) {
        shared.gate.join();
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let Some(again) = lowered::poll(shared, task) else { return };
            match on_behalf(|| self.take_turns(me, again)) {
                Ok(first) => next = first,
                // With no lock held, and by this thread: it may run destructors.
                Err(again) => shared.end_lowered(again),
            }
        }
    }
}
