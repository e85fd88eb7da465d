//! Foreground and background tasks: which run first, which class child tasks inherit, and how long
//! a background task may have to wait.
//!
//! ```sh
//! cargo run --example priorities
//! ```
//!
//! There is one worker, so that the order of the tasks is visible. With another, idle worker a
//! background task would start at once, as any other task does: background tasks use the time that
//! foreground tasks leave over.

use giveway::task::{self, Class, JoinHandle};
use giveway::time::{Duration, Instant};
use giveway::{Builder, Runtime};
use std::io;

fn main() -> io::Result<()> {
    let runtime = Builder::new().workers(1).build()?;
    who_runs_first(&runtime)?;
    what_children_inherit(&runtime)?;

    println!("\nA foreground that is busy for 50 ms, and a background task spawned at its start:");
    wait_of_the_background("without yield_patience", &runtime)?;
    // A background task that has waited longer than this gets a turn now and then, even while
    // foreground tasks are runnable.
    let patient = Builder::new().workers(1).yield_patience(Duration::from_millis(10)).build()?;
    wait_of_the_background("with yield_patience of 10 ms", &patient)
}

fn who_runs_first(runtime: &Runtime) -> io::Result<()> {
    println!("Spawned in the order of their numbers, they run in this one:");
    let say = |line: &'static str| async move { println!("  {line}") };
    // The task that spawns them keeps the only worker busy, so none starts before all are spawned.
    let all = runtime.spawn(async move {
        vec![
            giveway::spawn_background(say("1: thumbnails, in the background")),
            giveway::spawn(say("2: a request")),
            giveway::spawn_background(say("3: a backup, in the background")),
            giveway::spawn(say("4: another request")),
            // Of the tasks that a task has woken or spawned, the last one runs next, while its data
            // is in the cache. The others keep their order.
            giveway::spawn(say("5: a third request")),
        ]
    });
    runtime.block_on(async { join_all(all.await?).await })
}

fn what_children_inherit(runtime: &Runtime) -> io::Result<()> {
    println!("\nA background task spawns two children, in this order:");
    let say =
        |line: &'static str| async move { println!("  {line} is of the {:?}", task::class()) };
    let children = runtime.spawn_background(async move {
        vec![
            // Inherits its parent's class, so every task of a background job is a background task.
            giveway::spawn(say("a child that says nothing of its class")),
            // A request waits for this one, so it is given the foreground class, and runs first.
            task::Builder::new()
                .name("answer")
                .class(Class::Foreground)
                .spawn(say("a child with Class::Foreground")),
        ]
    });
    runtime.block_on(async { join_all(children.await?).await })
}

fn wait_of_the_background(what: &str, runtime: &Runtime) -> io::Result<()> {
    let start = Instant::now();
    let both = runtime.spawn(async move {
        let background = giveway::spawn_background(async move { start.elapsed() });
        // The worker is never idle. `yield_now` goes to the back of the queue of foreground tasks;
        // the background task waits in the yield queue, so it does not get a turn.
        while start.elapsed() < Duration::from_millis(50) {
            giveway::yield_now().await;
        }
        background.await
    });
    let waited = runtime.block_on(both)??;
    println!("  {what} it ran after {waited:.0?}");
    Ok(())
}

async fn join_all(tasks: Vec<JoinHandle<()>>) -> io::Result<()> {
    for task in tasks {
        task.await?;
    }
    Ok(())
}
