//! Unix sockets: streams and datagrams, with names and without.

use super::{directory, poll_once, reported, run, watch};
use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, join};
use giveway_io::net::{UnixDatagram, UnixListener, UnixStream};
use std::future::Future;
use std::io::ErrorKind;
use std::os::unix::net;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_pair_talks() {
    run(async {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        for i in 0..1000_u32 {
            here.write_all(&i.to_be_bytes()).await.unwrap();
            let mut bytes = [0; 4];
            there.read_exact(&mut bytes).await.unwrap();
            there.write_all(&bytes).await.unwrap();
            here.read_exact(&mut bytes).await.unwrap();
            assert_eq!(u32::from_be_bytes(bytes), i);
        }
        drop(here);
        assert_eq!(there.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(there.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        there.close().await.unwrap();
    });
}

#[test]
fn a_listener_with_a_name_accepts() {
    run(async {
        let directory = directory();
        let path = directory.path("socket");
        assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path));
        let (client, accepted) = join!(UnixStream::connect(&path), listener.accept());
        let (mut client, (mut server, peer)) = (client.unwrap(), accepted.unwrap());
        assert!(peer.is_unnamed());
        assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(&*path));
        client.write_all(b"hello").await.unwrap();
        assert_eq!(server.peek(&mut [0; 8]).await.unwrap(), 5);
        let mut buffer = [0; 5];
        server.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"hello");

        let mut incoming = listener.incoming();
        let (_second, accepted) = join!(UnixStream::connect(&path), incoming.next());
        accepted.unwrap().unwrap();
        drop(listener);
        assert_eq!(
            UnixStream::connect(&path).await.unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(
            UnixListener::bind(&path).unwrap_err().kind(),
            ErrorKind::AddrInUse,
            "the file stays"
        );
    });
}

