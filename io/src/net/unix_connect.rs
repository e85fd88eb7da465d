//! Connecting over a Unix socket.

use super::retry::Backoff;
use super::{UnixStream, socket, unix_addr};
use crate::Async;
use crate::reactor::Direction;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use socket2::{Domain, Type};
use std::future::poll_fn;
use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

impl UnixStream {
    /// Connects to the socket at a path. On Linux a path that begins with a zero byte is a name
    /// without a file.
    ///
    /// If too many connections wait to be accepted by the listener, this waits. The system does not
    /// report when there is room, so the attempt is repeated, after pauses that grow to at most
    /// 20 ms.
    ///
    /// See [`UnixListener`](super::UnixListener) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors: there is no socket at the path, or no process listens on it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready gives up the attempt and closes its socket.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let addr = unix_addr::to_system(&unix_addr::of_path(path.as_ref())?)?;
        connect(addr).await
    }

    /// Connects to an address, as [`connect`](Self::connect) does.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect), and an error if the address is unnamed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready gives up the attempt and closes its socket.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{UnixListener, UnixStream};
    /// # giveway::block_on(async {
    /// # let directory = std::env::temp_dir().join(format!("giveway-doc-connect-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let listener = UnixListener::bind(directory.join("socket"))?;
    /// let client = UnixStream::connect_addr(&listener.local_addr()?).await?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        connect(unix_addr::to_system(addr)?).await
    }
}

async fn connect(addr: SocketAddrUnix) -> io::Result<UnixStream> {
    let socket = socket::new(Domain::UNIX, Type::STREAM)?;
    let mut backoff = Backoff::new();
    loop {
        match rustix::net::connect(&socket, &addr) {
            Ok(()) => return Ok(UnixStream(Async::of_nonblocking(socket.into())?)),
            Err(Errno::INPROGRESS) => break,
            Err(Errno::AGAIN) => backoff.pause().await,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Linux connects at once or not at all; other systems may take their time.
    let io = Async::of_nonblocking(net::UnixStream::from(socket))?;
    poll_fn(|cx| io.poll_io(Direction::Write, cx, socket::connected)).await?;
    Ok(UnixStream(io))
}
