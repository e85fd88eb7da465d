//! The two directions of a borrowed stream.

use super::bytes;
use crate::{Interest, Ready};
use futures_io::{AsyncRead, AsyncWrite};
use sealed::Stream;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) mod sealed {
    use crate::Async;
    use crate::net::bytes::ByteStream;
    use std::io;

    /// A stream of bytes with two directions, TCP's or Unix'.
    pub trait Stream {
        /// The type of the descriptor.
        type Inner: ByteStream;
        /// The type of its addresses.
        type Address;
        /// Returns the socket.
        fn socket(&self) -> &Async<Self::Inner>;
        /// Returns the address of this end.
        fn local_addr(&self) -> io::Result<Self::Address>;
        /// Returns the address of the other end.
        fn peer_addr(&self) -> io::Result<Self::Address>;
    }
}

/// Reads from a borrowed stream.
///
/// [`TcpStream::split`](super::TcpStream::split) and
/// [`UnixStream::split`](super::UnixStream::split) make it. Both halves can be used at once, in one
/// task. That costs nothing: a half is a reference.
///
/// # Examples
///
/// ```
/// use futures::{AsyncReadExt, AsyncWriteExt};
/// use giveway::net::UnixStream;
///
/// # giveway::block_on(async {
/// let (mut here, mut there) = UnixStream::pair()?;
/// let (mut reader, mut writer) = UnixStream::split(&mut here);
/// let mut greeting = [0; 5];
/// let echo = async {
///     let mut buffer = [0; 5];
///     there.read_exact(&mut buffer).await?;
///     there.write_all(&buffer).await
/// };
/// futures::try_join!(writer.write_all(b"hello"), reader.read_exact(&mut greeting), echo)?;
/// assert_eq!(&greeting, b"hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct ReadHalf<'a, S>(pub(crate) &'a S);

/// Writes to a borrowed stream. See [`ReadHalf`] for an example.
///
/// Dropping it does not end the stream; closing it does.
#[derive(Debug)]
pub struct WriteHalf<'a, S>(pub(crate) &'a S);

impl<S: Stream> ReadHalf<'_, S> {
    /// Looks at what the next read will find, without taking it. Returns zero at the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// The system's errors, such as a connection that was reset.
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
    /// let (mut here, mut there) = UnixStream::pair()?;
    /// there.write_all(b"hello").await?;
    /// let (mut reader, _) = UnixStream::split(&mut here);
    /// let mut buffer = [0; 5];
    /// assert_eq!(reader.peek(&mut buffer).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn peek(&mut self, buf: &mut [u8]) -> io::Result<usize> {
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
    /// let (mut here, mut there) = UnixStream::pair()?;
    /// there.write_all(b"hello").await?;
    /// let (mut reader, _) = UnixStream::split(&mut here);
    /// let mut buffer = [0; 4];
    /// assert_eq!(poll_fn(|cx| reader.poll_peek(cx, &mut buffer)).await?, 4);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        bytes::poll_peek(self.0.socket(), cx, buf)
    }

    /// Waits until one of the kinds of readiness in `interest` is reported, also of the other
    /// direction, and returns them.
    ///
    /// See [`TcpStream::ready`](super::TcpStream::ready) for an example.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.0.socket().ready(interest).await
    }

    /// Waits until the system reports something to read.
    ///
    /// See [`TcpStream::readable`](super::TcpStream::readable) for an example.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.socket().readable().await
    }

    /// Reads what is there, without waiting.
    ///
    /// See [`TcpStream::try_read`](super::TcpStream::try_read) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to read, and the system's
    /// errors.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        bytes::try_read(self.0.socket(), buf)
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
        bytes::try_read_vectored(self.0.socket(), bufs)
    }

    /// Returns the address of the other end.
    ///
    /// See [`TcpStream::peer_addr`](super::TcpStream::peer_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: the stream may no longer be connected.
    pub fn peer_addr(&self) -> io::Result<S::Address> {
        self.0.peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// See [`TcpStream::local_addr`](super::TcpStream::local_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn local_addr(&self) -> io::Result<S::Address> {
        self.0.local_addr()
    }
}

impl<S: Stream> WriteHalf<'_, S> {
    /// Waits until one of the kinds of readiness in `interest` is reported, also of the other
    /// direction, and returns them.
    ///
    /// See [`TcpStream::ready`](super::TcpStream::ready) for an example.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.0.socket().ready(interest).await
    }

    /// Waits until the system reports room to write.
    ///
    /// See [`TcpStream::writable`](super::TcpStream::writable) for an example.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.socket().writable().await
    }

    /// Writes as much as there is room for, without waiting.
    ///
    /// See [`TcpStream::try_write`](super::TcpStream::try_write) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's errors.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        bytes::try_write(self.0.socket(), buf)
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
        bytes::try_write_vectored(self.0.socket(), bufs)
    }

    /// Returns the address of the other end.
    ///
    /// See [`TcpStream::peer_addr`](super::TcpStream::peer_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: the stream may no longer be connected.
    pub fn peer_addr(&self) -> io::Result<S::Address> {
        self.0.peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// See [`TcpStream::local_addr`](super::TcpStream::local_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn local_addr(&self) -> io::Result<S::Address> {
        self.0.local_addr()
    }
}

impl<S: Stream> AsyncRead for ReadHalf<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_read(self.0.socket(), cx, buf)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_read_vectored(self.0.socket(), cx, bufs)
    }
}

/// Closing shuts down the direction of writing.
impl<S: Stream> AsyncWrite for WriteHalf<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_write(self.0.socket(), cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_write_vectored(self.0.socket(), cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(bytes::shutdown(self.0.socket(), Shutdown::Write))
    }
}

impl<S> AsRef<S> for ReadHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}

impl<S> AsRef<S> for WriteHalf<'_, S> {
    fn as_ref(&self) -> &S {
        self.0
    }
}
