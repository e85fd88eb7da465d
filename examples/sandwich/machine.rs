//! What the standard library does not say of the machine.

use std::io;
use std::time::Duration;

/// CPU time that this process has used, all its threads together.
pub(crate) fn cpu_time() -> io::Result<Duration> {
    // SAFETY: an all-zero `rusage` is a valid value of a plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a writable `rusage`.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// CPU time that the calling thread has had: what it waited for a CPU does not count.
pub(crate) fn thread_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable `timespec`.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Whether threads of this process get real-time priority if they ask for it.
pub(crate) fn allows_real_time() -> bool {
    // On a thread of its own: the caller keeps what it has.
    std::thread::spawn(ask_for_real_time).join().unwrap_or(false)
}

/// Makes the kernel prefer other threads to the calling one: what anybody may do.
pub(crate) fn step_back() {
    #[cfg(target_os = "linux")]
    // SAFETY: changes a setting of the calling thread, and reads no memory.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}

/// Gives the calling thread real-time priority. False if the system refuses.
pub(crate) fn ask_for_real_time() -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: an all-zero `sched_param` is a valid value of a plain C struct.
        let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
        param.sched_priority = 10;
        // SAFETY: `param` is a readable `sched_param`, and zero is the calling thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// What other processes use of the machine, from one moment to another.
#[derive(Debug)]
pub(crate) struct Others(Option<Times>);

/// CPU time so far, in seconds: of all CPUs, of those who used it, and of this process.
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

    /// Which part of the machine others have used since the start. None where the system does not say.
    pub(crate) fn part(&self) -> Option<f64> {
        let (before, after) = (self.0.as_ref()?, Times::now()?);
        let all = after.all - before.all;
        let used = (after.used - before.used) - (after.own - before.own);
        (all > 0.0).then(|| (used / all).clamp(0.0, 1.0))
    }
}

impl Times {
    /// From the first line of `/proc/stat`: user, nice, system, idle, waiting for disks, and more of the kind that is used, in
    /// hundredths of a second.
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let times = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let times: Vec<f64> = times.map(|time| time.parse().ok()).collect::<Option<_>>()?;
        let (all, idle): (f64, f64) = (times.iter().sum(), times.get(3..5)?.iter().sum());
        Some(Self { all: all / 1e2, used: (all - idle) / 1e2, own: cpu_time().ok()?.as_secs_f64() })
    }
}
