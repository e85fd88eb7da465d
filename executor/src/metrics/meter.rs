//! What is counted while a runtime goes on: each core counts for itself, and a snapshot adds up.
//!
//! A spawn, a wake-up and a poll write no line that all cores share. So each core has a [`Tally`],
//! which the thread that holds the core writes with plain stores. Wake-ups of a core are counted by
//! other threads, with read-modify-writes: a thread that wakes a worker is about to make a system
//! call anyway. The files of the scheduler know nothing of this, nor of a clock: workers count what
//! they decide.

use super::histogram::{Histogram, Recorder, add};
use super::sample::{Sampler, Stamps};
use super::{Metrics, Paced, Where, WorkerMetrics};
use crate::blocking::PoolStats;
use crate::runtime::Shared;
use crate::task::{Class, Mark, Meta};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

thread_local! {
    /// The sampler of a thread without a core, for every runtime that the thread queues tasks in.
    static SAMPLER: Sampler = const { Sampler::new(7) };
}

/// What a core counts. Written by the core's holder, but for `wake_ups`; read by snapshots.
pub(crate) struct Tally {
    /// From runnable to polled, by [`Class`].
    latency: [Recorder; 2],
    poll_time: Recorder,
    yield_wait: Recorder,
    pub(crate) parks: AtomicU64,
    /// How long the core has rested, in nanoseconds, without a rest that still goes on.
    parked: AtomicU64,
    /// Since when the core rests, because its holder is parked or has ended; zero if it does not.
    parked_since: AtomicU64,
    pub(crate) yields_taken: AtomicU64,
    pub(crate) yields_declined: AtomicU64,
    pub(crate) wake_ups_avoided: AtomicU64,
    /// How often the worker was woken. Added to by any thread, hence on a line of its own.
    wake_ups: CachePadded<AtomicU64>,
}

/// What a runnable task waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// For a worker.
    Turn,
    /// For all other work: the task has given way, or is of the background.
    GaveWay,
}

impl Tally {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            latency: [Recorder::new(), Recorder::new()],
            poll_time: Recorder::new(),
            yield_wait: Recorder::new(),
            parks: zero(),
            parked: zero(),
            parked_since: zero(),
            yields_taken: zero(),
            yields_declined: zero(),
            wake_ups_avoided: zero(),
            wake_ups: CachePadded::new(zero()),
        }
    }

    /// Counts one. For the holder of the core.
    #[inline]
    pub(crate) fn count(counter: &AtomicU64) {
        add(counter, 1);
    }

    /// Records that a task is polled after it was runnable for `nanos` nanoseconds.
    fn waited(&self, class: Class, why: Waited, nanos: u64) {
        if why == Waited::GaveWay {
            self.yield_wait.record(nanos);
        }
        if why == Waited::Turn || class == Class::Background {
            self.latency[class as usize].record(nanos);
        }
    }

    /// Records how long a thread waited in the yield queue.
    pub(crate) fn thread_waited(&self, nanos: u64) {
        self.yield_wait.record(nanos);
    }

    /// Records how long a poll took.
    pub(crate) fn polled(&self, nanos: u64) {
        self.poll_time.record(nanos);
    }

    /// Begins a rest: the holder parks, or has nothing to do any more.
    pub(crate) fn rest(&self, now: u64) {
        // Ordering: relaxed, here and below: a reader that sees one of `parked_since` and `parked`
        // change and not the other is wrong by one rest, once.
        self.parked_since.store(now.max(1), Relaxed);
    }

    /// Ends the rest of a core that had no holder, if there is one: a thread holds the core now.
    pub(crate) fn held(&self, now: u64) {
        if self.parked_since.load(Relaxed) != 0 {
            self.rested(now);
        }
    }

    /// Ends a rest: the holder has parked, or a thread holds the core again.
    pub(crate) fn rested(&self, now: u64) {
        let since = self.parked_since.load(Relaxed);
        // `parked` first: a reader in between counts this rest twice, and says once that the core
        // was less busy than it was. The other way round an hour of rest would be an hour of work.
        add(&self.parked, now.saturating_sub(since));
        self.parked_since.store(0, Relaxed);
        add(&self.parks, 1);
    }

    /// Returns how long the core has not rested since `born`.
    fn busy(&self, born: u64, now: u64) -> Duration {
        let since = self.parked_since.load(Relaxed);
        let resting = if since == 0 { 0 } else { now.saturating_sub(since) };
        Duration::from_nanos(
            now.saturating_sub(born)
                .saturating_sub(self.parked.load(Relaxed))
                .saturating_sub(resting),
        )
    }
}

/// What a runtime counts.
pub(crate) struct Meter {
    cores: Box<[CachePadded<Tally>]>,
    /// Since when each task that is timed has been runnable.
    pub(crate) stamps: Stamps,
    /// What paced work took from other tasks.
    pub(crate) paced: Paced,
    /// When the runtime was started.
    born: u64,
    /// When the runtime ended; zero until then. Written by the last worker, read by snapshots.
    ended: AtomicU64,
    /// How often yield points of threads in `block_on` gave way, and how often they did not. Added
    /// to by any thread, so not on the line where every worker finds its tally.
    outside: CachePadded<[AtomicU64; 2]>,
    /// How long polls on lowered threads had a CPU, in nanoseconds. Added to by those threads.
    lowered_time: CachePadded<AtomicU64>,
    /// The time in seconds or so, as [`Mark::waiting_since`] gives it. Written when it changes, by
    /// the thread that has looked at the clock; read by tasks that begin to wait.
    seconds: CachePadded<AtomicU16>,
}

