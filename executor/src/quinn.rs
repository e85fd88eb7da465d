//! QUIC by quinn on this runtime, without tokio's.
//!
//! [`Runtime`] is what [`quinn::Endpoint::new`](::quinn::Endpoint::new) asks for: its sockets,
//! timers and tasks are those of the current Giveway runtime. Datagrams go through `quinn-udp`,
//! several at once where the system can do that (GSO and GRO), and with their ECN marks.
//!
//! `Endpoint::client` and `Endpoint::server` look for runtimes that quinn knows of; use
//! `Endpoint::new`. Of quinn's features none is needed but the one for a TLS library, such as
//! `rustls-ring`.
//!
//! # Examples
//!
//! ```
//! use quinn::{Endpoint, EndpointConfig};
//! use std::sync::Arc;
//!
//! # #[giveway::main]
//! # async fn main() -> std::io::Result<()> {
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! let endpoint = Endpoint::new(
//!     EndpointConfig::default(),
//!     None, // for a server: its `ServerConfig`
//!     socket,
//!     Arc::new(giveway::quinn::Runtime),
//! )?;
//! assert_eq!(endpoint.open_connections(), 0);
//! # Ok(())
//! # }
//! ```

use crate::Handle;
use crate::io::{Async, Interest};
use crate::time::{Sleep, sleep_until};
use ::quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use ::quinn::{self, AsyncTimer, AsyncUdpSocket, UdpPoller};
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Serves a quinn endpoint by the current runtime, or the default one; see
/// [`giveway::spawn`](crate::spawn).
///
/// To use a certain runtime give its [`Handle`], which has the trait too.
///
/// The endpoint's socket belongs to the runtime in which the endpoint is made. What quinn spawns in
/// a [background](crate::spawn_background) task is a background task too. The tasks of an endpoint
/// end with it, or with the runtime.
///
/// # Panics
///
/// Where [`giveway::spawn`](crate::spawn) does.
///
/// # Examples
///
/// ```
/// use quinn::Runtime;
/// use std::future::poll_fn;
/// use std::time::Instant;
///
/// let mut timer = giveway::quinn::Runtime.new_timer(Instant::now());
/// giveway::block_on(poll_fn(|cx| timer.as_mut().poll(cx)));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Runtime;

impl quinn::Runtime for Runtime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(sleep_until(deadline)))
    }

    #[track_caller]
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        crate::spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket)?))
    }
}

/// Serves a quinn endpoint by the runtime of the handle.
impl quinn::Runtime for Handle {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Runtime.new_timer(deadline)
    }

    #[track_caller]
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        Handle::spawn(self, future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let _inside = self.enter();
        Runtime.wrap_udp_socket(socket)
    }
}

/// A sleep with quinn's trait.
#[derive(Debug)]
struct Timer(Sleep);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        Pin::new(&mut self.0).reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// A socket, and what `quinn-udp` knows of it.
#[derive(Debug)]
struct Socket {
    io: Async<UdpSocket>,
    /// What the system can do, learnt when the socket was made and from errors since.
    state: UdpSocketState,
}

impl Socket {
    fn new(socket: UdpSocket) -> io::Result<Self> {
        // Sets options of the socket, and makes it non-blocking.
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { io: Async::new(socket)?, state })
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, |socket| self.state.send(socket.into(), transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.io.poll_read_with(cx, |socket| self.state.recv(socket.into(), bufs, meta))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Waits for room to send. Every connection of an endpoint has one: a socket wakes all tasks that
/// wait for it, so each can wait at the socket itself.
#[derive(Debug)]
struct Room(Arc<Socket>);

impl UdpPoller for Room {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.io.poll_writable(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::udp::EcnCodepoint;
    use std::future::poll_fn;

    const SEGMENT: usize = 1_000;

    /// As many segments as the system takes at once come with the mark that was sent, in as few
    /// buffers as the system likes.
    #[test]
    fn segments_and_marks_of_congestion_arrive() {
        // A runtime of its own: the default one would still be there at the end of the process.
        let runtime = crate::Builder::new().workers(1).build().unwrap();
        runtime.block_on(async {
            let socket = || Socket::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            let (here, there) = (socket(), socket());
            let segments = here.max_transmit_segments().min(8);
            let contents = vec![7; segments * SEGMENT];
            let transmit = Transmit {
                destination: there.local_addr().unwrap(),
                ecn: Some(EcnCodepoint::Ect0),
                contents: &contents,
                segment_size: (segments > 1).then_some(SEGMENT),
                src_ip: None,
            };
            poll_fn(|cx| here.io.poll_writable(cx)).await.unwrap();
            here.try_send(&transmit).unwrap();
            let mut received = 0;
            while received < contents.len() {
                let mut buffer = vec![0; there.max_receive_segments() * 2_048];
                let mut meta = [RecvMeta::default()];
                let count = poll_fn(|cx| {
                    there.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)
                });
                assert_eq!(count.await.unwrap(), 1);
                assert_eq!(meta[0].ecn, Some(EcnCodepoint::Ect0));
                assert_eq!(meta[0].stride, SEGMENT);
                assert!(buffer[..meta[0].len].iter().all(|byte| *byte == 7));
                received += meta[0].len;
            }
            assert_eq!(received, contents.len());
        });
    }
}
