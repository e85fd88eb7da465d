//! What the threads of one runtime share.

use super::{Fatal, Gate, Hooks, Phase, context, drop_injected, tokio};
use crate::blocking::{Kind, Pool, PoolConfig, Work};
use crate::elastic::{self, Elastic};
use crate::handoff::Loan;
use crate::lowered::Proxy;
use crate::metrics::Meter;
use crate::monitor::Monitor;
use crate::monitor::deadlock::Watch;
use crate::parker::Elsewhere;
use crate::sched::{Local, Scheduler, Settings, Yielded};
use crate::task::registry::Registry;
use crate::task::{Mark, Runnable};
use crate::worker::{Door, Post};
use crossbeam_utils::CachePadded;
use giveway_io::driver::{Process, Reactor, on_behalf};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many pools a runtime has: one of each [`Kind`].
pub(crate) const CREWS: usize = 3;

/// What the threads of one runtime share.
///
/// It is counted by the user's handles and by each thread of the runtime. A task does not count it:
/// otherwise a spawn or a wake-up would write a cache line that all cores share. `worker::schedule`
/// argues why it is alive when a waker reaches for it.
pub(crate) struct Shared {
    pub(crate) scheduler: Scheduler<Runnable>,
    /// How many cores are always in use. The spare ones come after them.
    workers: usize,
    /// The posts of the workers first, then those of the spare cores.
    pub(crate) posts: Box<[CachePadded<Post>]>,
    pub(crate) registry: Registry,
    pub(crate) gate: Gate,
    pub(crate) monitor: Monitor,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) door: Door,
    pub(crate) meter: Meter,
    pub(crate) elastic: Elastic,
    /// The threads for foreground blocking jobs, and those that stand in for workers.
    pub(crate) pool: Pool,
    /// The lowered threads for background blocking jobs.
    background_crew: Pool,
    /// The lowered threads for polls.
    lowered_crew: Pool,
    /// Whether background polls that do not return in time are left to lowered threads. Set by the
    /// builder.
    pub(crate) preempts_background: bool,
    /// Whether the OS has refused to lower a thread. Set once, by that thread.
    lowering_refused: AtomicBool,
    /// Takes locks on behalf of lowered threads.
    pub(crate) proxy: Proxy,
    /// The private halves of the cores. Only the thread that holds a core touches its half.
    locals: Box<[CachePadded<Private>]>,
    /// Present if the runtime looks for deadlocks.
    pub(crate) deadlocks: Option<Watch>,
    /// Present if a panic may end the runtime.
    pub(crate) fatal: Option<Fatal>,
    pub(crate) hooks: Hooks,
    /// The tokio runtime beside this one, if the user asked for it. Set by the builder.
    pub(crate) tokio: tokio::Beside,
    pub(crate) process: Process,
    /// The number of this runtime within the process. Wraps after a quarter of a million.
    pub(crate) number: u64,
}

/// The private half of a core.
struct Private(Local<Runnable>);

// SAFETY: shared access from several threads needs that they do not touch the value at the same
// time. Only the thread that holds the core touches it (`Worker::core`), and a core passes from one
// thread to the next by a release and an acquire (`handoff/lease.rs`, or the start of a thread).
unsafe impl Sync for Private {}