impl Meter {
    /// Returns the meter of a runtime with this many workers and spare cores.
    pub(crate) fn new(workers: usize, spares: usize, now: u64) -> Self {
        let cores: Box<[_]> =
            (0..workers + spares).map(|_| CachePadded::new(Tally::new())).collect();
        cores[workers..].iter().for_each(|spare| spare.rest(now));
        Self {
            stamps: Stamps::new(cores.len()),
            cores,
            paced: Paced::default(),
            born: now,
            ended: AtomicU64::new(0),
            outside: Default::default(),
            lowered_time: Default::default(),
            seconds: CachePadded::new(AtomicU16::new(Mark::waiting_since(now))),
        }
    }

    /// Returns what a core counts.
    #[inline]
    pub(crate) fn core(&self, core: usize) -> &Tally {
        &self.cores[core]
    }

    /// Returns about what time it is, as the mark of a task that begins to wait.
    #[inline]
    pub(crate) fn seconds(&self) -> u16 {
        self.seconds.load(Relaxed)
    }

    /// Notes the time. For a thread that has just looked at the clock.
    pub(crate) fn tell_time(&self, now: u64) {
        let seconds = Mark::waiting_since(now);
        // Ordering: relaxed, both: a time that is a little old will do.
        if self.seconds.load(Relaxed) != seconds {
            self.seconds.store(seconds, Relaxed);
        }
    }

    /// Marks a task as queued, and keeps the time if the task is to be timed. For a thread that
    /// holds no core of this runtime, before it queues the task.
    pub(crate) fn queued_from_outside(&self, meta: &Meta, now: impl FnOnce() -> u64) {
        self.queued_among(self.cores.len(), meta, now);
    }

    /// Marks a pinned task as queued, and keeps the time if the task is to be timed. For any
    /// thread, before it queues the task. The time is kept in the group of the task's worker: a
    /// worker that is stuck keeps all that is in its inbox, and must not use up the entries of
    /// other groups.
    pub(crate) fn queued_for(&self, core: usize, meta: &Meta, now: impl FnOnce() -> u64) {
        self.queued_among(core, meta, now);
    }

    /// Marks a task as queued, and keeps the time in this group of entries if the task is to be
    /// timed.
    fn queued_among(&self, group: usize, meta: &Meta, now: impl FnOnce() -> u64) {
        SAMPLER.with(|sampler| {
            let due = sampler.is_due();
            meta.set_mark(if due { self.time(sampler, group, meta, now()) } else { Mark::QUEUED });
        });
    }

    /// Keeps the time of a task that becomes runnable and is to be timed, and returns its mark.
    /// `core` is that of the thread that queues the task, or the number of cores if the thread has
    /// none; for a pinned task it is the task's own.
    pub(crate) fn time(&self, sampler: &Sampler, core: usize, meta: &Meta, now: u64) -> Mark {
        sampler.timed(now);
        self.tell_time(now);
        let taken = |number| self.paced.taken(Where::of(meta, number), now);
        Mark::queued(self.stamps.keep(core, sampler.random_below(64), now, taken))
    }

    /// Notes that a task that is timed is about to be polled on a core. For the core's holder.
    pub(crate) fn begin_timed(
        &self,
        core: usize,
        meta: &Meta,
        number: u16,
        gave_way: bool,
        now: u64,
    ) {
        let stamp = self.stamps.take(number);
        let class = meta.class();
        let why = if gave_way { Waited::GaveWay } else { Waited::Turn };
        self.core(core).waited(class, why, now.saturating_sub(stamp.since));
        if class == Class::Foreground && why == Waited::Turn && !meta.is_paced() {
            self.paced.waited(core, Where::of(meta, number), stamp, now);
        }
        self.tell_time(now);
    }

    /// Marks a task that goes into the yield queue, and frees its entry. Returns since when the
    /// task is runnable, or zero if it is not timed. The yield queue keeps that time, since the
    /// task may stay there for long and must not hold an entry meanwhile.
    pub(crate) fn gives_way(&self, meta: &Meta) -> u64 {
        let number = meta.mark().number();
        meta.set_mark(Mark::YIELDED);
        number.map_or(0, |number| self.stamps.take(number).since)
    }

    /// Returns the time at which a thread goes into the yield queue, or zero if this wait is not
    /// timed. [`Self::gives_way`] is for tasks.
    pub(crate) fn thread_gives_way(&self, now: impl FnOnce() -> u64) -> u64 {
        SAMPLER.with(|sampler| {
            let now = if sampler.is_due() { now() } else { return 0 };
            sampler.timed(now);
            now
        })
    }

