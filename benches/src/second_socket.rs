//! How long does a ready socket wait beside an idle worker, while another worker is in the poll of the first one?
//!
//! Two connections, a task each. The client writes to the first, whose task computes for a given time in one poll; in the
//! middle of that, after 200 µs at the latest, it writes to the second, whose task takes the time. Between two trips
//! everything rests for a millisecond, so that all workers sleep. What is not isolated: the kernel's choice of the CPU that
//! a woken worker runs on, which with two CPUs is mostly the client's.

use crate::peers::Peer;
use crate::wake::ask_for_real_time;
use crate::work::{microseconds, spin};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a poll lasts before the second socket is ready, at most.
const INTO_THE_POLL: Duration = Duration::from_micros(200);

/// Microseconds from when the second socket was written to, to when its task had read, for each of so many trips. The poll of
/// the first takes so many microseconds, at so many rounds of [`spin`] each; zero: nothing is written to the first.
///
/// # Panics
///
/// If the peer does not answer.
pub fn run<P: Peer>(trips: usize, poll: u64, rounds_per_microsecond: u64) -> Vec<f64> {
    let (first, over) = serve::<P>(poll * rounds_per_microsecond);
    let (second, read_at) = serve::<P>(0);
    let client = std::thread::spawn(move || {
        ask_for_real_time();
        let [mut first, mut second] = [first, second].map(|address| {
            let stream = TcpStream::connect(address).expect("connects");
            stream.set_nodelay(true).expect("it is a TCP socket");
            stream
        });
        let answer = |from: &mpsc::Receiver<Instant>| from.recv_timeout(Duration::from_secs(60)).expect("it answers");
        (0..trips)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                if poll > 0 {
                    first.write_all(&[1]).expect("it reads");
                    std::thread::sleep(INTO_THE_POLL.min(Duration::from_micros(poll / 2)));
                }
                let sent = Instant::now();
                second.write_all(&[2]).expect("it reads");
                let waited = answer(&read_at) - sent;
                if poll > 0 {
                    answer(&over);
                }
                microseconds(waited)
            })
            .collect()
    });
    client.join().expect("the client does not panic")
}

/// A server for one client, which works for each byte, and says when it had read and worked.
fn serve<P: Peer>(work: u64) -> (SocketAddr, mpsc::Receiver<Instant>) {
    let (done, times) = mpsc::channel();
    let address = P::block_on(async {
        let (listener, address) = P::listen().await.expect("listens on loopback");
        P::spawn_detached(async move {
            let mut stream = P::accept(&listener).await.expect("a client comes");
            while let Ok(1..) = P::read(&mut stream, &mut [0; 1]).await {
                spin(work);
                // The client may be gone.
                let _gone = done.send(Instant::now());
            }
        });
        address
    });
    (address, times)
}
