//! Ends that come early: timeouts, `select!`, `abort`, sets of tasks, and the shutdown of a runtime.
//!
//! A future is cancelled by dropping it: it stops at the await where it is, and the destructors of what it holds run. A task
//! is cancelled by its handle, and *not* by dropping the handle.
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

/// Says when and where it is dropped.
struct Guard(&'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        // Where the task would have run: on a worker, with the task's own id. Nothing can be awaited in here. To tidy up
        // with more awaits, spawn a task that does it.
        let place = if task::try_id().is_some() { "in its task" } else { "in block_on" };
        println!("  {} is dropped {place}, on the thread {:?}", self.0, thread::current().name().unwrap_or("?"));
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
    // This one merely waits. It is dropped.
    runtime.spawn(wait_for_ever("a task that waits"));
    // This one blocks its thread, and nobody can stop it: the report names it.
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
    drop(release); // its thread ends by itself now
    Ok(())
}

async fn futures_that_are_dropped() {
    println!("timeout");
    // When the time is over the future is dropped with the timeout.
    match timeout(Duration::from_millis(20), wait_for_ever("a slow future")).await {
        Ok(()) => println!("  done in time"),
        Err(elapsed) => println!("  {elapsed}"),
    }
    // To try again later, lend it instead: then it goes on where it was.
    let mut slow = pin!(sleep(Duration::from_millis(30)).map(|()| "done"));
    while timeout(Duration::from_millis(20), &mut slow).await.is_err() {
        println!("  not yet");
    }

    println!("select!");
    // The first to be ready wins. The other is dropped at the end of its scope.
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
    sleep(Duration::from_millis(1)).await; // it starts meanwhile, most likely
    // Takes effect at the await where the task is, or at its next one.
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
    // They come in the order in which they finish.
    for _ in 0..2 {
        if let Some(milliseconds) = set.join_next().await {
            println!("  finished: {} ms", milliseconds?);
        }
    }
    println!("  {} still runs, and is aborted: dropping a set does that, and `shutdown` waits for it", set.len());
    set.shutdown().await;
    Ok(())
}
