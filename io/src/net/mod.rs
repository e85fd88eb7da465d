//! Sockets.
//!
//! Names and behaviour are tokio's where the thing is the same. These things differ:
//!
//! - Streams have the traits of [`futures_io`], whose `close` is tokio's `shutdown`.
//! - Polling methods take a plain slice and return how many bytes came.
//! - `from_std` makes the socket non-blocking itself.
//! - A Unix address is std's.
//!
//! Every operation that makes progress spends one unit of the task's [budget](giveway_budget), and
//! so does waiting with `ready`, `readable` or `writable`. The `try_` methods spend nothing, since they
//! have no task to wake.
//!
//! Readiness is kept until an operation finds that it is over. It is kept over a short read, and
//! over an error: an operation that failed for want of descriptors succeeds when there are some
//! again.
//!
//! # The traits of tokio and of hyper
//!
//! With the feature `tokio-io`, every type that reads or writes also has the traits of `tokio::io`.
//! So it works with what is made for these: `copy`, `lines`, the codecs of `tokio_util`, TLS. With
//! the feature `hyper` it has the traits of `hyper::rt`.
//!
#![cfg_attr(feature = "tokio-io", doc = "```")]
#![cfg_attr(not(feature = "tokio-io"), doc = "```ignore")]
//! use giveway::net::UnixStream;
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//!
//! # giveway::block_on(async {
//! let (mut here, there) = UnixStream::pair()?;
//! here.write_all(b"one\ntwo\n").await?;
//! let mut lines = BufReader::new(there).lines();
//! assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
//! assert_eq!(lines.next_line().await?.as_deref(), Some("two"));
//! # std::io::Result::Ok(()) }).unwrap();
//! ```
//!
//! Where both tokio's `AsyncReadExt` and that of `futures` are imported, `stream.read(…)` is
//! ambiguous and does not compile. Import one of them, or name the trait:
//! `tokio::io::AsyncReadExt::read(&mut stream, …)`. Tokio's `shutdown` has to be called like that
//! in any case, as `AsyncWriteExt::shutdown(&mut stream)`, since [`TcpStream::shutdown`] is std's.

mod addr;
mod bytes;
#[cfg(any(feature = "tokio-io", feature = "hyper"))]
mod foreign;
pub(crate) mod resolve;
mod retry;
mod socket;
mod split;
mod split_owned;
mod stream;
mod tcp_connect;
mod tcp_listener;
mod tcp_options;
mod tcp_stream;
mod udp;
mod udp_options;
mod udp_poll;
mod unix_addr;
mod unix_connect;
mod unix_datagram;
mod unix_datagram_poll;
mod unix_listener;
mod unix_stream;

pub use addr::{ToSocketAddrs, lookup_host};
pub use split::{ReadHalf, WriteHalf};
pub use split_owned::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use tcp_listener::TcpListener;
pub use tcp_stream::TcpStream;
pub use udp::UdpSocket;
pub use unix_datagram::UnixDatagram;
pub use unix_listener::UnixListener;
pub use unix_stream::UnixStream;

pub mod tcp {
    //! What belongs to TCP, under tokio's names.

    pub use super::tcp_listener::Incoming;
    use super::{TcpStream, split, split_owned};

    /// Reads from a borrowed [`TcpStream`].
    pub type ReadHalf<'a> = split::ReadHalf<'a, TcpStream>;
    /// Writes to a borrowed [`TcpStream`].
    pub type WriteHalf<'a> = split::WriteHalf<'a, TcpStream>;
    /// Reads from a shared [`TcpStream`].
    pub type OwnedReadHalf = split_owned::OwnedReadHalf<TcpStream>;
    /// Writes to a shared [`TcpStream`].
    pub type OwnedWriteHalf = split_owned::OwnedWriteHalf<TcpStream>;
    /// Two halves of different [`TcpStream`]s.
    pub type ReuniteError = split_owned::ReuniteError<TcpStream>;
}

pub mod unix {
    //! What belongs to Unix sockets, under tokio's names.

    pub use super::unix_listener::Incoming;
    use super::{UnixStream, split, split_owned};
    pub use std::os::unix::net::SocketAddr;

    /// Reads from a borrowed [`UnixStream`].
    pub type ReadHalf<'a> = split::ReadHalf<'a, UnixStream>;
    /// Writes to a borrowed [`UnixStream`].
    pub type WriteHalf<'a> = split::WriteHalf<'a, UnixStream>;
    /// Reads from a shared [`UnixStream`].
    pub type OwnedReadHalf = split_owned::OwnedReadHalf<UnixStream>;
    /// Writes to a shared [`UnixStream`].
    pub type OwnedWriteHalf = split_owned::OwnedWriteHalf<UnixStream>;
    /// Two halves of different [`UnixStream`]s.
    pub type ReuniteError = split_owned::ReuniteError<UnixStream>;
}
