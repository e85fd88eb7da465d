//! How long a thread worked, by the clock on the wall and by its own CPU clock.
//!
//! Reading the CPU clock of a thread is a system call, which takes ten to twenty times as long as
//! reading the time. So it is read only if the last reading was half a millisecond ago. A thread
//! that lost its CPU for less than that is taken to have had it.

use crate::os::thread_time;
use std::cell::Cell;

/// The CPU clock is read at most once in this time, in nanoseconds.
const RESOLUTION: u64 = 500_000;

/// Times what a thread does. Belongs to that thread.
pub(crate) struct Stopwatch {
    /// When the lap began, by the clock on the wall. Zero if the watch stands still.
    began: Cell<u64>,
    /// What the clock on the wall said when the CPU clock was last read.
    wall: Cell<u64>,
    /// What the CPU clock said then.
    cpu: Cell<u64>,
}

/// How long a lap took, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lap {
    pub(crate) wall: u64,
    /// The part of it in which the thread had a CPU, as far as that is known.
    pub(crate) cpu: u64,
}

impl Stopwatch {
    pub(crate) const fn new() -> Self {
        Self { began: Cell::new(0), wall: Cell::new(0), cpu: Cell::new(0) }
    }

    /// Begins a lap.
    pub(crate) fn start(&self, now: u64) {
        self.start_by(now, thread_time);
    }

    /// Ends the lap, and returns how long it took. Zero if none had begun.
    pub(crate) fn stop(&self, now: u64) -> Lap {
        self.stop_by(now, thread_time)
    }

    /// Ends the lap, and discards how long it took.
    pub(crate) fn reset(&self) {
        self.began.set(0);
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.began.get() != 0
    }

    fn start_by(&self, now: u64, cpu: impl FnOnce() -> Option<u64>) {
        self.began.set(now.max(1));
        // What the thread lost before the lap does not count. This reading discards it.
        let _ = self.without_cpu(now, cpu);
    }

    fn stop_by(&self, now: u64, cpu: impl FnOnce() -> Option<u64>) -> Lap {
        let wall = match self.began.replace(0) {
            0 => return Lap::default(),
            began => now.saturating_sub(began),
        };
        Lap { wall, cpu: wall.saturating_sub(self.without_cpu(now, cpu)) }
    }

    /// Returns for how long the thread had no CPU since the last reading of its CPU clock. Zero if
    /// that was not long ago.
    fn without_cpu(&self, now: u64, cpu: impl FnOnce() -> Option<u64>) -> u64 {
        let passed = now.saturating_sub(self.wall.get());
        if passed < RESOLUTION {
            return 0;
        }
        let Some(cpu) = cpu() else { return 0 };
        self.wall.set(now);
        passed.saturating_sub(cpu.saturating_sub(self.cpu.replace(cpu)))
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A watch, and the CPU clock that it reads.
    struct Test(Stopwatch, Cell<u64>);

    impl Test {
        /// Returns what the watch says of a lap between two times, in which the thread had a CPU
        /// for `cpu` nanoseconds.
        fn lap(&self, from: u64, until: u64, cpu: u64) -> Lap {
            self.0.start_by(from, || Some(self.1.get()));
            self.1.set(self.1.get() + cpu);
            self.0.stop_by(until, || Some(self.1.get()))
        }
    }

    fn test() -> Test {
        Test(Stopwatch::new(), Cell::new(77 * MS))
    }

    #[test]
    fn a_lap_in_which_the_thread_lost_its_cpu_is_longer_on_the_wall() {
        let test = test();
        assert_eq!(test.lap(1_000 * MS, 1_001 * MS, MS), Lap { wall: MS, cpu: MS });
        assert_eq!(test.lap(1_001 * MS, 1_005 * MS, MS), Lap { wall: 4 * MS, cpu: MS });
        assert_eq!(test.lap(1_005 * MS, 1_006 * MS, MS), Lap { wall: MS, cpu: MS });
    }

    #[test]
    fn what_was_between_two_laps_is_nobodys() {
        let test = test();
        assert_eq!(test.lap(1_000 * MS, 1_001 * MS, MS).cpu, MS);
        // A long sleep.
        assert_eq!(test.lap(9_000 * MS, 9_002 * MS, 2 * MS), Lap { wall: 2 * MS, cpu: 2 * MS });
    }

    #[test]
    fn the_cpu_clock_is_looked_at_seldom() {
        let watch = Stopwatch::new();
        watch.start_by(1_000 * MS, || Some(0));
        for lap in 1..5 {
            let (now, never) =
                (1_000 * MS + lap * MS / 10, || unreachable!("the last look was not long ago"));
            assert_eq!(watch.stop_by(now, never), Lap { wall: MS / 10, cpu: MS / 10 });
            watch.start_by(now, never);
        }
        let took = watch.stop_by(1_000 * MS + MS / 2, || Some(MS / 4));
        assert_eq!(
            took,
            Lap { wall: MS / 10, cpu: 0 },
            "it lost more than this lap was long, in this one or before"
        );
    }

    #[test]
    fn a_clock_that_says_nothing_or_goes_back_is_not_believed() {
        let watch = Stopwatch::new();
        watch.start_by(1_000 * MS, || None);
        assert_eq!(watch.stop_by(1_003 * MS, || None), Lap { wall: 3 * MS, cpu: 3 * MS });
        watch.start_by(2_000 * MS, || Some(50 * MS));
        assert_eq!(watch.stop_by(1_999 * MS, || None), Lap { wall: 0, cpu: 0 });
        watch.start_by(3_000 * MS, || Some(50 * MS));
        assert_eq!(watch.stop_by(3_001 * MS, || Some(40 * MS)).wall, MS);
    }

    #[test]
    fn a_watch_that_stands_still_says_nothing() {
        let watch = Stopwatch::new();
        assert!(!watch.is_running());
        watch.start_by(0, || Some(0));
        assert!(watch.is_running(), "whatever the time");
        watch.reset();
        assert!(!watch.is_running());
        assert_eq!(watch.stop_by(9 * MS, || Some(MS)), Lap::default());
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_thread_that_works_has_cpu_time() {
        let before = thread_time().expect("a clock");
        while thread_time().expect("a clock") <= before {}
    }
}
