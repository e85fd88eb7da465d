//! UDP.

use super::{poll_once, run, watch};
use futures::executor::block_on;
use giveway_io::net::UdpSocket;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::thread;

async fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

#[test]
fn datagrams_arrive_with_their_sender() {
    run(async {
        let ((a, a_addr), (b, b_addr)) = (socket().await, socket().await);
        let mut buffer = [0; 64];
        for i in 0..100_u8 {
            assert_eq!(
                a.send_to(&vec![i; usize::from(i) % 7], b_addr).await.unwrap(),
                usize::from(i) % 7
            );
            assert_eq!(b.recv_from(&mut buffer).await.unwrap(), (usize::from(i) % 7, a_addr));
        }
    });
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    run(async {
        let ((server, server_addr), (client, client_addr)) = (socket().await, socket().await);
        let (stranger, _) = socket().await;
        assert_eq!(client.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        client.connect(server_addr).await.unwrap();
        assert_eq!(client.peer_addr().unwrap(), server_addr);
        stranger.send_to(b"stranger", client_addr).await.unwrap();
        server.send_to(b"peer", client_addr).await.unwrap();
        let mut buffer = [0; 64];
        let size = client.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..size], b"peer");
        assert_eq!(client.send(b"to the peer").await.unwrap(), 11);
        assert_eq!(server.recv(&mut buffer).await.unwrap(), 11);
    });
}

#[test]
fn a_peer_that_is_not_there_is_an_error_later_and_not_for_ever() {
    run(async {
        let (client, client_addr) = socket().await;
        // An address that no other test uses, so that no other socket takes its port.
        let gone = UdpSocket::bind("127.0.0.2:0").await.unwrap();
        let gone_addr = gone.local_addr().unwrap();
        drop(gone);
        client.connect(gone_addr).await.unwrap();
        client.send(b"anybody?").await.unwrap();
        assert_eq!(client.recv(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let gone = UdpSocket::bind(gone_addr).await.unwrap();
        gone.send_to(b"me", client_addr).await.unwrap();
        assert_eq!(client.recv(&mut [0; 8]).await.unwrap(), 2);
    });
}

#[test]
fn a_peek_takes_nothing() {
    run(async {
        let ((a, a_addr), (b, b_addr)) = (socket().await, socket().await);
        let mut buffer = [0; 64];
        assert_eq!(b.try_peek(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        a.send_to(b"hello", b_addr).await.unwrap();
        assert_eq!(b.peek_from(&mut buffer).await.unwrap(), (5, a_addr));
        assert_eq!(b.peek(&mut buffer).await.unwrap(), 5);
        assert_eq!(b.try_peek_from(&mut buffer).unwrap(), (5, a_addr));
        assert_eq!(
            b.recv_from(&mut buffer[..3]).await.unwrap(),
            (3, a_addr),
            "the rest is cut off"
        );
        assert_eq!(b.try_recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_receive_given_up_loses_nothing() {
    run(async {
        let ((a, _), (b, b_addr)) = (socket().await, socket().await);
        for _ in 0..50 {
            assert!(poll_once(&mut pin!(b.recv(&mut [0]))).is_pending());
            a.send_to(b"x", b_addr).await.unwrap();
            assert_eq!(b.recv(&mut [0; 4]).await.unwrap(), 1);
        }
    });
}

#[test]
fn several_tasks_share_a_socket() {
    let _watch = watch();
    let ((a, _), (b, b_addr)) = (block_on(socket()), block_on(socket()));
    let b = Arc::new(b);
    let receivers: Vec<_> = (0..4)
        .map(|_| {
            let b = b.clone();
            thread::spawn(move || {
                (0..25).map(|_| block_on(b.recv(&mut [0])).unwrap()).sum::<usize>()
            })
        })
        .collect();
    (0..100).for_each(|_| assert_eq!(block_on(a.send_to(b"x", b_addr)).unwrap(), 1));
    assert_eq!(receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum::<usize>(), 100);
}

#[test]
fn too_large_a_datagram_is_an_error() {
    run(async {
        let ((a, _), (_b, b_addr)) = (socket().await, socket().await);
        assert!(a.send_to(&vec![0; 70_000], b_addr).await.is_err());
        a.send_to(b"x", b_addr).await.unwrap();
    });
}

#[test]
fn std_sockets_go_in_and_come_out() {
    run(async {
        let (peer, _) = socket().await;
        let socket =
            UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        peer.send_to(b"x", socket.local_addr().unwrap()).await.unwrap();
        assert_eq!(socket.recv(&mut [0; 2]).await.unwrap(), 1);
        let socket = socket.into_std().unwrap();
        assert_eq!(
            socket.recv(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "it stays non-blocking"
        );
        let socket = UdpSocket::from_std(socket).unwrap();
        peer.send_to(b"x", socket.local_addr().unwrap()).await.unwrap();
        assert_eq!(socket.recv(&mut [0; 2]).await.unwrap(), 1);
    });
}

#[test]
fn options() {
    run(async {
        let (socket, addr) = socket().await;
        socket.set_broadcast(true).unwrap();
        assert!(socket.broadcast().unwrap());
        socket.set_ttl(9).unwrap();
        assert_eq!(socket.ttl().unwrap(), 9);
        socket.set_multicast_ttl_v4(3).unwrap();
        assert_eq!(socket.multicast_ttl_v4().unwrap(), 3);
        socket.set_multicast_loop_v4(false).unwrap();
        assert!(!socket.multicast_loop_v4().unwrap());
        assert!(socket.take_error().unwrap().is_none());
        // Not the address of a group: refused by the system.
        assert!(socket.join_multicast_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).is_err());
        assert!(format!("{socket:?}").contains(&addr.port().to_string()));
    });
}
