//! The smallest program: a future that is run, and a task beside it.
//!
//! ```sh
//! cargo run --example hello
//! ```

use std::io;

fn main() -> io::Result<()> {
    // Runs a future on this thread until it is done. The first call starts the default runtime, which has a worker for
    // each CPU that the process may use, or as many as the environment variable `GIVEWAY_WORKERS` says.
    giveway::block_on(async {
        // A task runs on the workers from now on, whether anybody awaits it or not.
        let task = giveway::spawn(async {
            // Inside of a task there is always a worker; `None` is for threads that are none.
            giveway::task::worker()
        });
        println!("hello from the main thread");

        // Awaiting the handle gives what the future returned, or a `JoinError` if the task panicked or was aborted. That
        // one turns into an `io::Error`, so `?` is enough.
        match task.await? {
            Some(worker) => println!("hello from worker {worker}"),
            None => println!("hello from nowhere"),
        }
        Ok(())
    })
}
