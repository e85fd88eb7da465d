//! Waiting for readiness by interest, and operations of the caller's: the way for what the sockets
//! have no method for.

use super::budget::operations_in_one_poll;
use super::{directory, poll_once, reported, run, tcp_pair, watch};
use futures::executor::block_on;
use giveway_budget::OPERATIONS;
use giveway_io::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use giveway_io::{Async, Interest, Ready};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// One way to get at the methods that all types share.
trait Waits: AsFd {
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>>;
    fn try_io<R>(&self, interest: Interest, f: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
    fn async_io<R>(
        &self,
        interest: Interest,
        f: impl FnMut() -> io::Result<R>,
    ) -> impl Future<Output = io::Result<R>>;
}

macro_rules! waits {
    ($($socket:ty),*) => { $(
        impl Waits for $socket {
            fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> {
                self.ready(interest)
            }
            fn try_io<R>(
                &self,
                interest: Interest,
                f: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.try_io(interest, f)
            }
            fn async_io<R>(
                &self,
                interest: Interest,
                f: impl FnMut() -> io::Result<R>,
            ) -> impl Future<Output = io::Result<R>> {
                self.async_io(interest, f)
            }
        }
    )* };
}
waits!(TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream, UnixDatagram);

impl Waits for Async<std::io::PipeReader> {
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> {
        self.ready(interest)
    }
    fn try_io<R>(&self, interest: Interest, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.try_io(interest, |_| f())
    }
    fn async_io<R>(
        &self,
        interest: Interest,
        mut f: impl FnMut() -> io::Result<R>,
    ) -> impl Future<Output = io::Result<R>> {
        self.async_io(interest, move |_| f())
    }
}

fn receive(socket: &impl AsFd) -> io::Result<usize> {
    Ok(recv(socket, &mut [0; 16], RecvFlags::empty())?.0)
}

/// Asserts that `socket` is readable once for each `send`, and waits in between.
async fn assert_edges<S: Waits>(
    socket: &S,
    send: impl AsyncFn(),
    take: impl Fn(&S) -> io::Result<usize>,
) {
    for _ in 0..50 {
        reported().await;
        let blocked = socket.try_io(Interest::READABLE, || take(socket));
        assert_eq!(blocked.unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut waiting = pin!(socket.ready(Interest::READABLE));
        assert!(poll_once(&mut waiting).is_pending(), "an old report does not count");
        send().await;
        assert!(waiting.await.unwrap().is_readable());
        // The report counts until an operation finds nothing.
        assert!(socket.ready(Interest::READABLE).await.unwrap().is_readable());
        socket.try_io(Interest::READABLE, || take(socket)).unwrap();

        send().await;
        let mut attempts = 0;
        let taken = socket.async_io(Interest::READABLE, || {
            attempts += 1;
            take(socket)
        });
        taken.await.unwrap();
        assert!(attempts >= 1);
    }
}

#[test]
fn after_an_operation_that_would_block_every_type_waits_for_a_new_report() {
    run(async {
        let (here, there) = tcp_pair().await;
        assert_edges(&there, async || assert_eq!(here.try_write(b"x").unwrap(), 1), receive).await;

        let (here, there) = UnixStream::pair().unwrap();
        assert_edges(&there, async || assert_eq!(here.try_write(b"x").unwrap(), 1), receive).await;

        let (here, there) = UnixDatagram::pair().unwrap();
        assert_edges(&there, async || assert_eq!(here.try_send(b"x").unwrap(), 1), receive).await;

        let here = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let there = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        here.connect(there.local_addr().unwrap()).await.unwrap();
        let send = async || assert_eq!(here.send(b"x").await.unwrap(), 1);
        assert_edges(&there, send, receive).await;

        let (reader, writer) = std::io::pipe().unwrap();
        let reader = Async::new(reader).unwrap();
        let send = async || assert_eq!((&writer).write(b"x").unwrap(), 1);
        assert_edges(&reader, send, |pipe| pipe.get_ref().read(&mut [0; 16])).await;
    });
}

#[test]
fn a_listener_is_readable_once_for_each_connection() {
    run(async {
        let accept = |listener: &dyn AsFd| {
            rustix::net::accept(listener.as_fd())?;
            Ok(0)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = async || drop(TcpStream::connect(address).await.unwrap());
        assert_edges(&listener, connect, |listener| accept(listener)).await;

        let directory = directory();
        let path = directory.path("listener");
        let listener = UnixListener::bind(&path).unwrap();
        let connect = async || drop(UnixStream::connect(&path).await.unwrap());
        assert_edges(&listener, connect, |listener| accept(listener)).await;
        assert!(poll_once(&mut pin!(listener.ready(Interest::WRITABLE))).is_pending());

        assert!(listener.try_io(Interest::READABLE, || accept(&listener)).is_err());
        assert!(poll_once(&mut pin!(listener.readable())).is_pending());
        connect().await;
        listener.readable().await.unwrap();
        listener.accept().await.unwrap();
    });
}

/// An error says nothing of whether there is more.
#[test]
fn an_error_other_than_would_block_ends_no_readiness() {
    run(async {
        let (here, there) = UnixDatagram::pair().unwrap();
        here.send(b"x").await.unwrap();
        there.readable().await.unwrap();
        for kind in [ErrorKind::Interrupted, ErrorKind::OutOfMemory, ErrorKind::Other] {
            let error = there.try_io(Interest::READABLE, || io::Result::<()>::Err(kind.into()));
            assert_eq!(error.unwrap_err().kind(), kind);
            there.readable().await.unwrap();
            let mut attempts = 0;
            let error = there.async_io(Interest::READABLE, || {
                attempts += 1;
                io::Result::<()>::Err(kind.into())
            });
            assert_eq!(error.await.unwrap_err().kind(), kind);
            assert_eq!(attempts, 1, "it is not tried again");
        }
        assert_eq!(there.try_recv(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn a_report_that_comes_while_the_operation_runs_is_not_lost() {
    let _watch = watch();
    let (here, there) = UnixStream::pair().unwrap();
    for _ in 0..100 {
        let blocked = there.try_io(Interest::READABLE, || {
            // The operation has asked the system, and hears that there is nothing. Then there is.
            here.try_write(b"x").unwrap();
            block_on(reported());
            io::Result::<()>::Err(ErrorKind::WouldBlock.into())
        });
        assert!(blocked.is_err());
        assert!(poll_once(&mut pin!(there.readable())).is_ready());
        assert_eq!(there.try_read(&mut [0; 8]).unwrap(), 1);
    }
}

/// The system call was made beside the value, so the value still goes by the report.
#[test]
fn an_operation_that_the_value_does_not_see_ends_no_readiness() {
    run(async {
        let (here, there) = UnixStream::pair().unwrap();
        here.try_write(b"x").unwrap();
        there.readable().await.unwrap();
        assert_eq!(receive(&there).unwrap(), 1);
        assert_eq!(receive(&there).unwrap_err().kind(), ErrorKind::WouldBlock);
        there.readable().await.unwrap();
        let blocked = there.try_io(Interest::READABLE, || receive(&there));
        assert_eq!(blocked.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(poll_once(&mut pin!(there.readable())).is_pending());
    });
}

#[test]
fn all_who_wait_are_woken_by_one_report() {
    let _watch = watch();
    let (here, there) = UnixStream::pair().unwrap();
    let there = Arc::new(there);
    let waiting: Vec<_> = [Interest::READABLE, BOTH, Interest::READABLE]
        .into_iter()
        .map(|interest| {
            let there = there.clone();
            thread::spawn(move || {
                // Room to write is there from the start.
                loop {
                    if block_on(there.ready(interest)).unwrap().is_readable() {
                        break;
                    }
                    thread::yield_now();
                }
            })
        })
        .collect();
    here.try_write(b"x").unwrap();
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Each datagram goes to one of them, and none of them sleeps beside a datagram.
#[test]
fn operations_of_several_tasks_share_what_comes() {
    const DATAGRAMS: usize = 2_000;
    let _watch = watch();
    let (here, there) = UnixDatagram::pair().unwrap();
    let (there, received) = (Arc::new(there), Arc::new(AtomicUsize::new(0)));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (there, received) = (there.clone(), received.clone());
            thread::spawn(move || {
                // An empty datagram is the end, for each reader one.
                while block_on(there.async_io(Interest::READABLE, || receive(&there))).unwrap() > 0
                {
                    received.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    block_on(async {
        for length in (0..DATAGRAMS).map(|_| 1).chain([0; 3]) {
            let sent = here.async_io(Interest::WRITABLE, || {
                Ok(send(&here, &[0; 1][..length], SendFlags::empty())?)
            });
            assert_eq!(sent.await.unwrap(), length);
        }
    });
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(received.load(Relaxed), DATAGRAMS);
}

#[test]
fn a_wait_for_both_directions_ends_with_either() {
    run(async {
        let (here, there) = UnixStream::pair().unwrap();
        assert_eq!(here.ready(BOTH).await.unwrap(), Ready::WRITABLE);
        while here.try_write(&[0; 4096]).is_ok() {}
        reported().await;
        assert!(here.try_write(&[0]).is_err() && here.try_read(&mut [0]).is_err());
        let mut waiting = pin!(here.ready(BOTH));
        assert!(poll_once(&mut waiting).is_pending());
        there.try_write(b"x").unwrap();
        let ready = waiting.await.unwrap();
        assert!(ready.is_readable() && !ready.is_read_closed(), "{ready:?}");
        let both_blocked = here.try_io(BOTH, || {
            assert_eq!(receive(&here).unwrap(), 1);
            io::Result::<()>::Err(ErrorKind::WouldBlock.into())
        });
        assert!(both_blocked.is_err());
        assert!(poll_once(&mut pin!(here.ready(BOTH))).is_pending());
    });
}

#[test]
fn a_peer_that_is_gone_is_reported_as_the_end() {
    run(async {
        let (here, there) = tcp_pair().await;
        here.try_write(b"last").unwrap();
        drop(here);
        // `polling` does not tell the end from data.
        while cfg!(all(target_os = "linux", not(feature = "portable"))) {
            let ready = there.ready(Interest::READABLE).await.unwrap();
            if ready.is_read_closed() {
                assert!(ready.is_readable());
                break;
            }
            // The bytes may be reported before the end, and the end be read before it is reported.
            let _bytes_or_end = there.try_io(Interest::READABLE, || receive(&there));
            thread::yield_now();
        }
        while there.async_io(Interest::READABLE, || receive(&there)).await.unwrap() > 0 {}
        let again = there.async_io(Interest::READABLE, || receive(&there)).await;
        assert_eq!(again.unwrap(), 0, "the end is there for all who ask");

        let (reader, writer) = std::io::pipe().unwrap();
        // Before the first report, which may otherwise come before the end.
        drop(reader);
        let writer = Async::new(writer).unwrap();
        let ready = writer.ready(Interest::WRITABLE).await.unwrap();
        if cfg!(target_os = "linux") {
            assert!(ready.is_write_closed(), "{ready:?}");
        }
        let written = writer.async_io(Interest::WRITABLE, |mut pipe| pipe.write(b"x")).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn an_error_is_reported_to_those_who_wait_for_errors() {
    run(async {
        let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(address).await.unwrap();
        assert!(poll_once(&mut pin!(socket.ready(Interest::ERROR))).is_pending());
        socket.send(b"x").await.unwrap();
        assert_eq!(socket.ready(Interest::ERROR).await.unwrap(), Ready::ERROR);
        let error = socket.try_io(Interest::ERROR, || socket.take_error());
        assert_eq!(error.unwrap().unwrap().kind(), ErrorKind::ConnectionRefused);
        let none = socket.try_io(Interest::ERROR, || match socket.take_error()? {
            None => Err(ErrorKind::WouldBlock.into()),
            Some(error) => Ok(error),
        });
        assert_eq!(none.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(poll_once(&mut pin!(socket.ready(Interest::ERROR))).is_pending());
    });
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn urgent_data_is_reported_to_those_who_wait_for_it() {
    run(async {
        let (here, there) = tcp_pair().await;
        here.try_write(b"x").unwrap();
        there.readable().await.unwrap();
        assert!(poll_once(&mut pin!(there.ready(Interest::PRIORITY))).is_pending());
        send(&here, b"!", SendFlags::OOB).unwrap();
        let mut byte = [0];
        let urgent =
            there.async_io(Interest::PRIORITY, || Ok(recv(&there, &mut byte, RecvFlags::OOB)?.0));
        assert_eq!((urgent.await.unwrap(), byte), (1, *b"!"));
        assert!(there.ready(Interest::PRIORITY).await.unwrap().is_priority());
        let over = || io::Result::<()>::Err(ErrorKind::WouldBlock.into());
        assert!(there.try_io(Interest::PRIORITY, over).is_err());
        assert!(poll_once(&mut pin!(there.ready(Interest::PRIORITY))).is_pending());
        assert_eq!(there.try_read(&mut [0; 8]).unwrap(), 1, "that was not for who reads");
    });
}

/// Dropping a future that waits leaves the report for the next.
#[test]
fn a_wait_that_is_dropped_loses_nothing() {
    run(async {
        let (here, there) = UnixStream::pair().unwrap();
        for _ in 0..100 {
            assert!(poll_once(&mut Box::pin(there.ready(Interest::READABLE))).is_pending());
            let mut reading = Box::pin(there.async_io(Interest::READABLE, || receive(&there)));
            assert!(poll_once(&mut reading).is_pending());
            here.try_write(b"x").unwrap();
            reported().await;
            drop(reading);
            let read = there.async_io(Interest::READABLE, || receive(&there)).await;
            assert_eq!(read.unwrap(), 1);
            assert!(there.try_io(Interest::READABLE, || receive(&there)).is_err());
        }
    });
}

#[test]
fn waiting_spends_the_budget_and_so_does_every_attempt() {
    let _watch = watch();
    let (here, there) = UnixStream::pair().unwrap();
    here.try_write(b"x").unwrap();
    block_on(there.readable()).unwrap();
    let operations = usize::from(OPERATIONS);
    let waits = operations_in_one_poll(async || drop(there.ready(Interest::READABLE).await));
    assert_eq!(waits, operations);
    let peek = || Ok(recv(&there, &mut [0; 8], RecvFlags::PEEK)?.0);
    let attempts = operations_in_one_poll(async || {
        assert_eq!(there.async_io(Interest::READABLE, peek).await.unwrap(), 1);
    });
    assert_eq!(attempts, operations);
}
