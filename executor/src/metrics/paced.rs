//! How much of the time that foreground tasks wait is charged to paced work.
//!
//! A task that waits for a worker waits for what the workers do meanwhile. Paced work is charged
//! with a part of that wait: the part of all cores' time that polls of paced tasks took while the
//! task waited. If they had half of the cores, half of the wait is theirs, since the queue would
//! have moved twice as fast without them. A wait behind a burst of the task's own kind, behind a
//! poll that is not paced, or while a worker wakes up is not charged here.
//!
//! Each core counts the CPU time that paced polls took there. It does so stretch by stretch: a
//! stretch ends when the poll ends or calls its pacer. A task that is timed notes the mean of these
//! counts when it becomes runnable (`Stamps`), and when it is polled it is charged with the growth
//! of the mean.
//!
//! Time in which the thread had no CPU does not count: that went to another process, and lowering a
//! limit here would not bring it back. So a stretch that goes on does not count with its length on
//! the wall: it counts as at most as long as those before it on its core. When it is over, what it
//! took is known.
//!
//! Nothing of this exists before a task has been paced.

use super::BUCKETS;
use super::histogram::{Counts, Recorder, add};
use super::sample::Stamp;
use crate::task::Meta;
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of cores that a wait is compared with. On a machine with more cores these are a
/// sample, another one for each wait.
const SAMPLE: usize = 8;

/// What paced polls took on each core, and how much of each wait was charged to them.
#[derive(Default)]
pub(crate) struct Paced {
    /// The workers' cores, once a task has been paced. Spare cores are not among them: a spare core
    /// is in use only beside a worker that is held by something else.
    cores: OnceLock<Box<[CachePadded<Core>]>>,
}

/// What paced polls took on one core. `took`, `since` and `usual` are written by the core's holder,
/// with plain stores, and read by threads that time a task.
struct Core {
    /// Nanoseconds in polls of paced tasks, without a stretch that still goes on.
    took: AtomicU64,
    /// Since when the current stretch goes on, by the runtime's clock; zero if there is none.
    since: AtomicU64,
    /// The length of the longest of the last few stretches: an older one counts for half with each
    /// stretch that follows.
    usual: AtomicU64,
    /// For each foreground task that was timed and polled here: the part of its wait that paced
    /// polls are charged with.
    waits: Recorder,
}

impl Core {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { took: zero(), since: zero(), usual: zero(), waits: Recorder::new() }
    }

    /// Returns the nanoseconds in polls of paced tasks, with a stretch that still goes on.
    fn taken(&self, now: u64) -> u64 {
        // Ordering: relaxed, here and below. A thread that reads one of the three and not the
        // others is wrong by one stretch, once.
        let goes_on = match self.since.load(Relaxed) {
            0 => 0,
            since => now.saturating_sub(since).min(self.usual.load(Relaxed)),
        };
        self.took.load(Relaxed) + goes_on
    }
}

/// Where a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// In front of this core, since the task is pinned.
    At(usize),
    /// In front of all cores. The task's entry has this number, which selects the sample of cores.
    Anywhere(u16),
}

impl Where {
    /// Returns where a task waits whose entry has this number.
    pub(super) fn of(task: &Meta, number: u16) -> Self {
        if task.is_pinned() { Self::At(task.pinned_to()) } else { Self::Anywhere(number) }
    }
}

impl Paced {
    /// Begins to count. Called before the first task is paced.
    pub(crate) fn start(&self, cores: usize) {
        self.cores.get_or_init(|| (0..cores).map(|_| CachePadded::new(Core::new())).collect());
    }

    fn core(&self, core: usize) -> Option<&Core> {
        self.cores.get()?.get(core).map(|core| &**core)
    }

    /// Notes that a paced task begins a stretch on this core. Every method that names a core is for
    /// the core's holder.
    pub(crate) fn begins(&self, core: usize, now: u64) {
        if let Some(core) = self.core(core) {
            core.since.store(now, Relaxed);
        }
    }

