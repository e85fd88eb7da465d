//! A TCP connection.

use super::bytes::{self, async_stream};
use super::socket::{self, descriptor};
use super::split::sealed::Stream;
use super::{split, split_owned, tcp};
use crate::Async;
use crate::reactor::Direction;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

/// A TCP connection.
///
/// It is read and written with the traits of [`futures_io`], which a shared reference has too: any
/// number of tasks may read and write at once. [`split`](Self::split) and
/// [`into_split`](Self::into_split) separate the directions.
///
/// Closing the stream ([`AsyncWrite::poll_close`](futures_io::AsyncWrite::poll_close), tokio's
/// `shutdown`) shuts down the direction of writing and nothing else. Dropping it closes the socket.
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
/// use giveway::net::{TcpListener, TcpStream};
///
/// # giveway::block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// client.write_all(b"hello").await?;
/// client.close().await?;
///
/// let (mut server, _) = listener.accept().await?;
/// let mut text = String::new();
/// server.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct TcpStream(pub(crate) Async<std::net::TcpStream>);

descriptor!(TcpStream, std::net::TcpStream);
async_stream!(TcpStream, &TcpStream);

impl TcpStream {
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
    /// # use futures::{AsyncReadExt, AsyncWriteExt};
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut server, _) = listener.accept().await?;
    /// client.write_all(b"hello").await?;
    /// let mut buffer = [0; 5];
    /// let peeked = server.peek(&mut buffer).await?;
    /// assert_eq!(server.read(&mut buffer).await?, peeked);
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
    /// # use giveway::net::{TcpListener, TcpStream};
    /// use std::future::poll_fn;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.write_all(b"hello").await?;
    /// let mut buffer = [0; 4];
    /// assert_eq!(poll_fn(|cx| server.poll_peek(cx, &mut buffer)).await?, 4);
    /// assert_eq!(&buffer, b"hell");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        bytes::poll_peek(&self.0, cx, buf)
    }

    /// Waits until the system reports something to read: data, the end, or an error.
    ///
    /// The report counts until an operation finds nothing left, such as a
    /// [`try_read`](Self::try_read) that would block or a read that does not fill its buffer. So
    /// this may be ready although another task has read what came. It is never ready before
    /// anything has come.
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
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # use std::io::ErrorKind;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.write_all(b"hello").await?;
    /// let mut buffer = [0; 16];
    /// let read = loop {
    ///     server.readable().await?;
    ///     match server.try_read(&mut buffer) {
    ///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
    ///         result => break result?,
    ///     }
    /// };
    /// assert_eq!(&buffer[..read], b"hello");
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
    /// # use giveway::net::{TcpListener, TcpStream};
    /// use std::future::poll_fn;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.write_all(b"hello").await?;
    /// poll_fn(|cx| server.poll_read_ready(cx)).await?;
    /// assert_eq!(server.try_read(&mut [0; 16])?, 5);
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
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # use std::io::ErrorKind;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(client.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        bytes::try_read(&self.0, buf)
    }

    /// Reads what is there into several buffers, one after the other, without waiting.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to read, and the system's
    /// errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncWriteExt;
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # use std::io::IoSliceMut;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.write_all(b"abc").await?;
    /// server.peek(&mut [0]).await?;
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// let read = server
    ///     .try_read_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)])?;
    /// assert_eq!((read, first, second), (3, *b"ab", *b"c\0"));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        bytes::try_read_vectored(&self.0, bufs)
    }

    /// Waits until the system reports room to write, or an error.
    ///
    /// The report counts until an operation finds no room left, such as a
    /// [`try_write`](Self::try_write) that would block. So this may be ready although another task
    /// has filled the room.
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
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// client.writable().await?;
    /// client.try_write(b"hello")?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn writable(&self) -> io::Result<()> {
        socket::ready(&self.0, Direction::Write).await
    }

    /// Polling form of [`writable`](Self::writable).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// use std::future::poll_fn;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let _client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// poll_fn(|cx| server.poll_write_ready(cx)).await?;
    /// assert_eq!(server.try_write(b"hello")?, 5);
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
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(client.try_write(b"hello")?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        bytes::try_write(&self.0, buf)
    }

    /// Writes as much as there is room for from several buffers, one after the other, without
    /// waiting.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # use std::io::IoSlice;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(client.try_write_vectored(&[IoSlice::new(b"head"), IoSlice::new(b"body")])?, 8);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        bytes::try_write_vectored(&self.0, bufs)
    }

    /// Shuts down one direction or both, and so wakes the tasks that wait for it.
    ///
    /// # Errors
    ///
    /// The system's errors. A connection that the peer has torn down before is not an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # use futures::AsyncReadExt;
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # use std::net::Shutdown;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut server, _) = listener.accept().await?;
    /// client.shutdown(Shutdown::Write)?;
    /// assert_eq!(server.read(&mut [0]).await?, 0);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        bytes::shutdown(&self.0, how)
    }

    /// Splits the stream into its two directions, to be used at once within one task. This costs
    /// nothing.
    ///
    /// Where `futures::AsyncReadExt` is in scope, `stream.split()` calls that trait's method, which
    /// takes the stream and has a lock. Write `TcpStream::split(&mut stream)` there.
    ///
    /// See [`ReadHalf`](super::ReadHalf) for an example.
    pub fn split(&mut self) -> (tcp::ReadHalf<'_>, tcp::WriteHalf<'_>) {
        (split::ReadHalf(self), split::WriteHalf(self))
    }

    /// Splits the stream into its two directions, to be used by two tasks. This costs an
    /// allocation. Dropping the half that writes shuts down writing.
    ///
    /// See [`OwnedReadHalf`](super::OwnedReadHalf) for an example.
    pub fn into_split(self) -> (tcp::OwnedReadHalf, tcp::OwnedWriteHalf) {
        split_owned::split(self)
    }

    /// Takes over a stream of std, and makes it non-blocking.
    ///
    /// See [`into_std`](Self::into_std) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        Ok(Self(Async::new(stream)?))
    }

    /// Turns it into a stream of std.
    ///
    /// It stays non-blocking until [`set_nonblocking`](std::net::TcpStream::set_nonblocking) makes
    /// it block.
    ///
    /// # Errors
    ///
    /// None. The `Result` is there because tokio's method returns one.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::TcpStream;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::from_std(std::net::TcpStream::connect(listener.local_addr()?)?)?;
    /// let stream: std::net::TcpStream = stream.into_std()?;
    /// stream.set_nonblocking(false)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        Ok(self.0.into_inner())
    }
}

impl Stream for TcpStream {
    type Inner = std::net::TcpStream;
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
