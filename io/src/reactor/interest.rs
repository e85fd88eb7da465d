//! What a caller waits for, and what it is told.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

const READABLE: u8 = 1;
const WRITABLE: u8 = 1 << 1;
const READ_CLOSED: u8 = 1 << 2;
const WRITE_CLOSED: u8 = 1 << 3;
const PRIORITY: u8 = 1 << 4;
const ERROR: u8 = 1 << 5;

/// The names of the bits, as `Debug` writes them.
const NAMES: [(u8, &str); 6] = [
    (READABLE, "READABLE"),
    (WRITABLE, "WRITABLE"),
    (READ_CLOSED, "READ_CLOSED"),
    (WRITE_CLOSED, "WRITE_CLOSED"),
    (PRIORITY, "PRIORITY"),
    (ERROR, "ERROR"),
];

fn write_names(bits: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut between = "";
    for (_, name) in NAMES.iter().filter(|(bit, _)| bits & bit != 0) {
        write!(f, "{between}{name}")?;
        between = " | ";
    }
    if bits == 0 { f.write_str("EMPTY") } else { Ok(()) }
}

/// What to wait for: tokio's type of the same name.
///
/// Interests are joined by `|` or [`add`](Self::add). See [`Async::ready`](crate::Async::ready) for
/// what is done with one.
///
/// # Examples
///
/// ```
/// use giveway::io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// assert_eq!(both.remove(Interest::WRITABLE), Some(Interest::READABLE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest(u8);

impl Interest {
    /// Something to read: data, the end, an error; on a listener a connection.
    pub const READABLE: Self = Self(READABLE);

    /// Room to write, or an error.
    pub const WRITABLE: Self = Self(WRITABLE);

    /// Urgent data: what the system calls `EPOLLPRI`. Also ready at the end of reading.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const PRIORITY: Self = Self(PRIORITY);

    /// An error that is pending on the descriptor. It is reported to those that wait for
    /// [`READABLE`](Self::READABLE) or [`WRITABLE`](Self::WRITABLE) too, whose operations return
    /// it.
    pub const ERROR: Self = Self(ERROR);

    /// Returns both interests together. `|` does the same, but not in a constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::Interest;
    ///
    /// const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
    /// assert_eq!(BOTH, Interest::READABLE | Interest::WRITABLE);
    /// ```
    #[must_use = "this returns the sum, and changes neither"]
    #[allow(clippy::should_implement_trait, reason = "tokio's name, and a constant function")]
    pub const fn add(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this interest without the other, or `None` if nothing is left.
    ///
    /// See [`Interest`] for an example.
    #[must_use = "this returns the rest, and changes neither"]
    pub const fn remove(self, other: Self) -> Option<Self> {
        match self.0 & !other.0 {
            0 => None,
            rest => Some(Self(rest)),
        }
    }

    /// Returns whether it contains `READABLE`.
    #[inline]
    pub const fn is_readable(self) -> bool {
        self.0 & READABLE != 0
    }

    /// Returns whether it contains `WRITABLE`.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Returns whether it contains `PRIORITY`.
    #[inline]
    pub const fn is_priority(self) -> bool {
        self.0 & PRIORITY != 0
    }

    /// Returns whether it contains `ERROR`.
    #[inline]
    pub const fn is_error(self) -> bool {
        self.0 & ERROR != 0
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.add(other)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.add(other);
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(self.0, f)
    }
}

/// What a descriptor is reported to be ready for: tokio's type of the same name.
///
/// [`Async::ready`](crate::Async::ready) returns it, with the kinds of readiness that were asked
/// for and nothing else. It is a report, and may be out of date: see there.
///
/// # Examples
///
/// ```
/// use giveway::io::{Interest, Ready};
/// use giveway::net::UnixStream;
///
/// # giveway::block_on(async {
/// let (here, there) = UnixStream::pair()?;
/// drop(there);
/// let ready = here.ready(Interest::READABLE).await?;
/// assert_eq!(ready, Ready::READABLE | Ready::READ_CLOSED);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ready(u8);

impl Ready {
    /// Ready for nothing. [`Async::ready`](crate::Async::ready) never returns it.
    pub const EMPTY: Self = Self(0);

