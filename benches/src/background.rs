//! Work that wants every core, beside what is measured: tasks that work in chunks, and what they do after each.

use crate::crew::Crew;
use crate::peers::Peer;
use crate::work::{spin, spin_locked};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a run is made of.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// How many background tasks.
    pub background: usize,
    /// How many rounds of [`spin`] a chunk of the background is.
    pub chunk: u64,
    /// How many rounds a request costs: 20 µs.
    pub work: u64,
    /// What the tasks do after each chunk.
    pub jobs: Jobs,
    /// Whether a quarter of each chunk, and of the work for each request, is under one lock.
    pub locked: bool,
    /// Wake-ups or requests a second.
    pub rate: u32,
    /// How long.
    pub time: Duration,
}

impl Load {
    /// What a chunk of the background, and the work for a request, is made of.
    pub fn spin(&self) -> fn(u64) {
        if self.locked { spin_locked } else { spin }
    }

    /// How many wake-ups or requests there are in all.
    pub fn events(&self) -> u32 {
        (self.time.as_secs_f64() * f64::from(self.rate)) as u32
    }
}

/// What background tasks do after each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// They are of the background, as far as the peer knows such a thing, and come to its politest yield point.
    Polite,
    /// They are like all other tasks, and `yield_now`.
    Plain,
    /// They are of the background, and `yield_now`: a chunk is a poll, and has no yield point in it.
    Stubborn,
    /// They are of the background, and go on: their first poll does not return.
    Endless,
    /// They are like all other tasks, and go on: their first poll does not return.
    PlainEndless,
}

/// The background of a load.
#[expect(missing_debug_implementations, reason = "not every peer's handles have one")]
pub struct Background<P: Peer> {
    crew: Crew<P>,
    chunks: Vec<Arc<CachePadded<AtomicU64>>>,
}

impl<P: Peer> Background<P> {
    /// Starts it on a peer that was started.
    pub fn start(load: Load) -> Self {
        // One each: a line that all cores count on would cost more than the yields that are compared.
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
        // They settle: those that share a queue find out that they are all polite.
        std::thread::sleep(Duration::from_millis(100));
        Self { crew, chunks }
    }

    /// Chunks a second while `f` runs.
    pub fn chunks_during(&self, f: impl FnOnce()) -> f64 {
        let (before, start) = (self.chunks(), Instant::now());
        f();
        (self.chunks() - before) as f64 / start.elapsed().as_secs_f64()
    }

    fn chunks(&self) -> u64 {
        self.chunks.iter().map(|done| done.load(Relaxed)).sum()
    }

    /// Stops it.
    pub fn end(self) {
        self.crew.end();
    }
}
