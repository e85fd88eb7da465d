//! What the tests of sockets and timers share.

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

/// More than the buffers of a connection hold: who writes as much to a peer that does not read has to wait.
pub(crate) const TOO_MUCH: usize = 32 << 20;

/// A connection: who connected, and who accepted.
pub(crate) async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Reads until the end, which must come after so many bytes at the latest. All are `byte`. Says how many there were.
///
/// (`read_to_end` fills its buffer byte by byte, and takes minutes for some megabytes without optimization.)
pub(crate) async fn read_all_of(mut stream: impl AsyncRead + Unpin, byte: u8, most: usize) -> usize {
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

/// Sends back whatever comes, until the peer is done.
pub(crate) async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
}

/// A task that accepts, and one for each connection that echoes.
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

/// Sends so many messages, each different, and gets each back before the next.
pub(crate) async fn round_trips(stream: &mut TcpStream, name: usize, trips: usize) {
    for trip in 0..trips {
        let message = ((name as u128) << 64 | trip as u128).to_ne_bytes();
        stream.write_all(&message).await.unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, message, "connection {name}, message {trip}");
    }
}

/// `future`, which opens `gate` after its first poll: it waits then, unless it was over before it came to that.
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

/// Polls once. Not within the budget of a task, whose end would be a wake-up of its own.
pub(crate) fn poll_with(sleep: &mut Sleep, waker: &Waker) -> Poll<()> {
    Pin::new(&mut unconstrained(sleep)).poll(&mut Context::from_waker(waker))
}

/// A sleep that waits in this runtime, and who it wakes.
pub(crate) fn waiting_in(runtime: &Runtime, duration: Duration) -> (Sleep, Arc<Wakes>) {
    let _inside = runtime.enter();
    loop {
        let (mut sleep, (wakes, waker)) = (sleep(duration), Wakes::new());
        // On a machine that stood still since it was made, it is over already, and nobody waits.
        if poll_with(&mut sleep, &waker).is_pending() {
            return (sleep, wakes);
        }
    }
}

/// Numbers that look random, the same in every run.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}
