//! Connecting: to an address where nothing listens, to several addresses, within a time, to a name.

use super::{directory, run, tcp_pair, watch};
use futures::executor::block_on;
use giveway_io::net::{TcpListener, TcpStream, UnixStream, lookup_host};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// Returns an address where nothing listens. It is bound, so that no other socket takes it.
fn refusing() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, addr)
}

#[test]
fn a_refused_connection_is_an_error() {
    run(async {
        let (_bound, addr) = refusing();
        for _ in 0..50 {
            assert_eq!(
                TcpStream::connect(addr).await.unwrap_err().kind(),
                ErrorKind::ConnectionRefused
            );
        }
    });
}

#[test]
fn the_next_address_is_tried_and_the_last_error_told() {
    run(async {
        let (_bound, refusing) = refusing();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listening = listener.local_addr().unwrap();
        let stream = TcpStream::connect(&[refusing, refusing, listening][..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listening);
        let error = TcpStream::connect(&[refusing, refusing][..]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect(&[][..] as &[SocketAddr]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_listener_takes_the_first_address_that_is_free() {
    run(async {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = first.local_addr().unwrap();
        assert_eq!(TcpListener::bind(taken).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let second = TcpListener::bind(&[taken, free][..]).await.unwrap();
        assert_ne!(second.local_addr().unwrap(), taken);
    });
}

/// `SO_REUSEADDR`, as std sets it: a server that is started again gets its address back.
#[test]
fn an_address_with_lingering_connections_can_be_bound() {
    run(async {
        // An address that no other test uses, so that no other socket takes its port.
        let listener = TcpListener::bind("127.0.0.3:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let client = TcpStream::connect(addr).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        // The side that closes first lingers.
        drop((server, listener));
        client.readable().await.unwrap();
        drop(client);
        TcpListener::bind(addr).await.unwrap();
    });
}

#[test]
fn names_are_looked_up_without_blocking() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("localhost", port)).await.unwrap();
        TcpStream::connect(format!("localhost:{port}")).await.unwrap();
        assert!(lookup_host("localhost:1").await.unwrap().all(|addr| addr.ip().is_loopback()));
        assert_eq!(
            TcpStream::connect("localhost").await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

/// Returns a listener that has no room for another connection.
fn full_listener() -> (Socket, SocketAddr, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..16 {
        match block_on(TcpStream::connect_timeout(addr, Duration::from_millis(200))) {
            Ok(stream) => waiting.push(stream),
            Err(error) if error.kind() == ErrorKind::TimedOut => return (socket, addr, waiting),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a listener without a backlog takes them all");
}

#[test]
fn a_connection_that_takes_too_long_is_given_up() {
    let _watch = watch();
    let (_listener, addr, waiting) = full_listener();
    assert!(!waiting.is_empty());
    let start = Instant::now();
    let error = block_on(TcpStream::connect_timeout(addr, Duration::from_millis(50))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(error.to_string().contains("50ms"), "{error}");
    // The time covers all addresses. It does not begin anew with each.
    let error = block_on(TcpStream::connect_timeout(&[addr; 8][..], Duration::from_millis(50)))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_connection_within_its_time_is_made() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        TcpStream::connect_timeout(addr, Duration::from_secs(30)).await.unwrap();
        TcpStream::connect_timeout(addr, Duration::MAX).await.unwrap();
        let (_bound, refusing) = refusing();
        let error =
            TcpStream::connect_timeout(refusing, Duration::from_secs(30)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// A connect to a full Unix listener fails with `EAGAIN` on Linux, and no event ever announces that
/// there is room.
#[test]
fn a_full_unix_listener_is_waited_for() {
    let _watch = watch();
    let directory = directory();
    let path = directory.path("socket");
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    listener.listen(0).unwrap();
    let mut first = vec![];
    loop {
        let mut connecting = Box::pin(UnixStream::connect(&path));
        match super::poll_once(&mut connecting) {
            std::task::Poll::Ready(stream) => first.push(stream.unwrap()),
            std::task::Poll::Pending => break,
        }
        assert!(first.len() < 16, "a listener without a backlog takes them all");
    }
    let waiting = thread::spawn(move || block_on(UnixStream::connect(path)).unwrap());
    let accepted: Vec<_> = (0..=first.len()).map(|_| listener.accept().unwrap()).collect();
    drop(waiting.join().unwrap());
    assert_eq!(accepted.len(), first.len() + 1);
}

#[test]
fn an_attempt_given_up_leaves_nothing_behind() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..100 {
            drop(TcpStream::connect(addr));
            drop(TcpStream::connect(("localhost", addr.port())));
        }
        tcp_pair().await;
    });
}
