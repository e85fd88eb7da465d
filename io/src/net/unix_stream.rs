//! A connection over a Unix socket.

use super::bytes::{self, async_stream};
use super::socket::{self, descriptor};
use super::split::sealed::Stream;
use super::{split, split_owned, unix};
use crate::Async;
use crate::reactor::Direction;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::task::{Context, Poll};

/// A connection over a Unix socket.
///
/// What [`TcpStream`](super::TcpStream) says of reading, writing, splitting and closing holds here
/// too.
///
/// # Cancel safety
///
/// Dropping a single read or write before it is ready has no effect: nothing was read or written. A
/// future that makes several of them, such as `read_exact` or `write_all`, may have done a part.
///
/// # Examples
///
/// ```
/// use futures::{AsyncReadExt, AsyncWriteExt};
/// use giveway::net::UnixStream;
///
/// # giveway::block_on(async {
/// let (mut here, mut there) = UnixStream::pair()?;
/// here.write_all(b"hello").await?;
/// here.close().await?;
/// let mut text = String::new();
/// there.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct UnixStream(pub(crate) Async<net::UnixStream>);

descriptor!(UnixStream, net::UnixStream);
async_stream!(UnixStream, &UnixStream);

impl UnixStream {
    /// Creates two streams that are connected to each other.
    ///
    /// See [`UnixStream`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (here, there) = net::UnixStream::pair()?;
        Ok((Self::from_std(here)?, Self::from_std(there)?))
    }

    /// Looks at what the next read will find, without taking it. Returns zero at the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncWriteExt;
    /// # use giveway::net::UnixStream;
    /// # giveway::block_on(async {
    /// let (mut here, there) = UnixStream::pair()?;
    /// here.write_all(b"hello").await?;
    /// assert_eq!(there.peek(&mut [0; 3]).await?, 3);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_peek(cx, buf)).await
    }

    /// Polling form of [`peek`](Self::peek).
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncWriteExt;
    /// # use giveway::net::UnixStream;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (mut here, there) = UnixStream::pair()?;
    /// here.write_all(b"hello").await?;
    /// let mut buffer = [0; 4];
    /// assert_eq!(poll_fn(|cx| there.poll_peek(cx, &mut buffer)).await?, 4);
    /// assert_eq!(&buffer, b"hell");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        bytes::poll_peek(&self.0, cx, buf)
    }

    /// Waits until the system reports something to read: data, the end, or an error.
    ///
    /// The report counts until an operation finds nothing left, such as a
    /// [`try_read`](Self::try_read) that would block. So this may be ready although another task
    /// has read what came. It is never ready before anything has come.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing: what was ready is still ready for the
    /// next call.
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncWriteExt;
    /// # use giveway::net::UnixStream;
    /// # giveway::block_on(async {
    /// let (mut here, there) = UnixStream::pair()?;
    /// here.write_all(b"hello").await?;
    /// there.readable().await?;
    /// assert_eq!(there.try_read(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn readable(&self) -> io::Result<()> {
        socket::ready(&self.0, Direction::Read).await
    }

    /// Polling form of [`readable`](Self::readable).
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncWriteExt;
    /// # use giveway::net::UnixStream;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (mut here, there) = UnixStream::pair()?;
    /// here.write_all(b"hello").await?;
    /// poll_fn(|cx| there.poll_read_ready(cx)).await?;
    /// assert_eq!(there.try_read(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        socket::poll_ready(&self.0, Direction::Read, cx)
    }

    /// Reads what is there, without waiting. Returns zero at the end of the stream, or if the
    /// buffer is empty.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to read, and the system's
    /// errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// # use std::io::ErrorKind;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert_eq!(here.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        bytes::try_read(&self.0, buf)
    }

    /// Reads what is there into several buffers, one after the other, without waiting.
    ///
    /// See [`TcpStream::try_read_vectored`](super::TcpStream::try_read_vectored) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to read, and the system's
    /// errors.
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        bytes::try_read_vectored(&self.0, bufs)
    }

    /// Waits until the system reports room to write, or an error.
    ///
    /// The report counts until an operation finds no room left, such as a
    /// [`try_write`](Self::try_write) that would block. So this may be ready although another task
    /// has filled the room.
    ///
    /// See [`TcpStream::writable`](super::TcpStream::writable) for an example.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing: what was ready is still ready for the
    /// next call.
    pub async fn writable(&self) -> io::Result<()> {
        socket::ready(&self.0, Direction::Write).await
    }

    /// Polling form of [`writable`](Self::writable).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, _there) = UnixStream::pair()?;
    /// poll_fn(|cx| here.poll_write_ready(cx)).await?;
    /// assert_eq!(here.try_write(b"hello")?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        socket::poll_ready(&self.0, Direction::Write, cx)
    }

    /// Writes as much as there is room for, without waiting.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert_eq!(here.try_write(b"hello")?, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        bytes::try_write(&self.0, buf)
    }

    /// Writes as much as there is room for from several buffers, one after the other, without
    /// waiting.
    ///
    /// See [`TcpStream::try_write_vectored`](super::TcpStream::try_write_vectored) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's errors.
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        bytes::try_write_vectored(&self.0, bufs)
    }

    /// Shuts down one direction or both, and so wakes the tasks that wait for it.
    ///
    /// # Errors
    ///
    /// The system's errors. That the peer has gone before is not an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncReadExt;
    /// # use giveway::net::UnixStream;
    /// # use std::net::Shutdown;
    /// # giveway::block_on(async {
    /// let (here, mut there) = UnixStream::pair()?;
    /// here.shutdown(Shutdown::Write)?;
    /// assert_eq!(there.read(&mut [0]).await?, 0);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        bytes::shutdown(&self.0, how)
    }

    /// Splits the stream into its two directions, to be used at once within one task. This costs
    /// nothing.
    ///
    /// Where `futures::AsyncReadExt` is in scope, `stream.split()` calls that trait's method, which
    /// takes the stream and has a lock. Write `UnixStream::split(&mut stream)` there.
    ///
    /// See [`ReadHalf`](super::ReadHalf) for an example.
    pub fn split(&mut self) -> (unix::ReadHalf<'_>, unix::WriteHalf<'_>) {
        (split::ReadHalf(self), split::WriteHalf(self))
    }

    /// Splits the stream into its two directions, to be used by two tasks. This costs an
    /// allocation. Dropping the half that writes shuts down writing.
    ///
    /// See [`OwnedReadHalf`](super::OwnedReadHalf) for an example.
    pub fn into_split(self) -> (unix::OwnedReadHalf, unix::OwnedWriteHalf) {
        split_owned::split(self)
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert!(here.local_addr()?.is_unnamed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert!(here.peer_addr()?.is_unnamed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().peer_addr()
    }

    /// Returns the error that is pending on the socket, if there is one, and clears it
    /// (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// The system's errors when it is asked for the pending one.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert!(here.take_error()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }

    /// Takes over a stream of std, and makes it non-blocking.
    ///
    /// See [`into_std`](Self::into_std) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn from_std(stream: net::UnixStream) -> io::Result<Self> {
        Ok(Self(Async::new(stream)?))
    }

    /// Turns it into a stream of std.
    ///
    /// It stays non-blocking until [`set_nonblocking`](net::UnixStream::set_nonblocking) makes it
    /// block.
    ///
    /// # Errors
    ///
    /// None. The `Result` is there because tokio's method returns one.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixStream;
    /// use std::os::unix::net;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let stream = UnixStream::from_std(net::UnixStream::pair()?.0)?;
    /// let stream: net::UnixStream = stream.into_std()?;
    /// stream.set_nonblocking(false)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_std(self) -> io::Result<net::UnixStream> {
        Ok(self.0.into_inner())
    }
}

impl Stream for UnixStream {
    type Inner = net::UnixStream;
    type Address = SocketAddr;

    fn socket(&self) -> &Async<Self::Inner> {
        &self.0
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
}
