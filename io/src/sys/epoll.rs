//! Waiting by `epoll` itself, on Linux.

use super::{Event, Report};
use crate::reactor::Place;
use libc::{c_int, c_ulong};
use polling::{PollMode, Poller};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Returns the key of a place's eventfd. `polling` keeps the key above these to itself.
const fn call_key(place: Place) -> usize {
    match place {
        Place::First => usize::MAX - 1,
        Place::Second => usize::MAX - 2,
    }
}

/// Whether two threads can wait at once.
pub(crate) const TWO_MAY_WAIT: bool = true;

/// Whether events tell the end of a stream from data. If they do, a read that took less than it
/// could has taken all, and need not be followed by one that finds nothing: half of all reads,
/// where requests are answered one by one.
pub(crate) const REPORTS_ENDS: bool = true;

thread_local! {
    /// The timer slack of this thread when it first waited, in nanoseconds: mostly the default,
    /// 50 µs.
    static SLACK: u64 = own_slack() as u64;
}

/// Returns how much later than it was told the kernel may set off its timer, in nanoseconds as
/// the timeout is: a thousandth of the timeout, at most 0.1 s, and no less than the thread's
/// own slack unless [`precisely`] lowers that.
pub(crate) fn slack(timeout: u64) -> u64 {
    let least = SLACK.with(|&slack| slack);
    (timeout / 1_000).min(100_000_000).max(if is_short(timeout) { 0 } else { least })
}

/// Returns whether the thread's own slack is more than half of the timeout: too much to be
/// asked for in advance.
fn is_short(timeout: u64) -> bool {
    SLACK.with(|&slack| slack > timeout / 2)
}

fn prctl(option: c_int, nanoseconds: c_ulong) -> c_int {
    // SAFETY: `option` is `PR_GET_TIMERSLACK` or `PR_SET_TIMERSLACK`. Both take no pointer;
    // they read or change a number of the calling thread. All arguments have the type that the
    // call reads.
    unsafe { libc::prctl(option, nanoseconds, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) }
}

/// Returns the timer slack of the calling thread, in nanoseconds.
fn own_slack() -> c_ulong {
    prctl(libc::PR_GET_TIMERSLACK, 0).try_into().unwrap_or(0)
}

/// Calls `wait` with a timer slack of a microsecond if the timeout is short. The slack is put
/// back after the call: a new thread or process inherits the slack of the thread that starts
/// it, and a task may start some.
fn precisely<R>(timeout: Duration, wait: impl FnOnce() -> R) -> R {
    if !u64::try_from(timeout.as_nanos()).is_ok_and(is_short) {
        return wait();
    }
    let before = own_slack();
    prctl(libc::PR_SET_TIMERSLACK, before.min(1_000));
    let result = wait();
    prctl(libc::PR_SET_TIMERSLACK, before);
    result
}

/// The kernel's type for a time, on CPUs of every width. `libc` has the C library's, which is
/// shorter on some CPUs of 32 bits.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

impl From<Duration> for KernelTimespec {
    fn from(time: Duration) -> Self {
        let seconds = time.as_secs().try_into().unwrap_or(i64::MAX);
        Self { seconds, nanoseconds: time.subsec_nanos().into() }
    }
}

/// The number of events that one turn takes at most.
const EVENTS: usize = 256;

pub(crate) struct Waiter {
    poller: Poller,
    /// An eventfd for each place. In edge mode every write is an event, so no thread has to
    /// read it: one system call to notify, none to be notified.
    first: OwnedFd,
    second: OwnedFd,
    /// Whether the kernel knows no finer timeout. Set by a thread that was refused one.
    only_milliseconds: AtomicBool,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

impl Waiter {
    pub(crate) fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        let notifier = |place| {
            let notifier = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let event = polling::Event::readable(call_key(place));
            // SAFETY: the descriptor is open, and must not be used by the poller after it is
            // closed. Both are dropped together, with no call of the poller in between.
            unsafe { poller.add_with_mode(notifier.as_raw_fd(), event, PollMode::Edge)? };
            io::Result::Ok(notifier)
        };
        let (first, second) = (notifier(Place::First)?, notifier(Place::Second)?);
        Ok(Self { poller, first, second, only_milliseconds: AtomicBool::new(false) })
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
        // Not through `polling`, which does not ask for the end of the peer's stream.
        let flags =
            EventFlags::ET | EventFlags::IN | EventFlags::OUT | EventFlags::PRI | EventFlags::RDHUP;
        Ok(epoll::add(self.poller.as_fd(), fd, epoll::EventData::new_u64(key as u64), flags)?)
    }

