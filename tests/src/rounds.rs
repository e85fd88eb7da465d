//! How often a stress test repeats its body.

use std::time::{Duration, Instant};

/// How long the rounds of one loop may take, all together.
const BOX: Duration = Duration::from_secs(2);

/// The least number of rounds, however slow they are.
const LEAST: usize = 10;

/// Iterates over the numbers of the rounds of a stress test, from 0: at most `most`, and only as
/// many as fit into two seconds, but at least ten. So on a busy machine a test covers fewer
/// interleavings instead of taking longer.
pub fn rounds(most: usize) -> impl Iterator<Item = usize> {
    let start = Instant::now();
    (0..most).take_while(move |&round| round < LEAST || start.elapsed() < BOX)
}

/// Offers the CPU to other threads `times` times, or for a millisecond if that is less. This orders
/// nothing: it varies where the other threads are when the caller goes on. On a busy machine each
/// offer may take a few milliseconds.
pub fn dawdle(times: usize) {
    let start = Instant::now();
    (0..times)
        .take_while(|_| start.elapsed() < Duration::from_millis(1))
        .for_each(|_| std::thread::yield_now());
}
