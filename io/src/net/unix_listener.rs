//! Accepting connections on a Unix socket.

use super::socket::{self, descriptor, listener_readiness, readiness};
use super::{UnixStream, unix_addr};
use crate::Async;
use crate::reactor::Direction;
use futures_core::Stream;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A Unix socket that accepts connections.
///
/// Dropping it leaves its file behind, as everywhere.
///
/// # Examples
///
/// ```
/// use futures::{AsyncReadExt, AsyncWriteExt};
/// use giveway::net::{UnixListener, UnixStream};
///
/// # giveway::block_on(async {
/// # let directory = std::env::temp_dir().join(format!("giveway-doc-listener-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("socket");
/// let listener = UnixListener::bind(&path)?;
/// let mut client = UnixStream::connect(&path).await?;
/// client.write_all(b"hello").await?;
///
/// let (mut server, _) = listener.accept().await?;
/// let mut buffer = [0; 5];
/// server.read_exact(&mut buffer).await?;
/// assert_eq!(&buffer, b"hello");
/// # std::fs::remove_dir_all(&directory)?;
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct UnixListener(Async<net::UnixListener>);

descriptor!(UnixListener, net::UnixListener);
readiness!(
    UnixListener,
    listener,
    "# use giveway::net::{UnixListener, UnixStream};
# giveway::block_on(async {
# let path = std::env::temp_dir().join(format!(\"giveway-doc-ready-{}\", std::process::id()));
# let listener = UnixListener::bind(&path)?;
# let _client = UnixStream::connect(&path).await?;
# std::fs::remove_file(&path)?;",
    "SockRef::from(&listener).accept()"
);
listener_readiness!(
    UnixListener,
    "# use giveway::net::{UnixListener, UnixStream};
# giveway::block_on(async {
# let path = std::env::temp_dir().join(format!(\"giveway-doc-readable-{}\", std::process::id()));
# let listener = UnixListener::bind(&path)?;
# let _client = UnixStream::connect(&path).await?;
# std::fs::remove_file(&path)?;"
);

impl UnixListener {
    /// Listens at a path. On Linux a path that begins with a zero byte is a name without a file.
    ///
    /// See [`UnixListener`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: [`AddrInUse`](io::ErrorKind::AddrInUse) also if only the file exists,
    /// and no process listens.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_addr(&unix_addr::of_path(path.as_ref())?)
    }

    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// The errors of [`bind`](Self::bind).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use giveway::net::UnixListener;
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// # let name = format!("giveway-doc-{}", std::process::id());
    /// let addr = SocketAddr::from_abstract_name(&name).unwrap();
    /// let listener = UnixListener::bind_addr(&addr).unwrap();
    /// assert_eq!(listener.local_addr().unwrap().as_abstract_name(), Some(name.as_bytes()));
    /// # }
    /// ```
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::from_std(net::UnixListener::bind_addr(addr)?)
    }

    /// Accepts a connection.
    ///
    /// See [`UnixListener`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors. If no descriptors are left, the listener is still good and can be asked
    /// again. The connection still waits, so the listener is ready at once: wait a while before the
    /// next call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready loses no connection.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Polling form of [`accept`](Self::accept). Every task that polls it is woken, not only the
    /// last.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::UnixListener;
    /// use std::task::{Context, Waker};
    ///
    /// # let directory = std::env::temp_dir().join(format!("giveway-doc-poll-accept-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # let path = directory.join("socket");
    /// let listener = UnixListener::bind(&path)?;
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(listener.poll_accept(&mut cx).is_pending());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let accepted = ready!(
            self.0.poll_io(Direction::Read, cx, |listener| socket::accept(listener.as_fd()))
        );
        Poll::Ready(accepted.and_then(|(fd, peer)| {
            let stream = fd.into();
            let peer = unix_addr::of_peer(peer, &stream)?;
            Ok((UnixStream(Async::of_nonblocking(stream)?), peer))
        }))
    }

    /// Returns a stream of the connections.
    ///
    /// The stream never ends. An error is an item like any other, and does not end it;
    /// [`accept`](Self::accept) says which errors there are.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    /// use giveway::net::{UnixListener, UnixStream};
    ///
    /// # giveway::block_on(async {
    /// # let directory = std::env::temp_dir().join(format!("giveway-doc-incoming-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # let path = directory.join("socket");
    /// let listener = UnixListener::bind(&path)?;
    /// let client = UnixStream::connect(&path).await?;
    /// let mut incoming = listener.incoming();
    /// let server = incoming.next().await.unwrap()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Returns the address that the listener is bound to.
    ///
    /// See [`bind_addr`](Self::bind_addr) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the error that is pending on the socket, if there is one, and clears it
    /// (`SO_ERROR`).
    ///
    /// See [`UnixStream::take_error`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors when it is asked for the pending one.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }

    /// Takes over a listener of std, and makes it non-blocking.
    ///
    /// See [`UnixStream::into_std`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn from_std(listener: net::UnixListener) -> io::Result<Self> {
        Ok(Self(Async::new(listener)?))
    }

    /// Turns it into a listener of std.
    ///
    /// It stays non-blocking until [`set_nonblocking`](net::UnixListener::set_nonblocking) makes it
    /// block.
    ///
    /// See [`UnixStream::into_std`] for an example.
    ///
    /// # Errors
    ///
    /// None. The `Result` is there because tokio's method returns one.
    pub fn into_std(self) -> io::Result<net::UnixListener> {
        Ok(self.0.into_inner())
    }
}

/// The connections that a [`UnixListener`] accepts. See [`UnixListener::incoming`] for an example.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct Incoming<'a>(&'a UnixListener);

impl Stream for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