    /// Something to read.
    pub const READABLE: Self = Self(READABLE);

    /// Room to write.
    pub const WRITABLE: Self = Self(WRITABLE);

    /// No more data will come: the peer has shut down its direction of writing, or is gone. What
    /// came before that may still wait to be read.
    pub const READ_CLOSED: Self = Self(READ_CLOSED);

    /// Nothing can be written any more: the peer is gone. A datagram socket is reported so too
    /// while an error is pending.
    pub const WRITE_CLOSED: Self = Self(WRITE_CLOSED);

    /// Urgent data.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const PRIORITY: Self = Self(PRIORITY);

    /// An error is pending.
    pub const ERROR: Self = Self(ERROR);

    /// Ready for everything that the system can report.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const ALL: Self = Self(READABLE | WRITABLE | READ_CLOSED | WRITE_CLOSED | PRIORITY | ERROR);
    /// Ready for everything that the system can report.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub const ALL: Self = Self(READABLE | WRITABLE | READ_CLOSED | WRITE_CLOSED | ERROR);

    /// The value of what is known of a direction of reading.
    pub(crate) fn of_reading(ready: bool, ended: bool, priority: bool, error: bool) -> Self {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        Self(
            bit(ready, READABLE)
                | bit(ended, READ_CLOSED)
                | bit(priority, PRIORITY)
                | bit(error, ERROR),
        )
    }

    /// The value of what is known of a direction of writing.
    pub(crate) fn of_writing(ready: bool, ended: bool) -> Self {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        Self(bit(ready, WRITABLE) | bit(ended, WRITE_CLOSED))
    }

    /// Returns the kinds of readiness that an interest asks for.
    pub(crate) fn asked_by(interest: Interest) -> Self {
        let mut asked = Self(interest.0);
        if interest.is_readable() || interest.is_priority() {
            asked |= Self::READ_CLOSED;
        }
        if interest.is_writable() {
            asked |= Self::WRITE_CLOSED;
        }
        asked
    }

    /// Returns whether it is ready for nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a read is worth a try: there is something, or the end.
    pub const fn is_readable(self) -> bool {
        self.0 & (READABLE | READ_CLOSED) != 0
    }

    /// Returns whether a write is worth a try: there is room, or an error to return.
    pub const fn is_writable(self) -> bool {
        self.0 & (WRITABLE | WRITE_CLOSED) != 0
    }

    /// Returns whether the end of reading was reported. On systems other than Linux, and with the
    /// feature `portable`, the end may be reported as `READABLE` alone.
    pub const fn is_read_closed(self) -> bool {
        self.0 & READ_CLOSED != 0
    }

    /// Returns whether the end of writing was reported.
    pub const fn is_write_closed(self) -> bool {
        self.0 & WRITE_CLOSED != 0
    }

    /// Returns whether urgent data was reported.
    pub const fn is_priority(self) -> bool {
        self.0 & PRIORITY != 0
    }

    /// Returns whether an error was reported.
    pub const fn is_error(self) -> bool {
        self.0 & ERROR != 0
    }
}

impl BitOr for Ready {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Ready {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Ready {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_writes_the_names() {
        assert_eq!(format!("{:?}", Interest::READABLE | Interest::ERROR), "READABLE | ERROR");
        assert_eq!(format!("{:?}", Ready::EMPTY), "EMPTY");
        assert_eq!(format!("{:?}", Ready::ALL - Ready::READABLE).matches('|').count(), 4);
    }

    #[test]
    fn an_interest_asks_for_the_end_of_its_direction_too() {
        assert_eq!(Ready::asked_by(Interest::READABLE), Ready::READABLE | Ready::READ_CLOSED);
        assert_eq!(Ready::asked_by(Interest::WRITABLE), Ready::WRITABLE | Ready::WRITE_CLOSED);
        assert_eq!(Ready::asked_by(Interest::ERROR), Ready::ERROR);
    }

    #[test]
    fn nothing_is_left_of_an_interest_without_itself() {
        assert_eq!(Interest::READABLE.remove(Interest::READABLE), None);
        assert_eq!(Interest::READABLE.remove(Interest::WRITABLE), Some(Interest::READABLE));
    }
}
