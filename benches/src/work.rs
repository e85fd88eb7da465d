//! Work of a known size, and numbers made of samples.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many rounds of arithmetic that the compiler cannot shorten.
pub fn spin(rounds: u64) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// As [`spin`], the last quarter of it under a lock that all callers share.
pub fn spin_locked(rounds: u64) {
    static LOCK: Mutex<()> = Mutex::new(());
    spin(rounds - rounds / 4);
    let _locked = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    spin(rounds / 4);
}

/// How many rounds of [`spin`] take a microsecond here and now, on so many threads at once: the median of several tries,
/// as the benchmarks run. Counted in rounds and not by the clock, work that is interrupted is still the same work.
///
/// # Panics
///
/// If a thread cannot be started.
pub fn rounds_per_microsecond(threads: usize) -> u64 {
    const ROUNDS: u64 = 500_000;
    let tries = |_| {
        let start = Instant::now();
        spin(ROUNDS);
        ROUNDS as f64 / microseconds(start.elapsed())
    };
    let mut rates: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(move || (0..200).map(tries).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it only counts")).collect()
    });
    percentile(&mut rates, 0.5).round() as u64
}

/// The sample that this part of all samples does not exceed. Sorts them.
///
/// # Panics
///
/// If there are none.
pub fn percentile(samples: &mut [f64], part: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * part).round() as usize]
}

/// A duration in microseconds.
pub fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Calls each of several in turn, so many rounds, and each round begins with the next of them: a slow minute of the machine
/// hits all alike. What each said, round by round.
pub fn interleaved<S, const N: usize>(rounds: usize, peers: [impl Fn() -> S; N]) -> [Vec<S>; N] {
    let mut samples = std::array::from_fn(|_| Vec::with_capacity(rounds));
    for round in 0..rounds {
        for turn in 0..N {
            let peer = (round + turn) % N;
            samples[peer].push(peers[peer]());
        }
    }
    samples
}
