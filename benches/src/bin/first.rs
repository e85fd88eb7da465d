//! What does the first overrun of a spawn location cost?
//!
//! `cargo run --release -p giveway-benches --bin first`
//!
//! Two workers, and two background tasks that compute for 10 ms at a time and reach no yield point.
//! Meanwhile a real-time thread sends into a channel every 200 µs, and a foreground task receives.
//! The figure is the time of the slowest message, from when it was sent: in the first tenth of a
//! second, and in the second. Giveway's tasks are spawned at 16 locations in turn, each of which is
//! new to the runtime in its first tenth of a second, and known in the second. Rounds are
//! interleaved.
//!
//! Not isolated: the kernel's and the host's part. The second arm shows it: two tokio runtimes, one
//! of them at nice 19, which have nothing to learn.

use futures::StreamExt;
use futures::channel::mpsc;
use giveway_benches::peers::{Giveway, GivewayBackground, Peer, Tokio, TwoTokios};
use giveway_benches::usage::machine;
use giveway_benches::wake::ask_for_real_time;
use giveway_benches::work::{microseconds, percentile, rounds_per_microsecond, spin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const EVERY: Duration = Duration::from_micros(200);
/// The messages of a round: half of them while the location is new, half when it is known.
const MESSAGES: usize = 1_000;

type Spawn<P> = fn(u64, Arc<AtomicBool>) -> <P as Peer>::Handle<()>;

async fn compute<P: Peer>(rounds: u64, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        spin(rounds);
        P::yield_now().await;
    }
}

/// Returns functions that each spawn at another location: a location is a file, a line and a
/// column.
fn locations<P: Peer>() -> [Spawn<P>; 16] {
    [
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
        |rounds, stop| P::spawn_background(compute::<P>(rounds, stop)),
    ]
}

/// The slowest message of each round in µs, while the location is new and when it is known.
#[derive(Default)]
struct Slowest {
    new: Vec<f64>,
    known: Vec<f64>,
}

fn main() {
    Giveway::start(WORKERS);
    Tokio::start(WORKERS);
    TwoTokios::<false>::start(WORKERS);
    let chunk = 10_000 * rounds_per_microsecond(WORKERS);
    let before = machine().stolen;
    let (mut ours, mut theirs) = (Slowest::default(), Slowest::default());
    for (ours_at, theirs_at) in
        locations::<GivewayBackground>().into_iter().zip(locations::<TwoTokios<false>>())
    {
        round::<GivewayBackground>(ours_at, chunk, &mut ours);
        round::<TwoTokios<false>>(theirs_at, chunk, &mut theirs);
    }
    println!(
        "The slowest wake-up beside background polls of 10 ms, in µs, over {} rounds\n",
        ours.new.len()
    );
    println!(
        "| | first 0.1 s, median | highest | second 0.1 s, median | highest \
         |\n|---|---|---|---|---|"
    );
    for (name, slowest) in
        [(GivewayBackground::NAME, &mut ours), (TwoTokios::<false>::NAME, &mut theirs)]
    {
        let [new, new_max] = [0.5, 1.0].map(|part| percentile(&mut slowest.new, part));
        let [known, known_max] = [0.5, 1.0].map(|part| percentile(&mut slowest.known, part));
        println!("| {name} | {new:.0} | {new_max:.0} | {known:.0} | {known_max:.0} |");
    }
    println!("\nstolen: {:?}", machine().stolen - before);
}

fn round<P: Peer>(spawn: Spawn<P>, chunk: u64, slowest: &mut Slowest) {
    let (sender, mut receiver) = mpsc::unbounded::<Instant>();
    let receive = async move {
        let mut latencies = Vec::with_capacity(MESSAGES);
        while let Some(sent) = receiver.next().await {
            latencies.push(microseconds(sent.elapsed()));
        }
        latencies
    };
    let stop = Arc::new(AtomicBool::new(false));
    let sending = std::thread::spawn(move || {
        ask_for_real_time();
        let start = Instant::now() + Duration::from_millis(10);
        for n in 0..MESSAGES as u32 {
            std::thread::sleep((start + EVERY * n).saturating_duration_since(Instant::now()));
            sender.unbounded_send(Instant::now()).expect("the receiver is there");
        }
    });
    let mut receiving = None;
    P::block_on(async { receiving = Some(P::spawn(receive)) });
    // The messages come already when the first of the tasks is polled.
    std::thread::sleep(Duration::from_millis(20));
    let mut tasks = Vec::new();
    P::block_on(async { tasks.extend((0..WORKERS).map(|_| spawn(chunk, stop.clone()))) });
    sending.join().expect("the sender does not panic");
    let latencies = P::block_on(receiving.expect("it was spawned above"));
    stop.store(true, Relaxed);
    for task in tasks {
        P::block_on(task);
    }
    let (new, known) = latencies.split_at(MESSAGES / 2);
    let worst = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    slowest.new.push(worst(new));
    slowest.known.push(worst(known));
}
