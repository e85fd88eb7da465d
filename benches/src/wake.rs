//! How soon does a foreground task run after it was woken, beside background tasks that want every
//! CPU?
//!
//! A thread outside of the runtime sends into a channel at fixed times, and a foreground task
//! receives. The loop is open: the thread waits for no answer, and a late wake-up does not delay
//! the next. The background works in chunks of a fixed amount of arithmetic, with the peer's
//! politest yield after each. Its throughput is compared with that of the same tasks alone, in the
//! same run.
//!
//! Not isolated: the latency runs from the time at which a message is due, so a late sender adds to
//! it. Therefore the sender asks for real-time priority; `--bin give_way` says if that was refused.

use crate::background::{Background, Load};
use crate::peers::Peer;
use crate::work::microseconds;
use futures::StreamExt;
use futures::channel::mpsc;
use std::time::{Duration, Instant};

/// The figures of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// For each message, the microseconds from when it was due until it was received.
    pub latencies: Vec<f64>,
    /// The part of the latency before the message was sent: how late the sender was.
    pub lateness: Vec<f64>,
    /// Chunks of background work a second, beside the foreground.
    pub beside: f64,
    /// Chunks of the same background work a second, alone.
    pub alone: f64,
}

/// Runs the load on a peer that has been started.
///
/// # Panics
///
/// If the peer loses a message.
pub fn run<P: Peer>(load: Load) -> Outcome {
    let background = Background::<P>::start(load);
    let alone = background.chunks_during(|| std::thread::sleep(load.time / 2));
    let (mut latencies, mut lateness) = (Vec::new(), Vec::new());
    let beside = background.chunks_during(|| (latencies, lateness) = wake_ups::<P>(load));
    background.end();
    Outcome { latencies, lateness, beside, alone }
}

/// Returns, for each message, how long after it was due it was received, and how long after it was
/// due it was sent; in microseconds.
fn wake_ups<P: Peer>(load: Load) -> (Vec<f64>, Vec<f64>) {
    // The sender of this channel never waits for the receiver. In other channels it spins while the
    // receiver is in the middle of an operation. A real-time thread that has just taken the
    // receiver's CPU would then spin for milliseconds.
    let (sender, mut receiver) = mpsc::unbounded::<(Instant, Instant)>();
    let wake_ups = load.events();
    let receive = async move {
        let mut samples =
            (Vec::with_capacity(wake_ups as usize), Vec::with_capacity(wake_ups as usize));
        while let Some((due, sent)) = receiver.next().await {
            samples.0.push(microseconds(due.elapsed()));
            samples.1.push(microseconds(sent - due));
        }
        samples
    };
    let mut receiving = None;
    P::block_on(async { receiving = Some(P::spawn(receive)) });
    let sending = std::thread::spawn(move || {
        ask_for_real_time();
        let start = Instant::now() + Duration::from_millis(1);
        for n in 0..wake_ups {
            let due = start + Duration::from_secs(1) * n / load.rate;
            // A sleep and not a spin, which would take a CPU from the background.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            sender.unbounded_send((due, Instant::now().max(due))).expect("the receiver is there");
        }
    });
    sending.join().expect("the sender does not panic");
    P::block_on(receiving.expect("it was spawned above"))
}

/// Gives the calling thread real-time priority. Returns false if the system refuses.
pub fn ask_for_real_time() -> bool {
    // SAFETY: an all-zero `sched_param` is a valid value of a plain C struct.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 10;
    // SAFETY: `param` is a readable `sched_param`, and zero is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0 }
}
