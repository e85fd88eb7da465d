//! How soon is a request over TCP answered, beside background tasks that want every core?
//!
//! A client that is none of the runtime's, a thread that sends and one that receives, sends requests at fixed times
//! over a few loopback connections (open loop: a late answer does not put off the next request). The server is a task
//! a connection, and works 20 µs for each. The latency is taken from the time at which the request was to be sent to when
//! the client has its answer, so the client, the kernel and the work are in it. The client asks for real-time
//! priority: otherwise the kernel lets it wait behind the workers, and the table would be about that.

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

/// How many connections share the requests.
const CONNECTIONS: usize = 16;

/// The size of a request and of its answer: its number.
const SIZE: usize = 4;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Microseconds from when a request was to be sent to when its answer was there, each.
    pub latencies: Vec<f64>,
    /// Chunks a second of background work beside the requests.
    pub beside: f64,
}

/// Runs the load on a peer that was started.
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

/// Where a request passes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// It was to be sent.
    Due,
    /// The client sends it.
    Sent,
    /// The server has read it.
    Read,
    /// The server has worked for it, and sends the answer.
    Worked,
    /// The client has the answer.
    Answered,
}

/// When each request passed each point.
#[derive(Debug)]
pub struct Stamps {
    start: Instant,
    // Nanoseconds since the start, by the numbers of the requests.
    requests: Vec<[AtomicU64; 5]>,
}

impl Stamps {
    /// For so many requests.
    pub fn new(requests: u32) -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), requests: (0..requests).map(|_| Default::default()).collect() })
    }

    fn note(&self, request: u32, point: Point, time: Instant) {
        let time = time.saturating_duration_since(self.start).as_nanos() as u64;
        // Ordering: relaxed. They are read when all threads have ended, or the answer has come through the kernel.
        self.requests[request as usize][point as usize].store(time, Relaxed);
    }

    /// How long each took from one point to another, in microseconds.
    pub fn between(&self, from: Point, to: Point) -> Vec<f64> {
        let time = |request: &[AtomicU64; 5], point| request[point as usize].load(Relaxed);
        let took = |request| time(request, to).saturating_sub(time(request, from)) as f64 / 1e3;
        self.requests.iter().map(took).collect()
    }
}

/// A server for the connections of one [`client`], which ends with them. It does `rounds` of `work` for each request.
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

/// Sends requests and takes the answers.
///
/// `real_time`: with that priority, if it can be had. Otherwise the client waits for a CPU as the workers do.
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
                // Not a spin: it would take a core from the background.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                stamps.note(n, Point::Sent, Instant::now());
                (&streams[n as usize % CONNECTIONS]).write_all(&n.to_ne_bytes()).expect("the server reads");
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

/// The client's side of the answers.
struct Answers<'a> {
    epoll: OwnedFd,
    streams: &'a [TcpStream],
}

impl<'a> Answers<'a> {
    fn of(streams: &'a [TcpStream]) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor is free");
        for (index, stream) in streams.iter().enumerate() {
            let (data, edges) = (epoll::EventData::new_u64(index as u64), EventFlags::IN | EventFlags::ET);
            epoll::add(&epoll, stream, data, edges).expect("it was not added yet");
        }
        Self { epoll, streams }
    }

    /// So many of them. Calls `note` with the number of each.
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
            assert!(!events.is_empty(), "{} answers are missing after a minute", answers as usize - noted);
            for event in events.drain(..) {
                // Room for more than there are ever under way on one connection: one read takes all.
                let mut bytes = [0; 1024 * SIZE];
                let read = (&self.streams[event.data.u64() as usize]).read(&mut bytes).expect("the server answers");
                assert!(read > 0 && read.is_multiple_of(SIZE), "the server has closed, or cut an answer in two");
                let numbers = bytes[..read].as_chunks::<SIZE>().0;
                numbers.iter().for_each(|&number| note(u32::from_ne_bytes(number)));
                noted += numbers.len();
            }
        }
    }
}
