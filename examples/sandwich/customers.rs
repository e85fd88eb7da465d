//! The other side: threads that are none of the runtime's send requests and note when the answers come.
//!
//! Each comes at a random time and knows nothing of the others (a Poisson process, from a fixed seed: every act has the same
//! times). So now and then several come at once, as they do at lunch.
//!
//! The time of a request counts from when it was *due*: if the sender is late, or answers pile up, the customer waits all
//! the same. The threads stand for other machines, so the kernel should not let them wait for the kitchen's: they ask for
//! real-time priority. Where that is refused (it takes a privilege) the kitchen's threads step back instead, as anybody may.

use crate::machine;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How many connections share the requests.
const CONNECTIONS: usize = 16;

/// How long an answer may take, and how long after its end an act may go on, before we give up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the caller hears of it.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// When it was to be sent, counted from the beginning of its act.
    pub(crate) due: Duration,
    /// How long after that the answer was there.
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

    /// Sends so many requests a second for so long, and waits for every answer. Tells the time now and then.
    pub(crate) fn order(&self, rate: u32, time: Duration, mut tell: impl FnMut(Duration)) -> io::Result<Vec<Request>> {
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
                    // No spin: it would take a core from the kitchen.
                    sleep((start + due).saturating_duration_since(Instant::now()));
                    (&self.streams[n % CONNECTIONS]).write_all(&(n as u32).to_ne_bytes())?;
                    in_time(start, time)?;
                }
                io::Result::Ok(())
            });
            while !(sender.is_finished() && receivers.iter().all(|receiver| receiver.is_finished())) {
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

/// Says what a socket's timeout means.
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

/// An error if an act that was to take so long has not come to its end long after.
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

/// When requests are due: so many a second on average, at random.
fn times(rate: u32, time: Duration) -> Vec<Duration> {
    let mut random = 0x5a4d_0b1c_u64;
    let mut part = || {
        // Xorshift: good enough for customers.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut times = Vec::new();
    let mut due = 0.0;
    loop {
        // One at least.
        times.push(Duration::from_secs_f64(due));
        due -= (1.0 - part()).ln() / f64::from(rate);
        if due >= time.as_secs_f64() {
            return times;
        }
    }
}
