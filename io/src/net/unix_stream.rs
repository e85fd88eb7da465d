//! A connection over a Unix socket.

use super::bytes::{self, async_stream};
use super::socket::{descriptor, readiness};
use super::split::sealed::Stream;
use super::stream::stream_methods;
use super::{split, split_owned, unix};
use crate::Async;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::task::{Context, Poll};

/// A connection over a Unix socket.
///
/// What [`TcpStream`](super::TcpStream) says of reading, writing, splitting and closing holds here
/// too.
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
/// use giveway::net::UnixStream;
///
/// # giveway::block_on(async {
/// let (mut here, mut there) = UnixStream::pair()?;
/// here.write_all(b"hello").await?;
/// here.close().await?;
/// let mut text = String::new();
/// there.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub struct UnixStream(pub(crate) Async<net::UnixStream>);

descriptor!(UnixStream, net::UnixStream);
async_stream!(UnixStream, &UnixStream);

impl UnixStream {
    /// Creates two streams that are connected to each other.
    ///
    /// See [`UnixStream`] for an example.
    ///
    /// # Errors
    ///
    /// The system's errors, and those of starting a runtime if there is none yet.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (here, there) = net::UnixStream::pair()?;
        Ok((Self::from_std(here)?, Self::from_std(there)?))
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
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert!(here.local_addr()?.is_unnamed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert!(here.peer_addr()?.is_unnamed());
    /// # Ok(())
    /// # }
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
    /// # use giveway::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// let (here, _there) = UnixStream::pair()?;
    /// assert!(here.take_error()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }
}

stream_methods!(
    UnixStream,
    net::UnixStream,
    SocketAddr,
    unix,
    "# use futures::{AsyncReadExt, AsyncWriteExt};
# use giveway::net::UnixStream;
# giveway::block_on(async {
# let (mut here, mut there) = UnixStream::pair()?;"
);

readiness!(
    UnixStream,
    there,
    "# use futures::AsyncWriteExt;
# use giveway::net::UnixStream;
# giveway::block_on(async {
# let (mut here, there) = UnixStream::pair()?;
# here.write_all(b\"hello\").await?;
# let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 16];",
    "SockRef::from(&there).recv(&mut buffer)"
);
