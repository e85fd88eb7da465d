//! Accepting TCP connections.

use super::TcpStream;
use super::addr::ToSocketAddrs;
use super::socket::{self, descriptor, listener_readiness, readiness};
use crate::Async;
use crate::reactor::Direction;
use futures_core::Stream;
use socket2::{Domain, Type};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The most connections that wait to be accepted, if the system allows that many.
const BACKLOG: i32 = 1024;

/// A TCP socket that accepts connections.
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
///
/// let (mut server, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
/// let mut buffer = [0; 5];
/// server.read_exact(&mut buffer).await?;
/// assert_eq!(&buffer, b"hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct TcpListener(Async<std::net::TcpListener>);

descriptor!(TcpListener, std::net::TcpListener);
readiness!(
    TcpListener,
    listener,
    "# use giveway::net::{TcpListener, TcpStream};
# giveway::block_on(async {
# let listener = TcpListener::bind(\"127.0.0.1:0\").await?;
# let _client = TcpStream::connect(listener.local_addr()?).await?;",
    "SockRef::from(&listener).accept()"
);
listener_readiness!(
    TcpListener,
    "# use giveway::net::{TcpListener, TcpStream};
# giveway::block_on(async {
# let listener = TcpListener::bind(\"127.0.0.1:0\").await?;
# let _client = TcpStream::connect(listener.local_addr()?).await?;"
);

impl TcpListener {
    /// Listens on an address.
    ///
    /// With port 0 the system chooses the port. If there are several addresses, listens on the
    /// first that is available. The address may be one whose last connections still linger
    /// (`SO_REUSEADDR`). For other options, make the listener by other means and give it to
    /// [`from_std`](Self::from_std).
    ///
    /// See [`TcpListener`] for an example.
    ///
    /// # Errors
    ///
    /// The error of the last address that was tried, and the errors of looking up the name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves nothing behind.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr.resolve().await?.first_that(bind)
    }

    /// Accepts a connection.
    ///
    /// See [`TcpListener`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors. If a connection was given up before it was accepted, or no descriptors
    /// are left, the listener is still good and can be asked again. The connection for which there
    /// was no descriptor still waits, so the listener is ready at once: wait a while before the
    /// next call. `docs/io.md` in the repository has a server that does so.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses no connection.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Polling form of [`accept`](Self::accept). Every task that polls it is woken, not only the
    /// last.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::TcpListener;
    /// use std::task::{Context, Waker};
    ///
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(listener.poll_accept(&mut cx).is_pending());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = ready!(
            self.0.poll_io(Direction::Read, cx, |listener| socket::accept(listener.as_fd()))
        );
        Poll::Ready(accepted.and_then(|(fd, peer)| {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            // Some systems accept a connection that has ended already, without an address.
            let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
            Ok((TcpStream(Async::of_nonblocking(fd.into())?), peer))
        }))
    }

    /// Returns a stream of the connections.
    ///
    /// The stream never ends. An error is an item like any other, and does not end it;
    /// [`accept`](Self::accept) says which errors there are. Fused, it goes into the `select!` of
    /// `futures` as it is: `incoming.select_next_some()`.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    /// use giveway::net::{TcpListener, TcpStream};
    ///
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// let mut incoming = listener.incoming();
    /// let server = incoming.next().await.unwrap()?;
    /// assert_eq!(server.peer_addr()?, client.local_addr()?);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::TcpListener;
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns how many routers a packet may pass (`IP_TTL`).
    ///
    /// See [`set_ttl`](Self::set_ttl) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get_ref().ttl()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::TcpListener;
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// listener.set_ttl(10)?;
    /// assert_eq!(listener.ttl()?, 10);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get_ref().set_ttl(ttl)
    }

    /// Takes over a listener of std, and makes it non-blocking.
    ///
    /// See [`into_std`](Self::into_std) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self(Async::new(listener)?))
    }

    /// Turns it into a listener of std.
    ///
    /// It stays non-blocking until [`set_nonblocking`](std::net::TcpListener::set_nonblocking)
    /// makes it block.
    ///
    /// # Errors
    ///
    /// None. The `Result` is there because tokio's method returns one.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::TcpListener;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let listener = TcpListener::from_std(std::net::TcpListener::bind("127.0.0.1:0")?)?;
    /// let listener: std::net::TcpListener = listener.into_std()?;
    /// listener.set_nonblocking(false)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        Ok(self.0.into_inner())
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket::new(Domain::for_address(addr), Type::STREAM)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener(Async::of_nonblocking(socket.into())?))
}

/// The connections that a [`TcpListener`] accepts. See [`TcpListener::incoming`] for an example.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct Incoming<'a>(&'a TcpListener);

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
