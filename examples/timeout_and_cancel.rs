//! Cancelling: timeouts, `select!`, `abort`, sets of tasks, and the shutdown of a runtime.
//!
//! A future is cancelled by dropping it: it stops at the await where it is, and its local variables
//! are dropped. A task is cancelled by its handle, and *not* by dropping the handle.
//!
//! ```sh
//! cargo run --example timeout_and_cancel
//! ```

use futures::FutureExt;
use giveway::task::{self, JoinSet};
use giveway::time::{Duration, sleep, timeout};
use std::future::pending;
use std::pin::pin;
use std::sync::mpsc;
use std::{io, thread};

/// Prints when and where it is dropped.
struct Guard(&'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        // The destructors of a task run where the task would have run: on a worker, with the task's
        // own id. A destructor cannot await. If the cleanup has to await something, spawn a task
        // for it.
        let place = if task::try_id().is_some() { "in its task" } else { "in block_on" };
        println!(
            "  {} is dropped {place}, on the thread {:?}",
            self.0,
            thread::current().name().unwrap_or("?")
        );
    }
}

/// Never finishes.
async fn wait_for_ever(name: &'static str) {
    let _guard = Guard(name);
    pending().await
}

fn main() -> io::Result<()> {
    let runtime = giveway::Builder::new().workers(2).build()?;
    runtime.block_on(async {
        futures_that_are_dropped().await;
        tasks_that_are_aborted().await
    })?;

    println!("Runtime::shutdown_timeout");
    // This task waits at an await, so the shutdown drops it.
    runtime.spawn(wait_for_ever("a task that waits"));
    // This job blocks its thread, and cannot be stopped: the report names it.
    let (release, wait) = mpsc::channel::<()>();
    let (started, has_started) = mpsc::channel();
    task::Builder::new().name("slow cook").spawn_blocking_on(
        move || {
            let _ = started.send(());
            let _ = wait.recv();
        },
        runtime.handle(),
    );
    has_started.recv().map_err(io::Error::other)?;
    let report = runtime.shutdown_timeout(Duration::from_millis(100));
    println!("  clean: {}; {report}", report.is_clean());
    drop(release); // the job returns now, and its thread ends
    Ok(())
}

async fn futures_that_are_dropped() {
    println!("timeout");
    // When the time is over, the future is dropped together with the timeout.
    match timeout(Duration::from_millis(20), wait_for_ever("a slow future")).await {
        Ok(()) => println!("  done in time"),
        Err(elapsed) => println!("  {elapsed}"),
    }
    // Pass the future by reference to keep it: it goes on where it was, under the next timeout.
    let mut slow = pin!(sleep(Duration::from_millis(30)).map(|()| "done"));
    while timeout(Duration::from_millis(20), &mut slow).await.is_err() {
        println!("  not yet");
    }

    println!("select!");
    // Runs the branch of the future that is ready first. The other future is dropped at the end of
    // its scope.
    let mut answer = pin!(sleep(Duration::from_millis(10)).map(|()| "an answer").fuse());
    let mut other = pin!(wait_for_ever("the loser").fuse());
    futures::select! {
        answer = answer => println!("  {answer} came first"),
        () = other => {}
    }
}

async fn tasks_that_are_aborted() -> io::Result<()> {
    println!("abort");
    let task = giveway::spawn(wait_for_ever("an aborted task"));
    sleep(Duration::from_millis(1)).await; // the task most likely starts meanwhile
    // Takes effect at the await where the task waits, or at its next one.
    task.abort();
    match task.await {
        Err(error) if error.is_cancelled() => println!("  {error}"),
        Err(panic) => return Err(panic.into()),
        Ok(()) => println!("  it was faster"),
    }

    println!("dropping a handle");
    let (done, wait) = futures::channel::oneshot::channel();
    drop(giveway::spawn(async move { done.send("the task went on without its handle") }));
    println!("  {}", wait.await.map_err(io::Error::other)?);

    println!("JoinSet");
    let mut set = JoinSet::new();
    for milliseconds in [5, 10, 60_000] {
        set.spawn(async move {
            sleep(Duration::from_millis(milliseconds)).await;
            milliseconds
        });
    }
    // `join_next` returns them in the order in which they finish.
    for _ in 0..2 {
        if let Some(milliseconds) = set.join_next().await {
            println!("  finished: {} ms", milliseconds?);
        }
    }
    println!(
        "  {} still runs, and is aborted: dropping a set does that, and `shutdown` waits for it",
        set.len()
    );
    set.shutdown().await;
    Ok(())
}
