//! A socket that always has something does not keep its thread.

use super::{run, tcp_pair, watch};
use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway_budget::{OPERATIONS, with_budget};
use giveway_io::net::{TcpListener, UdpSocket, UnixStream};
use std::cell::Cell;
use std::future::Future;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::thread;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls a task that repeats `operation` for ever once, as an executor with a budget does. Returns
/// how often it did it.
pub(crate) fn operations_in_one_poll(mut operation: impl AsyncFnMut()) -> usize {
    let done = Cell::new(0);
    let mut task = pin!(async {
        loop {
            operation().await;
            done.set(done.get() + 1);
        }
    });
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    assert!(
        with_budget(OPERATIONS, || task.as_mut().poll(&mut Context::from_waker(&waker)))
            .is_pending()
    );
    assert_eq!(wakes.0.load(SeqCst), 1, "it wants to go on");
    let first = done.get();
    assert!(
        with_budget(OPERATIONS, || task.as_mut().poll(&mut Context::from_waker(&waker)))
            .is_pending()
    );
    assert_eq!(done.get(), 2 * first, "and goes on with the next budget");
    first
}

#[test]
fn reading_stops_when_the_budget_is_spent() {
    let _watch = watch();
    let (client, server) = block_on(tcp_pair());
    block_on((&client).write_all(&[0; 4096])).unwrap();
    block_on(server.peek(&mut [0])).unwrap();
    let read = operations_in_one_poll(async || {
        (&server).read_exact(&mut [0]).await.unwrap();
    });
    assert_eq!(read, usize::from(OPERATIONS));
}

#[test]
fn waiting_and_trying_stop_when_the_budget_is_spent() {
    let _watch = watch();
    let (client, server) = block_on(tcp_pair());
    block_on((&client).write_all(&[0; 4096])).unwrap();
    block_on(server.readable()).unwrap();
    let read = operations_in_one_poll(async || {
        server.readable().await.unwrap();
        server.try_read(&mut [0]).unwrap();
    });
    assert_eq!(read, usize::from(OPERATIONS));
}

#[test]
fn accepting_stops_when_the_budget_is_spent() {
    let _watch = watch();
    let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let addr = listener.local_addr().unwrap();
    let _clients: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    let accepted = operations_in_one_poll(async || {
        listener.accept().await.unwrap();
    });
    assert_eq!(accepted, usize::from(OPERATIONS));
}

#[test]
fn sending_stops_when_the_budget_is_spent() {
    let _watch = watch();
    let (here, _there) = UnixStream::pair().unwrap();
    let written = operations_in_one_poll(async || {
        (&here).write_all(&[0]).await.unwrap();
    });
    assert_eq!(written, usize::from(OPERATIONS));

    let socket = block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
    let addr = socket.local_addr().unwrap();
    let sent = operations_in_one_poll(async || {
        socket.send_to(b"x", addr).await.unwrap();
    });
    assert_eq!(sent, usize::from(OPERATIONS));
}

/// An operation that waits costs nothing: it is given back to the budget.
#[test]
fn waiting_spends_nothing() {
    let _watch = watch();
    let (_here, there) = UnixStream::pair().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    with_budget(2, || {
        for _ in 0..10 {
            assert!(pin!((&there).read(&mut [0])).poll(&mut cx).is_pending());
            assert_eq!(giveway_budget::remaining(), Some(2));
        }
    });
}

/// A peer writes without end. The reader's neighbour on the same thread gets its turn all the same.
#[test]
fn no_starvation_beside_a_peer_that_writes_without_end() {
    let stop = Arc::new(AtomicBool::new(false));
    let (client, mut server) = run(tcp_pair());
    let peer = thread::spawn({
        let stop = stop.clone();
        let mut client = client.into_std().unwrap();
        client.set_nonblocking(false).unwrap();
        move || while !stop.load(SeqCst) && client.write_all(&[0; 1 << 16]).is_ok() {}
    });
    let _watch = watch();
    let mut reads = 0;
    let mut reader = Box::pin(async {
        while server.read(&mut [0; 64]).await.unwrap() > 0 {
            reads += 1;
        }
    });
    let waker = Waker::from(Arc::new(Wakes::default()));
    let turns_of_the_neighbour = (0..100)
        .inspect(|_| {
            let mut cx = Context::from_waker(&waker);
            assert!(
                with_budget(OPERATIONS, || reader.as_mut().poll(&mut cx)).is_pending(),
                "it has no end"
            );
        })
        .count();
    drop(reader);
    assert_eq!(turns_of_the_neighbour, 100);
    assert!(reads <= 100 * usize::from(OPERATIONS), "{reads}");
    stop.store(true, SeqCst);
    drop(server);
    peer.join().unwrap();
}
