//! Work of a known size, and figures made of samples.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Does `rounds` rounds of arithmetic that the compiler cannot shorten.
pub fn spin(rounds: u64) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Like [`spin`], with the last quarter under a lock that all callers share.
pub fn spin_locked(rounds: u64) {
    static LOCK: Mutex<()> = Mutex::new(());
    spin(rounds - rounds / 4);
    let _locked = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    spin(rounds / 4);
}

/// Returns how many rounds of [`spin`] take a microsecond while `threads` threads work at once: the
/// median of several tries, under the conditions of the benchmarks. Work that is counted in rounds,
/// and not by the clock, stays the same when it is interrupted.
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
        let threads: Vec<_> = (0..threads)
            .map(|_| scope.spawn(move || (0..200).map(tries).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it only counts")).collect()
    });
    percentile(&mut rates, 0.5).round() as u64
}

/// Returns the sample that `part` of all samples do not exceed. Sorts the samples.
///
/// # Panics
///
/// If there are none.
pub fn percentile(samples: &mut [f64], part: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * part).round() as usize]
}

/// Returns a duration in microseconds.
pub fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Calls each of `peers` once in each of `rounds` rounds, and returns what each returned, by round.
/// Each round begins with the next peer, so that a slow minute of the machine affects all peers
/// alike.
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
