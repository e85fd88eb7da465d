//! What tests call a hang: a process that does nothing any more, not one that takes long.
//!
//! A limit in seconds is reached by any test on a machine that is slow enough. What is waited for here ends when one of two
//! things is so, and neither can be brought about by others that use the CPUs:
//!
//! - for `QUIET_LOOKS` looks in a row, a second apart, the process has used next to no CPU time and none of its threads
//!   wanted any: every one of them waits, and nothing will come of it;
//! - the process has used `MOST_CPU_TIME` since: it turns in circles.
//!
//! Tests of one binary run at the same time, so one that hangs is noticed when all others have ended, and takes none of them
//! with it.

mod process;
mod watch;

pub use process::threads;
pub use watch::{Watch, watch};

use process::Process;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How far apart two looks at a process are.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After so many quiet looks in a row nothing is expected of a process any more.
const QUIET_LOOKS: u32 = 60;

/// A process is quiet if it has used less than this between two looks: timers and a monitor may still be awake now and then.
const QUIET: Duration = Duration::from_millis(50);

/// A process that has used so much CPU time while something was waited for turns in circles. Many times what all tests of a
/// binary use together.
const MOST_CPU_TIME: Duration = Duration::from_secs(600);

/// How many children this process waits for.
static CHILDREN: AtomicUsize = AtomicUsize::new(0);

/// Waiting for something that a process must do.
#[derive(Debug)]
pub struct Patience {
    process: Process,
    looked_at: Instant,
    // How much CPU time it had used at the first look and at the last.
    used_at_first: Duration,
    used: Duration,
    quiet_looks: u32,
}

impl Patience {
    /// Patience with this process.
    pub fn new() -> Self {
        Self::with(Process::current())
    }

    fn with(process: Process) -> Self {
        let used = process.cpu_time().unwrap_or_default();
        Self { process, looked_at: Instant::now(), used_at_first: used, used, quiet_looks: 0 }
    }

    /// Whether it is worth while to go on waiting. Looks once a second, however often it is asked.
    pub fn lasts(&mut self) -> bool {
        let now = Instant::now();
        if now - self.looked_at < LOOK_EVERY {
            return true;
        }
        self.looked_at = now;
        // Where the system does not tell, time has to do.
        let used = self.process.cpu_time().unwrap_or(self.used);
        let is_quiet = used.saturating_sub(self.used) < QUIET && !self.process.waits_for_child_or_cpu();
        self.quiet_looks = if is_quiet { self.quiet_looks + 1 } else { 0 };
        self.used = used;
        self.quiet_looks < QUIET_LOOKS && used.saturating_sub(self.used_at_first) < MOST_CPU_TIME
    }

    /// How long to wait before [`Self::lasts`] is asked again.
    pub fn pause(&self) -> Duration {
        LOOK_EVERY
    }

    /// Asks `attempt` until it has something, or patience is at its end. `attempt` may wait for the given time.
    pub fn keep_trying<T>(mut self, mut attempt: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        loop {
            // First: what came while this thread had no CPU has come.
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

/// Whether this process had the CPUs it wanted, look by look. For what is waited for in one part of a process while others go
/// on.
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

    /// Whether the process has used some CPU since the last look, or wanted none: if something did not happen since, that is
    /// not the machine's fault.
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

/// A child process that this one waits for: as long as there is one, this process is not quiet.
#[derive(Debug)]
pub struct WaitingFor(u32);

impl WaitingFor {
    /// The process with the number `pid` does something for this one until this is dropped.
    pub fn child(pid: u32) -> Self {
        CHILDREN.fetch_add(1, SeqCst);
        Self(pid)
    }

    /// Patience with that process.
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

    /// A process of which it is said what it does.
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
