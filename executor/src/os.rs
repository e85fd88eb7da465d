//! What the OS tells of a thread by its number, and what it can be asked to do with it. On systems
//! other than Linux it tells nothing.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the nanoseconds since some moment, the same for all threads.
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns the number of the calling thread, or zero where threads have none.
pub(crate) fn this_thread() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: `gettid` takes no argument, touches no memory of the process, and cannot fail.
    return unsafe { libc::gettid() };
    #[cfg(not(target_os = "linux"))]
    0
}

/// Returns how long a thread has had a CPU, up to now.
#[cfg(target_os = "linux")]
pub(crate) fn had_cpu(thread: i32) -> Option<Duration> {
    // The kernel's name for the CPU clock of a thread: the complement of its number, a bit that
    // says it is a thread's (4), and one for what the scheduler counts (2). The call takes half a
    // microsecond, where the file in /proc takes ten.
    let clock = !thread << 3 | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a `timespec` that may be written to. The clock of a thread that has ended
    // is an error, and writes nothing.
    let told = unsafe { libc::clock_gettime(clock, &mut time) } == 0;
    told.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn had_cpu(_thread: i32) -> Option<Duration> {
    None
}

/// Returns the CPU time of the calling thread, in nanoseconds. `None` if the system does not say.
#[cfg(all(unix, not(miri)))]
pub(crate) fn thread_time() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a `timespec` that may be written to.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    (failed == 0).then(|| seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

#[cfg(not(all(unix, not(miri))))]
pub(crate) fn thread_time() -> Option<u64> {
    None
}

/// Returns whether a thread has a CPU or waits for one.
pub(crate) fn wants_cpu(thread: i32) -> Option<bool> {
    let stat = proc_file(thread, "stat")?;
    // The state stands behind the name, which is in brackets and may contain some.
    Some(stat.rsplit_once(") ")?.1.starts_with('R'))
}

/// Returns how long a thread has waited for a CPU since it was started. The wait that goes on now
/// is not counted.
pub(crate) fn starved(thread: i32) -> Option<Duration> {
    // The file has three numbers: time on a CPU, time waiting for one, how often the thread had
    // one.
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

/// How long the kernel lets a thread compute before another of the same priority is due (Linux 6.12
/// and later).
///
/// A thread that wakes up preempts one with a longer slice at once, unless it has had more than its
/// share of that CPU. One with a slice of the same length it lets finish its slice first, whatever
/// the priorities: beside a thread at nice 19 that has just been continued it waits for
/// milliseconds. Unlike a priority, a slice can be changed both ways without privileges. A thread
/// inherits that of the thread which starts it.
///
/// These calls are made only for the sake of background polls that are preempted: a program that
/// has none may run under a filter of system calls that forbids them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeSlice {
    /// The shortest that the kernel knows. For threads that are to run as soon as they wake up, and
    /// do not compute for long.
    Short,
    /// The kernel's default, some milliseconds.
    Ordinary,
    /// Twice the default. For lowered threads. Much more would be wrong: a thread may be owed up to
    /// two slices of CPU time, and is not preempted while it is.
    Double,
}

impl TimeSlice {
    /// Asks the OS for this slice for a thread, by its number; zero is the calling thread. If the
    /// OS refuses, nothing changes.
    fn ask_for(self, thread: i32) {
        #[cfg(not(target_os = "linux"))]
        let _ = thread;
        #[cfg(target_os = "linux")]
        if let Some(mut attributes) = Attributes::of(thread)
            // The kernel tells zero if it knows no slices.
            && attributes.runtime > 0
        {
            attributes.runtime = if self == Self::Short { SHORT_SLICE } else { 0 };
            attributes.set(thread);
            if self == Self::Double
                && let Some(mut attributes) = Attributes::of(thread)
            {
                // What the kernel tells now is its default.
                attributes.runtime *= 2;
                attributes.set(thread);
            }
        }
    }
}

thread_local! {
    /// Whether the calling thread has a short time slice.
    static HURRIED: Cell<bool> = const { Cell::new(false) };
}

/// Has the calling thread run as soon as it wakes up, until [`calm`].
pub(crate) fn hurry() {
    if !HURRIED.replace(true) {
        TimeSlice::Short.ask_for(0);
    }
}

/// Has another thread, by its number, run as soon as it is woken. It [notes](note_hurried) that.
pub(crate) fn hurry_thread(thread: i32) {
    TimeSlice::Short.ask_for(thread);
}

/// Returns whether the calling thread has a short time slice, which threads inherit that it starts.
pub(crate) fn is_hurried() -> bool {
    HURRIED.get()
}

/// Notes that the calling thread has a short time slice: it inherited one, or was hurried by
/// another thread.
pub(crate) fn note_hurried() {
    HURRIED.set(true);
}

/// Has the calling thread compete as any thread does, if it was hurried.
pub(crate) fn calm() {
    if HURRIED.replace(false) {
        TimeSlice::Ordinary.ask_for(0);
    }
}

/// Has the OS prefer other threads to `thread` for a while: they preempt it when they wake up. It
/// need not be the calling thread. Returns what [`step_back`] needs to undo it, if the OS did it.
///
/// The thread is given long time slices. It keeps its share of the CPUs.
#[cfg(target_os = "linux")]
pub(crate) fn step_aside(thread: i32) -> Option<NonZeroU64> {
    let mut attributes = Attributes::of(thread)?;
    // A thread that was hurried does not get that back: it may be in another poll by then.
    let before = if attributes.runtime == SHORT_SLICE { 0 } else { attributes.runtime };
    let before = u32::try_from(before / 1_000).ok()?;
    attributes.runtime = LONG_SLICE;
    attributes
        .set(thread)
        .then(|| NonZeroU64::new(u64::from(thread.cast_unsigned()) << 32 | u64::from(before)))?
}

/// Undoes [`step_aside`]. The thread may have ended.
#[cfg(target_os = "linux")]
pub(crate) fn step_back(aside: NonZeroU64) {
    let (thread, before) = ((aside.get() >> 32) as i32, aside.get() & u64::from(u32::MAX));
    // The clock knows the threads of this process alone. If the thread has ended, its number may be
    // another process's by now.
    if had_cpu(thread).is_some()
        && let Some(mut attributes) = Attributes::of(thread)
    {
        // For a thread that had asked for no slice, this is the default. Asking for the default
        // changes nothing.
        attributes.runtime = before * 1_000;
        attributes.set(thread);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn step_aside(_thread: i32) -> Option<NonZeroU64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn step_back(_aside: NonZeroU64) {}

/// The shortest and the longest slice that the kernel knows, in nanoseconds.
#[cfg(target_os = "linux")]
const SHORT_SLICE: u64 = 100_000;
#[cfg(target_os = "linux")]
const LONG_SLICE: u64 = 100_000_000;

/// How the kernel schedules a thread: the first version of its `sched_attr`.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The time slice of a thread with an ordinary policy.
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[cfg(target_os = "linux")]
impl Attributes {
    /// Returns the attributes of a thread, if its policy is an ordinary one. Zero is the calling
    /// thread.
    fn of(thread: i32) -> Option<Self> {
        let (mut attributes, size) = (Self::default(), size_of::<Self>());
        // SAFETY: `attributes` may be written to for `size` bytes, and the kernel writes no more. A
        // thread that has ended is an error.
        let told =
            unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) }
                == 0;
        let ordinary =
            [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attributes.policy.cast_signed());
        (told && ordinary).then_some(attributes)
    }

    /// Applies the attributes to a thread. Returns whether the OS did it.
    fn set(&self, thread: i32) -> bool {
        // SAFETY: the kernel reads as many bytes as the field `size` says. That is the size that
        // `of` passed to the kernel, and `self` is readable for it.
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const *self, 0) == 0 }
    }
}

/// Has the OS prefer every other thread to the calling one, for good.
pub(crate) fn lower() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: changes a setting of the calling thread (that is what 0 means on Linux), and touches
    // no memory.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } {
        0 => {
            TimeSlice::Double.ask_for(0);
            HURRIED.set(false);
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
    // On other systems it would lower the whole process.
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}