    /// Notes that a stretch on this core is over and took `nanos` nanoseconds.
    pub(crate) fn ends(&self, core: usize, nanos: u64) {
        if let Some(core) = self.core(core) {
            core.since.store(0, Relaxed);
            core.usual.store(nanos.max(core.usual.load(Relaxed) / 2), Relaxed);
            add(&core.took, nanos);
        }
    }

    /// Returns how much of a core's time paced polls have taken by now, where a task waits: the
    /// mean of the cores that could run it.
    pub(crate) fn taken(&self, place: Where, now: u64) -> u64 {
        let Some(cores) = self.cores.get() else { return 0 };
        match place {
            Where::At(core) => cores[core].taken(now),
            Where::Anywhere(number) => {
                let some = cores.len().min(SAMPLE);
                let nth =
                    |n: usize| &cores[(usize::from(number) + n * cores.len() / some) % cores.len()];
                (0..some).map(|n| nth(n).taken(now)).sum::<u64>() / some as u64
            }
        }
    }

    /// Charges the wait of a foreground task that is polled on this core now. The stamp says since
    /// when the task was runnable, and how much had been [taken](Self::taken) by then where it
    /// waited.
    pub(crate) fn waited(
        &self,
        core: usize,
        place: Where,
        Stamp { since, taken }: Stamp,
        now: u64,
    ) {
        if let Some(core) = self.core(core) {
            let meanwhile = self.taken(place, now).saturating_sub(taken);
            core.waits.record(meanwhile.min(now.saturating_sub(since)));
        }
    }

    /// Returns how many foreground tasks had how much of their wait charged to paced polls: the
    /// counts of a histogram, cumulative.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = [0; BUCKETS];
        self.cores
            .get()
            .into_iter()
            .flatten()
            .for_each(|core| core.waits.add_counts_to(&mut counts));
        counts
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::super::histogram::quantile;
    use super::*;

    const MS: u64 = 1_000_000;
    const ANYWHERE: Where = Where::Anywhere(1);

    fn paced(cores: usize) -> Paced {
        let paced = Paced::default();
        paced.start(cores);
        paced
    }

    /// Checks what a task is charged with that waits from `since` to `now` while `meanwhile`
    /// happens: to an eighth, as exactly as histograms are.
    #[track_caller]
    fn assert_charged(
        paced: &Paced,
        place: Where,
        [since, now]: [u64; 2],
        meanwhile: impl FnOnce(),
        expected: u64,
    ) {
        let (before, taken) = (paced.counts(), paced.taken(place, since));
        meanwhile();
        paced.waited(0, place, Stamp { since, taken }, now);
        let after = paced.counts();
        let new: Counts = std::array::from_fn(|bucket| after[bucket] - before[bucket]);
        let charged = quantile(&new, 1.0).expect("it was counted");
        assert!(
            (expected..=expected + expected / 8 + 32).contains(&charged),
            "{charged}, and not {expected}"
        );
    }

    /// A stretch of this length, whenever it was.
    fn stretch(paced: &Paced, cores: impl IntoIterator<Item = usize>, nanos: u64) {
        cores.into_iter().for_each(|core| paced.ends(core, nanos));
    }

    #[test]
    fn a_wait_is_charged_with_the_part_of_the_cores_that_paced_polls_took_meanwhile() {
        let paced = paced(2);
        let wait = [5 * MS, 15 * MS];
        stretch(&paced, [0, 1], 500 * MS);
        assert_charged(&paced, ANYWHERE, wait, || (), 0);
        assert_charged(&paced, ANYWHERE, wait, || stretch(&paced, [1], 10 * MS), 5 * MS);
        assert_charged(&paced, ANYWHERE, wait, || stretch(&paced, [0, 1], 4 * MS), 4 * MS);
        assert_charged(&paced, ANYWHERE, wait, || stretch(&paced, [0, 1], 90 * MS), 10 * MS);
    }

