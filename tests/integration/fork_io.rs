//! A fork shares the parent's descriptors with the child, including that of its epoll. The child
//! must leave the parent's epoll alone, and is told what to do instead.

#![cfg(unix)]

use super::fork::in_fork;
use super::io_common::{HOUR, round_trips, tcp_pair, waiting_in};
use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use giveway::Runtime;
use giveway::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use giveway::time::{Duration, sleep};
use giveway_tests::{eventually, isolated, panic_of, runtime, watch};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;

/// Asserts that the parent's reactor still reports what becomes of a stream: a future waits first,
/// then data comes.
fn assert_reported(runtime: &Runtime, server: &TcpStream, client: &TcpStream) {
    let _watch = watch();
    while server.try_read(&mut [0; 64]).is_ok() {}
    runtime.block_on(async {
        let mut read = server;
        let mut buffer = [0; 8];
        let reading = async { read.read(&mut buffer).await.unwrap() };
        let mut write = client;
        let writing = async {
            giveway::yield_now().await;
            write.write_all(b"parent").await.unwrap();
        };
        assert_eq!(futures::join!(reading, writing).0, 6);
    });
}

#[test]
fn a_forked_child_that_ends_a_socket_leaves_the_parents_alone() {
    type End = fn(TcpStream);
    let ways: [(&str, End); 4] = [
        ("drop", drop),
        ("into_std", |stream| drop(stream.into_std().unwrap())),
        ("OwnedFd", |stream| drop(OwnedFd::from(stream))),
        ("into_split", |stream| drop(stream.into_split().0)),
    ];
    isolated("fork_io::a_forked_child_that_ends_a_socket_leaves_the_parents_alone", || {
        let runtime = runtime(2);
        for (name, end) in ways {
            let (client, server) = runtime.block_on(tcp_pair());
            assert_reported(&runtime, &server, &client);
            let mut server = Some(server);
            assert_eq!(in_fork(|| end(server.take().unwrap())), 0, "{name}");
            assert_reported(&runtime, &server.unwrap(), &client);
        }
    });
}

#[test]
fn a_forked_child_that_drops_its_runtime_and_all_its_sockets_leaves_the_parents_alone() {
    isolated(
        "fork_io::a_forked_child_that_drops_its_runtime_and_all_its_sockets_leaves_the_parents_alone",
        || {
            let mut all = Some((runtime(2), UdpSocket::bind("127.0.0.1:0")));
            let (client, server) = all.as_ref().unwrap().0.block_on(tcp_pair());
            let mut sockets = Some((client, server));
            let code = in_fork(|| {
                drop(sockets.take());
                drop(all.take());
            });
            assert_eq!(code, 0);
            let ((client, server), (runtime, _)) = (sockets.unwrap(), all.unwrap());
            assert_reported(&runtime, &server, &client);
            assert_reported(&runtime, &client, &server);
        },
    );
}

#[track_caller]
fn assert_clear<T: std::fmt::Debug>(result: Option<io::Result<T>>) {
    let error = result.expect("it does not wait").expect_err("it cannot work").to_string();
    assert!(error.contains("before a fork") && error.contains("in the child"), "{error}");
    assert!(
        error.contains("`into_std`") && error.contains("`from_std`"),
        "the remedy is named: {error}"
    );
}

fn assert_every_operation_is_clear(listener: &TcpListener, stream: &TcpStream) {
    let mut io = stream;
    assert_clear(listener.accept().now_or_never());
    assert_clear(io.read(&mut [0; 8]).now_or_never());
    assert_clear(io.write(b"child").now_or_never());
    assert_clear(stream.peek(&mut [0; 8]).now_or_never());
    assert_clear(stream.readable().now_or_never());
    assert_clear(stream.writable().now_or_never());
    assert_clear(poll_fn(|cx| stream.poll_read_ready(cx)).now_or_never());
    assert_clear(Some(stream.try_read(&mut [0; 8])));
    assert_clear(Some(stream.try_write(b"child")));
}

