//! A Unix socket for datagrams.

use super::retry::Backoff;
use super::socket::{descriptor, readiness};
use super::unix_addr;
use crate::Async;
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A Unix socket for datagrams.
///
/// No datagram is lost on the way, and none overtakes another: a sender to a full socket waits. A
/// datagram that is larger than the buffer is cut off, and the rest of it is lost. Dropping a
/// socket leaves its file behind.
///
/// There is no `poll_send_to`, which tokio has, because there is no event for its task to wait for;
/// [`send_to`](Self::send_to) says why.
///
/// # Cancel safety
///
/// A future of this socket that is dropped before it is ready has neither sent nor received
/// anything.
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
readiness!(
    UnixDatagram,
    there,
    "# use giveway::net::UnixDatagram;
# giveway::block_on(async {
# let (here, there) = UnixDatagram::pair()?;
# here.send(b\"hello\").await?;
# let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 16];",
    "SockRef::from(&there).recv(&mut buffer)"
);

impl UnixDatagram {
    /// Creates a socket at a path. On Linux a path that begins with a zero byte is a name without a
    /// file.
    ///
    /// # Errors
    ///
    /// The system's errors: [`AddrInUse`](io::ErrorKind::AddrInUse) also if only the file exists.
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

    /// Creates a socket without an address. It can send, and no answer can reach it.
    ///
    /// See [`bind`](Self::bind) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// See [`UnixDatagram`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (here, there) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(here)?, Self::from_std(there)?))
    }

    /// Sets the peer. [`send`](Self::send) sends to it, and datagrams from other sockets are not
    /// received.
    ///
    /// # Errors
    ///
    /// The system's errors: there is no socket at the path.
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
    /// See [`UnixDatagram`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: there is no peer, or it has gone, or the datagram is too large.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, buf)).await
    }

    /// Receives a datagram. Returns its size.
    ///
    /// See [`UnixDatagram`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, buf)).await
    }

    /// Sends a datagram to the socket at a path. Returns its size.
    ///
    /// If that socket is full, this waits until it is not. The system does not report room to a
    /// sender which has not [connected](Self::connect), so the attempt is repeated, after pauses
    /// that grow to at most 20 ms.
    ///
    /// See [`bind`](Self::bind) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: there is no socket at the path, or the datagram is too large.
    pub async fn send_to(&self, buf: &[u8], target: impl AsRef<Path>) -> io::Result<usize> {
        let target = unix_addr::of_path(target.as_ref())?;
        let mut backoff = Backoff::new();
        // Readiness is not used. Whether the socket is writable depends on its own buffer, and not
        // on the target's. On Linux the very attempt that fails takes room in the own buffer and
        // gives it back, which is reported as room. A task that waited for that report would spin.
        loop {
            match poll_fn(|cx| self.poll_try_send_to(cx, buf, &target)).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.pause().await,
                result => return result,
            }
        }
    }

    /// Receives a datagram. Returns its size and its sender.
    ///
    /// See [`bind`](Self::bind) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buf)).await
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
    /// # use giveway::net::UnixDatagram;
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// here.send(b"hello").await?;
    /// there.readable().await?;
    /// assert_eq!(there.try_recv(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Waits until the system reports room to send, or an error.
    ///
    /// The report says nothing of the room at a target other than the peer;
    /// [`send_to`](Self::send_to) says why.
    ///
    /// # Errors
    ///
    /// If the runtime that it belongs to was shut down.
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
        self.0.writable().await
    }

    /// Shuts down one direction or both, and so wakes the tasks that wait for it.
    ///
    /// # Errors
    ///
    /// The system's errors.
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

    /// Returns the address of this end.
    ///
    /// # Errors
    ///
    /// The system's errors.
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

    /// Returns the address of the peer.
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
    /// # use giveway::net::UnixDatagram;
    /// assert!(UnixDatagram::unbound()?.take_error()?.is_none());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }

    /// Takes over a socket of std, and makes it non-blocking.
    ///
    /// See [`into_std`](Self::into_std) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn from_std(socket: net::UnixDatagram) -> io::Result<Self> {
        Ok(Self(Async::new(socket)?))
    }

    /// Turns it into a socket of std.
    ///
    /// It stays non-blocking until [`set_nonblocking`](net::UnixDatagram::set_nonblocking) makes it
    /// block.
    ///
    /// # Errors
    ///
    /// None. The `Result` is there because tokio's method returns one.
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
