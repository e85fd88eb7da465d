//! How to wake up in time: a thread that sleeps until a timer is due gets up a little too soon, and
//! stays awake for the rest.
//!
//! The kernel never wakes a sleeper exactly on time. It allows itself some slack, to wake several
//! sleepers at once: on Linux a thousandth of the time, or the slack of the thread if that is more.
//! This part is known ([`slack`]). Then a CPU that was idle has to wake up first, and the thread
//! has to get it: a few microseconds on a busy machine, fifty and more on a virtual one. This part
//! is much the same from one sleep to the next, so it can be learnt. A sleep is shorter by both. A
//! thread that is woken too soon by most of the slack sleeps again.
//!
//! Getting up sooner is paid for with a CPU that spins, so two things bound it. First, the expected
//! lateness stays below what was mostly seen: a wake-up sooner than expected moves it by a half of
//! the error, a later one by a sixteenth, and it is never more than [`MOST`]. Second, a thread
//! spins for at most the time that it has slept divided by [`SHARE`], and for [`MOST`] once beyond
//! that, however close together timers are and however much wake-ups vary. Beyond that it gets up
//! later, and finds several timers due.
//!
//! Plain numbers, for the thread that has the turn at the reactor; nothing here reads a clock.

use crate::sys::slack;

/// The most that a wake-up counts as late, in nanoseconds. What is beyond is not the waking of a
/// CPU, but another thread that has the CPU. Also the limit of the time awake that later sleeps
/// have to make up for.
const MOST: u64 = 50_000;

/// The time slept, divided by this, may be spent awake: a quarter of a microsecond after a sleep of
/// a millisecond. With that the median timer is 2 µs late; with four times as much time awake it is
/// 1 µs.
const SHARE: u64 = 4_000;

/// What the thread that takes the turn knows of earlier sleeps.
#[derive(Debug, Default)]
pub(crate) struct WakeLateness {
    /// How late a sleeper is expected to wake up, in nanoseconds.
    late: u64,
    /// The time spent awake that sleeps have not made up for, in nanoseconds.
    awake: u64,
}

/// How long to sleep, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sleep {
    /// What the kernel is told: it wakes the thread no sooner.
    pub(crate) shortest: u64,
    /// When the kernel's timer goes off at the latest.
    longest: u64,
}

impl Sleep {
    /// Returns a sleep whose timer goes off within `time`, if that is not zero.
    fn at_most(time: u64) -> Option<Self> {
        let shortest = time - slack(time);
        (time > 0).then_some(Self { shortest, longest: shortest + slack(shortest) })
    }
}

impl WakeLateness {
    /// Returns how long to sleep for what is due after `left` nanoseconds; `None` if not at all.
    pub(crate) fn sleep_for(&self, left: u64) -> Option<Sleep> {
        Sleep::at_most(left.saturating_sub(self.late.min(MOST.saturating_sub(self.awake))))
    }

    /// Learns from a sleep that was not cut short and took `slept` nanoseconds.
    pub(crate) fn slept(&mut self, sleep: Sleep, slept: u64) {
        self.awake = self.awake.saturating_sub(slept / SHARE);
        // A sooner wake-up says nothing: the kernel has not used its slack up.
        let Some(late) = slept.checked_sub(sleep.longest) else { return };
        let late = late.min(MOST);
        self.late = match late.checked_sub(self.late) {
            Some(error) => self.late + error / 16,
            None => self.late - (self.late - late).div_ceil(2),
        };
    }

    /// Notes that a thread was awake for this long until something was due.
    pub(crate) fn stayed_awake(&mut self, nanos: u64) {
        self.awake = self.awake.saturating_add(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns what is known after sleeps of a millisecond, each of which ended late by one of
    /// `late`.
    fn after(late: impl IntoIterator<Item = u64>) -> WakeLateness {
        let (mut wake_lateness, sleep) = (WakeLateness::default(), Sleep::at_most(MS).unwrap());
        late.into_iter().for_each(|late| wake_lateness.slept(sleep, sleep.longest + late));
        wake_lateness
    }

    #[test]
    fn one_who_was_never_late_sleeps_until_the_kernel_wakes_him_in_time() {
        for left in [1, 1_000, MS, 1_000 * MS, u64::MAX / 2] {
            let sleep = WakeLateness::default().sleep_for(left).unwrap();
            assert!(sleep.shortest > 0 && sleep.longest <= left, "{left}: {sleep:?}");
            assert!(left - sleep.longest <= 1 + left / 500_000, "{left}: {sleep:?}");
        }
        assert_eq!(WakeLateness::default().sleep_for(0), None);
    }

    #[test]
    fn who_is_always_late_gets_up_so_much_sooner() {
        let wake_lateness = after([30_000; 200]);
        let sleep = wake_lateness.sleep_for(MS).unwrap();
        assert!((969_000..971_000).contains(&sleep.longest), "{sleep:?}");
        assert_eq!(wake_lateness.sleep_for(29_000), None, "he would be too late");
    }

    /// Otherwise every sleep of an idle program would end in a spin.
    #[test]
    fn what_is_sometimes_early_is_not_expected_to_be_late() {
        let mixed = (0..1_000).map(|nth| if nth % 4 == 0 { 5_000 } else { 45_000 });
        let wake_lateness = after(mixed);
        assert!(wake_lateness.late < 30_000, "{}", wake_lateness.late);
        let wake_lateness = after([45_000; 200].into_iter().chain([1_000; 6]));
        assert!(wake_lateness.late < 3_000, "{}", wake_lateness.late);
    }

    #[test]
    fn a_cpu_that_another_has_is_made_up_for_only_so_far() {
        assert!(after([50 * MS; 1_000]).sleep_for(MS).unwrap().longest > MS - MOST - MS / 1_000);
    }

    #[test]
    fn who_wakes_up_within_the_slack_learns_nothing() {
        let mut wake_lateness = after([30_000; 200]);
        let (late, sleep) = (wake_lateness.late, Sleep { shortest: 99 * MS, longest: 100 * MS });
        wake_lateness.slept(sleep, 99 * MS + 10);
        assert_eq!(wake_lateness.late, late);
    }

    #[test]
    fn timers_that_are_close_together_do_not_keep_anybody_awake_for_ever() {
        for step in [1, 10_000, 39_000, 100_000] {
            let mut wake_lateness = after([40_000; 200]);
            let (mut awake, mut asleep) = (0, 0);
            for _ in 0..100_000 {
                let mut left = step;
                // The sleep is never late, so the rest has to be spent awake.
                while let Some(sleep) = wake_lateness.sleep_for(left) {
                    wake_lateness.slept(sleep, sleep.longest);
                    asleep += sleep.longest;
                    left -= sleep.longest;
                }
                wake_lateness.stayed_awake(left);
                awake += left;
            }
            assert!(awake <= 2 * MOST + asleep / SHARE, "{step}: {awake} of {asleep}");
        }
    }
}
