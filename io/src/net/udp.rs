//! A UDP socket.

use super::addr::{ToSocketAddrs, no_address};
use super::socket::{descriptor, readiness};
use crate::Async;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

/// A UDP socket.
///
/// Every method takes a shared reference: put the socket into an [`Arc`](std::sync::Arc), and any
/// number of tasks may send and receive. A datagram that is larger than the buffer is cut off, and
/// the rest of it is lost.
///
/// # Cancel safety
///
/// A future of this socket that is dropped before it is ready has neither sent nor received
/// anything.
///
/// # Examples
///
/// ```
/// use giveway::net::UdpSocket;
///
/// # giveway::block_on(async {
/// let server = UdpSocket::bind("127.0.0.1:0").await?;
/// let client = UdpSocket::bind("127.0.0.1:0").await?;
/// client.send_to(b"hello", server.local_addr()?).await?;
///
/// let mut buffer = [0; 1500];
/// let (size, from) = server.recv_from(&mut buffer).await?;
/// assert_eq!((&buffer[..size], from), (&b"hello"[..], client.local_addr()?));
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct UdpSocket(pub(crate) Async<std::net::UdpSocket>);

descriptor!(UdpSocket, std::net::UdpSocket);
readiness!(
    UdpSocket,
    there,
    "# use giveway::net::UdpSocket;
# giveway::block_on(async {
# let there = UdpSocket::bind(\"127.0.0.1:0\").await?;
# let here = UdpSocket::bind(\"127.0.0.1:0\").await?;
# here.send_to(b\"hello\", there.local_addr()?).await?;
# let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 16];",
    "SockRef::from(&there).recv(&mut buffer)"
);

impl UdpSocket {
    /// Binds a socket to an address.
    ///
    /// With port 0 the system chooses the port. If there are several addresses, binds to the first
    /// that is available.
    ///
    /// See [`UdpSocket`] for an example.
    ///
    /// # Errors
    ///
    /// The error of the last address that was tried, and the errors of looking up the name.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr.resolve().await?.first_that(|addr| Self::from_std(std::net::UdpSocket::bind(addr)?))
    }

    /// Sets the peer.
    ///
    /// [`send`](Self::send) sends to it, and datagrams from other addresses are not received. If
    /// there are several addresses, the first that the system accepts becomes the peer. This sends
    /// nothing.
    ///
    /// See [`send`](Self::send) for an example.
    ///
    /// # Errors
    ///
    /// The error of the last address that was tried, and the errors of looking up the name.
    pub async fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        addr.resolve().await?.first_that(|addr| self.0.get_ref().connect(addr))
    }

    /// Sends a datagram to the peer. Returns its size.
    ///
    /// # Errors
    ///
    /// The system's errors: the socket has no peer, the datagram is too large, or an earlier one
    /// was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.connect(server.local_addr()?).await?;
    /// assert_eq!(client.send(b"hello").await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, buf)).await
    }

    /// Receives a datagram from the peer. Returns its size.
    ///
    /// # Errors
    ///
    /// The system's errors, such as that a datagram that was sent earlier was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.connect(server.local_addr()?).await?;
    /// server.send_to(b"hello", client.local_addr()?).await?;
    /// let mut buffer = [0; 1500];
    /// assert_eq!(client.recv(&mut buffer).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, buf)).await
    }

    /// Sends a datagram to an address, the first if there are several. Returns its size.
    ///
    /// See [`UdpSocket`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and the errors of looking up the name.
    pub async fn send_to(&self, buf: &[u8], target: impl ToSocketAddrs) -> io::Result<usize> {
        let target = target.resolve().await?.next().ok_or_else(no_address)?;
        poll_fn(|cx| self.poll_send_to(cx, buf, target)).await
    }

    /// Receives a datagram. Returns its size and its sender.
    ///
    /// See [`UdpSocket`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buf)).await
    }

    /// Looks at the next datagram from the peer, without taking it.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// # client.connect(server.local_addr()?).await?;
    /// server.send_to(b"hello", client.local_addr()?).await?;
    /// let mut buffer = [0; 1500];
    /// assert_eq!(client.peek(&mut buffer).await?, 5);
    /// assert_eq!(client.recv(&mut buffer).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_peek(cx, buf)).await
    }

    /// Looks at the next datagram and its sender, without taking it.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 1500];
    /// assert_eq!(server.peek_from(&mut buffer).await?, (5, client.local_addr()?));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_peek_from(cx, buf)).await
    }

    /// Waits until the system reports a datagram, or an error.
    ///
    /// The report counts until an operation finds nothing left, such as a `try_` method that would
    /// block. So this may be ready although the datagram was received already. It is never ready
    /// before anything has come.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # use std::io::ErrorKind;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 1500];
    /// let size = loop {
    ///     server.readable().await?;
    ///     match server.try_recv(&mut buffer) {
    ///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
    ///         result => break result?,
    ///     }
    /// };
    /// assert_eq!(size, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Waits until the system reports room to send, or an error.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.writable().await?;
    /// client.try_send_to(b"hello", server.local_addr()?)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }

    /// Takes over a socket of std, and makes it non-blocking.
    ///
    /// See [`into_std`](Self::into_std) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self(Async::new(socket)?))
    }

    /// Turns it into a socket of std.
    ///
    /// It stays non-blocking until [`set_nonblocking`](std::net::UdpSocket::set_nonblocking) makes
    /// it block.
    ///
    /// # Errors
    ///
    /// None. The `Result` is there because tokio's method returns one.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UdpSocket;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let socket = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// let socket: std::net::UdpSocket = socket.into_std()?;
    /// socket.set_nonblocking(false)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_std(self) -> io::Result<std::net::UdpSocket> {
        Ok(self.0.into_inner())
    }
}
