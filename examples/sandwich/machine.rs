//! What the standard library does not tell about the machine.

use std::io;
use std::time::Duration;

/// Returns the CPU time that all threads of this process have used.
pub(crate) fn cpu_time() -> io::Result<Duration> {
    // SAFETY: `rusage` is a plain C struct of integers: all-zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to `usage`, a valid `rusage` that this function may write to.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Returns the CPU time that the calling thread has used. Time in which it waited for a CPU does
/// not count.
pub(crate) fn thread_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to `time`, a valid `timespec` that this function may write to.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Returns whether the system grants real-time priority to threads of this process.
pub(crate) fn allows_real_time() -> bool {
    // On a thread of its own, so that the caller's priority does not change.
    std::thread::spawn(ask_for_real_time).join().unwrap_or(false)
}

/// Lowers the calling thread to nice 19. This needs no privilege.
pub(crate) fn step_back() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes no pointer; it changes the priority of the calling thread alone.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}

/// Requests real-time priority for the calling thread. Returns false if the system refuses.
pub(crate) fn ask_for_real_time() -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: `sched_param` is a plain C struct of integers: all-zero bytes are a valid value.
        let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
        param.sched_priority = 10;
        // SAFETY: the pointer is to `param`, an initialized `sched_param`. The id zero names the
        // calling thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Measures which part of the machine other processes use, from [`Self::start`] on. `None` inside
/// if the system does not tell.
#[derive(Debug)]
pub(crate) struct Others(Option<Times>);

/// CPU time so far, in seconds: of all CPUs, the part of it that was used, and the part that this
/// process used.
#[derive(Debug)]
struct Times {
    all: f64,
    used: f64,
    own: f64,
}

impl Others {
    pub(crate) fn start() -> Self {
        Self(Times::now())
    }

    /// Returns the part of the machine that other processes have used since the start. `None` if
    /// the system does not tell.
    pub(crate) fn part(&self) -> Option<f64> {
        let (before, after) = (self.0.as_ref()?, Times::now()?);
        let all = after.all - before.all;
        let used = (after.used - before.used) - (after.own - before.own);
        (all > 0.0).then(|| (used / all).clamp(0.0, 1.0))
    }
}

impl Times {
    /// Reads the first line of `/proc/stat`. Its columns are user, nice, system, idle, waiting for
    /// disks, and three more kinds of used time, in hundredths of a second.
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let times = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let times: Vec<f64> = times.map(|time| time.parse().ok()).collect::<Option<_>>()?;
        let (all, idle): (f64, f64) = (times.iter().sum(), times.get(3..5)?.iter().sum());
        Some(Self { all: all / 1e2, used: (all - idle) / 1e2, own: cpu_time().ok()?.as_secs_f64() })
    }
}
