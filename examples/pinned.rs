//! A pinned task: keeps state that is not `Send`, and answers requests over a channel.
//!
//! Ordinary tasks move between threads, so what they hold must be `Send`. A pinned task stays on
//! one thread: it may hold an `Rc`, a `RefCell`, or an object that a C library ties to a thread.
//! Other tasks talk to it over a channel, as to an actor.
//!
//! ```sh
//! cargo run --example pinned
//! ```

use futures::StreamExt;
use futures::channel::{mpsc, oneshot};
use futures::future::select;
use giveway::task::{self, JoinSet};
use giveway::time::{Duration, interval};
use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::{io, thread};

/// A word to count, and the channel for the answer: how often it has been seen.
type Request = (&'static str, oneshot::Sender<usize>);

fn main() -> io::Result<()> {
    let runtime = giveway::Builder::new().workers(2).build()?;
    runtime.block_on(async {
        let (requests, inbox) = mpsc::unbounded();

        // The closure is sent to the worker, and makes the future there. The closure must be
        // `Send`; the future need not be. Without `on_worker`, or with plain
        // `giveway::spawn_pinned`, the runtime chooses the worker with the fewest pinned tasks.
        let counter =
            task::Builder::new().name("counter").on_worker(1).spawn_pinned(|| count_words(inbox));

        // Ordinary tasks, on any worker, send it requests.
        let mut asking = JoinSet::new();
        for word in ["to", "be", "or", "not", "to", "be"] {
            let requests = requests.clone();
            asking.spawn(async move {
                let (answer, answered) = oneshot::channel();
                // An error here, or a cancelled answer, means that the counter has ended.
                requests.unbounded_send((word, answer)).map_err(io::Error::other)?;
                let times = answered.await.map_err(io::Error::other)?;
                io::Result::Ok(format!("{word:?} has been seen {times} times"))
            });
        }
        while let Some(answer) = asking.join_next().await {
            println!("{}", answer??);
        }

        drop(requests); // drops the last sender: the inbox ends, and then the counter returns
        println!("different words: {}", counter.await?);
        Ok(())
    })
}

/// Counts words until the inbox ends.
async fn count_words(mut inbox: mpsc::UnboundedReceiver<Request>) -> usize {
    println!(
        "the counter lives on worker {:?}, in the thread {:?}",
        task::worker(),
        thread::current().name()
    );
    let words = Rc::new(RefCell::new(HashMap::new()));

    let serving = {
        let words = Rc::clone(&words);
        async move {
            while let Some((word, answer)) = inbox.next().await {
                // No lock and no atomics: only this thread uses the map. But do not hold the borrow
                // across an await.
                let times =
                    *words.borrow_mut().entry(word).and_modify(|times| *times += 1).or_insert(1);
                // The asking task may have given up meanwhile. That is no error of the counter.
                let _ = answer.send(times);
            }
        }
    };
    // All users of the `Rc` are futures in this one task. This one reads the map now and then.
    let watching = {
        let words = Rc::clone(&words);
        async move {
            let mut ticks = interval(Duration::from_millis(100));
            loop {
                ticks.tick().await;
                println!("words known so far: {}", words.borrow().len());
            }
        }
    };
    // Ends when `serving` ends; `watching` never does.
    select(pin!(serving), pin!(watching)).await;
    words.borrow().len()
}
