//! How often a stress test repeats itself.

use std::time::{Duration, Instant};

/// How long the rounds of one loop may take together.
const BOX: Duration = Duration::from_secs(2);

/// Of a loop whose rounds are slow so many are made all the same.
const LEAST: usize = 10;

/// The numbers of the rounds of a stress test, from 0: at most `most`, and as many of them as fit into two seconds, but at
/// least ten. So a machine that is busy makes a test look at fewer interleavings, and not take longer.
pub fn rounds(most: usize) -> impl Iterator<Item = usize> {
    let start = Instant::now();
    (0..most).take_while(move |&round| round < LEAST || start.elapsed() < BOX)
}

/// Lets other threads have the CPU `times` times, or for a millisecond: not to order anything, but so that what comes next
/// finds them in different places. On a busy machine each of the times may be a few milliseconds.
pub fn dawdle(times: usize) {
    let start = Instant::now();
    (0..times).take_while(|_| start.elapsed() < Duration::from_millis(1)).for_each(|_| std::thread::yield_now());
}
