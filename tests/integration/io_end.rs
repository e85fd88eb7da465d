//! Sockets and timers while their runtime ends: in flight in every state, and made in its last
//! moment.

use super::io_common::{HOUR, TOO_MUCH, echo, tcp_pair, telling};
use futures::task::Spawn;
use futures::{AsyncReadExt, AsyncWriteExt, poll};
use giveway::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram};
use giveway::time::{Duration, Sleep, interval, sleep, timeout};
use giveway_tests::{Drops, Gate, Wakers, drain, each_runtime, eventually, on_drop, recv};
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::thread;

/// Returns a listener that has no room for another connection, and the connection that took the
/// room.
fn full_listener() -> (std::net::TcpListener, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: the call takes no pointer, and the descriptor is open. Listening again changes how
    // many connections may wait.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let first = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener, first)
}

type InFlight = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns a future for every state that one can wait in. Called inside of the runtime, so that its
/// sockets and timers belong to it.
async fn all_that_wait(full: SocketAddr) -> Vec<InFlight> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ((mut reads, first), (mut writes, second)) = (tcp_pair().await, tcp_pair().await);
    let (udp, datagram) =
        (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UnixDatagram::unbound().unwrap());
    let mut ticks = interval(HOUR);
    ticks.tick().await;
    let (echoing, mut beside) = tcp_pair().await;
    vec![
        Box::pin(async move { drop(listener.accept().await) }),
        Box::pin(async move { drop(TcpStream::connect(full).await) }),
        Box::pin(async move {
            let _open = first;
            drop(reads.read(&mut [0]).await);
        }),
        Box::pin(async move {
            let _open = second;
            drop(writes.write_all(&vec![0; TOO_MUCH]).await);
        }),
        Box::pin(async move { drop(udp.recv_from(&mut [0]).await) }),
        Box::pin(async move { drop(datagram.recv(&mut [0]).await) }),
        Box::pin(sleep(HOUR)),
        Box::pin(async { drop(timeout(HOUR, pending::<()>()).await) }),
        Box::pin(async { drop(timeout(Duration::MAX, sleep(HOUR)).await) }),
        Box::pin(async move { _ = ticks.tick().await }),
        Box::pin(async move {
            futures::future::join(echo(echoing), beside.read_exact(&mut [0])).await.1.unwrap()
        }),
    ]
}

