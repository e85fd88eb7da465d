//! Helpers of the tests of sockets and timers.

use futures::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use giveway::Runtime;
use giveway::budget::unconstrained;
use giveway::net::{TcpListener, TcpStream};
use giveway::time::{Duration, Sleep, sleep};
use giveway_tests::Gate;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// Longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// More bytes than the buffers of a connection hold. A task that writes them to a peer that does
/// not read has to wait.
pub(crate) const TOO_MUCH: usize = 32 << 20;

/// Returns the two ends of a connection: first the one that connected, then the one that accepted.
pub(crate) async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Reads until the end, and returns the number of bytes. Each must be `byte`, and there must be at
/// most `most` of them.
///
/// (`read_to_end` fills its buffer byte by byte, and takes minutes for some megabytes without
/// optimization.)
pub(crate) async fn read_all_of(
    mut stream: impl AsyncRead + Unpin,
    byte: u8,
    most: usize,
) -> usize {
    let (expected, mut buffer, mut all) = (vec![byte; 1 << 16], vec![0; 1 << 16], 0);
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return all,
            read => {
                assert!(buffer[..read] == expected[..read], "not what was sent");
                all += read;
            }
        }
        assert!(all <= most, "more than was sent");
    }
}

/// Sends back what it receives, until the peer is done.
pub(crate) async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
}

/// Spawns a task that accepts connections, and one for each connection that echoes. Returns the
/// address of the listener.
pub(crate) async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    giveway::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            giveway::spawn(echo(stream));
        }
    });
    address
}

/// Sends `trips` messages, each different, and receives each before it sends the next.
pub(crate) async fn round_trips(stream: &mut TcpStream, name: usize, trips: usize) {
    for trip in 0..trips {
        let message = ((name as u128) << 64 | trip as u128).to_ne_bytes();
        stream.write_all(&message).await.unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, message, "connection {name}, message {trip}");
    }
}

/// Awaits `future`, and opens `gate` after its first poll. At that moment `future` waits, unless it
/// was ready at its first poll.
pub(crate) async fn telling<F: Future>(gate: Gate, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let poll = future.as_mut().poll(cx);
        gate.open();
        poll
    })
    .await
}

/// Counts how often it is woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self::default());
        let waker = Waker::from(wakes.clone());
        (wakes, waker)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls `sleep` once, without the budget of the calling task: a spent budget would wake `waker` as
/// well.
pub(crate) fn poll_with(sleep: &mut Sleep, waker: &Waker) -> Poll<()> {
    Pin::new(&mut unconstrained(sleep)).poll(&mut Context::from_waker(waker))
}

/// Returns a sleep that waits in `runtime`, and the counter of its wake-ups.
pub(crate) fn waiting_in(runtime: &Runtime, duration: Duration) -> (Sleep, Arc<Wakes>) {
    let _inside = runtime.enter();
    loop {
        let (mut sleep, (wakes, waker)) = (sleep(duration), Wakes::new());
        // If the machine stood still after the sleep was made, its time is over already and it does
        // not wait.
        if poll_with(&mut sleep, &waker).is_pending() {
            return (sleep, wakes);
        }
    }
}

/// Numbers that look random, and are the same in every run.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}
