//! Any non-blocking file descriptor, made async.

use crate::current;
use crate::reactor::Reactor;
use crate::reactor::{Direction, Source};
use crate::sys::REPORTS_ENDS;
use giveway_budget::poll_proceed;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A non-blocking descriptor with a place in a reactor.
///
/// For descriptors that this crate has no type for: a pipe, an inotify, a device. Operations are
/// given as closures, and are tried again when the descriptor is ready. Any number of tasks may
/// wait on it, in both directions.
///
/// The reactor is chosen when the value is made: that of the runtime whose task or `block_on` makes
/// it, or of the default runtime. The value stays with that reactor wherever it moves.
///
/// # Cancel safety
///
/// Dropping a future of it before it is ready loses nothing: the operation has not been done.
///
/// # Examples
///
/// ```
/// use giveway::io::Async;
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// # fn main() -> std::io::Result<()> {
/// let (here, there) = UnixStream::pair()?;
/// let here = Async::new(here)?;
/// (&there).write_all(b"hello")?;
/// let mut buffer = [0; 16];
/// let read = giveway::block_on(here.read_with(|mut stream| stream.read(&mut buffer)))?;
/// assert_eq!(&buffer[..read], b"hello");
/// # Ok(())
/// # }
/// ```
pub struct Async<T: AsFd> {
    /// `None` only while the value is taken apart.
    io: Option<T>,
    /// The reactor that the descriptor is registered with.
    reactor: Arc<Reactor>,
    source: Arc<Source>,
    /// The key of `source` in the reactor.
    key: usize,
}

impl<T: AsFd> Async<T> {
    /// Makes the descriptor non-blocking and registers it.
    ///
    /// See [`Async`] for an example.
    ///
    /// # Errors
    ///
    /// What the system says: a regular file, for one, cannot be waited for. And if there is no
    /// runtime yet, what starting one says.
    pub fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(io.as_fd(), true)?;
        Self::of_nonblocking(io)
    }

    /// Registers a descriptor that is non-blocking already.
    pub(crate) fn of_nonblocking(io: T) -> io::Result<Self> {
        let (reactor, (key, source)) = current::with(|reactor, _| {
            let registered = reactor.register(io.as_fd())?;
            io::Result::Ok((reactor.clone(), registered))
        })??;
        Ok(Self { io: Some(io), reactor, source, key })
    }

    /// Returns the descriptor in its own type.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::io::Async;
    /// # use std::os::unix::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let stream = Async::new(UnixStream::pair()?.0)?;
    /// assert!(stream.get_ref().local_addr()?.is_unnamed());
    /// # Ok(())
    /// # }
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "it never does")]
    pub fn get_ref(&self) -> &T {
        self.io.as_ref().expect("it is there until it is taken apart")
    }

    /// Deregisters the descriptor and returns it. It stays non-blocking.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::io::Async;
    /// # use std::os::unix::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let stream = Async::new(UnixStream::pair()?.0)?.into_inner();
    /// stream.set_nonblocking(false)?;
    /// # Ok(())
    /// # }
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "it never does")]
    pub fn into_inner(mut self) -> T {
        self.reactor.deregister(self.get_ref().as_fd(), self.key);
        self.io.take().expect("it is there until it is taken apart")
    }

    /// Tries `operation` until it returns something other than `WouldBlock`, and waits for
    /// readiness in between. Spends one operation of the budget.
    #[inline]
    pub(crate) fn poll_io<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_draining(direction, cx, operation, |_| false)
    }

    /// Does as [`Self::poll_io`], for an operation on a stream of bytes that could move `most`. An
    /// operation that moves less has moved all that there was.
    #[inline]
    pub(crate) fn poll_bytes(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        most: usize,
        operation: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_draining(direction, cx, operation, |&moved| {
            REPORTS_ENDS && 0 < moved && moved < most
        })
    }

    /// The loop under both: readiness ends when the operation would block, or has `drained` what
    /// there was. An operation that was interrupted is repeated.
    #[inline]
    fn poll_draining<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        drained: impl FnOnce(&R) -> bool,
    ) -> Poll<io::Result<R>> {
        let spent = ready!(poll_proceed(cx));
        loop {
            // Before it waits: nothing wakes a task that waits in the child of a fork.
            self.check_open()?;
            let seen = ready!(self.source.poll_ready(direction, cx));
            match operation(self.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.source.clear(direction, seen)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    if result.as_ref().is_ok_and(drained) {
                        self.source.drained(direction, seen);
                    }
                    spent.made_progress();
                    return Poll::Ready(result);
                }
            }
        }
    }

    /// Polls for a read: tries `operation` until it returns something other than `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::Async;
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// # giveway::block_on(async {
    /// let (mut here, there) = UnixStream::pair()?;
    /// let there = Async::new(there)?;
    /// here.write_all(b"hello")?;
    /// let mut buffer = [0; 16];
    /// let read =
    ///     std::future::poll_fn(|cx| there.poll_read_with(cx, |mut stream| stream.read(&mut buffer)));
    /// assert_eq!(read.await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_read_with<R>(
        &self,
        cx: &mut Context<'_>,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_io(Direction::Read, cx, operation)
    }

    /// Polls for a write: tries `operation` until it returns something other than `WouldBlock`.
    ///
    /// See [`write_with`](Self::write_with), which is this in a loop.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_io(Direction::Write, cx, operation)
    }

    /// Tries `operation` whenever the descriptor is readable, until it returns something other than
    /// `WouldBlock`.
    ///
    /// See [`Async`] for an example.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub async fn read_with<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        poll_fn(|cx| self.poll_read_with(cx, &mut operation)).await
    }

    /// Tries `operation` whenever the descriptor is writable, until it returns something other than
    /// `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::io::Async;
    /// # use std::io::Write;
    /// # use std::os::unix::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// let here = Async::new(here)?;
    /// let written = giveway::block_on(here.write_with(|mut stream| stream.write(b"hello")))?;
    /// assert_eq!(written, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write_with<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        poll_fn(|cx| self.poll_write_with(cx, &mut operation)).await
    }

    /// Returns an error if the runtime of the descriptor was shut down, or left behind by a fork.
    #[inline]
    pub(crate) fn check_open(&self) -> io::Result<()> {
        self.reactor.check_reports()
    }

    /// Returns what is known of the descriptor's readiness.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }
}

impl<T: AsFd> Drop for Async<T> {
    fn drop(&mut self) {
        if let Some(io) = &self.io {
            self.reactor.deregister(io.as_fd(), self.key);
        }
    }
}

impl<T: AsFd> AsFd for Async<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsFd> AsRawFd for Async<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + Into<OwnedFd>> From<Async<T>> for OwnedFd {
    fn from(io: Async<T>) -> Self {
        io.into_inner().into()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(self.get_ref()).finish()
    }
}
