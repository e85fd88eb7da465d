//! The system call under a turn.
//!
//! Two ways with one face: epoll by itself on Linux, `polling` elsewhere and with the feature `portable`. Both register
//! through `polling`, in edge mode.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) use epoll::{Events, Waiter};
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
pub(crate) use portable::{Events, Waiter};

/// What the kernel reported of a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod epoll {
    use super::Event;
    use polling::{PollMode, Poller};
    use rustix::event::epoll::{self, EventFlags};
    use rustix::event::{EventfdFlags, Timespec, eventfd};
    use std::fmt;
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    /// The key of our own eventfd; `polling` keeps the one above it to itself.
    const NOTIFY: usize = usize::MAX - 1;

    /// How many events one turn takes.
    const EVENTS: usize = 256;

    pub(crate) struct Waiter {
        poller: Poller,
        // In edge mode every write is an event, so nobody has to read it: one system call to notify, none to be notified.
        notifier: OwnedFd,
    }

    impl Waiter {
        pub(crate) fn new() -> io::Result<Self> {
            let poller = Poller::new()?;
            let notifier = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // SAFETY: the descriptor is closed when the poller is: both are dropped together.
            unsafe {
                poller.add_with_mode(notifier.as_raw_fd(), polling::Event::readable(NOTIFY), PollMode::Edge)?;
            }
            Ok(Self { poller, notifier })
        }

        pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
            // SAFETY: the caller keeps the descriptor open until it is deleted. (Epoll itself forgets one that is closed.)
            unsafe { self.poller.add_with_mode(fd.as_raw_fd(), polling::Event::all(key), PollMode::Edge) }
        }

        pub(crate) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
            self.poller.delete(fd)
        }

        pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
            // A timeout that does not fit is beyond the end of time.
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            events.0.clear();
            match epoll::wait(self.poller.as_fd(), rustix::buffer::spare_capacity(&mut events.0), timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }

        pub(crate) fn notify(&self) {
            // Fails only if the counter is full, and then there is an event.
            let _full = rustix::io::write(&self.notifier, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) struct Events(Vec<epoll::Event>);

    // SAFETY: an event's data may be a pointer, and here is always a number.
    unsafe impl Send for Events {}

    impl Events {
        pub(crate) fn new() -> Self {
            Self(Vec::with_capacity(EVENTS))
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        pub(crate) fn drain(&mut self) -> impl Iterator<Item = Event> {
            const READ: EventFlags = EventFlags::IN
                .union(EventFlags::RDHUP)
                .union(EventFlags::PRI)
                .union(EventFlags::HUP)
                .union(EventFlags::ERR);
            const WRITE: EventFlags = EventFlags::OUT.union(EventFlags::HUP).union(EventFlags::ERR);
            self.0.drain(..).map(|event| {
                let flags = event.flags;
                Event {
                    key: event.data.u64() as usize,
                    readable: flags.intersects(READ),
                    writable: flags.intersects(WRITE),
                }
            })
        }
    }

    impl fmt::Debug for Events {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Events")
        }
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable {
    use super::Event;
    use polling::{PollMode, Poller};
    use std::fmt;
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::time::Duration;

    pub(crate) struct Waiter {
        poller: Poller,
    }

    impl Waiter {
        pub(crate) fn new() -> io::Result<Self> {
            let poller = Poller::new()?;
            if !poller.supports_edge() {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "this system's poller reports no edges"));
            }
            Ok(Self { poller })
        }

        pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
            // SAFETY: the caller keeps the descriptor open until it is deleted.
            unsafe { self.poller.add_with_mode(fd.as_raw_fd(), polling::Event::all(key), PollMode::Edge) }
        }

        pub(crate) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
            self.poller.delete(fd)
        }

        pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
            events.0.clear();
            match self.poller.wait(&mut events.0, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                result => result.map(drop),
            }
        }

        pub(crate) fn notify(&self) {
            // Fails for want of a descriptor that it has had from the start.
            let _never = self.poller.notify();
        }
    }

    pub(crate) struct Events(polling::Events);

    impl Events {
        pub(crate) fn new() -> Self {
            Self(polling::Events::new())
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        pub(crate) fn drain(&mut self) -> impl Iterator<Item = Event> {
            self.0.iter().map(|event| Event { key: event.key, readable: event.readable, writable: event.writable })
        }
    }

    impl fmt::Debug for Events {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Events")
        }
    }
}
