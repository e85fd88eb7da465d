//! Waiting for readiness itself: no task is told that a socket is ready before the system has said
//! so.

use super::io_common::{Wakes, tcp_pair};
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, poll};
use giveway::io::Interest;
use giveway::net::{TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use giveway::spawn;
use giveway_tests::{on_one_worker, runtime, watch, with_runtimes};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Write};
use std::pin::pin;
use std::task::Context;

/// Asserts that a socket to which nothing was sent becomes readable when `send` is called, and not
/// before.
async fn assert_readable_after<
    R: Future<Output = io::Result<()>>,
    W: Future<Output = io::Result<()>>,
>(
    readable: impl Fn() -> R,
    writable: impl Fn() -> W,
    send: impl FnOnce(),
) {
    assert!(poll!(pin!(readable())).is_pending(), "nothing has come");
    // One report covers both directions: when this returns, there is nothing more to report.
    writable().await.unwrap();
    let mut waiting = pin!(readable());
    assert!(poll!(waiting.as_mut()).is_pending(), "nothing has come");
    writable().await.unwrap();
    send();
    waiting.await.unwrap();
    readable().await.unwrap();
}

async fn assert_stream_readable_after(stream: &TcpStream, send: impl FnOnce()) {
    assert_readable_after(|| stream.readable(), || stream.writable(), send).await;
    assert_eq!(stream.try_read(&mut [0; 8]).unwrap(), 1);
    assert_eq!(stream.try_read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(poll!(pin!(stream.readable())).is_pending(), "all was read");
}

#[test]
fn a_tcp_stream_is_not_readable_before_something_came() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (client, server) = tcp_pair().await;
            assert_stream_readable_after(&client, || {
                assert_eq!(server.try_write(b"x").unwrap(), 1)
            })
            .await;
            let (client, server) = tcp_pair().await;
            assert_stream_readable_after(&server, || {
                assert_eq!(client.try_write(b"x").unwrap(), 1)
            })
            .await;

            let (client, server) = tcp_pair().await;
            let [client, server] = [client, server].map(|stream| stream.into_std().unwrap());
            let client = TcpStream::from_std(client).unwrap();
            assert_stream_readable_after(&client, || (&server).write_all(b"x").unwrap()).await;

            let (client, server) = tcp_pair().await;
            let ready = || poll_fn(|cx| client.poll_read_ready(cx));
            let room = || poll_fn(|cx| client.poll_write_ready(cx));
            assert_readable_after(ready, room, || assert_eq!(server.try_write(b"x").unwrap(), 1))
                .await;
        });
    });
}

#[test]
fn halves_of_a_stream_are_not_readable_before_something_came() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (mut client, server) = tcp_pair().await;
            let (reader, writer) = TcpStream::split(&mut client);
            let send = || assert_eq!(server.try_write(b"x").unwrap(), 1);
            assert_readable_after(|| reader.readable(), || writer.writable(), send).await;

            let (client, server) = UnixStream::pair().unwrap();
            let (reader, writer) = client.into_split();
            let send = || assert_eq!(server.try_write(b"x").unwrap(), 1);
            assert_readable_after(|| reader.readable(), || writer.writable(), send).await;
        });
    });
}

#[test]
fn a_unix_stream_is_not_readable_before_something_came() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (here, there) = UnixStream::pair().unwrap();
            let send = || assert_eq!(there.try_write(b"x").unwrap(), 1);
            assert_readable_after(|| here.readable(), || here.writable(), send).await;

            let path =
                std::env::temp_dir().join(format!("giveway-readiness-{}", std::process::id()));
            let _left = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            let there = UnixStream::connect(&path).await.unwrap();
            let (here, _) = listener.accept().await.unwrap();
            let send = || assert_eq!(there.try_write(b"x").unwrap(), 1);
            assert_readable_after(|| here.readable(), || here.writable(), send).await;
            std::fs::remove_file(&path).unwrap();
        });
    });
}

