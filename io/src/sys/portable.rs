//! Waiting by `polling`, on every system that it supports.

use super::{Event, Report};
use crate::reactor::Place;
use polling::{PollMode, Poller};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The end of a stream may come with the last bytes, and no event says so.
pub(crate) const REPORTS_ENDS: bool = false;

/// `polling` lets one thread wait at a time.
pub(crate) const TWO_MAY_WAIT: bool = false;

/// Returns zero: no slack is known of. See the implementation with epoll.
pub(crate) fn slack(_timeout: u64) -> u64 {
    0
}

#[derive(Debug)]
pub(crate) struct Waiter {
    poller: Poller,
}

impl Waiter {
    pub(crate) fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        if !poller.supports_edge() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this system's poller reports no edges",
            ));
        }
        Ok(Self { poller })
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
        // SAFETY: the descriptor has to stay open until it is deleted, or the poller dropped.
        // The caller of `Reactor::register` sees to that.
        unsafe {
            self.poller.add_with_mode(fd.as_raw_fd(), polling::Event::all(key), PollMode::Edge)
        }
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

    pub(crate) fn notify(&self, place: Place) {
        debug_assert_eq!(place, Place::First, "nobody is in the second place");
        // Fails only without a descriptor that `polling` has had from the start.
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

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns false: calls are no events of `polling`, and no thread waits beside the first.
    pub(crate) fn calls(&self, _place: Place) -> bool {
        false
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> {
        self.0.iter().map(|event| {
            let (gone, error) = (event.is_interrupt(), event.is_err() == Some(true));
            let (read, write) = (
                Report { ended: gone, error, priority: event.is_priority() },
                Report { ended: gone || error, error, priority: false },
            );
            Event {
                key: event.key,
                read: event.readable.then_some(read),
                write: event.writable.then_some(write),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}
