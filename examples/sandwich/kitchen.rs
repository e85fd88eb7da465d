//! The program under test: a server and its background jobs, on one runtime.

use crate::machine::thread_time;
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway::Runtime;
use giveway::net::{TcpListener, TcpStream};
use giveway::time::sleep;
use std::hint::black_box;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a request is worked on, and how long a background job works between two yield points.
pub(crate) const CHUNK: Duration = Duration::from_micros(20);

/// How many chunks of work a background job has.
const CHUNKS_OF_A_JOB: u32 = 250;

/// How long a background job takes if it has a CPU to itself: 5 ms.
pub(crate) const JOB: Duration =
    Duration::from_micros(CHUNK.as_micros() as u64 * CHUNKS_OF_A_JOB as u64);

/// What runs in the background while the requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    NeverYields,
    YieldNow,
    YieldNowIfBusy,
    SpawnBackground,
}

impl Act {
    pub(crate) const ALL: [Self; 5] = [
        Self::Nothing,
        Self::NeverYields,
        Self::YieldNow,
        Self::YieldNowIfBusy,
        Self::SpawnBackground,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing in the background",
            Self::NeverYields => "jobs that never yield",
            Self::YieldNow => "yield_now",
            Self::YieldNowIfBusy => "yield_now_if_busy",
            Self::SpawnBackground => "never yield, spawn_background",
        }
    }
}

/// Runs one job after another until `stop` is set. The `yield_now_if_busy` line is all that makes a
/// background job give way.
async fn work_in_the_background(act: Act, chunk: Work, done: Arc<Counter>, stop: Arc<AtomicBool>) {
    loop {
        for _ in 0..CHUNKS_OF_A_JOB {
            if stop.load(Relaxed) {
                return;
            }
            chunk.run();
            done.0.fetch_add(1, Relaxed);
            match act {
                Act::Nothing | Act::NeverYields | Act::SpawnBackground => {}
                Act::YieldNow => giveway::yield_now().await,
                Act::YieldNowIfBusy => giveway::yield_now_if_busy().await,
            }
        }
        // A job has ended and the next one begins. The `yield_now` makes it a new poll, as if a new
        // task had been spawned.
        if matches!(act, Act::NeverYields | Act::SpawnBackground) {
            giveway::yield_now().await;
        }
    }
}

/// Answers each request of four bytes with the same four bytes, after one chunk of work.
async fn serve(mut customer: TcpStream, chunk: Work) -> io::Result<()> {
    customer.set_nodelay(true)?;
    let mut request = [0; 4];
    while customer.read_exact(&mut request).await.is_ok() {
        chunk.run();
        customer.write_all(&request).await?;
    }
    Ok(())
}

/// The server, which also starts the background jobs.
#[derive(Debug)]
pub(crate) struct Kitchen<'a> {
    runtime: &'a Runtime,
    address: SocketAddr,
    chunk: Work,
}

impl<'a> Kitchen<'a> {
    /// Starts the server, on a free port of the loopback address.
    pub(crate) fn open(runtime: &'a Runtime, workers: usize) -> io::Result<Self> {
        let chunk = Work::that_takes(CHUNK, workers)?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((customer, _)) => drop(giveway::spawn(serve(customer, chunk))),
                    // The client left before it was accepted.
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    // Out of descriptors or memory, say. The connection waits until there are some again.
                    Err(error) => {
                        eprintln!("cannot accept: {error}");
                        sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        });
        Ok(Self { runtime, address, chunk })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts `jobs` background jobs, or none in [`Act::Nothing`].
    pub(crate) fn start_background(&self, act: Act, jobs: usize) -> Background {
        let jobs = if act == Act::Nothing { 0 } else { jobs };
        let stop = Arc::new(AtomicBool::new(false));
        let done: Vec<_> = (0..jobs).map(|_| Arc::new(Counter(AtomicU64::new(0)))).collect();
        for done in &done {
            let job = work_in_the_background(act, self.chunk, done.clone(), stop.clone());
            match act {
                Act::SpawnBackground => drop(self.runtime.spawn_background(job)),
                _ => drop(self.runtime.spawn(job)),
            }
        }
        Background { done, stop }
    }
}

/// How many chunks a job has done. Each counter has a cache line of its own: a line that all CPUs
/// write to would cost more than the yields that are compared.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Background jobs that run until [`Self::end`].
#[derive(Debug)]
pub(crate) struct Background {
    done: Vec<Arc<Counter>>,
    stop: Arc<AtomicBool>,
}

impl Background {
    /// Returns how much work the jobs have done, as the CPU time that it takes.
    pub(crate) fn done(&self) -> Duration {
        let chunks: u64 = self.done.iter().map(|done| done.0.load(Relaxed)).sum();
        Duration::from_nanos(chunks * CHUNK.as_nanos() as u64)
    }

    /// Stops each job before its next chunk, and waits until all have stopped.
    pub(crate) fn end(self) {
        self.stop.store(true, Relaxed);
        while self.done.iter().any(|done| Arc::strong_count(done) > 1) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A fixed amount of arithmetic. It is counted in rounds and not by the clock, so that a thread
/// that loses its CPU for a while still does the same amount.
#[derive(Debug, Clone, Copy)]
struct Work {
    rounds: u64,
}

impl Work {
    /// Calibrates the amount of work that takes `time` of CPU time while `threads` threads do it.
    fn that_takes(time: Duration, threads: usize) -> io::Result<Self> {
        const TRY: Work = Work { rounds: 20_000 };
        let tries = || {
            let a_try = |_| {
                let start = thread_time()?;
                TRY.run();
                Ok((thread_time()? - start).as_nanos())
            };
            (0..1_000).map(a_try).collect::<io::Result<Vec<_>>>()
        };
        let times: io::Result<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(tries)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it only counts")).collect()
        });
        let mut times = times?.concat();
        times.sort_unstable();
        let median = times[times.len() / 2].max(1);
        let rounds = u128::from(TRY.rounds) * time.as_nanos() / median;
        Ok(Self { rounds: rounds.max(1) as u64 })
    }

    fn run(self) {
        let mut x = 1_u64;
        for _ in 0..self.rounds {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}
