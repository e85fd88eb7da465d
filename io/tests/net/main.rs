//! Sockets, in tasks of an executor that knows nothing of us. Loopback only.

mod budget;
mod connect;
mod descriptors;
mod interest;
mod readiness;
mod second;
mod split;
mod tcp;
mod turns;
mod udp;
mod unix;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway_io::net::{
    TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, tcp as tcp_net,
    unix as unix_net,
};
use giveway_patience::watch;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Runs a test, which must not hang.
fn run<F: Future>(test: F) -> F::Output {
    let _watch = watch();
    block_on(test)
}

/// Compiles if everything can go to another thread, also while it waits.
#[test]
fn sockets_and_their_futures_are_send() {
    fn shared<T: Send + Sync + 'static>() {}
    fn send<T: Send>(
        _: impl FnOnce(&'static TcpStream, &'static UdpSocket, &'static UnixDatagram) -> T,
    ) {
    }
    shared::<(TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream, UnixDatagram)>();
    shared::<(
        tcp_net::OwnedReadHalf,
        tcp_net::OwnedWriteHalf,
        unix_net::OwnedReadHalf,
        unix_net::OwnedWriteHalf,
    )>();
    send(|_, _, _| TcpStream::connect("localhost:1"));
    send(|_, _, _| TcpStream::connect_timeout(("localhost", 1), Duration::ZERO));
    send(|_, _, _| TcpListener::bind("localhost:1"));
    send(|_, _, _| UnixStream::connect("path"));
    send(|tcp, _, _| tcp.readable());
    send(|_, udp, _| udp.send_to(b"", "localhost:1"));
    send(|_, _, unix| unix.send_to(b"", "path"));
}

/// Polls once, with a waker that wakes nothing.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns a connection: the side that connected, and the side that accepted.
async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

/// Waits until the reactor has reported everything that happened before: events come in the order
/// in which they happened.
async fn reported() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    while poll_once(&mut there.read(&mut [0])).is_ready() {}
    here.write_all(b"x").await.unwrap();
    there.read_exact(&mut [0]).await.unwrap();
}

/// A directory that is deleted when the test is over.
struct Directory(PathBuf);

fn directory() -> Directory {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("giveway-net-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir(&path).unwrap();
    Directory(path)
}

impl Directory {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
