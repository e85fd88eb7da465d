//! What is counted as a runtime goes: by each core for itself, and added up by whoever asks.
//!
//! A spawn, a wake-up and a poll write no line that all cores share, so there is a [`Tally`] a core, written by plain stores
//! of the thread that holds the core. (What others count about a core, its wake-ups, they add; they are about to make
//! a system call.) The scheduler's own files know nothing of it, nor of a clock: workers count what they decide.

use super::histogram::{Histogram, Recorder, add};
use super::sample::{Sampler, Stamps};
use super::{Metrics, Paced, Where, WorkerMetrics};
use crate::blocking::Census;
use crate::runtime::Shared;
use crate::task::{Class, Mark, Meta};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

thread_local! {
    // Of threads without a core, for whatever runtime they feed.
    static SAMPLER: Sampler = const { Sampler::new(7) };
}

/// What a core counts. Written by its holder.
pub(crate) struct Tally {
    latency: [Recorder; 2],
    poll_time: Recorder,
    yield_wait: Recorder,
    pub(crate) parks: AtomicU64,
    // Nanoseconds.
    parked: AtomicU64,
    // Since when its holder is parked, or its thread has ended; zero if it is not.
    parked_since: AtomicU64,
    pub(crate) yields_taken: AtomicU64,
    pub(crate) yields_declined: AtomicU64,
    pub(crate) wake_ups_avoided: AtomicU64,
    // Others count these.
    wake_ups: CachePadded<AtomicU64>,
}

/// Why a runnable task had to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// For a worker.
    Turn,
    /// For all others: it has given way, or is of the background.
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

    /// Counts one. The holder's to call.
    #[inline]
    pub(crate) fn count(counter: &AtomicU64) {
        add(counter, 1);
    }

    /// A task that was runnable for so many nanoseconds is polled.
    fn waited(&self, class: Class, why: Waited, nanos: u64) {
        if why == Waited::GaveWay {
            self.yield_wait.record(nanos);
        }
        if why == Waited::Turn || class == Class::Background {
            self.latency[class as usize].record(nanos);
        }
    }

    /// What waited in the yield queue was a thread.
    pub(crate) fn thread_waited(&self, nanos: u64) {
        self.yield_wait.record(nanos);
    }

    pub(crate) fn polled(&self, nanos: u64) {
        self.poll_time.record(nanos);
    }

    /// The holder parks, or has nothing to do any more.
    pub(crate) fn rest(&self, now: u64) {
        // Ordering: relaxed, here and below: a reader that sees one and not the other is wrong by one pause. One that takes it
        // for rest twice says too little, once; the other way an hour of rest would be an hour of work.
        self.parked_since.store(now.max(1), Relaxed);
    }

    /// A thread has come to hold the core. If it had no holder before, that was a rest.
    pub(crate) fn held(&self, now: u64) {
        if self.parked_since.load(Relaxed) != 0 {
            self.rested(now);
        }
    }

    /// The holder has parked.
    pub(crate) fn rested(&self, now: u64) {
        let since = self.parked_since.load(Relaxed);
        add(&self.parked, now.saturating_sub(since));
        self.parked_since.store(0, Relaxed);
        add(&self.parks, 1);
    }

    fn busy(&self, born: u64, now: u64) -> Duration {
        let since = self.parked_since.load(Relaxed);
        let resting = if since == 0 { 0 } else { now.saturating_sub(since) };
        Duration::from_nanos(now.saturating_sub(born).saturating_sub(self.parked.load(Relaxed)).saturating_sub(resting))
    }
}

/// What a runtime counts.
pub(crate) struct Meter {
    cores: Box<[CachePadded<Tally>]>,
    /// Since when the tasks that are timed have been runnable.
    pub(crate) stamps: Stamps,
    /// What paced work took from the others.
    pub(crate) paced: Paced,
    // When the runtime was started, and when it ended; zero until then.
    born: u64,
    ended: AtomicU64,
    // Yield points of threads in `block_on`, taken and declined. Not on the line where every worker finds its tally.
    outside: CachePadded<[AtomicU64; 2]>,
    // How long polls on lowered threads had a CPU, in nanoseconds. Written by those threads.
    lowered_time: CachePadded<AtomicU64>,
    // The time in seconds, or so, as a part of `Mark`. Written when it changes, by whoever has looked at the clock.
    seconds: CachePadded<AtomicU16>,
}

