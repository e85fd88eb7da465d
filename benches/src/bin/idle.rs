//! What does an idle runtime do? (Nothing.)
//!
//! A runtime works, and then has nothing to do, so that it can be looked at from outside:
//!
//! ```sh
//! cargo run --release -p giveway-benches --bin idle -- 64 &    # workers
//! strace -c -f -p PID                                          # the number that it prints
//! ```
//!
//! It ends by itself after ten seconds.

use std::time::Duration;

fn main() {
    let workers = std::env::args()
        .nth(1)
        .map_or(64, |n| n.parse().expect("the first argument is a number of workers"));
    let runtime = giveway::Builder::new().workers(workers).build().expect("a runtime starts");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..100_000).map(|_| giveway::spawn(giveway::yield_now())).collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
    });
    // The monitor stops looking when all workers have been idle for 10 ms.
    std::thread::sleep(Duration::from_millis(500));
    println!("{} is idle with {workers} workers", std::process::id());
    std::thread::sleep(Duration::from_secs(10));
}
