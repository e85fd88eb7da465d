//! What the process has used so far.

use std::time::Duration;

/// Counts of the whole process, all threads.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// CPU time, in user code and in the kernel.
    pub cpu: Duration,
    /// How often a thread has given up its CPU to wait.
    pub voluntary_switches: u64,
    /// How often a thread has lost its CPU to another.
    pub involuntary_switches: u64,
}

/// What the process has used so far.
///
/// # Panics
///
/// If the system does not know.
pub fn usage() -> Usage {
    // SAFETY: an all-zero `rusage` is a valid value of a plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a writable `rusage`.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    assert_eq!(failed, 0, "getrusage of the own process cannot fail");
    let count = |of: i64| u64::try_from(of).expect("a count");
    let time = |of: libc::timeval| Duration::from_secs(count(of.tv_sec)) + Duration::from_micros(count(of.tv_usec));
    Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}
