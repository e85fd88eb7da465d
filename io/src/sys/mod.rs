//! The system call under a turn.
//!
//! Two implementations with one interface: epoll itself on Linux, `polling` elsewhere and with the
//! feature `portable`. Both in edge mode.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) use epoll::{Events, REPORTS_ENDS, TWO_MAY_WAIT, Waiter, slack};
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
pub(crate) use portable::{Events, REPORTS_ENDS, TWO_MAY_WAIT, Waiter, slack};

/// What the kernel reported of a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    /// The key with which the descriptor was registered.
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// There is more to read than data (an end, an error, an urgent byte), and no other event tells
    /// of it.
    pub(crate) more_to_read: bool,
    /// As `more_to_read`, for writing.
    pub(crate) more_to_write: bool,
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod epoll;

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable;