    pub(crate) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.delete(fd)
    }

    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.0.clear();
        let result = match timeout {
            Some(timeout) if !timeout.is_zero() && !self.only_milliseconds.load(Relaxed) => {
                precisely(timeout, || self.wait_nanoseconds(events, timeout))
            }
            // A timeout that does not fit into the older call would make `rustix` use the newer
            // one, so it is cut. The caller comes back.
            timeout => {
                let longest = Duration::from_millis(i32::MAX as u64);
                let timeout =
                    timeout.and_then(|timeout| Timespec::try_from(timeout.min(longest)).ok());
                let buffer = rustix::buffer::spare_capacity(&mut events.0);
                epoll::wait(self.poller.as_fd(), buffer, timeout.as_ref()).map(drop)
            }
        };
        match result {
            Err(Errno::INTR) | Ok(()) => Ok(()),
            // A kernel from before 5.11, or a filter of system calls from before it: timers are
            // up to a millisecond late there. The caller comes back.
            Err(Errno::NOSYS | Errno::PERM) if !self.only_milliseconds.load(Relaxed) => {
                self.only_milliseconds.store(true, Relaxed);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits with a timeout in nanoseconds. Not through `rustix`, which rounds a timeout up to
    /// milliseconds if it may run on a kernel that knows nothing finer.
    fn wait_nanoseconds(&self, events: &mut Events, timeout: Duration) -> Result<(), Errno> {
        let timeout = KernelTimespec::from(timeout);
        let room = events.0.spare_capacity_mut();
        // SAFETY: the descriptor is open for the length of the call. `room` is ours to be
        // written to, for as many events as its length says, and its entries have the layout
        // that the kernel has for an event, as `rustix` declares it. The timeout is readable
        // and has the kernel's layout. No signal mask is given, which a null pointer and the
        // size zero say.
        let found = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.poller.as_fd().as_raw_fd(),
                room.as_mut_ptr(),
                room.len(),
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        let Ok(found) = usize::try_from(found) else {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        };
        // SAFETY: the vector was empty, so its first entries are those of `room`. The kernel
        // has written `found` of them, and not more than there is room for.
        unsafe { events.0.set_len(found) };
        Ok(())
    }

    pub(crate) fn notify(&self, place: Place) {
        let notifier = match place {
            Place::First => &self.first,
            Place::Second => &self.second,
        };
        // Fails only if the counter is full, and then there is an event.
        let _full = rustix::io::write(notifier, &1_u64.to_ne_bytes());
    }
}

pub(crate) struct Events(Vec<epoll::Event>);

// SAFETY: an event's data may be a pointer, which must not be used on another thread. Here it
// is always a number.
unsafe impl Send for Events {}

impl Events {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(EVENTS))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether the thread in that place was called.
    pub(crate) fn calls(&self, place: Place) -> bool {
        self.0.iter().any(|event| event.data.u64() as usize == call_key(place))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> {
        const READ: EventFlags = EventFlags::IN
            .union(EventFlags::RDHUP)
            .union(EventFlags::PRI)
            .union(EventFlags::HUP)
            .union(EventFlags::ERR);
        const WRITE: EventFlags = EventFlags::OUT.union(EventFlags::HUP).union(EventFlags::ERR);
        self.0.iter().map(|event| {
            let flags = event.flags;
            let error = flags.contains(EventFlags::ERR);
            let read = Report {
                ended: flags.intersects(EventFlags::HUP.union(EventFlags::RDHUP)),
                error,
                priority: flags.contains(EventFlags::PRI),
            };
            // A pipe without a reader is reported as an error alone.
            let write =
                Report { ended: error || flags.contains(EventFlags::HUP), error, priority: false };
            Event {
                key: event.data.u64() as usize,
                read: flags.intersects(READ).then_some(read),
                write: flags.intersects(WRITE).then_some(write),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The kernel declares it as two numbers of 64 bits, on every CPU.
    #[test]
    fn a_time_has_the_layout_that_the_kernel_wants() {
        assert_eq!(size_of::<KernelTimespec>(), 16);
        assert_eq!(
            (offset_of!(KernelTimespec, seconds), offset_of!(KernelTimespec, nanoseconds)),
            (0, 8)
        );
        let KernelTimespec { seconds, nanoseconds } = Duration::new(1 << 40, 999_999_999).into();
        assert_eq!((seconds, nanoseconds), (1_i64 << 40, 999_999_999_i64));
        assert_eq!(KernelTimespec::from(Duration::MAX).seconds, i64::MAX);
    }
}