#[test]
fn a_datagram_socket_is_not_readable_before_something_came() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let [here, there] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0"));
            let (here, there) = (here.await.unwrap(), there.await.unwrap());
            let address = here.local_addr().unwrap();
            let send = || assert_eq!(there.try_send_to(b"x", address).unwrap(), 1);
            assert_readable_after(|| here.readable(), || here.writable(), send).await;
            let ready = || poll_fn(|cx| there.poll_recv_ready(cx));
            let room = || poll_fn(|cx| there.poll_send_ready(cx));
            let address = there.local_addr().unwrap();
            assert_readable_after(ready, room, || {
                assert_eq!(here.try_send_to(b"x", address).unwrap(), 1)
            })
            .await;

            let (here, there) = UnixDatagram::pair().unwrap();
            let send = || assert_eq!(there.try_send(b"x").unwrap(), 1);
            assert_readable_after(|| here.readable(), || here.writable(), send).await;
            let ready = || poll_fn(|cx| there.poll_recv_ready(cx));
            let room = || poll_fn(|cx| there.poll_send_ready(cx));
            assert_readable_after(ready, room, || assert_eq!(here.try_send(b"x").unwrap(), 1))
                .await;
        });
    });
}

/// What came before the socket was registered is reported all the same, and so is the end of the
/// stream.
#[test]
fn what_came_before_a_socket_was_registered_makes_it_readable() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            for byte in [true, false] {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let mut client =
                    std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (server, _) = listener.accept().unwrap();
                if byte {
                    client.write_all(b"x").unwrap();
                } else {
                    drop(client);
                }
                // Returns when the system has received the byte or the end.
                server.peek(&mut [0]).unwrap();
                let server = TcpStream::from_std(server).unwrap();
                server.readable().await.unwrap();
                assert_eq!(server.try_read(&mut [0; 8]).unwrap(), usize::from(byte));
            }
        });
    });
}

/// A server watches whether its client is still there, while it works for it.
#[test]
fn a_peer_that_is_silent_has_not_hung_up() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (client, server) = tcp_pair().await;
            let (answer, answered) = async_channel::bounded(1);
            let (done, is_done) = async_channel::bounded(1);
            let serving = spawn(async move {
                let mut hung_up = pin!(server.readable().fuse());
                futures::select_biased! {
                    _ = hung_up => panic!("the client is there, and waits"),
                    _ = answered.recv().fuse() => {}
                }
                done.send(()).await.unwrap();
                hung_up.await.unwrap();
                server.try_read(&mut [0; 8]).unwrap()
            });
            answer.send(()).await.unwrap();
            is_done.recv().await.unwrap();
            drop(client);
            assert_eq!(serving.await.unwrap(), 0, "the end");
        });
    });
}

/// To wait for a report would take one more turn of the reactor for each connection.
#[test]
fn the_first_operation_of_a_socket_does_not_wait_for_a_report() {
    on_one_worker(async {
        let path =
            std::env::temp_dir().join(format!("giveway-first-operation-{}", std::process::id()));
        let _left = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        client.write_all(b"request").unwrap();
        // The only worker is in this poll.
        let (mut server, _) =
            listener.accept().now_or_never().expect("a connection waits").unwrap();
        assert_eq!(server.read(&mut [0; 8]).now_or_never().expect("a request waits").unwrap(), 7);
        assert_eq!(server.write(b"answer").now_or_never().expect("there is room").unwrap(), 6);
    });
}

/// The runtime of a socket ends while tasks of others wait for it.
#[test]
fn a_wait_ends_with_an_error_when_the_runtime_of_the_socket_ends() {
    let _watch = watch();
    let runtime = runtime(2);
    let (here, _there) = runtime.block_on(async { UnixStream::pair().unwrap() });
    let mut waiting = pin!(here.ready(Interest::READABLE));
    let mut reading = pin!(here.async_io(Interest::READABLE, || {
        socket2::SockRef::from(&here).peek(&mut [std::mem::MaybeUninit::uninit(); 8])
    }));
    let (wakes, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    assert!(reading.as_mut().poll(&mut cx).is_pending());
    drop(runtime);
    assert!(wakes.count() > 0, "they are told");
    for error in [
        waiting.now_or_never().expect("it does not wait").map(drop),
        reading.now_or_never().expect("it does not wait").map(drop),
        here.try_io(Interest::READABLE, || Ok(())),
    ] {
        assert!(error.unwrap_err().to_string().contains("was shut down"));
    }
}