#[test]
fn a_socket_from_before_a_fork_is_a_clear_error_in_the_child() {
    isolated("fork_io::a_socket_from_before_a_fork_is_a_clear_error_in_the_child", || {
        let runtime = runtime(2);
        let (client, server) = runtime.block_on(tcp_pair());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        // Three states: nothing is known of the client, the server is known to be writable, and the
        // server is known not to be readable.
        runtime.block_on(server.writable()).unwrap();
        assert_eq!(server.try_read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let code = in_fork(|| {
            let own = giveway_tests::runtime(1);
            for stream in [&client, &server] {
                assert_every_operation_is_clear(&listener, stream);
                own.block_on(async { assert_every_operation_is_clear(&listener, stream) });
            }
            assert!(client.peer_addr().is_ok(), "what needs no runtime works");
        });
        assert_eq!(code, 0);
        assert_reported(&runtime, &server, &client);
        let _watch = watch();
        runtime.block_on(async {
            let (connected, accepted) = futures::join!(
                TcpStream::connect(listener.local_addr().unwrap()),
                listener.accept()
            );
            assert_eq!(connected.unwrap().local_addr().unwrap(), accepted.unwrap().1);
        });
    });
}

#[test]
fn a_listener_is_taken_along_into_a_forked_child() {
    isolated("fork_io::a_listener_is_taken_along_into_a_forked_child", || {
        let runtime = runtime(1);
        let mut listener = Some(runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
        let serve = |runtime: &Runtime, listener: &TcpListener| {
            runtime.block_on(async {
                let connecting = TcpStream::connect(listener.local_addr().unwrap());
                let (client, accepted) = futures::join!(connecting, listener.accept());
                giveway::spawn(super::io_common::echo(accepted.unwrap().0));
                round_trips(&mut client.unwrap(), 1, 10).await;
            });
        };
        serve(&runtime, listener.as_ref().unwrap());
        let code = in_fork(|| {
            let own = giveway_tests::runtime(2);
            let _inside = own.enter();
            let listener = listener.take().unwrap().into_std().unwrap();
            serve(&own, &TcpListener::from_std(listener).unwrap());
        });
        assert_eq!(code, 0);
        let _watch = watch();
        serve(&runtime, &listener.unwrap());
    });
}

/// A socket that the child registered would be in the parent's epoll, and no thread of the child
/// would serve a timer.
#[test]
fn nothing_is_made_in_a_forked_child_for_the_runtime_of_its_parent() {
    isolated("fork_io::nothing_is_made_in_a_forked_child_for_the_runtime_of_its_parent", || {
        let runtime = runtime(2);
        let (client, server) = runtime.block_on(tcp_pair());
        let address = server.local_addr().unwrap();
        let made_in_child = move || {
            let errors = [
                UnixStream::pair().map(drop).unwrap_err(),
                UnixDatagram::unbound().map(drop).unwrap_err(),
                block_on(UdpSocket::bind("127.0.0.1:0")).map(drop).unwrap_err(),
                block_on(TcpStream::connect(address)).map(drop).unwrap_err(),
            ];
            for error in errors.map(|error| error.to_string()) {
                assert!(
                    error.contains("before a fork")
                        && error.contains("start a new runtime in the child"),
                    "{error}"
                );
            }
            super::fork::assert_clear(&panic_of(|| block_on(sleep(HOUR))));
        };
        let code = in_fork(|| {
            let _inside = runtime.enter();
            made_in_child();
        });
        assert_eq!(code, 0, "entered");
        assert_eq!(runtime.block_on(async { in_fork(made_in_child) }), 0, "in block_on");
        let task = runtime.spawn(async move { in_fork(made_in_child) });
        assert_eq!(runtime.block_on(task).unwrap(), 0, "in a task");
        assert_reported(&runtime, &server, &client);
    });
}

#[test]
fn a_sleep_from_before_a_fork_goes_on_in_a_runtime_of_the_child() {
    isolated("fork_io::a_sleep_from_before_a_fork_goes_on_in_a_runtime_of_the_child", || {
        let runtime = runtime(2);
        let mut sleeps: Vec<_> = (0..4).map(|_| waiting_in(&runtime, HOUR)).collect();
        let (short, wakes) = waiting_in(&runtime, Duration::from_millis(300));
        let mut short = Some(short);
        let code = in_fork(|| {
            let own = giveway_tests::runtime(2);
            own.block_on(sleep(Duration::from_millis(1)));
            own.block_on(short.take().unwrap());
            let (mut moved, _) = sleeps.pop().unwrap();
            std::pin::Pin::new(&mut moved)
                .reset(giveway::time::Instant::now() + Duration::from_millis(1));
            own.block_on(moved);
            drop(std::mem::take(&mut sleeps));
            own.block_on(async {
                let naps = (0..100).map(|nap| sleep(Duration::from_micros(10 * nap)));
                futures::future::join_all(naps).await;
            });
        });
        assert_eq!(code, 0);
        eventually(|| wakes.count() == 1);
        drop(short);
        assert_eq!(sleeps.len(), 4, "the parent has its own");
    });
}

/// With no Giveway runtime in the process, a thread of the reactor's own serves sockets and timers.
/// The child gets another such thread.
#[test]
fn sockets_under_a_foreign_executor_work_in_a_forked_child() {
    isolated("fork_io::sockets_under_a_foreign_executor_work_in_a_forked_child", || {
        let talk = || {
            let (here, there) = UnixDatagram::pair().unwrap();
            let answering = std::thread::spawn(move || {
                block_on(async {
                    let received = there.recv(&mut [0; 8]).await.unwrap();
                    there.send(&[0; 8][..received]).await.unwrap();
                });
            });
            block_on(async {
                sleep(Duration::from_millis(1)).await;
                here.send(b"hello").await.unwrap();
                assert_eq!(here.recv(&mut [0; 8]).await.unwrap(), 5);
            });
            answering.join().unwrap();
        };
        talk();
        assert_eq!(in_fork(talk), 0);
        let _watch = watch();
        talk();
    });
}
