//! What the process and the machine have used so far, as the system counts it.

use std::time::Duration;

/// Counts of a whole process: of all its threads.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// CPU time, in user code and in the kernel.
    pub cpu: Duration,
    /// How often a thread gave up its CPU to wait.
    pub voluntary_switches: u64,
    /// How often a thread lost its CPU to another thread.
    pub involuntary_switches: u64,
}

/// Returns what this process has used so far.
///
/// # Panics
///
/// If the system does not know.
pub fn usage() -> Usage {
    usage_of(libc::RUSAGE_SELF)
}

/// Returns what those child processes have used that ended and were waited for, with their own
/// children.
///
/// # Panics
///
/// If the system does not know.
pub fn usage_of_children() -> Usage {
    usage_of(libc::RUSAGE_CHILDREN)
}

fn usage_of(whom: libc::c_int) -> Usage {
    // SAFETY: an all-zero `rusage` is a valid value of a plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a writable `rusage` that lives during the call.
    let failed = unsafe { libc::getrusage(whom, &mut usage) };
    assert_eq!(failed, 0, "getrusage of the own processes cannot fail");
    let count = |of: i64| u64::try_from(of).expect("a count");
    let time = |of: libc::timeval| {
        Duration::from_secs(count(of.tv_sec)) + Duration::from_micros(count(of.tv_usec))
    };
    Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

/// What all CPUs of the machine have done so far, added up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine {
    /// The time that they worked, for any process or for the kernel.
    pub busy: Duration,
    /// The time that they stood still because the host gave it to other machines.
    pub stolen: Duration,
}

/// Returns what all CPUs have done so far; zero if the system does not tell.
pub fn machine() -> Machine {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // In hundredths of a second: user, nice, system, idle, waiting for a disk, two kinds of
    // interrupts, stolen. The columns after these are contained in the first two.
    let ticks: Vec<u64> = all.take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, interrupts, soft, stolen] = ticks[..] else {
        return Machine::default();
    };
    let time = |ticks: u64| Duration::from_millis(10 * ticks);
    Machine { busy: time(user + nice + system + interrupts + soft), stolen: time(stolen) }
}
