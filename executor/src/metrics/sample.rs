//! Which tasks are timed, and where their times are kept.
//!
//! A look at the clock takes some 30 ns, so one task in eight is timed. Fewer are timed if tasks
//! come so fast that samples would be less than 50 µs apart: then it is down to one in 1,024. The
//! distances between samples are random, because loads repeat themselves.
//!
//! A task that is to be timed is given an entry in a table, since its metadata has no room for a
//! time. The number of the entry goes with the task, in its mark (`task::Mark`). The thread that
//! polls the task takes the time out and frees the entry. A task that goes into the yield queue, or
//! to lowered threads, frees its entry at once. A queued task that is dropped instead keeps its
//! entry: that happens only when the runtime closes, and then no task is timed any more.

use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// One task in this many is timed, on average, if tasks come slowly.
const OFTEN: u32 = 8;

/// At least one task in this many is timed, on average, however fast tasks come.
const SELDOM: u32 = 1_024;

/// Samples should be at least this many nanoseconds apart.
const APART: u64 = 50_000;

/// After this many nanoseconds without a sample the next one should come soon.
const OVERDUE: u64 = 1_000_000;

/// Says which tasks are timed. Belongs to one thread.
pub(crate) struct Sampler {
    /// How many tasks are left until the next sample, that one included. Never zero between two
    /// calls.
    left: Cell<u32>,
    /// One task in this many is timed at present, on average.
    every: Cell<u32>,
    /// When the last sample was.
    last: Cell<u64>,
    /// The state of the random numbers. Never zero.
    random: Cell<u32>,
}

impl Sampler {
    /// Returns a sampler that times its first task.
    pub(crate) const fn new(seed: u32) -> Self {
        let random = Cell::new(seed.wrapping_mul(0x9e37_79b9) | 1);
        Self { left: Cell::new(1), every: Cell::new(OFTEN), last: Cell::new(0), random }
    }

    /// Returns whether the next task is to be timed. If so, the caller says when, by
    /// [`Self::timed`].
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left == 0
    }

    /// Notes that a task is timed now, and chooses the distance to the next one.
    pub(crate) fn timed(&self, now: u64) {
        let gap = now.saturating_sub(self.last.replace(now));
        let every = self.every.get();
        let every = if gap < APART {
            (every * 2).min(SELDOM)
        } else if gap > 4 * APART {
            // In one step and not by halves: a load that was fast and has become slow must not wait
            // for a thousand slow tasks before each step.
            (u64::from(every) * 2 * APART / gap).max(OFTEN.into()) as u32
        } else {
            every
        };
        self.every.set(every);
        self.left.set((every / 2 + self.random_below(every + 1)).max(1));
    }

    /// Brings the next sample near if the last one was long ago: tasks that came fast may come
    /// slowly now.
    pub(crate) fn slow_down(&self, now: u64) {
        if now.saturating_sub(self.last.get()) > OVERDUE {
            self.every.set(OFTEN);
            self.left.set(self.left.get().min(OFTEN));
        }
    }

    /// Returns a random number below `n`: a distance, or which entry to try first.
    pub(crate) fn random_below(&self, n: u32) -> u32 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random.set(x);
        x % n
    }
}

/// The number of entries in a group: some cache lines.
const GROUP: usize = 16;

/// The number of an entry, from 1, has this many bits.
pub(crate) const NUMBER_BITS: u32 = 14;

/// The number of groups that entries have numbers for. Zero and all ones are no numbers of entries.
const MOST_GROUPS: usize = ((1 << NUMBER_BITS) - 2) / GROUP;

/// Since when the tasks that are timed have been runnable. A group of entries for each core, and
/// one for threads that hold none.
pub(crate) struct Stamps {
    groups: Box<[CachePadded<[Entry; GROUP]>]>,
}

/// Room for the time of one task. The thread that queues the task takes the entry. The thread that
/// polls the task frees it, or before that the thread that puts the task into the yield queue or
/// leaves it to lowered threads.
struct Entry {
    /// Since when the task is runnable; zero if the entry is free. Set by the thread that takes the
    /// entry, zeroed by the thread that frees it, read by dumps.
    since: AtomicU64,
    /// What paced work had taken by then. Written by the thread that has taken the entry, read by
    /// the thread that is about to free it.
    taken: AtomicU64,
}

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Since when the task is runnable; zero if there is no such entry.
    pub(crate) since: u64,
    /// What paced work had [taken](super::Paced::taken) by then.
    pub(crate) taken: u64,
}

impl Stamps {
    pub(crate) fn new(cores: usize) -> Self {
        let groups = (cores + 1).min(MOST_GROUPS);
        let free =
            || [const { Entry { since: AtomicU64::new(0), taken: AtomicU64::new(0) } }; GROUP];
        Self { groups: (0..groups).map(|_| CachePadded::new(free())).collect() }
    }

