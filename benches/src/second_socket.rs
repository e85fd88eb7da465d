//! How long does a ready socket wait beside an idle worker, while another worker is in the poll
//! that the socket before it began?
//!
//! There are two connections, each with a task. The client writes to the first, whose task computes
//! for a given time in one poll. In the middle of that poll, but at most 200 µs after its first
//! write, the client writes to the second, whose task notes when it has read. Between two trips
//! everything rests for a millisecond, so that all workers sleep.
//!
//! Not isolated: the kernel's choice of the CPU on which a woken worker runs. With two CPUs this is
//! mostly the client's.

use crate::peers::Peer;
use crate::wake::ask_for_real_time;
use crate::work::{microseconds, spin};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The longest time from the write to the first socket to the write to the second.
const INTO_THE_POLL: Duration = Duration::from_micros(200);

/// Returns, for each of `trips` trips, the microseconds from the write to the second socket until
/// its task has read. The poll of the first task takes `poll` microseconds, at
/// `rounds_per_microsecond` rounds of [`spin`] each. If `poll` is zero, the client writes nothing
/// to the first socket.
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
        let answer = |from: &mpsc::Receiver<Instant>| {
            from.recv_timeout(Duration::from_secs(60)).expect("it answers")
        };
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

/// Starts a server for one client, which does `work` rounds of [`spin`] for each byte. Returns its
/// address, and a channel of the times at which it had read a byte and worked for it.
fn serve<P: Peer>(work: u64) -> (SocketAddr, mpsc::Receiver<Instant>) {
    let (done, times) = mpsc::channel();
    let address = P::block_on(async {
        let (listener, address) = P::listen().await.expect("listens on loopback");
        P::spawn_detached(async move {
            let mut stream = P::accept(&listener).await.expect("a client comes");
            while let Ok(1..) = P::read(&mut stream, &mut [0; 1]).await {
                spin(work);
                // The client may have ended.
                let _gone = done.send(Instant::now());
            }
        });
        address
    });
    (address, times)
}