    #[test]
    fn of_a_stretch_that_goes_on_the_part_in_the_wait_is_charged() {
        let paced = paced(2);
        stretch(&paced, [0, 1], 20 * MS);
        paced.begins(0, 100 * MS);
        paced.begins(1, 105 * MS);
        // One ends in the wait, the other after it.
        assert_charged(&paced, ANYWHERE, [110 * MS, 120 * MS], || paced.ends(0, 20 * MS), 10 * MS);
        assert_charged(&paced, ANYWHERE, [120 * MS, 124 * MS], || (), 2 * MS);
        paced.ends(1, 20 * MS);
        assert_charged(&paced, ANYWHERE, [125 * MS, 130 * MS], || (), 0);
    }

    /// The wait is long, but the polite jobs were gone after a moment.
    #[test]
    fn a_burst_that_waits_for_itself_is_not_charged() {
        let paced = paced(2);
        stretch(&paced, [0, 1], 250_000);
        [0, 1].into_iter().for_each(|core| paced.begins(core, 100 * MS));
        let give_way = || stretch(&paced, [0, 1], 220_000);
        assert_charged(&paced, ANYWHERE, [100 * MS + 200_000, 110 * MS], give_way, 20_000);
    }

    /// Another process has the CPU from the middle of a stretch on.
    #[test]
    fn a_stretch_that_lost_its_cpu_is_not_charged_with_what_it_did_not_have() {
        let paced = paced(2);
        stretch(&paced, [0, 1], 250_000);
        [0, 1].into_iter().for_each(|core| paced.begins(core, 100 * MS));
        // One thread still has no CPU when the other has come back and given way.
        assert_charged(&paced, ANYWHERE, [100 * MS, 104 * MS], || paced.ends(0, 50_000), 150_000);
        assert_charged(&paced, ANYWHERE, [104 * MS, 120 * MS], || paced.ends(1, 250_000), 0);
    }

    #[test]
    fn a_long_stretch_is_remembered_for_a_few_short_ones() {
        let paced = paced(1);
        stretch(&paced, [0], 16 * MS);
        stretch(&paced, [0], 10);
        paced.begins(0, 100 * MS);
        assert_charged(&paced, ANYWHERE, [100 * MS, 120 * MS], || (), 8 * MS);
        (0..6).for_each(|_| stretch(&paced, [0], 10));
        paced.begins(0, 200 * MS);
        assert_charged(&paced, ANYWHERE, [200 * MS, 220 * MS], || (), MS / 8);
    }

    #[test]
    fn what_is_pinned_waits_for_one_core() {
        let paced = paced(16);
        let wait = [5 * MS, 15 * MS];
        assert_charged(&paced, Where::At(3), wait, || stretch(&paced, [3], 8 * MS), 8 * MS);
        assert_charged(&paced, Where::At(3), wait, || stretch(&paced, [4], 8 * MS), 0);
    }

    #[test]
    fn on_many_cores_a_few_of_them_speak_for_all() {
        let paced = paced(256);
        stretch(&paced, 0..256, 8 * MS);
        let taken = |number| paced.taken(Where::Anywhere(number), 0);
        for number in [1, 7, 255, 4_095, 16_382] {
            assert_eq!(taken(number), 8 * MS, "each was looked at once");
        }
        // Half of the cores, whichever they are: about half of the time, over many waits.
        stretch(&paced, (0..256).step_by(2), 8 * MS);
        let charged = (1..=512).map(|number| taken(number) - 8 * MS).sum::<u64>() / 512;
        assert!((3 * MS..=5 * MS).contains(&charged), "{charged}");
    }

    #[test]
    fn before_anything_is_paced_nothing_is_counted() {
        let paced = Paced::default();
        paced.begins(0, 5);
        paced.ends(0, MS);
        paced.waited(0, ANYWHERE, Stamp { since: 1, taken: 0 }, MS);
        assert_eq!((paced.taken(Where::At(0), MS), paced.counts()), (0, [0; BUCKETS]));
    }
}