    /// Keeps a time in a free entry of this group, together with what paced work has taken by then,
    /// which may depend on the entry. Returns the number of the entry, or `None` if the group has
    /// none free.
    pub(crate) fn keep(
        &self,
        group: usize,
        first: u32,
        time: u64,
        taken: impl FnOnce(u16) -> u64,
    ) -> Option<u16> {
        let group = group % self.groups.len();
        let entry = (0..GROUP).map(|i| (first as usize + i) % GROUP).find(|&entry| {
            // Ordering: acquire, partner of the release in `take`: the load of `taken` by the
            // thread that had the entry before comes before the store below. With relaxed it might
            // read what is stored for this task. The next `take` sees that store: the number of the
            // entry goes there with the task, and the queue orders it.
            self.groups[group][entry]
                .since
                .compare_exchange(0, time.max(1), Acquire, Relaxed)
                .is_ok()
        })?;
        let number = u16::try_from(group * GROUP + entry + 1).ok()?;
        self.groups[group][entry].taken.store(taken(number), Relaxed);
        Some(number)
    }

    /// Takes a time out, and frees its entry.
    pub(crate) fn take(&self, number: u16) -> Stamp {
        let Some(entry) = self.entry(number) else { return Stamp { since: 0, taken: 0 } };
        let taken = entry.taken.load(Relaxed);
        // Ordering: release, partner of the acquire in `keep`: the load above comes before what the
        // entry's next owner stores, so it is of this task.
        Stamp { since: entry.since.swap(0, Release), taken }
    }

    /// Returns the time in an entry, or zero if the entry is free. The time may be that of another
    /// task by now.
    pub(crate) fn look(&self, number: u16) -> u64 {
        self.entry(number).map_or(0, |entry| entry.since.load(Relaxed))
    }

    fn entry(&self, number: u16) -> Option<&Entry> {
        let place = usize::from(number).checked_sub(1)?;
        self.groups.get(place / GROUP)?.get(place % GROUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `n` tasks are timed, if the tasks are `apart` nanoseconds apart.
    fn timed(sampler: &Sampler, clock: &mut u64, n: u32, apart: u64) -> u32 {
        let count = |_: &u32| {
            *clock += apart;
            let due = sampler.is_due();
            if due {
                sampler.timed(*clock);
            }
            due
        };
        (0..n).filter(count).count() as u32
    }

    #[test]
    fn what_comes_slowly_is_timed_one_in_eight() {
        let (sampler, mut clock) = (Sampler::new(1), 1_000_000_000);
        let timed = timed(&sampler, &mut clock, 8_000, 30_000);
        assert!((900..1_100).contains(&timed), "{timed} of 8,000");
    }

    #[test]
    fn what_comes_fast_is_timed_seldom_and_often_again_when_it_slows_down() {
        let (sampler, mut clock) = (Sampler::new(2), 1_000_000_000);
        let fast = timed(&sampler, &mut clock, 1_000_000, 50);
        assert!((900..1_200).contains(&fast), "{fast} of 1,000,000: one in 1,024");
        let slow = timed(&sampler, &mut clock, 16_000, 1_000_000);
        assert!(
            (1_600..2_200).contains(&slow),
            "{slow} of 16,000: one in eight, once it has noticed"
        );
        timed(&sampler, &mut clock, 1_000_000, 50);
        clock += OVERDUE + 1;
        sampler.slow_down(clock);
        assert!(
            timed(&sampler, &mut clock, OFTEN, 1_000_000) > 0,
            "a thread that has slept notices at once"
        );
    }

    #[test]
    fn an_entry_is_kept_for_one_task_until_it_is_taken() {
        let stamps = Stamps::new(1);
        let numbers: Vec<u16> =
            (0..16).map(|i| stamps.keep(0, 5, 100 + i, u64::from).unwrap()).collect();
        assert_eq!(stamps.keep(0, 3, 1, |_| 0), None, "the core's entries are all taken");
        assert!(stamps.keep(1, 3, 1, |_| 0).is_some(), "not those of threads without a core");
        for (since, &number) in (100..).zip(&numbers) {
            assert_eq!(stamps.take(number), Stamp { since, taken: u64::from(number) });
        }
        assert_eq!([numbers[0], 0, u16::MAX].map(|number| stamps.take(number).since), [0; 3]);
        assert!(
            stamps.keep(0, 3, 0, |_| 0).is_some_and(|number| stamps.look(number) == 1),
            "no time is zero"
        );
    }

    #[test]
    fn numbers_fit_however_many_cores_there_are() {
        let stamps = Stamps::new(crate::MAX_WORKERS);
        for core in [0, 1_000, crate::MAX_WORKERS] {
            let number = stamps.keep(core, 15, 7, |_| 9).unwrap();
            assert!(number < (1 << NUMBER_BITS) - 1);
            assert_eq!(stamps.take(number), Stamp { since: 7, taken: 9 });
        }
    }
}
