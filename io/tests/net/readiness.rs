//! What is known of readiness, which the kernel reports once.

use super::{poll_once, reported, run, tcp_pair, watch};
use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway_io::net::{UdpSocket, UnixStream};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::thread;

#[test]
fn after_a_try_that_would_block_readable_waits_for_data() {
    run(async {
        let (mut client, server) = tcp_pair().await;
        let mut buffer = [0; 8];
        for i in 0..100 {
            reported().await;
            assert_eq!(server.try_read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(poll_once(&mut pin!(server.readable())).is_pending());
            client.write_all(&[i]).await.unwrap();
            server.readable().await.unwrap();
            assert_eq!(server.try_read(&mut buffer).unwrap(), 1);
            assert_eq!(buffer[0], i);
        }
    });
}

#[test]
fn after_a_try_that_would_block_writable_waits_for_room() {
    run(async {
        let (here, mut there) = UnixStream::pair().unwrap();
        let chunk = [1; 4096];
        for _ in 0..5 {
            let mut written = 0;
            loop {
                match here.try_write(&chunk) {
                    Ok(size) => written += size,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        if poll_once(&mut pin!(here.writable())).is_pending() {
                            break;
                        }
                    }
                }
            }
            assert!(written > 0);
            let mut read = vec![0; written];
            there.read_exact(&mut read).await.unwrap();
            here.writable().await.unwrap();
        }
    });
}

#[test]
fn a_try_asks_the_system_whatever_is_known() {
    run(async {
        let (client, server) = tcp_pair().await;
        assert_eq!(server.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(client.try_write(b"x").unwrap(), 1);
        // On loopback the byte has arrived, whether its event was seen or not.
        assert_eq!(server.try_read(&mut [0]).unwrap(), 1);
    });
}

/// If a short read counted as the end of readiness, the reader would sleep beside the rest, and
/// beside the end of the stream.
#[test]
fn bytes_read_one_by_one_all_come_and_so_does_the_end() {
    run(async {
        for _ in 0..20 {
            let (mut client, mut server) = tcp_pair().await;
            client.write_all(&[1; 500]).await.unwrap();
            client.close().await.unwrap();
            let mut read = 0;
            while server.read(&mut [0; 3]).await.unwrap() > 0 {
                read += 1;
            }
            assert_eq!(read, 167);
        }
    });
}

#[test]
fn a_reader_that_waits_while_the_stream_is_moved_is_woken() {
    let _watch = watch();
    let (mut here, there) = UnixStream::pair().unwrap();
    let there = Arc::new(there);
    // Polled on this thread, and read on another: two tasks of two executors, one after the other.
    assert!(poll_once(&mut pin!((&*there).read(&mut [0]))).is_pending());
    let reader = thread::spawn({
        let there = there.clone();
        move || block_on((&*there).read(&mut [0; 8])).unwrap()
    });
    block_on(here.write_all(b"moved")).unwrap();
    assert_eq!(reader.join().unwrap(), 5);
}

#[test]
fn a_task_that_reads_and_one_that_writes_do_not_wake_in_vain() {
    run(async {
        let (client, server) = tcp_pair().await;
        assert_eq!(server.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // A socket that is not ready to read may still be ready to write.
        server.writable().await.unwrap();
        assert_eq!(server.try_write(b"x").unwrap(), 1);
        client.readable().await.unwrap();
    });
}

#[test]
fn many_sockets_come_and_go_while_others_wait() {
    let _watch = watch();
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let waiting = thread::spawn(move || block_on(there.read(&mut [0; 8])).unwrap());
    // Keys and descriptors are used again. An event of an old socket must not serve a new one.
    for _ in 0..200 {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        block_on(async {
            a.write_all(b"x").await.unwrap();
            b.read_exact(&mut [0]).await.unwrap();
            drop(a);
            assert_eq!(b.read(&mut [0]).await.unwrap(), 0);
        });
    }
    block_on(here.write_all(b"done")).unwrap();
    assert_eq!(waiting.join().unwrap(), 4);
}

#[test]
fn datagrams_that_came_together_are_all_received() {
    run(async {
        let (client, server) = (
            UdpSocket::bind("127.0.0.1:0").await.unwrap(),
            UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        );
        assert_eq!(server.try_recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        for i in 0..50 {
            client.send_to(&[i], server.local_addr().unwrap()).await.unwrap();
        }
        for i in 0..50 {
            let mut buffer = [0; 2];
            assert_eq!(server.recv(&mut buffer).await.unwrap(), 1);
            assert_eq!(buffer[0], i);
        }
    });
}
