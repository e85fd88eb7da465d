//! How soon is a request over TCP answered, beside background tasks that want every CPU?
//!
//! The client is outside of the runtime: one thread that sends, and one that receives. It sends
//! requests at fixed times over a few loopback connections. The loop is open: a late answer does
//! not delay the next request. The server has a task for each connection, which works 20 µs for
//! each request. The latency runs from the time at which the request is due until the client has
//! its answer.
//!
//! Not isolated: the client, the kernel and the work are part of the latency. The client asks for
//! real-time priority; otherwise the kernel would let it wait behind the workers, and the figures
//! would be about that.

use crate::background::{Background, Load};
use crate::peers::Peer;
use crate::wake::ask_for_real_time;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The number of connections that share the requests.
const CONNECTIONS: usize = 16;

/// The size in bytes of a request, and of its answer: the number of the request.
const SIZE: usize = 4;

/// The figures of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// For each request, the microseconds from when it was due until its answer was there.
    pub latencies: Vec<f64>,
    /// Chunks of background work a second while the requests came.
    pub beside: f64,
}

/// Runs the load on a peer that has been started.
///
/// # Panics
///
/// If a request is lost.
pub fn run<P: Peer>(load: Load) -> Outcome {
    let stamps = Stamps::new(load.events());
    let address = serve::<P>(load.spin(), load.work, stamps.clone());
    let background = Background::<P>::start(load);
    let beside = background.chunks_during(|| client(address, load, &stamps, true));
    background.end();
    Outcome { latencies: stamps.between(Point::Due, Point::Answered), beside }
}

/// A point on the way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The request is due.
    Due,
    /// The client sends it.
    Sent,
    /// The server has read it.
    Read,
    /// The server has done the work for it, and sends the answer.
    Worked,
    /// The client has the answer.
    Answered,
}

/// The times at which each request passed each point.
#[derive(Debug)]
pub struct Stamps {
    start: Instant,
    /// Nanoseconds since `start`, by the number of the request and by [`Point`]. Written by the
    /// client's threads and the server's tasks, read by [`Self::between`] after the run.
    requests: Vec<[AtomicU64; 5]>,
}

impl Stamps {
    /// Makes room for `requests` requests.
    pub fn new(requests: u32) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            requests: (0..requests).map(|_| Default::default()).collect(),
        })
    }

    fn note(&self, request: u32, point: Point, time: Instant) {
        let time = time.saturating_duration_since(self.start).as_nanos() as u64;
        // Ordering: relaxed. The loads in `between` come after the run: the client's threads have
        // been joined, and a server's task stored its times before it sent the answer that the
        // client has read.
        self.requests[request as usize][point as usize].store(time, Relaxed);
    }

    /// Returns the microseconds that each request took from one point to another.
    pub fn between(&self, from: Point, to: Point) -> Vec<f64> {
        let time = |request: &[AtomicU64; 5], point| request[point as usize].load(Relaxed);
        let took = |request| time(request, to).saturating_sub(time(request, from)) as f64 / 1e3;
        self.requests.iter().map(took).collect()
    }
}

/// Starts a server for the connections of one [`client`], and returns its address. It does `rounds`
/// of `work` for each request, and ends when its connections do.
///
/// # Panics
///
/// If it cannot listen.
pub fn serve<P: Peer>(work: fn(u64), rounds: u64, stamps: Arc<Stamps>) -> SocketAddr {
    P::block_on(async {
        let (listener, address) = P::listen().await.expect("listens on loopback");
        P::spawn_detached(async move {
            for _ in 0..CONNECTIONS {
                let mut stream = P::accept(&listener).await.expect("a client comes");
                let stamps = stamps.clone();
                P::spawn_detached(async move {
                    let mut buffer = [0; 64 * SIZE];
                    let mut have = 0;
                    while let Ok(read @ 1..) = P::read(&mut stream, &mut buffer[have..]).await {
                        have += read;
                        let whole = have / SIZE * SIZE;
                        for request in buffer[..whole].as_chunks::<SIZE>().0 {
                            let number = u32::from_ne_bytes(*request);
                            stamps.note(number, Point::Read, Instant::now());
                            work(rounds);
                            stamps.note(number, Point::Worked, Instant::now());
                            P::write_all(&mut stream, request).await.expect("the client reads");
                        }
                        buffer.copy_within(whole..have, 0);
                        have -= whole;
                    }
                });
            }
        });
        address
    })
}

/// Sends the requests of `load`, and takes the answers. Returns when all are there.
///
/// With `real_time` the client asks for real-time priority. Otherwise, or if the system refuses, it
/// waits for a CPU as the workers do.
///
/// # Panics
///
/// If a request is lost.
pub fn client(address: SocketAddr, load: Load, stamps: &Stamps, real_time: bool) {
    let streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    let answers = Answers::of(&streams);
    let start = Instant::now() + Duration::from_millis(1);
    let begin = || real_time && ask_for_real_time();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin();
            answers.take(load.events(), |n| stamps.note(n, Point::Answered, Instant::now()));
        });
        scope.spawn(|| {
            begin();
            for n in 0..load.events() {
                let due = start + Duration::from_secs(1) * n / load.rate;
                stamps.note(n, Point::Due, due);
                // A sleep and not a spin, which would take a CPU from the background.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                stamps.note(n, Point::Sent, Instant::now());
                (&streams[n as usize % CONNECTIONS])
                    .write_all(&n.to_ne_bytes())
                    .expect("the server reads");
            }
        });
    });
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_nodelay(true).expect("it is a TCP socket");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a TCP socket");
    stream
}

/// The receiving side of the client.
struct Answers<'a> {
    epoll: OwnedFd,
    streams: &'a [TcpStream],
}

impl<'a> Answers<'a> {
    fn of(streams: &'a [TcpStream]) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor is free");
        for (index, stream) in streams.iter().enumerate() {
            let (data, edges) =
                (epoll::EventData::new_u64(index as u64), EventFlags::IN | EventFlags::ET);
            epoll::add(&epoll, stream, data, edges).expect("it was not added yet");
        }
        Self { epoll, streams }
    }

    /// Takes `answers` answers, and calls `note` with the number of each.
    fn take(&self, answers: u32, note: impl Fn(u32)) {
        let mut noted = 0;
        let mut events = Vec::with_capacity(CONNECTIONS);
        while noted < answers as usize {
            events.clear();
            let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Err(Errno::INTR) => continue,
                result => result.expect("it is an epoll descriptor"),
            };
            assert!(
                !events.is_empty(),
                "{} answers are missing after a minute",
                answers as usize - noted
            );
            for event in events.drain(..) {
                // Room for more answers than one connection ever has under way, so one read takes
                // all.
                let mut bytes = [0; 1024 * SIZE];
                let read = (&self.streams[event.data.u64() as usize])
                    .read(&mut bytes)
                    .expect("the server answers");
                assert!(
                    read > 0 && read.is_multiple_of(SIZE),
                    "the server has closed, or cut an answer in two"
                );
                let numbers = bytes[..read].as_chunks::<SIZE>().0;
                numbers.iter().for_each(|&number| note(u32::from_ne_bytes(number)));
                noted += numbers.len();
            }
        }
    }
}
