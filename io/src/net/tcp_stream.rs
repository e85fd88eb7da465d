//! A TCP connection.

use super::bytes::{self, async_stream};
use super::socket::{descriptor, readiness};
use super::split::sealed::Stream;
use super::stream::stream_methods;
use super::{split, split_owned, tcp};
use crate::Async;
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

stream_methods!(
    TcpStream,
    std::net::TcpStream,
    SocketAddr,
    tcp,
    "# use futures::{AsyncReadExt, AsyncWriteExt};
# use giveway::net::{TcpListener, TcpStream};
# giveway::block_on(async {
# let listener = TcpListener::bind(\"127.0.0.1:0\").await?;
# let mut here = TcpStream::connect(listener.local_addr()?).await?;
# let (mut there, _) = listener.accept().await?;"
);

readiness!(
    TcpStream,
    there,
    "# use futures::AsyncWriteExt;
# use giveway::net::{TcpListener, TcpStream};
# giveway::block_on(async {
# let listener = TcpListener::bind(\"127.0.0.1:0\").await?;
# let mut here = TcpStream::connect(listener.local_addr()?).await?;
# let (there, _) = listener.accept().await?;
# here.write_all(b\"hello\").await?;
# let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 16];",
    "SockRef::from(&there).recv(&mut buffer)"
);
