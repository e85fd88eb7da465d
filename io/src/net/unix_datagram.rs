//! A Unix socket for datagrams.

use super::retry::Backoff;
use super::socket::{self, descriptor};
use super::unix_addr;
use crate::Async;
use crate::source::Direction;
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A Unix socket for datagrams.
///
/// Nothing is lost on the way and nothing overtakes: who sends to a full socket waits. A datagram that is larger than the
/// buffer is cut off, and the rest of it lost. Dropping a socket leaves its file behind.
///
/// There is no `poll_send_to`, which tokio has: there is no event for its task to wait for, see
/// [`send_to`](Self::send_to).
///
/// # Cancel safety
///
/// A future of it that is dropped before it is ready has neither sent nor received anything.
///
/// # Examples
///
/// ```
/// use giveway::net::UnixDatagram;
///
/// # giveway::block_on(async {
/// let (here, there) = UnixDatagram::pair()?;
/// here.send(b"hello").await?;
/// let mut buffer = [0; 16];
/// let size = there.recv(&mut buffer).await?;
/// assert_eq!(&buffer[..size], b"hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct UnixDatagram(pub(crate) Async<net::UnixDatagram>);

descriptor!(UnixDatagram, net::UnixDatagram);

impl UnixDatagram {
    /// A socket at a path. On Linux a path that begins with a zero byte is a name without a file.
    ///
    /// # Errors
    ///
    /// Those of the system: [`AddrInUse`](io::ErrorKind::AddrInUse) also if only the file is there.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixDatagram;
    ///
    /// # giveway::block_on(async {
    /// # let directory = std::env::temp_dir().join(format!("giveway-doc-datagram-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let path = directory.join("socket");
    /// let server = UnixDatagram::bind(&path)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.send_to(b"hello", &path).await?;
    /// let (size, from) = server.recv_from(&mut [0; 16]).await?;
    /// assert!(size == 5 && from.is_unnamed());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind_addr(&unix_addr::of_path(path.as_ref())?)?)
    }

    /// A socket without an address. It can send, and nobody can answer.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// See [`bind`](Self::bind).
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// See [`UnixDatagram`].
    pub fn pair() -> io::Result<(Self, Self)> {
        let (here, there) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(here)?, Self::from_std(there)?))
    }

    /// Sets the peer: [`send`](Self::send) sends to it, and whatever others send is not received.
    ///
    /// # Errors
    ///
    /// Those of the system: nobody is there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// # giveway::block_on(async {
    /// # let directory = std::env::temp_dir().join(format!("giveway-doc-peer-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # let path = directory.join("socket");
    /// let server = UnixDatagram::bind(&path)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.connect(&path)?;
    /// assert_eq!(client.send(b"hello").await?, 5);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.get_ref().connect_addr(&unix_addr::of_path(path.as_ref())?)
    }

    /// Sends a datagram to the peer. Returns its size.
    ///
    /// # Errors
    ///
    /// Those of the system: there is no peer, or no longer; or the datagram is too large.
    ///
    /// # Examples
    ///
    /// See [`UnixDatagram`].
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, buf)).await
    }

    /// Receives a datagram. Returns its size.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// See [`UnixDatagram`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, buf)).await
    }

    /// Sends a datagram to the socket at a path. Returns its size.
    ///
    /// If that socket is full, waits until it is not. The system does not tell a sender which has not
    /// [connected](Self::connect) when there is room, so it is asked again and again, ever more seldom, at most every 20 ms.
    ///
    /// # Errors
    ///
    /// Those of the system: nobody is there, or the datagram is too large.
    ///
    /// # Examples
    ///
    /// See [`bind`](Self::bind).
    pub async fn send_to(&self, buf: &[u8], target: impl AsRef<Path>) -> io::Result<usize> {
        let target = unix_addr::of_path(target.as_ref())?;
        let mut backoff = Backoff::new();
        // Readiness has no part in it. Being writable is a matter of this socket's own buffer, not of the target; and on
        // Linux the very attempt that fails takes room in that buffer, gives it back, and is reported as room. Who waited
        // for that would spin.
        loop {
            match poll_fn(|cx| self.poll_try_send_to(cx, buf, &target)).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.pause().await,
                result => return result,
            }
        }
    }

    /// Receives a datagram. Returns its size, and who sent it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// See [`bind`](Self::bind).
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buf)).await
    }

    /// Waits until the system reports a datagram, or an error.
    ///
    /// The report counts until a receive finds nothing left: a `try_` method that would block. So this may be ready although
    /// the datagram was received already; it is never ready before anything has come.
    ///
    /// # Errors
    ///
    /// If the runtime was shut down that it belongs to.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// here.send(b"hello").await?;
    /// there.readable().await?;
    /// assert_eq!(there.try_recv(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn readable(&self) -> io::Result<()> {
        socket::ready(&self.0, Direction::Read).await
    }

    /// Waits until the system reports room to send, or an error. Of the room at a target other than the peer it knows nothing,
    /// see [`send_to`](Self::send_to).
    ///
    /// # Errors
    ///
    /// If the runtime was shut down that it belongs to.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// # giveway::block_on(async {
    /// let (here, _there) = UnixDatagram::pair()?;
    /// here.writable().await?;
    /// assert_eq!(here.try_send(b"hello")?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn writable(&self) -> io::Result<()> {
        socket::ready(&self.0, Direction::Write).await
    }

    /// Shuts down one direction or both. Whoever waits for it is woken.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// # use std::net::Shutdown;
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// there.shutdown(Shutdown::Both)?;
    /// assert!(here.send(b"hello").await.is_err());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get_ref().shutdown(how)
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// assert!(UnixDatagram::unbound()?.local_addr()?.is_unnamed());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) if there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// assert!(UnixDatagram::pair()?.0.peer_addr()?.is_unnamed());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().peer_addr()
    }

    /// The error that waits on the socket, if there is one (`SO_ERROR`). It is cleared.
    ///
    /// # Errors
    ///
    /// Those of the system, when it is asked.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// assert!(UnixDatagram::unbound()?.take_error()?.is_none());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }

    /// Takes a socket of std, and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Those of the system, and if there is no runtime yet those of starting one.
    ///
    /// # Examples
    ///
    /// See [`into_std`](Self::into_std).
    pub fn from_std(socket: net::UnixDatagram) -> io::Result<Self> {
        Ok(Self(Async::new(socket)?))
    }

    /// Turns it into a socket of std, which stays non-blocking: see
    /// [`set_nonblocking`](net::UnixDatagram::set_nonblocking).
    ///
    /// # Errors
    ///
    /// If the runtime was shut down that it belongs to.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// let socket = UnixDatagram::from_std(std::os::unix::net::UnixDatagram::unbound()?)?;
    /// socket.into_std()?.set_nonblocking(false)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_std(self) -> io::Result<net::UnixDatagram> {
        Ok(self.0.into_inner())
    }
}
