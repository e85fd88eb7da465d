//! How soon does a foreground task run after it was woken, beside background tasks that want every core?
//!
//! A thread that is none of the runtime's sends into a channel at fixed times (open loop: it does not wait for answers,
//! and a late wake-up does not put off the next); a foreground task receives. The latency is taken from the time at
//! which it was to be sent, so what delays the sender counts too: it asks for real-time priority, and the table says if
//! it was refused. The background works in chunks of a fixed amount of arithmetic with the peer's politest yield
//! after each. Its throughput is compared with the same tasks alone, in the same run.

use crate::background::{Background, Load};
use crate::peers::Peer;
use crate::work::microseconds;
use futures::StreamExt;
use futures::channel::mpsc;
use std::time::{Duration, Instant};

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Microseconds from when a message was to be sent to when it was received, each.
    pub latencies: Vec<f64>,
    /// The part of it before the message was sent: what the sender's own thread was late.
    pub lateness: Vec<f64>,
    /// Chunks a second of background work beside the foreground.
    pub beside: f64,
    /// Chunks a second of the same background work alone.
    pub alone: f64,
}

/// Runs the load on a peer that was started.
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

/// How long after it was due each message was received, and how long after that it was sent; in microseconds.
fn wake_ups<P: Peer>(load: Load) -> (Vec<f64>, Vec<f64>) {
    // A channel whose sender never waits for the receiver. Others spin while the receiver is in the middle of something,
    // and a real-time thread that has just taken the receiver's CPU then spins for milliseconds.
    let (sender, mut receiver) = mpsc::unbounded::<(Instant, Instant)>();
    let wake_ups = load.events();
    let receive = async move {
        let mut samples = (Vec::with_capacity(wake_ups as usize), Vec::with_capacity(wake_ups as usize));
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
            // Not a spin: it would take a core from the background.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            sender.unbounded_send((due, Instant::now().max(due))).expect("the receiver is there");
        }
    });
    sending.join().expect("the sender does not panic");
    P::block_on(receiving.expect("it was spawned above"))
}

/// Gives the calling thread real-time priority. False if the system refuses.
pub fn ask_for_real_time() -> bool {
    // SAFETY: an all-zero `sched_param` is a valid value of a plain C struct.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 10;
    // SAFETY: `param` is a readable `sched_param`, and zero is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0 }
}
