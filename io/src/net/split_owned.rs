//! The two directions of a stream that two tasks share.

use super::bytes;
use super::split::sealed::Stream;
use crate::{Interest, Ready};
use futures_io::{AsyncRead, AsyncWrite};
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(crate) fn split<S: Stream>(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Arc::new(stream);
    let writer = OwnedWriteHalf { stream: stream.clone(), shutdown_on_drop: true };
    (OwnedReadHalf { stream }, writer)
}

/// Reads from a shared stream.
///
/// [`TcpStream::into_split`](super::TcpStream::into_split) and
/// [`UnixStream::into_split`](super::UnixStream::into_split) make it. The halves may go to
/// different tasks. The socket is closed when both are dropped; dropping this one alone does
/// nothing.
///
/// # Examples
///
/// ```
/// use futures::{AsyncReadExt, AsyncWriteExt};
/// use giveway::net::UnixStream;
/// use std::thread;
///
/// # giveway::block_on(async {
/// let (here, there) = UnixStream::pair()?;
/// let (mut reader, mut writer) = here.into_split();
/// let writing = thread::spawn(move || giveway::block_on(writer.write_all(b"ping")));
/// (&there).write_all(b"pong").await?;
/// let mut buffer = [0; 4];
/// reader.read_exact(&mut buffer).await?;
/// assert_eq!(&buffer, b"pong");
/// writing.join().unwrap()?;
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct OwnedReadHalf<S> {
    stream: Arc<S>,
}

/// Writes to a shared stream. See [`OwnedReadHalf`] for an example.
///
/// Dropping it shuts down the direction of writing, so that the other end reads to the end of the
/// stream, unless the half is [forgotten](Self::forget) or [reunited](Self::reunite).
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Stream> {
    stream: Arc<S>,
    /// Cleared when the half is forgotten, reunited or closed.
    shutdown_on_drop: bool,
}

/// The error of two halves that do not belong to one stream. It has both halves in it.
///
/// See [`OwnedReadHalf::reunite`] for an example.
#[derive(Debug)]
pub struct ReuniteError<S: Stream>(
    /// The half that reads.
    pub OwnedReadHalf<S>,
    /// The half that writes.
    pub OwnedWriteHalf<S>,
);

impl<S: Stream> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the two halves are not of one stream: reunite those that one `into_split` returned",
        )
    }
}

impl<S: Stream + fmt::Debug> Error for ReuniteError<S> {}

impl<S: Stream> OwnedReadHalf<S> {
    /// Puts the stream together again.
    ///
    /// # Errors
    ///
    /// If the halves do not belong to one stream. The error gives them back.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixStream;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let (here, there) = UnixStream::pair()?;
    /// let (here_reader, here_writer) = here.into_split();
    /// let (there_reader, there_writer) = there.into_split();
    /// let error = here_reader.reunite(there_writer).unwrap_err();
    /// let here = error.0.reunite(here_writer).unwrap();
    /// let there = error.1.reunite(there_reader).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    // The error is two pointers and a bool, and its purpose is to give them back.
    #[allow(clippy::result_large_err, clippy::missing_panics_doc)]
    pub fn reunite(self, other: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        Ok(Arc::into_inner(self.stream).expect("a stream has two halves, and one is gone"))
    }

    /// Looks at what the next read will find, without taking it. Returns zero at the end of the
    /// stream.
    ///
    /// See [`TcpStream::peek`](super::TcpStream::peek) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, such as a connection that was reset.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses nothing.
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
    /// let (here, mut there) = UnixStream::pair()?;
    /// there.write_all(b"hello").await?;
    /// let (mut reader, _writer) = here.into_split();
    /// let mut buffer = [0; 4];
    /// assert_eq!(poll_fn(|cx| reader.poll_peek(cx, &mut buffer)).await?, 4);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        bytes::poll_peek(self.stream.socket(), cx, buf)
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
        self.stream.socket().ready(interest).await
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
        self.stream.socket().readable().await
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
        bytes::try_read(self.stream.socket(), buf)
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
        bytes::try_read_vectored(self.stream.socket(), bufs)
    }

    /// Returns the address of the other end.
    ///
    /// See [`TcpStream::peer_addr`](super::TcpStream::peer_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: the stream may no longer be connected.
    pub fn peer_addr(&self) -> io::Result<S::Address> {
        self.stream.peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// See [`TcpStream::local_addr`](super::TcpStream::local_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn local_addr(&self) -> io::Result<S::Address> {
        self.stream.local_addr()
    }
}

impl<S: Stream> OwnedWriteHalf<S> {
    /// Puts the stream together again.
    ///
    /// See [`OwnedReadHalf::reunite`] for an example.
    ///
    /// # Errors
    ///
    /// If the halves do not belong to one stream. The error gives them back.
    #[allow(clippy::result_large_err)]
    pub fn reunite(self, other: OwnedReadHalf<S>) -> Result<S, ReuniteError<S>> {
        other.reunite(self)
    }

    /// Drops this half without shutting down the direction of writing: the other end does not
    /// notice.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixStream;
    /// use std::io::ErrorKind;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let (here, there) = UnixStream::pair()?;
    /// let (_reader, writer) = here.into_split();
    /// writer.forget();
    /// assert_eq!(there.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "not the end");
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(mut self) {
        self.shutdown_on_drop = false;
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
        self.stream.socket().ready(interest).await
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
        self.stream.socket().writable().await
    }

    /// Writes as much as there is room for, without waiting.
    ///
    /// See [`TcpStream::try_write`](super::TcpStream::try_write) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's errors.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        bytes::try_write(self.stream.socket(), buf)
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
        bytes::try_write_vectored(self.stream.socket(), bufs)
    }

    /// Returns the address of the other end.
    ///
    /// See [`TcpStream::peer_addr`](super::TcpStream::peer_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: the stream may no longer be connected.
    pub fn peer_addr(&self) -> io::Result<S::Address> {
        self.stream.peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// See [`TcpStream::local_addr`](super::TcpStream::local_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn local_addr(&self) -> io::Result<S::Address> {
        self.stream.local_addr()
    }
}

impl<S: Stream> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.shutdown_on_drop {
            // An error does not matter: the stream is not used any more.
            let _ = bytes::shutdown(self.stream.socket(), Shutdown::Write);
        }
    }
}

impl<S: Stream> AsyncRead for OwnedReadHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_read(self.stream.socket(), cx, buf)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_read_vectored(self.stream.socket(), cx, bufs)
    }
}

/// Closing shuts down the direction of writing.
impl<S: Stream> AsyncWrite for OwnedWriteHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_write(self.stream.socket(), cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        bytes::poll_write_vectored(self.stream.socket(), cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = bytes::shutdown(self.stream.socket(), Shutdown::Write);
        if result.is_ok() {
            self.shutdown_on_drop = false;
        }
        Poll::Ready(result)
    }
}

impl<S> AsRef<S> for OwnedReadHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Stream> AsRef<S> for OwnedWriteHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}
