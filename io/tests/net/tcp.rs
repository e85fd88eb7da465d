//! A TCP connection from its beginning to its end.

use super::{poll_once, run, tcp_pair, watch};
use futures::executor::block_on;
use futures::future::join_all;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, TryStreamExt, join};
use giveway_io::net::{TcpListener, TcpStream};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn echo() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let copied = futures::io::copy(&stream, &mut &stream).await.unwrap();
            (&stream).close().await.unwrap();
            copied
        };
        let client = async {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.set_nodelay(true).unwrap();
            for i in 0..1000_u32 {
                stream.write_all(&i.to_be_bytes()).await.unwrap();
                let mut answer = [0; 4];
                stream.read_exact(&mut answer).await.unwrap();
                assert_eq!(u32::from_be_bytes(answer), i);
            }
            stream.close().await.unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        };
        assert_eq!(join!(server, client).0, 4000);
    });
}

#[test]
fn stampede_of_connections_is_served_whole() {
    const CONNECTIONS: usize = 300;
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = listener.incoming().take(CONNECTIONS).try_for_each_concurrent(
            None,
            |stream| async move {
                let mut name = [0; 8];
                (&stream).read_exact(&mut name).await?;
                (&stream).write_all(&name).await
            },
        );
        let clients = join_all((0..CONNECTIONS as u64).map(|name| async move {
            let mut stream = TcpStream::connect(addr).await?;
            stream.write_all(&name.to_be_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            assert_eq!(answer, name.to_be_bytes());
            std::io::Result::Ok(())
        }));
        let (served, clients) = join!(server, clients);
        served.unwrap();
        assert_eq!(clients.into_iter().map(Result::unwrap).count(), CONNECTIONS);
    });
}

/// One event tells of all connections. A listener that took it for one connection would sleep
/// beside the rest.
#[test]
fn connections_that_came_together_are_all_accepted() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(poll_once(&mut Box::pin(listener.accept())).is_pending());
        let addr = listener.local_addr().unwrap();
        let clients: Vec<_> =
            (0..50).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
        for client in &clients {
            let (_server, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
        assert!(poll_once(&mut Box::pin(listener.accept())).is_pending());
    });
}

#[test]
fn several_tasks_accept_on_one_listener() {
    let _watch = watch();
    let listener = Arc::new(block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
    let addr = listener.local_addr().unwrap();
    let acceptors: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.clone();
            thread::spawn(move || {
                (0..25).map(|_| block_on(listener.accept()).unwrap()).collect::<Vec<_>>().len()
            })
        })
        .collect();
    let clients: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    assert_eq!(
        acceptors.into_iter().map(|acceptor| acceptor.join().unwrap()).sum::<usize>(),
        clients.len()
    );
}

#[test]
fn what_is_accepted_is_not_inherited_and_does_not_block() {
    run(async {
        let (client, server) = tcp_pair().await;
        for stream in [&client, &server] {
            let flags = rustix::io::fcntl_getfd(stream.as_fd()).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            assert_eq!(rustix::io::read(stream, &mut [0]).unwrap_err(), rustix::io::Errno::AGAIN);
        }
    });
}

#[test]
fn a_peek_takes_nothing() {
    run(async {
        let (mut client, mut server) = tcp_pair().await;
        let mut buffer = [0; 8];
        assert!(poll_once(&mut Box::pin(server.peek(&mut buffer))).is_pending());
        client.write_all(b"abc").await.unwrap();
        for _ in 0..3 {
            assert_eq!(server.peek(&mut buffer).await.unwrap(), 3);
            assert_eq!(&buffer[..3], b"abc");
        }
        assert_eq!(server.read(&mut buffer).await.unwrap(), 3);
        client.close().await.unwrap();
        assert_eq!(server.peek(&mut buffer).await.unwrap(), 0);
        assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
    });
}

#[test]
fn a_half_closed_stream_ends_for_the_reader_and_still_writes() {
    run(async {
        let (mut client, mut server) = tcp_pair().await;
        client.write_all(b"question").await.unwrap();
        client.close().await.unwrap();
        client.close().await.unwrap();
        assert_eq!(client.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut question = Vec::new();
        server.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "and goes on ending");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
    });
}

#[test]
fn a_reset_reaches_whoever_waits() {
    let _watch = watch();
    let (client, server) = block_on(tcp_pair());
    let reader = thread::spawn(move || {
        block_on(async {
            let mut first = [0; 5];
            (&client).read_exact(&mut first).await.unwrap();
            (&client).read(&mut first).await.unwrap_err().kind()
        })
    });
    block_on(async {
        (&server).write_all(b"first").await.unwrap();
        server.set_zero_linger().unwrap();
    });
    drop(server);
    assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionReset);
}

