//! Connecting over TCP.

use super::addr::{ToSocketAddrs, no_address};
use super::{TcpStream, socket};
use crate::Async;
use crate::reactor::Direction;
use crate::time::sleep;
use giveway_budget::unconstrained;
use rustix::io::Errno;
use socket2::{Domain, Type};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

impl TcpStream {
    /// Connects to an address. If there are several, tries one after the other.
    ///
    /// # Errors
    ///
    /// The error of the last address that was tried, and the errors of looking up the name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready gives up the attempt and closes its socket.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::AsyncWriteExt;
    /// use giveway::net::{TcpListener, TcpStream};
    ///
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// stream.write_all(b"hello").await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for addr in addr.resolve().await? {
            match connect(addr).await {
                Err(error) => last = Some(error),
                connected => return connected,
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// Connects to an address within `timeout`. The look-up of the name and all attempts share that
    /// time.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](io::ErrorKind::TimedOut), and the errors of [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready gives up the attempt and closes its socket.
    ///
    /// # Panics
    ///
    /// If there is no runtime and none can be started.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let stream =
    ///     TcpStream::connect_timeout(listener.local_addr()?, Duration::from_secs(10)).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn connect_timeout(addr: impl ToSocketAddrs, timeout: Duration) -> io::Result<Self> {
        let mut connect = pin!(Self::connect(addr));
        // Unconstrained, so that the end of the time is noticed also if the budget is spent.
        let mut over = pin!(unconstrained(sleep(timeout)));
        poll_fn(|cx| match connect.as_mut().poll(cx) {
            Poll::Pending => over.as_mut().poll(cx).map(|()| {
                let message = format!("no connection within {timeout:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }),
            connected => connected,
        })
        .await
    }
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket::new(Domain::for_address(addr), Type::STREAM)?;
    match rustix::net::connect(&socket, &addr) {
        // An attempt whose call was interrupted goes on all the same.
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // Registered only now: a socket that does not connect yet would be reported as hung up.
    let io = Async::of_nonblocking(std::net::TcpStream::from(socket))?;
    poll_fn(|cx| io.poll_io(Direction::Write, cx, socket::connected)).await?;
    Ok(TcpStream(io))
}