impl Meter {
    /// For so many workers and spare cores.
    pub(crate) fn new(workers: usize, spares: usize, now: u64) -> Self {
        let cores: Box<[_]> = (0..workers + spares).map(|_| CachePadded::new(Tally::new())).collect();
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

    /// What a core counts.
    #[inline]
    pub(crate) fn core(&self, core: usize) -> &Tally {
        &self.cores[core]
    }

    /// About what time it is, for tasks that begin to wait.
    #[inline]
    pub(crate) fn seconds(&self) -> u16 {
        self.seconds.load(Relaxed)
    }

    /// Somebody has looked at the clock.
    pub(crate) fn tell_time(&self, now: u64) {
        let seconds = Mark::waiting_since(now);
        // Ordering: relaxed, both: a time that is a little old is as good.
        if self.seconds.load(Relaxed) != seconds {
            self.seconds.store(seconds, Relaxed);
        }
    }

    /// A task is made runnable by a thread that holds no core of this runtime. For whoever queues it, before it does.
    pub(crate) fn queued_from_outside(&self, meta: &Meta, now: impl FnOnce() -> u64) {
        self.queued_among(self.cores.len(), meta, now);
    }

    /// The same for a pinned task, by anybody. Its time is kept among those of its worker: one that is stuck keeps all that it
    /// has in its inbox, and those of others must not run out for that.
    pub(crate) fn queued_for(&self, core: usize, meta: &Meta, now: impl FnOnce() -> u64) {
        self.queued_among(core, meta, now);
    }

    fn queued_among(&self, group: usize, meta: &Meta, now: impl FnOnce() -> u64) {
        SAMPLER.with(|sampler| {
            let due = sampler.is_due();
            meta.set_mark(if due { self.time(sampler, group, meta, now()) } else { Mark::QUEUED });
        });
    }

    /// A task is made runnable that is to be timed: its mark. `core` is of whoever queues it, or the number of cores if he
    /// has none; for a pinned task its own.
    pub(crate) fn time(&self, sampler: &Sampler, core: usize, meta: &Meta, now: u64) -> Mark {
        sampler.timed(now);
        self.tell_time(now);
        let taken = |number| self.paced.taken(Where::of(meta, number), now);
        Mark::queued(self.stamps.keep(core, sampler.random_below(64), now, taken))
    }

    /// A task that is timed is about to be polled on a core. The holder's to call.
    pub(crate) fn begin_timed(&self, core: usize, meta: &Meta, number: u16, gave_way: bool, now: u64) {
        let stamp = self.stamps.take(number);
        let class = if meta.is_background() { Class::Background } else { Class::Foreground };
        let why = if gave_way { Waited::GaveWay } else { Waited::Turn };
        self.core(core).waited(class, why, now.saturating_sub(stamp.since));
        if class == Class::Foreground && why == Waited::Turn && !meta.is_paced() {
            self.paced.waited(core, Where::of(meta, number), stamp, now);
        }
        self.tell_time(now);
    }

    /// A task goes into the yield queue, which keeps its time, however long it may be there. Since when it is runnable; zero
    /// if it is not timed.
    pub(crate) fn gives_way(&self, meta: &Meta) -> u64 {
        let number = meta.mark().number();
        meta.set_mark(Mark::YIELDED);
        number.map_or(0, |number| self.stamps.take(number).since)
    }

    /// As [`Self::gives_way`], for a thread.
    pub(crate) fn thread_gives_way(&self, now: impl FnOnce() -> u64) -> u64 {
        SAMPLER.with(|sampler| {
            let now = if sampler.is_due() { now() } else { return 0 };
            sampler.timed(now);
            now
        })
    }

    /// A task that was taken from the yield queue is going to be polled on a core. It came there at `since`.
    pub(crate) fn resumes(&self, meta: &Meta, core: usize, since: u64) {
        let number = if since == 0 { None } else { self.stamps.keep(core, 0, since, |_| 0) };
        meta.set_mark(Mark::queued(number));
    }

    /// A yield point of a thread in `block_on` asked, and gave way or not.
    pub(crate) fn yield_point_outside(&self, taken: bool) {
        self.outside[usize::from(!taken)].fetch_add(1, Relaxed);
    }

    /// A poll on a lowered thread had a CPU for this long.
    pub(crate) fn count_lowered(&self, nanoseconds: u64) {
        self.lowered_time.fetch_add(nanoseconds, Relaxed);
    }

    /// A worker is woken.
    pub(crate) fn wakes(&self, core: usize) {
        self.cores[core].wake_ups.fetch_add(1, Relaxed);
    }

    /// How often any worker was woken or has parked.
    pub(crate) fn woken_and_parked(&self) -> u64 {
        self.sum(|tally| &tally.wake_ups) + self.sum(|tally| &tally.parks)
    }

    /// The runtime has come to its end: time stands still.
    pub(crate) fn end(&self, now: u64) {
        self.ended.store(now, Relaxed);
    }

    /// What time it is, or was at the end.
    pub(crate) fn now(&self, now: u64) -> u64 {
        match self.ended.load(Relaxed) {
            0 => now,
            ended => ended.min(now),
        }
    }

    fn histogram(&self, which: impl Fn(&Tally) -> &Recorder) -> Histogram {
        let mut histogram = Histogram::new();
        self.cores.iter().for_each(|core| which(core).add_to(&mut histogram));
        histogram
    }

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
        // Whoever takes a spare core ends a rest. Up to the last that was used, so that each keeps its place.
        let spares = self.workers()..self.posts.len();
        let used =
            spares.rev().find(|&core| load(&meter.cores[core].parks) > 0).map_or(self.workers(), |last| last + 1);
        // In the child of a fork somebody who does not exist may hold any lock.
        let forked = self.birth.is_elsewhere();
        let [blocking, background, lowered] =
            self.crews().map(|crew| if forked { Census::default() } else { crew.census() });
        Metrics {
            uptime: Duration::from_nanos(now.saturating_sub(meter.born)),
            foreground_latency: meter.histogram(|tally| &tally.latency[Class::Foreground as usize]),
            background_latency: meter.histogram(|tally| &tally.latency[Class::Background as usize]),
            poll_time: meter.histogram(|tally| &tally.poll_time),
            yield_wait: meter.histogram(|tally| &tally.yield_wait),
            yields_taken: meter.sum(|tally| &tally.yields_taken) + load(&meter.outside[0]),
            yields_declined: meter.sum(|tally| &tally.yields_declined) + load(&meter.outside[1]),
            interrupts: scheduler.polite.interrupts_sent(),
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