/// With bytes that could not be sent: a stream that lingers in another way would wait for them
/// here.
#[test]
fn a_stream_with_zero_linger_is_dropped_at_once_and_resets_the_connection() {
    run(async {
        let (client, mut server) = tcp_pair().await;
        let chunk = [0; 1 << 16];
        while client.try_write(&chunk).is_ok() {}
        client.set_zero_linger().unwrap();
        drop(client);
        let error = read_until_error(&mut server).await;
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

async fn read_until_error(stream: &mut TcpStream) -> std::io::Error {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer).await {
            Ok(read) => assert_ne!(read, 0, "it was reset, and not closed"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_writer_whose_peer_is_gone_gets_an_error_and_no_signal() {
    run(async {
        let (mut client, server) = tcp_pair().await;
        server.set_zero_linger().unwrap();
        drop(server);
        let chunk = [0; 1 << 16];
        for _ in 0..1000 {
            if let Err(error) = client.write_vectored(&[IoSlice::new(&chunk)]).await {
                assert!(
                    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
                    "{error}"
                );
                assert_eq!(client.write(&chunk).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                // The system knows of no connection any more. Closing succeeds all the same (tokio
                // 4665).
                client.close().await.unwrap();
                return;
            }
        }
        panic!("it went on writing into nothing");
    });
}

#[test]
fn a_shutdown_wakes_whoever_waits() {
    let _watch = watch();
    let (client, _server) = block_on(tcp_pair());
    let client = Arc::new(client);
    let reader = thread::spawn({
        let client = client.clone();
        move || block_on((&*client).read(&mut [0])).unwrap()
    });
    client.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reader.join().unwrap(), 0);
}

#[test]
fn several_buffers_are_read_and_written_at_once() {
    run(async {
        let (mut client, mut server) = tcp_pair().await;
        let words =
            [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two"), IoSlice::new(b"three")];
        assert_eq!(client.write_vectored(&words).await.unwrap(), 11);
        let (mut first, mut second) = ([0; 4], [0; 32]);
        while server.peek(&mut second).await.unwrap() < 11 {}
        let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(server.read_vectored(&mut bufs).await.unwrap(), 11);
        assert_eq!((&first, &second[..7]), (b"onet", &b"wothree"[..]));

        // More buffers than the system takes in one call: it takes some of them, and there is no
        // error.
        let many = vec![IoSlice::new(b"x"); 3000];
        let written = client.write_vectored(&many).await.unwrap();
        assert!((1..=3000).contains(&written));
        assert!((1..=3000).contains(&client.try_write_vectored(&many).unwrap()));
        let mut bytes = vec![[0; 1]; 3000];
        let mut bufs: Vec<_> = bytes.iter_mut().map(|byte| IoSliceMut::new(byte)).collect();
        assert!((1..=3000).contains(&server.read_vectored(&mut bufs).await.unwrap()));
    });
}

/// smol PR 170: of two tasks that wait on one source one was never woken.
#[test]
fn two_tasks_that_read_one_stream_are_both_woken() {
    let _watch = watch();
    for _ in 0..50 {
        let (mut client, server) = block_on(tcp_pair());
        let server = Arc::new(server);
        let readers = [(); 2].map(|()| {
            let server = server.clone();
            thread::spawn(move || block_on((&*server).read(&mut [0])).unwrap())
        });
        block_on(client.write_all(b"a")).unwrap();
        block_on(client.write_all(b"b")).unwrap();
        assert_eq!(readers.map(|reader| reader.join().unwrap()), [1, 1]);
    }
}

#[test]
fn two_tasks_that_read_one_stream_both_see_its_end() {
    let _watch = watch();
    for _ in 0..50 {
        let (client, server) = block_on(tcp_pair());
        let server = Arc::new(server);
        let readers = [(); 2].map(|()| {
            let server = server.clone();
            thread::spawn(move || block_on((&*server).read(&mut [0])).unwrap())
        });
        drop(client);
        assert_eq!(readers.map(|reader| reader.join().unwrap()), [0, 0]);
    }
}

#[test]
fn a_read_given_up_loses_nothing() {
    run(async {
        let (mut client, mut server) = tcp_pair().await;
        for i in 0..100 {
            let mut buffer = [0; 4];
            assert!(poll_once(&mut server.read(&mut buffer)).is_pending());
            client.write_all(&[i]).await.unwrap();
            assert_eq!(server.read(&mut buffer).await.unwrap(), 1);
            assert_eq!(buffer[0], i);
        }
    });
}

#[test]
fn std_streams_go_in_and_come_out() {
    run(async {
        let listener =
            TcpListener::from_std(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut client = TcpStream::try_from(std::net::TcpStream::connect(addr).unwrap()).unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        client.write_all(b"one").await.unwrap();
        let mut buffer = [0; 3];
        server.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"one");

        let (fd, listening) = (client.as_raw_fd(), listener.as_raw_fd());
        let mut client = client.into_std().unwrap();
        let listener = listener.into_std().unwrap();
        assert_eq!((client.as_raw_fd(), listener.as_raw_fd()), (fd, listening));
        assert_eq!(
            client.read(&mut buffer).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "it stays non-blocking"
        );
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        client.set_nonblocking(false).unwrap();
        client.write_all(b"two").unwrap();
        server.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"two");

        // Registered again: the reactor has forgotten the first time.
        let mut client = TcpStream::from_std(client).unwrap();
        server.write_all(b"six").await.unwrap();
        client.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"six");
    });
}

#[test]
fn options_and_addresses() {
    run(async {
        let (client, server) = tcp_pair().await;
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        assert!(client.take_error().unwrap().is_none());
        #[expect(deprecated, reason = "it works all the same")]
        for linger in [Some(Duration::from_secs(2)), None] {
            client.set_linger(linger).unwrap();
            assert_eq!(client.linger().unwrap(), linger);
        }
        client.set_zero_linger().unwrap();
        assert_eq!(client.linger().unwrap(), Some(Duration::ZERO));
        client.set_ttl(7).unwrap();
        assert_eq!(client.ttl().unwrap(), 7);
        assert!(format!("{client:?}").contains(&client.local_addr().unwrap().port().to_string()));
    });
}