impl Shared {
    pub(crate) fn new(
        workers: usize,
        settings: Settings,
        hooks: Hooks,
        config: PoolConfig,
    ) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let spares = settings.spares;
        let (scheduler, locals) = Scheduler::new(workers, settings);
        let reactor = Reactor::new(workers + spares)?;
        let meter = Meter::new(workers, spares, reactor.now());
        let most_with_relief = config.most.max(workers);
        let of_kind = |kind| PoolConfig {
            kind,
            most: workers,
            most_with_relief,
            prompt: workers,
            ..config.clone()
        };
        Ok(Self {
            scheduler,
            workers,
            posts: (0..workers + spares).map(|_| CachePadded::new(Post::new())).collect(),
            registry: Registry::new(workers + 1),
            gate: Gate::new(workers, spares),
            monitor: Monitor::new({
                let reactor = reactor.clone();
                move || reactor.notify()
            }),
            reactor,
            door: Door::default(),
            meter,
            elastic: Elastic::new(elastic::Settings::new()),
            background_crew: Pool::new(of_kind(Kind::Background)),
            lowered_crew: Pool::new(of_kind(Kind::Lowered)),
            preempts_background: true,
            lowering_refused: AtomicBool::new(false),
            proxy: Proxy::default(),
            pool: Pool::new(config),
            locals: locals.into_iter().map(|local| CachePadded::new(Private(local))).collect(),
            deadlocks: None,
            fatal: hooks.on_task_panic.is_some().then(Fatal::default),
            hooks,
            tokio: tokio::Beside::default(),
            process: Process::current(),
            // Ordering: relaxed; all that matters is that no two runtimes get the same number.
            number: NUMBER.fetch_add(1, Relaxed) % (1 << 18),
        })
    }

    /// Returns the private half of a core. Only the thread that holds the core may touch it.
    pub(crate) fn local(&self, core: usize) -> *const Local<Runnable> {
        &self.locals[core].0
    }

    /// Returns the pool of this kind.
    pub(crate) fn pool_of(&self, kind: Kind) -> &Pool {
        match kind {
            Kind::Blocking => &self.pool,
            Kind::Background => &self.background_crew,
            Kind::Lowered => &self.lowered_crew,
        }
    }

    pub(crate) fn pools(&self) -> [&Pool; CREWS] {
        [Kind::Blocking, Kind::Background, Kind::Lowered].map(|kind| self.pool_of(kind))
    }

    /// Notes that the OS refuses to lower a thread of this runtime. The first call says so on
    /// standard error.
    #[cold]
    pub(crate) fn lowering_refused(&self, error: &io::Error) {
        // Ordering: relaxed, here and below: the flag is set once, and publishes nothing.
        if !self.lowering_refused.swap(true, Relaxed) {
            eprintln!(
                "giveway: the system refuses to lower the priority of a thread ({error}); \
                 background work without yield points is not preempted"
            );
        }
    }

    /// Returns whether the OS has refused to lower a thread.
    pub(crate) fn is_lowering_refused(&self) -> bool {
        self.lowering_refused.load(Relaxed)
    }

    /// Queues a task for the lowered threads.
    #[cold]
    pub(crate) fn push_lowered(self: &Arc<Self>, runnable: Runnable) {
        if let Some(number) = runnable.metadata().mark().number() {
            // A lowered task is not timed: its entry becomes free for others.
            self.meter.stamps.take(number);
        }
        runnable.metadata().set_mark(Mark::QUEUED);
        if self.process.in_forked_child() {
            // The child of a fork has none of the threads, and must start none.
            return self.inject(runnable);
        }
        if let Err(runnable) = self.lowered_crew.submit(self, runnable) {
            self.end_lowered(runnable);
        }
    }

    /// Makes a worker end a task of the lowered threads, because the runtime closes. The task is
    /// aborted first: the gate may still be open, and then the worker would poll it.
    pub(crate) fn end_lowered(self: &Arc<Self>, runnable: Runnable) {
        runnable.metadata().abort();
        self.inject_late(runnable);
    }

    /// Queues a task of the lowered threads for the workers, because the OS refused the threads.
    pub(crate) fn raise(self: &Arc<Self>, runnable: Runnable) {
        runnable.metadata().set_preemptible_by_user(false);
        self.inject_late(runnable);
    }

    /// Queues a task that was polled on lowered threads until now for the workers.
    pub(crate) fn send_back(self: &Arc<Self>, runnable: Runnable) {
        runnable.metadata().set_lowered(false);
        self.inject_late(runnable);
    }

    /// Returns whether background polls that do not return in time are left to lowered threads.
    #[inline]
    pub(crate) fn preempts_background(&self) -> bool {
        self.preempts_background && !self.is_lowering_refused()
    }

    /// Sends a thread for a core that is on loan: the home thread if that wants the core back,
    /// otherwise a stand-in.
    #[cold]
    pub(crate) fn offer(self: &Arc<Self>, core: usize, loan: Loan) {
        if self.process.in_forked_child() {
            // In the child of a fork there is no thread to send, and nothing to run.
            return;
        }
        let post = &self.posts[core];
        if post.recall.is_wanted() && !self.is_spare(core) {
            on_behalf(|| post.home.unpark());
        } else {
            self.pool.send_stand_in(self, core, loan);
        }
    }

    /// Takes a core that was lent for the calling thread (T1 and T2 of `handoff/hand_off.md`).
    /// Returns false if the core is not on this loan any more. If it then turns out that the
    /// calling thread is the last of the runtime, `drop_own` drops what only this thread may drop.
    pub(crate) fn take_core(
        self: &Arc<Self>,
        core: usize,
        loan: Loan,
        drop_own: impl Fn(),
    ) -> bool {
        let post = &self.posts[core];
        // 1. One more inside, before the core is taken: from then on the poll that lent it has no
        //    core, and must be counted by itself. Counted later, the gate could come to zero during
        //    the poll.
        self.gate.join();
        // 2. The poll is noted as away, also before the core is taken: when its lender finds the
        //    core gone, the note is there. Nothing runs on a spare core that the monitor lends.
        let running = if post.lease.is_open(loan) { post.running() } else { None };
        if let Some((id, spawned_at)) = running {
            let work = Work {
                id,
                name: None,
                spawned_at,
                worker: Some(core),
                since: Some(Instant::now()),
            };
            self.pool.note_away(core, loan, work);
        }
        // 3. Of all takers and the lender, one succeeds.
        let taken = post.lease.take(loan);
        if taken {
            post.end();
            post.end_unproven(self.scheduler.core(core).polling());
            self.meter.paced.ends(core, 0);
            self.scheduler.has_returned(core);
            self.gate.core_held(core);
        } else {
            // What steps 1 and 2 did is undone, in reverse.
            if running.is_some() {
                self.pool.not_away(core, loan);
            }
            self.leave(drop_own);
        }
        taken
    }

    /// Returns the nanoseconds since the runtime was started: the clock of the scheduler and of the
    /// reactor.
    pub(crate) fn now(&self) -> u64 {
        self.reactor.now()
    }

    /// Converts a time of the clock [`Self::now`] to an instant.
    pub(crate) fn instant(&self, now: u64) -> Instant {
        Instant::now() - Duration::from_nanos(self.now().saturating_sub(now))
    }

    /// Returns whether a task waits in the slot of a worker that is in a poll while another worker
    /// is idle.
    pub(crate) fn slot_waits(&self) -> bool {
        let mut cores = self.scheduler.cores().iter().zip(&self.posts);
        self.scheduler.idle.counts().idle() > 0
            && cores.any(|(core, post)| !core.slot.is_empty_relaxed() && post.is_running())
    }

    /// Returns how many workers the user asked for: the cores that are always in use.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Returns whether other threads of the runtime than its workers want CPUs: lowered threads, or
    /// polls that hold a core while a spare worker stands beside them.
    #[inline]
    pub(crate) fn has_threads_beside_workers(&self) -> bool {
        self.scheduler.cores().len() > self.workers
            || self.lowered_crew.is_at_work()
            || self.background_crew.is_at_work()
    }

    /// Returns whether a core is a spare one.
    pub(crate) fn is_spare(&self, core: usize) -> bool {
        core >= self.workers
    }

    /// Panics in the child of a fork, where no thread would run what is spawned.
    #[track_caller]
    #[inline]
    pub(crate) fn refuse_in_forked_child(&self) {
        assert!(
            !self.process.in_forked_child(),
            "this Giveway runtime was started before a fork, and its threads do not exist in the \
             child; start a new runtime in the child"
        );
    }

    /// Returns whether a new task may be queued. If not, the caller drops it.
    #[inline]
    pub(crate) fn admits(&self, task: &Runnable) -> bool {
        if self.gate.phase() != Phase::Open {
            return false;
        }
        // A name is given so that the task can be found, so a named task is registered from the
        // start. Not before the look at the gate: the last worker of a closing runtime waits until
        // every registered task was queued and announced.
        if task.metadata().name().is_some() {
            task.metadata().register();
        }
        true
    }

    /// Queues a new task from a thread that holds no core of this runtime, or drops it.
    pub(crate) fn submit(self: &Arc<Self>, runnable: Runnable) {
        if self.admits(&runnable) {
            self.meter.queued_from_outside(runnable.metadata(), || self.now());
            self.inject_late(runnable);
        } else {
            // Drops the future, on this thread, and tells the handle.
            drop(runnable);
        }
    }

    /// Queues a new task for the lowered threads, or drops it.
    pub(crate) fn submit_lowered(self: &Arc<Self>, runnable: Runnable) {
        if self.admits(&runnable) {
            self.push_lowered(runnable);
        } else {
            drop(runnable);
        }
    }

    /// Queues a task that the registry may not know, from a thread that holds no core of this
    /// runtime. If the runtime has ended meanwhile, drops the task here.
    pub(crate) fn inject_late(self: &Arc<Self>, runnable: Runnable) {
        self.inject(runnable);
        self.gate.after_inject(|| {
            // The destructors that run here may drop the very handle through which this was called.
            let _inside = context::Entered::new(Arc::clone(self));
            let counted = Arc::clone(self);
            drop_injected(&counted.scheduler);
        });
    }

    /// Queues a task from a thread that holds no core of this runtime. The task has been marked as
    /// queued ([`Meter::queued_from_outside`]).
    pub(crate) fn inject(&self, runnable: Runnable) {
        if runnable.metadata().is_background() && self.scheduler.defers_background() {
            return self.push_background(runnable);
        }
        on_behalf(|| {
            self.scheduler.injector.push(runnable);
            self.unpark(self.scheduler.announce());
        });
    }

    /// Queues a pinned task for its worker.
    pub(crate) fn push_pinned(&self, worker: usize, runnable: Runnable) {
        context::with_worker(|current| match current {
            Some(current) if current.belongs_to(self) && current.is_home_of(worker) => {
                current.push_pinned(runnable)
            }
            _ => on_behalf(|| self.unpark(self.scheduler.push_pinned(worker, runnable))),
        });
        if self.gate.phase() != Phase::Open {
            // The home thread may be in `Worker::drop_pinned`, and has to drop the task there.
            self.posts[worker].home.unpark();
        }
    }

    /// Queues a pinned task whose poll has just returned.
    pub(crate) fn pinned_again(&self, worker: usize, runnable: Runnable) {
        context::with_worker(|current| match current {
            Some(current) if current.belongs_to(self) => current.pinned_again(runnable),
            // The home thread has lost its core.
            _ => self.push_pinned(worker, runnable),
        });
    }

    /// Queues a background task while every worker is busy.
    pub(crate) fn push_background(&self, runnable: Runnable) {
        self.push_to_yield_queue(Yielded::Task(runnable));
    }

    /// Puts a task or a thread into the yield queue, and tells a worker if one is idle after all.
    pub(crate) fn push_to_yield_queue(&self, yielded: Yielded<Runnable>) {
        let since = match &yielded {
            Yielded::Task(task) => self.meter.gives_way(task.metadata()),
            Yielded::Thread(_) => self.meter.thread_gives_way(|| self.now()),
        };
        on_behalf(|| {
            self.scheduler.push_to_yield_queue(yielded, since, || self.now());
            self.unpark(self.scheduler.announce_yielded());
        });
    }

    /// Unparks the worker that a scheduling decision has named.
    #[inline]
    pub(crate) fn unpark(&self, worker: Option<usize>) {
        if let Some(worker) = worker {
            self.unpark_cold(worker);
        }
    }

    #[cold]
    fn unpark_cold(&self, worker: usize) {
        self.meter.wakes(worker);
        self.call(worker);
        self.monitor.rouse();
    }

    /// Wakes a worker, wherever it sleeps: in its parker or in the reactor.
    pub(crate) fn call(&self, worker: usize) {
        self.posts[worker].parker.unpark_from(|place| match place {
            Elsewhere::Turn => self.reactor.notify(),
            Elsewhere::Second => self.reactor.notify_second(),
        });
    }
}
