//! What a pool knows of its threads and its jobs, under its lock.

use crate::handoff::Loan;
use crate::os;
use crate::parker::Parker;
use crate::task::{Id, Runnable};
use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::Instant;

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

/// What the lock of a pool guards.
#[derive(Default)]
pub(super) struct State {
    /// The cores that wait for a stand-in, each with its latest loan.
    pub(super) loans: VecDeque<(usize, Loan)>,
    /// The jobs that were accepted and wait for a thread.
    pub(super) jobs: VecDeque<Runnable>,
    /// The jobs that the shutdown has given up on, for a thread of the pool to drop.
    pub(super) given_up: VecDeque<Runnable>,
    /// The threads that wait for a duty. The last is called first.
    pub(super) idle: Vec<(u64, Arc<Parker>)>,
    /// How many threads will come for a duty, now or after the one they have.
    pub(super) serving: usize,
    /// How many of those hold a core.
    pub(super) standing_in: usize,
    /// How many of those are in a job.
    pub(super) running: usize,
    /// How many jobs may run beyond [`PoolConfig::most`], because jobs wait and none was begun for
    /// long.
    pub(super) relief: usize,
    /// The threads that have not ended.
    pub(super) members: HashMap<u64, Member>,
    /// Polls that go on without a core, and home threads that wait for theirs.
    pub(super) away: HashMap<(usize, Loan), Away>,
    /// Handles of threads that are about to end, for [`Pool::take_handles`].
    pub(super) retired: Vec<JoinHandle<()>>,
    /// The number of the next thread.
    pub(super) next: u64,
    /// Whether the pool accepts no more jobs. Those that it accepted before still run.
    pub(super) closed: bool,
}

/// A thread that lent its core and has lost it, or will lose it if a taker wins.
#[derive(Default)]
pub(super) struct Away {
    /// What it does without the core; none once its poll is over.
    pub(super) work: Option<Work>,
    /// How many takers have noted this loan and have not lost it to another thread.
    pub(super) takers: usize,
}

/// A thread of the pool.
#[derive(Default)]
pub(super) struct Member {
    /// Written by the thread itself when it starts, because the handle may come later.
    pub(super) thread: Option<ThreadId>,
    /// The number by which the OS knows the thread.
    pub(super) number: i32,
    pub(super) handle: Option<JoinHandle<()>>,
    pub(super) doing: Option<Work>,
    /// Whether it was called for a spare core, and hurried, since it took its last duty.
    pub(super) hurried: bool,
}

impl State {
    /// Returns what the threads do, with and without a core.
    pub(super) fn going_on(&self) -> impl Iterator<Item = &Work> {
        let away = self.away.values().filter_map(|away| away.work.as_ref());
        self.members.values().filter_map(|member| member.doing.as_ref()).chain(away)
    }

    /// Returns whether no job is left to begin, and none will come.
    pub(super) fn is_drained(&self) -> bool {
        self.closed && self.jobs.is_empty()
    }

    /// Returns how many threads there are for jobs.
    pub(super) fn job_threads(&self) -> usize {
        self.serving - self.standing_in
    }

    /// Counts a thread that is about to be started, and returns its number.
    pub(super) fn reserve(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.serving += 1;
        self.members.insert(number, Member::default());
        number
    }

    /// Has the thread that is called next run as soon as it is woken, if the monitor, which calls
    /// it, does: the poll for whose sake it is called may be on the same CPU.
    pub(super) fn hurry_next(&mut self) {
        if os::is_hurried()
            && let Some((number, _)) = self.idle.last()
            && let Some(member) = self.members.get_mut(number)
        {
            os::hurry_thread(member.number);
            member.hurried = true;
        }
    }

    pub(super) fn doing(&mut self, me: u64, work: Option<Work>) {
        let work = work.map(|work| Work { since: Some(Instant::now()), ..work });
        if let Some(member) = self.members.get_mut(&me) {
            self.running =
                self.running + usize::from(work.is_some()) - usize::from(member.doing.is_some());
            member.doing = work;
        }
    }
}

impl Work {
    pub(super) fn of(job: &Runnable) -> Self {
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
