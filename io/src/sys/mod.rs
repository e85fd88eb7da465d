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
    /// What is reported of reading, if anything is.
    pub(crate) read: Option<Report>,
    /// What is reported of writing, if anything is.
    pub(crate) write: Option<Report>,
}

/// What an event says of a direction, apart from that it is ready. No other event may tell of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    /// The peer has ended this direction, or is gone.
    pub(crate) ended: bool,
    /// An error is pending.
    pub(crate) error: bool,
    /// There is an urgent byte.
    pub(crate) priority: bool,
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod epoll;

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable;
