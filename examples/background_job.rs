//! A job that keeps every worker busy, beside a ticker that has to be on time.
//!
//! The job builds an index of words. It has one task per worker; each task builds one shard. Beside
//! it a ticker is due every millisecond. If the job has no yield points, the ticker waits until a
//! whole shard is done. With a yield point after each document, the ticker waits for one document
//! at most, and the job takes about as long as before.
//!
//! ```sh
//! cargo run --example background_job
//! cargo run --release --example background_job
//! ```
//!
//! In a debug build the runtime also reports long polls on standard error: those of the job without
//! yield points.

use giveway::Handle;
use giveway::task::JoinSet;
use giveway::time::{Duration, Instant, interval};
use std::collections::HashMap;
use std::io;

const TICKS: usize = 200;
const DOCUMENTS: u32 = if cfg!(debug_assertions) { 8_000 } else { 40_000 };

type Index = HashMap<String, Vec<u32>>;

fn main() -> io::Result<()> {
    println!("{TICKS} ticks, one a millisecond. How late do they come?\n");
    println!("{:<26} {:>10} {:>10} {:>10} {:>12}", "", "median", "p99", "worst", "job took");
    giveway::block_on(async {
        report("the ticker alone", ticker().await, None);
        // The runtime cannot interrupt a loop that contains no await.
        measure("no yield points", false).await?;
        // The same job with one more line.
        measure("with yield_now_if_busy", true).await
    })
}

async fn measure(what: &str, polite: bool) -> io::Result<()> {
    let ticks = giveway::spawn(ticker());
    let start = Instant::now();
    let shards = Handle::current().workers();
    let mut job = JoinSet::new();
    for _ in 0..shards {
        job.spawn(build_index(polite));
    }
    let mut words = 0;
    while let Some(index) = job.join_next().await {
        words += index?.values().map(Vec::len).sum::<usize>();
    }
    let took = start.elapsed();
    report(what, ticks.await?, Some((took, words)));
    Ok(())
}

/// Indexes the documents of one shard.
async fn build_index(polite: bool) -> Index {
    let mut index = Index::new();
    for document in 0..DOCUMENTS {
        add(&mut index, document); // some tens of microseconds
        if polite {
            // Costs about a nanosecond if no task waits for this worker. If one does, this task
            // gives way and goes on when no other task is runnable.
            giveway::yield_now_if_busy().await;
        }
    }
    index
}

/// Makes up a document and adds its words to the index.
fn add(index: &mut Index, document: u32) {
    let mut seed = document;
    for _ in 0..100 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        index.entry(format!("word {}", seed >> 20)).or_default().push(document);
    }
}

/// Ticks, and records how late each tick was. A missed tick is not skipped: it comes late.
async fn ticker() -> Vec<Duration> {
    let mut interval = interval(Duration::from_millis(1));
    let mut lateness = Vec::with_capacity(TICKS);
    for _ in 0..TICKS {
        let due = interval.tick().await;
        lateness.push(due.elapsed());
    }
    lateness
}

fn report(what: &str, mut lateness: Vec<Duration>, job: Option<(Duration, usize)>) {
    lateness.sort();
    let late = |percent: usize| format!("{:.1?}", lateness[(lateness.len() - 1) * percent / 100]);
    let job = job.map_or(String::new(), |(took, words)| format!("{took:>12.1?}, {words} words"));
    println!("{what:<26} {:>10} {:>10} {:>10} {job}", late(50), late(99), late(100));
}
