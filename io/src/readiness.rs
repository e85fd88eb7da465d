//! Waiting for readiness, and trying operations of the caller's: the way for what this crate has no
//! method for. The sockets' methods of these names are the same ones.

use crate::{Async, Interest, Ready};
use giveway_budget::poll_proceed;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

/// Waiting for readiness, and operations that are given as closures.
///
/// Readiness is what the system has *reported* and no operation has refuted since. A report comes
/// once, when something changes. It counts until an operation that goes through this value returns
/// [`WouldBlock`](io::ErrorKind::WouldBlock). So:
///
/// - Readiness may be false. Another task may have taken what was reported, or the system may have
///   changed its mind. An operation after [`readable`](Self::readable) may return `WouldBlock`;
///   then wait again.
/// - An operation that would block must say so through [`try_io`](Self::try_io),
///   [`async_io`](Self::async_io) or another method of this value. A caller that makes the system
///   call by itself, and then waits, finds the old report, and spins.
/// - All tasks that wait in one direction are woken by a report.
impl<T: AsFd> Async<T> {
    /// Waits until one of the kinds of readiness in `interest` is reported. Returns all of them
    /// that are reported.
    ///
    /// Spends one operation of the [budget](giveway_budget): a loop over a descriptor that is
    /// always ready returns to its executor now and then.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing: what was reported is still reported
    /// for the next call.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::{Async, Interest};
    /// use std::io::{ErrorKind, Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// # giveway::block_on(async {
    /// let (here, mut there) = UnixStream::pair()?;
    /// let here = Async::new(here)?;
    /// there.write_all(b"hello")?;
    /// let mut buffer = [0; 16];
    /// loop {
    ///     let ready = here.ready(Interest::READABLE | Interest::WRITABLE).await?;
    ///     if ready.is_readable() {
    ///         match here.try_io(Interest::READABLE, |mut stream| stream.read(&mut buffer)) {
    ///             Err(error) if error.kind() == ErrorKind::WouldBlock => {}
    ///             read => break assert_eq!(&buffer[..read?], b"hello"),
    ///         }
    ///     }
    ///     # giveway::yield_now().await;
    /// }
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        poll_fn(|cx| self.poll_ready(interest, cx)).await
    }

    /// Polling form of [`ready`](Self::ready). Every task that polls is woken, not only the last.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::{Async, Interest};
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, _there) = std::os::unix::net::UnixStream::pair()?;
    /// let here = Async::new(here)?;
    /// assert!(poll_fn(|cx| here.poll_ready(Interest::WRITABLE, cx)).await?.is_writable());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_ready(&self, interest: Interest, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        let spent = ready!(poll_proceed(cx));
        // Before it waits: nothing wakes a task that waits in the child of a fork.
        self.check_open()?;
        let ready = ready!(self.source().poll_interest(interest, cx));
        self.check_open()?;
        spent.made_progress();
        Poll::Ready(Ok(ready))
    }

    /// Waits until something to read is reported: data, the end, or an error. It is never ready
    /// before anything has come. See [`ready`](Self::ready) for what else it guarantees.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::{Async, Interest};
    /// use std::io::{Read, Write};
    ///
    /// # giveway::block_on(async {
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader = Async::new(reader)?;
    /// writer.write_all(b"hello")?;
    /// reader.readable().await?;
    /// let mut buffer = [0; 16];
    /// assert_eq!(reader.try_io(Interest::READABLE, |mut pipe| pipe.read(&mut buffer))?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// Waits until room to write is reported, or an error. See [`ready`](Self::ready) for what else
    /// it guarantees.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::{Async, Interest};
    /// use std::io::Write;
    ///
    /// # giveway::block_on(async {
    /// let (_reader, writer) = std::io::pipe()?;
    /// let writer = Async::new(writer)?;
    /// writer.writable().await?;
    /// assert_eq!(writer.try_io(Interest::WRITABLE, |mut pipe| pipe.write(b"hello"))?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_writable(cx)).await
    }

    /// Polling form of [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::io::Async;
    /// # use std::io::Write;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader = Async::new(reader)?;
    /// writer.write_all(b"hello")?;
    /// poll_fn(|cx| reader.poll_readable(cx)).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(Interest::READABLE, cx).map_ok(drop)
    }

    /// Polling form of [`writable`](Self::writable).
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::io::Async;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (_reader, writer) = std::io::pipe()?;
    /// let writer = Async::new(writer)?;
    /// poll_fn(|cx| writer.poll_writable(cx)).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(Interest::WRITABLE, cx).map_ok(drop)
    }

    /// Tries `operation` once, without waiting.
    ///
    /// If it returns [`WouldBlock`](io::ErrorKind::WouldBlock), the readiness that `interest` names
    /// is over, and the next wait for it waits for a new report. No report is lost: one that comes
    /// while the operation runs still counts. After any other result, another error included,
    /// readiness is as before.
    ///
    /// The operation is tried whatever is known of the readiness. In tokio it is not called before
    /// the first report.
    ///
    /// It must not block, and must return `WouldBlock` only if the descriptor is not ready for what
    /// `interest` names: otherwise a task would wait for a report that has come already. The budget
    /// is spent by waiting ([`ready`](Self::ready)), not by this, which has no task to wake.
    ///
    /// # Errors
    ///
    /// Those of the operation, and one of its own if the runtime that the value belongs to was shut
    /// down.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::{Async, Interest};
    /// use std::io::{ErrorKind, Read};
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = Async::new(reader)?;
    /// let read = reader.try_io(Interest::READABLE, |mut pipe| pipe.read(&mut [0; 16]));
    /// assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.check_open()?;
        // Read before the operation, so that an event that comes while the operation runs is not
        // wiped out.
        let seen = self.source().look_at(interest);
        let result = operation(self.get_ref());
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.source().clear_interest(interest, seen);
        }
        result
    }

    /// Tries `operation` whenever the descriptor is reported as ready, until it returns something
    /// other than [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// This is [`ready`](Self::ready) and [`try_io`](Self::try_io) in a loop, and what these say
    /// holds. Each attempt spends one operation of the budget.
    /// [`read_with`](Self::read_with) and [`write_with`](Self::write_with) are quicker on a new
    /// descriptor: they do not wait for the first report.
    ///
    /// # Errors
    ///
    /// Those of the operation, and one of its own if the runtime that the value belongs to was shut
    /// down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing: the operation was not done.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::io::{Async, Interest};
    /// use std::io::{Read, Write};
    ///
    /// # giveway::block_on(async {
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader = Async::new(reader)?;
    /// writer.write_all(b"hello")?;
    /// let mut buffer = [0; 16];
    /// let read = reader.async_io(Interest::READABLE, |mut pipe| pipe.read(&mut buffer)).await?;
    /// assert_eq!(&buffer[..read], b"hello");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            self.ready(interest).await?;
            match self.try_io(interest, &mut operation) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}
