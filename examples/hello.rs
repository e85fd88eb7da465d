//! The smallest program: runs one future, and one task beside it.
//!
//! ```sh
//! cargo run --example hello
//! ```

use std::io;

fn main() -> io::Result<()> {
    // Runs a future on this thread until it is done. The first call starts the default runtime. It
    // has one worker for each CPU that the process may use, or as many as the environment variable
    // `GIVEWAY_WORKERS` says.
    giveway::block_on(async {
        // The task starts to run on the workers now. It runs even if nothing awaits its handle.
        let task = giveway::spawn(async {
            // `Some` in a task that a worker polls. `None` on a thread that is not a worker.
            giveway::task::worker()
        });
        println!("hello from the main thread");

        // Awaiting the handle returns the future's output, or a `JoinError` if the task panicked or
        // was aborted. `?` converts the `JoinError` into an `io::Error`.
        match task.await? {
            Some(worker) => println!("hello from worker {worker}"),
            None => println!("hello from nowhere"),
        }
        Ok(())
    })
}
