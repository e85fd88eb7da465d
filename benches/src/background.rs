//! Background work for the other benchmarks: tasks that want every CPU and work in chunks, and what
//! they do after each chunk.

use crate::crew::Crew;
use crate::peers::Peer;
use crate::work::{spin, spin_locked};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The load of a run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The number of background tasks.
    pub background: usize,
    /// The rounds of [`spin`] in a chunk of background work.
    pub chunk: u64,
    /// The rounds of [`spin`] that a request costs: 20 µs.
    pub work: u64,
    /// What the background tasks do after each chunk.
    pub jobs: Jobs,
    /// Whether a quarter of each chunk, and of the work for each request, is under one lock.
    pub locked: bool,
    /// Wake-ups or requests a second.
    pub rate: u32,
    /// How long they come.
    pub time: Duration,
}

impl Load {
    /// Returns the function that does the work of chunks and requests.
    pub fn spin(&self) -> fn(u64) {
        if self.locked { spin_locked } else { spin }
    }

    /// Returns the number of wake-ups or requests in all.
    pub fn events(&self) -> u32 {
        (self.time.as_secs_f64() * f64::from(self.rate)) as u32
    }
}

/// What background tasks do after each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// They are background tasks, if the peer has such a class, and await its politest yield point.
    Polite,
    /// They are tasks like all others, and await `yield_now`.
    Plain,
    /// They are background tasks, and await `yield_now`: a chunk is one poll without a yield point.
    Stubborn,
    /// They are background tasks, and never return from their first poll.
    Endless,
    /// They are tasks like all others, and never return from their first poll.
    PlainEndless,
}

/// The background tasks of a load.
#[expect(missing_debug_implementations, reason = "not every peer's handles have one")]
pub struct Background<P: Peer> {
    crew: Crew<P>,
    chunks: Vec<Arc<CachePadded<AtomicU64>>>,
}

impl<P: Peer> Background<P> {
    /// Starts them on a peer that has been started.
    pub fn start(load: Load) -> Self {
        // A counter for each task: a cache line that all CPUs write would cost more than the yields
        // that are compared.
        let mut chunks = Vec::new();
        let crew = Crew::start(load.background, |stop| {
            let done = Arc::new(CachePadded::new(AtomicU64::new(0)));
            chunks.push(done.clone());
            let chunk = move || {
                load.spin()(load.chunk);
                done.fetch_add(1, Relaxed);
                stop.load(Relaxed)
            };
            match load.jobs {
                Jobs::Polite => P::spawn_background(async move {
                    while !chunk() {
                        P::polite_yield().await;
                    }
                }),
                Jobs::Plain => P::spawn(async move {
                    while !chunk() {
                        P::yield_now().await;
                    }
                }),
                Jobs::Stubborn => P::spawn_background(async move {
                    while !chunk() {
                        P::yield_now().await;
                    }
                }),
                Jobs::Endless => P::spawn_background(async move { while !chunk() {} }),
                Jobs::PlainEndless => P::spawn(async move { while !chunk() {} }),
            }
        });
        // The tasks need some time to settle: those that share a queue find out that all are
        // polite.
        std::thread::sleep(Duration::from_millis(100));
        Self { crew, chunks }
    }

    /// Returns the chunks a second that are done while `f` runs.
    pub fn chunks_during(&self, f: impl FnOnce()) -> f64 {
        let (before, start) = (self.chunks(), Instant::now());
        f();
        (self.chunks() - before) as f64 / start.elapsed().as_secs_f64()
    }

    fn chunks(&self) -> u64 {
        self.chunks.iter().map(|done| done.load(Relaxed)).sum()
    }

    /// Stops the tasks, and waits until they have ended.
    pub fn end(self) {
        self.crew.end();
    }
}