#[test]
fn a_peer_with_a_name_is_known_by_it() {
    run(async {
        let directory = directory();
        let path = directory.path("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // The longest path has no room for the zero at its end.
        let longest = 108 - directory.path("").as_os_str().len();
        for name in ["client", &"x".repeat(longest - 1), &"y".repeat(longest)] {
            let name = directory.path(name);
            let client =
                socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
            rustix::net::bind(&client, &rustix::net::SocketAddrUnix::new(&name).unwrap()).unwrap();
            client.connect(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
            // Also the name of a peer that is gone by now.
            drop(client);
            assert_eq!(listener.accept().await.unwrap().1.as_pathname(), Some(&*name));
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn names_without_a_file() {
    use std::os::linux::net::SocketAddrExt;
    run(async {
        let name = format!("\0giveway-net-{}", std::process::id());
        let listener = UnixListener::bind(&name).unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(addr.as_abstract_name(), Some(&name.as_bytes()[1..]));
        let (first, accepted) = join!(UnixStream::connect(&name), listener.accept());
        first.and(accepted).unwrap();
        let (second, accepted) = join!(UnixStream::connect_addr(&addr), listener.accept());
        second.and(accepted).unwrap();
    });
}

#[test]
fn datagrams_of_a_pair_and_with_names() {
    run(async {
        let (here, there) = UnixDatagram::pair().unwrap();
        let mut buffer = [0; 16];
        assert_eq!(here.send(b"pair").await.unwrap(), 4);
        assert_eq!(there.recv(&mut buffer).await.unwrap(), 4);

        let directory = directory();
        let (a, b) = (directory.path("a"), directory.path("b"));
        let (server, client) = (UnixDatagram::bind(&a).unwrap(), UnixDatagram::bind(&b).unwrap());
        assert_eq!(client.send_to(b"hello", &a).await.unwrap(), 5);
        let (size, from) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!((size, from.as_pathname()), (5, Some(&*b)));
        server.connect(&b).unwrap();
        assert_eq!(server.peer_addr().unwrap().as_pathname(), Some(&*b));
        assert_eq!(server.send(b"answer").await.unwrap(), 6);
        assert_eq!(client.recv(&mut buffer).await.unwrap(), 6);
        assert_eq!(client.try_recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        let nobody = directory.path("nobody");
        assert_eq!(client.send_to(b"hello", nobody).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// Sends until there is no more room. Returns how many messages were sent.
fn fill(send: impl Fn() -> std::io::Result<usize>) -> usize {
    let mut sent = 0;
    loop {
        match send() {
            Ok(_) => sent += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sent,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 100_000, "it takes them all");
    }
}

#[test]
fn a_full_peer_is_waited_for() {
    let _watch = watch();
    let (here, there) = UnixDatagram::pair().unwrap();
    let sent = fill(|| here.try_send(b"x"));
    let waiting = thread::spawn(move || block_on(here.send(b"last")).unwrap());
    for _ in 0..sent {
        assert_eq!(block_on(there.recv(&mut [0; 8])).unwrap(), 1);
    }
    assert_eq!(block_on(there.recv(&mut [0; 8])).unwrap(), 4);
    assert_eq!(waiting.join().unwrap(), 4);
}

/// Linux tells a sender that is not connected nothing of the target. What it does tell is that the
/// failed attempt has given its buffer back.
#[test]
fn a_target_that_others_have_filled_is_waited_for_without_spinning() {
    let _watch = watch();
    let directory = directory();
    let path = directory.path("socket");
    let server = UnixDatagram::bind(&path).unwrap();
    let other = UnixDatagram::unbound().unwrap();
    let sent = fill(|| other.try_send_to(b"x", &path));
    let late = UnixDatagram::unbound().unwrap();
    let mut sending = pin!(late.send_to(b"late", &path));

    let start = Instant::now();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    for round in 1..=10 {
        assert!(sending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        wakes.wait_for(round);
    }
    // The pauses begin at 0.1 ms and double, up to 20 ms: ten of them take 65 ms.
    assert!(start.elapsed() >= Duration::from_millis(65), "{:?}", start.elapsed());

    for _ in 0..sent {
        assert_eq!(block_on(server.recv(&mut [0; 8])).unwrap(), 1);
    }
    assert_eq!(block_on(sending).unwrap(), 4);
    assert_eq!(block_on(server.recv(&mut [0; 8])).unwrap(), 4);
}

/// A connected sender is told of its peer, and of nothing else.
#[test]
fn a_full_peer_is_waited_for_without_spinning() {
    let _watch = watch();
    let (here, there) = UnixDatagram::pair().unwrap();
    let sent = fill(|| here.try_send(b"x"));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut sending = pin!(here.send(b"last"));
    for _ in 0..20 {
        assert!(sending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        block_on(reported());
    }
    // The first event, if any, tells what the socket was like when it was made.
    assert!(wakes.count() <= 1, "{} wakes", wakes.count());
    for _ in 0..sent {
        assert_eq!(block_on(there.recv(&mut [0; 8])).unwrap(), 1);
    }
    assert_eq!(block_on(sending).unwrap(), 4);
}

/// Counts how often its waker is woken.
#[derive(Default)]
struct Wakes(Mutex<usize>, Condvar);

impl Wakes {
    fn count(&self) -> usize {
        *self.0.lock().unwrap()
    }

    fn wait_for(&self, count: usize) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |wakes| *wakes < count).unwrap());
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
        self.1.notify_all();
    }
}

#[test]
fn std_sockets_go_in_and_come_out() {
    run(async {
        let (here, there) = net::UnixStream::pair().unwrap();
        let (mut here, there) =
            (UnixStream::from_std(here).unwrap(), UnixStream::try_from(there).unwrap());
        here.write_all(b"one").await.unwrap();
        let mut there = there.into_std().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(std::io::Read::read(&mut there, &mut buffer).unwrap(), 3);
        assert_eq!(
            std::io::Read::read(&mut there, &mut buffer).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let mut there = UnixStream::from_std(there).unwrap();
        assert!(poll_once(&mut there.read(&mut buffer)).is_pending());
        here.write_all(b"two").await.unwrap();
        assert_eq!(there.read(&mut buffer).await.unwrap(), 3);

        let datagram = UnixDatagram::from_std(net::UnixDatagram::unbound().unwrap()).unwrap();
        datagram.into_std().unwrap();
        let directory = directory();
        let listener = UnixListener::bind(directory.path("socket")).unwrap().into_std().unwrap();
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "it stays non-blocking"
        );
    });
}
