//! Work of a known size, and numbers made of samples.

use std::hint::black_box;
use std::time::Instant;

/// So many rounds of arithmetic that the compiler cannot shorten.
pub fn spin(rounds: u64) {
    let mut x = 1_u64;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// How many rounds of [`spin`] take a microsecond here and now: the best of several tries, so that a preemption does
/// not count. Counted in rounds and not by the clock, work that is interrupted is still the same work.
pub fn rounds_per_microsecond() -> u64 {
    const ROUNDS: u64 = 200_000;
    let best = (0..20).map(|_| {
        let start = Instant::now();
        spin(ROUNDS);
        start.elapsed()
    });
    let best = best.min().unwrap_or_default().as_secs_f64();
    (ROUNDS as f64 / (best * 1e6)).round() as u64
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
