//! Accepting TCP connections.

use super::TcpStream;
use super::addr::ToSocketAddrs;
use super::socket::{self, descriptor};
use crate::Async;
use crate::source::Direction;
use futures_core::Stream;
use socket2::{Domain, Type};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// How many connections wait to be accepted, if the system allows as many.
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

impl TcpListener {
    /// Listens on an address; with port 0, on one that the system chooses. If there are several addresses, on the first
    /// that can be had.
    ///
    /// The address may be one whose last connections still linger (`SO_REUSEADDR`). For other options make the listener
    /// by other means and give it to [`from_std`](Self::from_std).
    ///
    /// # Errors
    ///
    /// That of the last address tried, and those of looking up the name.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind.
    ///
    /// # Examples
    ///
    /// See [`TcpListener`].
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        addr.resolve().await?.first_that(bind)
    }

    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// Those of the system. A connection that was given up before it was accepted, or no descriptors left, say nothing of
    /// the listener: it can be asked again, and the connection for which there was no descriptor is still there. Wait a
    /// while before that, for it is ready at once. `docs/io.md` in the repository has a server that does so.
    ///
    /// # Cancel safety
    ///
    /// No connection is lost.
    ///
    /// # Examples
    ///
    /// See [`TcpListener`].
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// [`accept`](Self::accept), to be polled. Every task that polls is woken.
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
        let accepted = ready!(self.0.poll_io(Direction::Read, cx, |listener| socket::accept(listener.as_fd())));
        Poll::Ready(accepted.and_then(|(fd, peer)| {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            // Some systems accept what is no longer connected, without an address.
            let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
            Ok((TcpStream(Async::of_nonblocking(fd.into())?), peer))
        }))
    }

    /// The connections as a stream. It never ends; an error is an item like others, see [`accept`](Self::accept). Fused, it goes
    /// into the `select!` of `futures` as it is: `incoming.select_next_some()`.
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

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// Those of the system.
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

    /// How many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// See [`set_ttl`](Self::set_ttl).
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get_ref().ttl()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Those of the system.
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

    /// Takes a listener of std, and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Those of the system, and if there is no runtime yet those of starting one.
    ///
    /// # Examples
    ///
    /// See [`into_std`](Self::into_std).
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self(Async::new(listener)?))
    }

    /// Turns it into a listener of std, which stays non-blocking: see
    /// [`set_nonblocking`](std::net::TcpListener::set_nonblocking).
    ///
    /// # Errors
    ///
    /// If the runtime was shut down that it belongs to.
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

/// The connections that a [`TcpListener`] accepts, see [`TcpListener::incoming`].
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct Incoming<'a>(&'a TcpListener);

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
