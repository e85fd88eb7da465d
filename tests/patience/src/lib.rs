//! What tests call a hang: a process that does nothing any more, and not one that takes long.
//!
//! On a machine that is slow enough, any test reaches a limit in seconds. A wait here ends in one
//! of two cases, and other processes that use the CPUs can cause neither:
//!
//! - In each of `QUIET_LOOKS` looks in a row, a second apart, the process had used next to no CPU
//!   time, and no thread of it wanted any. Every thread waits, and nothing will come of it.
//! - The process has used `MOST_CPU_TIME` since the wait began. It turns in circles.
//!
//! The tests of one binary run at the same time. So a test that hangs is noticed when all others
//! have ended, and ends none of them.

mod process;
mod watch;

pub use process::threads;
pub use watch::{Watch, watch};

use process::Process;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The time between two looks at a process.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The number of quiet looks in a row after which a process counts as hanging.
const QUIET_LOOKS: u32 = 60;

/// The CPU time between two looks below which a process is quiet. Timers and a monitor may still be
/// awake now and then.
const QUIET: Duration = Duration::from_millis(50);

/// A process that uses this much CPU time during one wait counts as turning in circles. It is many
/// times what all tests of a binary use together.
const MOST_CPU_TIME: Duration = Duration::from_secs(600);

/// The number of children that this process waits for: of [`WaitingFor`]s that exist.
static CHILDREN: AtomicUsize = AtomicUsize::new(0);

/// A wait for something that a process must do. Tells when the process hangs.
#[derive(Debug)]
pub struct Patience {
    process: Process,
    looked_at: Instant,
    /// The CPU time that the process had used at the first look.
    used_at_first: Duration,
    /// The CPU time that it had used at the last look.
    used: Duration,
    quiet_looks: u32,
}

impl Patience {
    /// Begins a wait for something that this process must do.
    pub fn new() -> Self {
        Self::with(Process::current())
    }

    fn with(process: Process) -> Self {
        let used = process.cpu_time().unwrap_or_default();
        Self { process, looked_at: Instant::now(), used_at_first: used, used, quiet_looks: 0 }
    }

    /// Returns whether to go on waiting. Looks at the process at most once a second, however often
    /// it is called.
    pub fn lasts(&mut self) -> bool {
        let now = Instant::now();
        if now - self.looked_at < LOOK_EVERY {
            return true;
        }
        self.looked_at = now;
        // Where the system does not tell, every look is a quiet one: a limit in time has to do.
        let used = self.process.cpu_time().unwrap_or(self.used);
        let is_quiet =
            used.saturating_sub(self.used) < QUIET && !self.process.waits_for_child_or_cpu();
        self.quiet_looks = if is_quiet { self.quiet_looks + 1 } else { 0 };
        self.used = used;
        self.quiet_looks < QUIET_LOOKS && used.saturating_sub(self.used_at_first) < MOST_CPU_TIME
    }

    /// Returns how long to wait before the next call of [`Self::lasts`].
    pub fn pause(&self) -> Duration {
        LOOK_EVERY
    }

    /// Calls `attempt` until it returns a value, and returns that; or `None` if the process hangs.
    /// `attempt` may wait for the time that it is given.
    pub fn keep_trying<T>(mut self, mut attempt: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        loop {
            // Before the look: if this thread had no CPU for long, the value may have come
            // meanwhile.
            if let Some(done) = attempt(self.pause()) {
                return Some(done);
            }
            if !self.lasts() {
                return None;
            }
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// Tells, from look to look, whether this process had the CPUs that it wanted. For a wait for one
/// part of a process while other parts go on.
#[derive(Debug)]
pub struct Progress {
    process: Process,
    used: Duration,
}

impl Progress {
    /// Begins to look.
    pub fn new() -> Self {
        let process = Process::current();
        Self { used: process.cpu_time().unwrap_or_default(), process }
    }

    /// Returns whether the process has used some CPU since the last look, or wants none. If what is
    /// waited for has not happened by then, the reason is not a slow machine.
    pub fn had_its_chance(&mut self) -> bool {
        let used = self.process.cpu_time().unwrap_or(self.used);
        let before = std::mem::replace(&mut self.used, used);
        used.saturating_sub(before) >= LOOK_EVERY / 4 || !self.process.waits_for_child_or_cpu()
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// A child process that this process waits for. While one exists, this process is not quiet.
#[derive(Debug)]
pub struct WaitingFor(u32);

impl WaitingFor {
    /// Notes that this process waits for the process with the number `pid`, until the value is
    /// dropped.
    pub fn child(pid: u32) -> Self {
        CHILDREN.fetch_add(1, SeqCst);
        Self(pid)
    }

    /// Begins a wait for something that the child must do.
    pub fn patience(&self) -> Patience {
        Patience::with(Process::other(self.0))
    }
}

impl Drop for WaitingFor {
    fn drop(&mut self) {
        CHILDREN.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns patience with a process whose state the test sets.
    fn patience() -> Patience {
        Patience::with(Process::pretended())
    }

    fn look(patience: &mut Patience, used: Duration, wants_cpu: bool) -> bool {
        patience.process.pretend(used, wants_cpu);
        patience.looked_at -= LOOK_EVERY;
        patience.lasts()
    }

    #[test]
    fn it_ends_when_nothing_happens_for_long() {
        let mut patience = patience();
        for _ in 1..QUIET_LOOKS {
            assert!(look(&mut patience, Duration::ZERO, false));
        }
        assert!(!look(&mut patience, Duration::ZERO, false));
    }

    #[test]
    fn it_does_not_end_while_a_thread_wants_a_cpu_and_gets_none() {
        let mut patience = patience();
        for _ in 0..100 * QUIET_LOOKS {
            assert!(look(&mut patience, Duration::ZERO, true));
        }
    }

    #[test]
    fn what_happens_now_and_then_begins_it_anew() {
        let mut patience = patience();
        for n in 1..1_000 {
            assert!(look(&mut patience, QUIET * (n / (QUIET_LOOKS - 1)), false), "look {n}");
        }
    }

    #[test]
    fn it_ends_when_the_process_turns_in_circles() {
        let mut patience = patience();
        assert!(look(&mut patience, MOST_CPU_TIME - Duration::from_nanos(1), true));
        assert!(!look(&mut patience, MOST_CPU_TIME, true));
    }

    #[test]
    fn a_process_that_waits_for_a_child_is_not_quiet() {
        let _child = WaitingFor::child(std::process::id());
        let mut patience = Patience::new();
        for _ in 0..2 * QUIET_LOOKS {
            patience.looked_at -= LOOK_EVERY;
            assert!(patience.lasts());
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_cpu_time_of_this_process_grows_with_what_it_does() {
        let process = Process::current();
        let before = process.cpu_time().expect("the system tells");
        while process.cpu_time().unwrap() < before + Duration::from_millis(20) {
            (0..1_000_000).for_each(|_| std::hint::spin_loop());
        }
    }
}