    /// Marks a task that was taken from the yield queue and is about to be polled on a core.
    /// `since` is when it became runnable, zero if it is not timed.
    pub(crate) fn resumes(&self, meta: &Meta, core: usize, since: u64) {
        let number = if since == 0 { None } else { self.stamps.keep(core, 0, since, |_| 0) };
        meta.set_mark(Mark::queued(number));
    }

    /// Counts a yield point of a thread in `block_on` that asked, and gave way or did not.
    pub(crate) fn yield_point_outside(&self, taken: bool) {
        self.outside[usize::from(!taken)].fetch_add(1, Relaxed);
    }

    /// Adds the time for which a poll on a lowered thread had a CPU.
    pub(crate) fn count_lowered(&self, nanoseconds: u64) {
        self.lowered_time.fetch_add(nanoseconds, Relaxed);
    }

    /// Counts a wake-up of a worker. For any thread.
    pub(crate) fn wakes(&self, core: usize) {
        self.cores[core].wake_ups.fetch_add(1, Relaxed);
    }

    /// Returns how often any worker was woken or has parked.
    pub(crate) fn woken_and_parked(&self) -> u64 {
        self.sum(|tally| &tally.wake_ups) + self.sum(|tally| &tally.parks)
    }

    /// Ends the runtime's time: from now on [`Self::now`] stands still.
    pub(crate) fn end(&self, now: u64) {
        self.ended.store(now, Relaxed);
    }

    /// Returns `now`, or the time of the runtime's end if it has ended.
    pub(crate) fn now(&self, now: u64) -> u64 {
        match self.ended.load(Relaxed) {
            0 => now,
            ended => ended.min(now),
        }
    }

    /// Returns the histogram of all cores.
    fn histogram(&self, which: impl Fn(&Tally) -> &Recorder) -> Histogram {
        let mut histogram = Histogram::new();
        self.cores.iter().for_each(|core| which(core).add_to(&mut histogram));
        histogram
    }

    /// Returns the sum over all cores.
    fn sum(&self, which: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.cores.iter().map(|core| which(core).load(Relaxed)).sum()
    }
}

impl Shared {
    pub(crate) fn metrics(&self) -> Metrics {
        let (meter, scheduler) = (&self.meter, &self.scheduler);
        let now = meter.now(self.now());
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let worker = |index: usize| {
            let (tally, core) = (&meter.cores[index], scheduler.core(index));
            let (polls, hand_offs) = self.posts[index].polls();
            let (steals, stolen) = core.steals();
            WorkerMetrics {
                deque: core.deque_len(),
                slot: usize::from(!core.slot.is_empty_relaxed()),
                inbox: core.inbox_len(),
                busy: tally.busy(meter.born, now),
                polls,
                hand_offs,
                parks: load(&tally.parks),
                wake_ups: load(&tally.wake_ups),
                steals,
                stolen,
            }
        };
        // A thread that takes a spare core ends a rest, which counts as a park, so a core without
        // parks was never in use. The list goes up to the last one that was, so that each keeps its
        // place.
        let spares = self.workers()..self.posts.len();
        let used = spares
            .rev()
            .find(|&core| load(&meter.cores[core].parks) > 0)
            .map_or(self.workers(), |last| last + 1);
        // In the child of a fork a thread that does not exist there may hold any lock.
        let forked = self.process.in_forked_child();
        let [blocking, background, lowered] =
            self.pools().map(|pool| if forked { PoolStats::default() } else { pool.stats() });
        Metrics {
            uptime: Duration::from_nanos(now.saturating_sub(meter.born)),
            foreground_latency: meter.histogram(|tally| &tally.latency[Class::Foreground as usize]),
            background_latency: meter.histogram(|tally| &tally.latency[Class::Background as usize]),
            poll_time: meter.histogram(|tally| &tally.poll_time),
            yield_wait: meter.histogram(|tally| &tally.yield_wait),
            yields_taken: meter.sum(|tally| &tally.yields_taken) + load(&meter.outside[0]),
            yields_declined: meter.sum(|tally| &tally.yields_declined) + load(&meter.outside[1]),
            interrupts: scheduler.interrupts.sent(),
            wake_ups_avoided: meter.sum(|tally| &tally.wake_ups_avoided),
            monitor_rescues: self.monitor.rescues(),
            injector: scheduler.injector.len(),
            yield_queue: scheduler.yielded.len(),
            blocking_queued: blocking.queued + background.queued,
            blocking_running: blocking.running + background.running,
            blocking_threads: blocking.threads + background.threads,
            lowered_queued: lowered.queued,
            lowered_running: lowered.running,
            lowered_threads: lowered.threads,
            lowering_refused: self.is_lowering_refused(),
            resting_workers: scheduler.idle.resting(),
            overruns: self.monitor.overruns(),
            lowered_time: Duration::from_nanos(load(&meter.lowered_time)),
            tasks: if forked { 0 } else { self.registry.len() },
            workers: (0..self.workers()).map(worker).collect(),
            spares_sent: self.monitor.spares_sent(),
            spares_at_work: scheduler.idle.workers() - self.workers(),
            spare_workers: (self.workers()..used).map(worker).collect(),
        }
    }
}
