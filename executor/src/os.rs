//! What the OS tells of a thread, by its number, and what can be asked of it. Linux; elsewhere it tells nothing.

use std::io;
use std::time::Duration;

/// The number of the calling thread. Zero where threads have none.
pub(crate) fn this_thread() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: asks for a number, and touches no memory.
    return unsafe { libc::gettid() };
    #[cfg(not(target_os = "linux"))]
    0
}

/// How long a thread has had a CPU, up to now.
#[cfg(target_os = "linux")]
pub(crate) fn had_cpu(thread: i32) -> Option<Duration> {
    // What the kernel calls the CPU clock of a thread: the complement of its number, and that it is a thread's (4) and counts
    // what the scheduler counts (2). Half a microsecond, where the file in /proc takes ten.
    let clock = !thread << 3 | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable `timespec`. A thread that has ended is an error.
    let told = unsafe { libc::clock_gettime(clock, &mut time) } == 0;
    told.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn had_cpu(_thread: i32) -> Option<Duration> {
    None
}

/// Whether a thread has a CPU or waits for one.
pub(crate) fn wants_cpu(thread: i32) -> Option<bool> {
    let stat = proc_file(thread, "stat")?;
    // Behind the name, which is in brackets and may contain some.
    Some(stat.rsplit_once(") ")?.1.starts_with('R'))
}

/// How long a thread has waited for a CPU since it was started: not what it waits for one now.
pub(crate) fn starved(thread: i32) -> Option<Duration> {
    // Three numbers: time on a CPU, time waiting for one, how often it had one.
    let stat = proc_file(thread, "schedstat")?;
    stat.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

fn proc_file(thread: i32, name: &str) -> Option<String> {
    if cfg!(target_os = "linux") {
        std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok()
    } else {
        None
    }
}

/// Has the OS prefer every other thread to the calling one, for good.
pub(crate) fn lower() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: changes a setting of the calling thread (that is what 0 means on Linux), and reads no memory.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
    // Elsewhere it would be the whole process.
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}