#[test]
fn a_runtime_that_ends_drops_whatever_waits_once_and_does_not_hang() {
    each_runtime(1, |runtime| {
        let (full, _first) = full_listener();
        let futures: Vec<_> = (0..3)
            .flat_map(|_| runtime.block_on(all_that_wait(full.local_addr().unwrap())))
            .collect();
        let (drops, all) = (Drops::of(futures.len()), futures.len());
        let gates: Vec<_> = (0..all).map(|_| Gate::new()).collect();
        let tasks: Vec<_> = futures
            .into_iter()
            .enumerate()
            .map(|(task, future)| {
                let (counter, gate) = (drops.counter(task), gates[task].clone());
                runtime.spawn(async move {
                    let _counter = counter;
                    telling(gate, future).await;
                    unreachable!("number {task} has nothing to be woken by");
                })
            })
            .collect();
        gates.iter().for_each(Gate::wait);
        drop(runtime);
        drops.assert_each_once();
        for task in tasks {
            let task: giveway::task::JoinHandle<()> = task;
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_block_on_that_waits_for_a_socket_is_told_when_the_runtime_ends_and_one_that_sleeps_goes_on() {
    each_runtime(1, |runtime| {
        let (reads, sleeps) = (Gate::new(), Gate::new());
        let (handle, gate) = (runtime.handle().clone(), reads.clone());
        let reading = thread::spawn(move || {
            handle.block_on(async {
                let (mut client, _server) = tcp_pair().await;
                let error = telling(gate, client.read(&mut [0])).await.unwrap_err();
                assert!(error.to_string().contains("was shut down"), "{error}");
                let error = client.write(&[0]).await.unwrap_err();
                assert!(error.to_string().contains("was shut down"), "{error}");
                // What is made now belongs to the default runtime.
                let (mut client, server) = tcp_pair().await;
                drop(server);
                assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
            });
        });
        let (handle, gate) = (runtime.handle().clone(), sleeps.clone());
        let sleeping = thread::spawn(move || {
            handle.block_on(async {
                let mut nap = pin!(sleep(Duration::from_millis(50)));
                telling(gate, nap.as_mut()).await;
                assert!(nap.is_elapsed());
            });
        });
        reads.wait();
        sleeps.wait();
        drop(runtime);
        reading.join().unwrap();
        sleeping.join().unwrap();
    });
}

/// tokio 2924: a socket that was registered during shutdown was never told of the shutdown.
#[test]
fn what_destructors_make_while_the_runtime_ends_does_not_hang() {
    type Made = (TcpListener, Option<TcpStream>, Sleep);
    each_runtime(1, |runtime| {
        let (wakers, (made, all_made)) = (Wakers::default(), mpsc::channel::<Made>());
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let made = made.clone();
                runtime.spawn(wakers.park(on_drop(move || {
                    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                    // On loopback each is ready at the first poll, or never: no thread takes turns
                    // any more.
                    let listener =
                        futures::executor::block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
                    let stream = match pin!(TcpStream::connect(listener.local_addr().unwrap()))
                        .poll(&mut cx)
                    {
                        std::task::Poll::Ready(stream) => Some(stream.unwrap()),
                        std::task::Poll::Pending => None,
                    };
                    assert!(pin!(listener.accept()).poll(&mut cx).is_ready() || stream.is_none());
                    assert!(pin!(listener.accept()).poll(&mut cx).is_pending());
                    let mut nap = sleep(Duration::from_millis(1));
                    let _pending = Pin::new(&mut nap).poll(&mut cx);
                    made.send((listener, stream, nap)).unwrap();
                })))
            })
            .collect();
        eventually(|| wakers.len() == tasks.len());
        drop((runtime, made));
        let all_made = drain(&all_made);
        assert_eq!(all_made.len(), tasks.len());
        for (listener, stream, nap) in all_made {
            futures::executor::block_on(async {
                let error = listener.accept().await.unwrap_err();
                assert!(error.to_string().contains("was shut down"), "{error}");
                if let Some(mut stream) = stream {
                    let error = stream.read(&mut [0]).await.unwrap_err();
                    assert!(error.to_string().contains("was shut down"), "{error}");
                }
                nap.await;
            });
        }
    });
}

/// Threads make sockets and timers, and wait for them, while the runtime ends. What they make
/// before its end is told of it, and what they make after it belongs to another runtime.
#[test]
fn threads_that_make_sockets_and_timers_while_the_runtime_ends_do_not_hang() {
    for _ in 0..10 {
        each_runtime(1, |runtime| {
            let (begun, begins) = mpsc::channel();
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let (handle, begun) = (runtime.handle().clone(), begun.clone());
                    thread::spawn(move || {
                        let mut ended = 0;
                        for round in 0..100_000 {
                            // Every other thread waits outside of the runtime's own `block_on`.
                            let told = if number % 2 == 0 {
                                handle.block_on(make_and_wait())
                            } else {
                                let _inside = handle.enter();
                                futures::executor::block_on(make_and_wait())
                            };
                            if round == number {
                                begun.send(()).unwrap();
                            }
                            ended += usize::from(handle.status().is_err());
                            if told || ended > 3 {
                                return;
                            }
                        }
                        panic!("the runtime does not end");
                    })
                })
                .collect();
            threads.iter().for_each(|_| recv(&begins));
            drop(runtime);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// Makes a connection and a timer, and waits for both. Returns true if an error says that the
/// runtime was shut down.
async fn make_and_wait() -> bool {
    let told = |error: std::io::Error| {
        assert!(error.to_string().contains("was shut down"), "{error}");
        true
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = match TcpStream::connect(listener.local_addr().unwrap()).await {
        Ok(client) => client,
        Err(error) => return told(error),
    };
    let mut server = match listener.accept().await {
        Ok((server, _)) => server,
        Err(error) => return told(error),
    };
    let mut byte = [0];
    let mut read = server.read(&mut byte);
    if let std::task::Poll::Ready(Err(error)) = poll!(&mut read) {
        return told(error);
    }
    let mut nap = pin!(sleep(Duration::from_micros(50)));
    let _pending = poll!(nap.as_mut());
    if let Err(error) = client.write_all(&[1]).await {
        return told(error);
    }
    nap.await;
    match read.await {
        Ok(read) => {
            assert_eq!(read, 1);
            false
        }
        Err(error) => told(error),
    }
}
