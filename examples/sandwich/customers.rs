//! The clients: threads outside of the runtime that send requests and record when the answers come.
//!
//! The times of the requests are random and independent of each other (a Poisson process with a
//! fixed seed: every act has the same times). So now and then several requests come at once.
//!
//! The latency of a request counts from when it was *due*: a sender that is late, or answers that
//! pile up, count as waiting. The threads stand for other machines, so they should not compete with
//! the workers for CPUs: they request real-time priority. If the system refuses that (it needs a
//! privilege), the workers lower their own priority instead, which needs none.

use crate::machine;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How many connections share the requests.
const CONNECTIONS: usize = 16;

/// How long an answer may take, and how long after its planned end an act may go on, before the
/// program gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often [`Customers::order`] calls `tell`.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// When it was due, counted from the beginning of its act.
    pub(crate) due: Duration,
    /// How long after that the answer arrived.
    pub(crate) took: Duration,
}

/// Connections to the server.
#[derive(Debug)]
pub(crate) struct Customers {
    streams: Vec<TcpStream>,
}

impl Customers {
    pub(crate) fn come(address: SocketAddr) -> io::Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let streams = (0..CONNECTIONS).map(connect).collect::<io::Result<_>>()?;
        Ok(Self { streams })
    }

    /// Sends `rate` requests a second for `time`, and waits for every answer. Calls `tell` with the
    /// elapsed time, every [`TELL_EVERY`].
    pub(crate) fn order(
        &self,
        rate: u32,
        time: Duration,
        mut tell: impl FnMut(Duration),
    ) -> io::Result<Vec<Request>> {
        let due = &times(rate, time)[..];
        let start = Instant::now() + Duration::from_millis(1);
        scope(|scope| {
            let receivers: Vec<_> = self
                .streams
                .iter()
                .enumerate()
                .map(|(connection, stream)| {
                    let answers = (connection..due.len()).step_by(CONNECTIONS).len();
                    scope.spawn(move || receive(stream, answers, start, due, time).map_err(told))
                })
                .collect();
            let sender = scope.spawn(move || {
                machine::ask_for_real_time();
                for (n, &due) in due.iter().enumerate() {
                    // It sleeps, because spinning would take a CPU from the workers.
                    sleep((start + due).saturating_duration_since(Instant::now()));
                    (&self.streams[n % CONNECTIONS]).write_all(&(n as u32).to_ne_bytes())?;
                    in_time(start, time)?;
                }
                io::Result::Ok(())
            });
            while !(sender.is_finished() && receivers.iter().all(|receiver| receiver.is_finished()))
            {
                tell(start.elapsed());
                sleep(TELL_EVERY);
            }
            tell(start.elapsed());
            sender.join().expect("the sender does not panic").map_err(told)?;
            let mut requests = Vec::with_capacity(due.len());
            for receiver in receivers {
                requests.extend(receiver.join().expect("a receiver does not panic")?);
            }
            requests.sort_unstable_by_key(|request: &Request| request.due);
            Ok(requests)
        })
    }
}

/// Replaces the error of a socket's timeout by one that explains it.
fn told(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let text = format!(
                "a request was not answered within {} seconds: fewer jobs or requests will do",
                PATIENCE.as_secs()
            );
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        _ => error,
    }
}

/// Returns an error if an act that was to take `time` goes on for longer than [`PATIENCE`] after
/// that.
fn in_time(start: Instant, time: Duration) -> io::Result<()> {
    if start.elapsed() > time + PATIENCE { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

fn receive(
    mut stream: &TcpStream,
    answers: usize,
    start: Instant,
    due: &[Duration],
    time: Duration,
) -> io::Result<Vec<Request>> {
    machine::ask_for_real_time();
    let mut answer = [0; 4];
    let mut requests = Vec::with_capacity(answers);
    for _ in 0..answers {
        stream.read_exact(&mut answer)?;
        in_time(start, time)?;
        let answered = start.elapsed();
        let due = due[u32::from_ne_bytes(answer) as usize];
        requests.push(Request { due, took: answered.saturating_sub(due) });
    }
    Ok(requests)
}

/// Computes when the requests are due: at random, on average `rate` a second.
fn times(rate: u32, time: Duration) -> Vec<Duration> {
    let mut random = 0x5a4d_0b1c_u64;
    let mut part = || {
        // Xorshift is random enough here.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut times = Vec::new();
    let mut due = 0.0;
    loop {
        // At least one request.
        times.push(Duration::from_secs_f64(due));
        due -= (1.0 - part()).ln() / f64::from(rate);
        if due >= time.as_secs_f64() {
            return times;
        }
    }
}
