//! What the integration tests share: gates to order events by, a watch over hangs, child processes, and a way to run a
//! test with several worker counts.

#![expect(clippy::missing_panics_doc, reason = "helpers of tests panic where the test fails")]

mod child;
mod counting;
mod futures;
#[cfg(doctest)]
mod pages;
mod workers;

pub use child::{Child, in_child, isolated};
pub use counting::{Drops, Log, Polls};
pub use futures::{Parked, Wakers, hold, on_drop};
pub use workers::{block_in_place, each_strict, occupy, on_one_worker, outside};

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen before it calls it a hang. Not a timing assertion: a passing
/// test never comes near it.
pub const HANG: Duration = Duration::from_secs(60);

/// The worker counts that a test is run with: `GIVEWAY_TEST_WORKERS` (a list, `1,2,8,64`), or a few of each kind.
pub fn worker_counts() -> Vec<usize> {
    match std::env::var("GIVEWAY_TEST_WORKERS") {
        Ok(list) => list.split(',').map(|n| n.trim().parse().expect("GIVEWAY_TEST_WORKERS lists numbers")).collect(),
        Err(_) => vec![1, 2, 8],
    }
}

/// Runs `test` with a fresh runtime of each worker count, and drops the runtime after it.
pub fn with_runtimes(test: impl Fn(&giveway::Runtime)) {
    with_runtimes_of(1, test);
}

/// Like [`with_runtimes`], for tests that need at least so many workers.
pub fn with_runtimes_of(least: usize, test: impl Fn(&giveway::Runtime)) {
    each_runtime(least, |runtime| test(&runtime));
}

/// Gives `test` a runtime of each worker count, at least `least`, to end as it likes.
pub fn each_runtime(least: usize, test: impl Fn(giveway::Runtime)) {
    let mut counts: Vec<_> = worker_counts().into_iter().map(|workers| workers.max(least)).collect();
    counts.dedup();
    for workers in counts {
        let _watch = watch();
        test(runtime(workers));
    }
}

/// A runtime with so many workers.
pub fn runtime(workers: usize) -> giveway::Runtime {
    giveway::Builder::new().workers(workers).build().expect("a runtime starts")
}

/// Ends the process with a message if it is not dropped within [`HANG`]. For waits that have no deadline of their own:
/// `block_on`, the drop of a runtime, a thread's join.
#[must_use = "the watch ends when this is dropped"]
#[derive(Debug)]
pub struct Watch(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

/// Watches over the rest of the scope.
pub fn watch() -> Watch {
    let (alive, watched) = mpsc::channel();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        if watched.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
            // Not `eprintln!`: the test harness would capture it, and the abort would lose it.
            let _ = writeln!(std::io::stderr(), "{test}: not done after {HANG:?}, something hangs");
            std::process::abort();
        }
    });
    Watch(alive)
}

/// A one-way gate for threads and tasks: closed until somebody opens it.
#[derive(Debug, Clone)]
pub struct Gate(std::sync::Arc<(std::sync::Mutex<bool>, std::sync::Condvar)>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(std::sync::Arc::default())
    }

    /// Opens it for good.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Whether somebody has opened it.
    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Blocks the thread until the gate is open. On a worker this is a poll that does not return.
    #[track_caller]
    pub fn wait(&self) {
        let (open, opened) = &*self.0;
        let (open, timeout) = opened.wait_timeout_while(open.lock().unwrap(), HANG, |open| !*open).unwrap();
        assert!(*open && !timeout.timed_out(), "a gate was not opened: something hangs");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts its own drop in an `Arc`: `Arc::strong_count` tells how many are alive.
pub type Alive = std::sync::Arc<()>;

/// Receives, or calls it a hang.
#[track_caller]
pub fn recv<T>(receiver: &mpsc::Receiver<T>) -> T {
    receiver.recv_timeout(HANG).expect("nothing came: something hangs")
}

/// Receives until every sender is gone, or calls it a hang.
#[track_caller]
pub fn drain<T>(receiver: &mpsc::Receiver<T>) -> Vec<T> {
    let mut all = Vec::new();
    loop {
        match receiver.recv_timeout(HANG) {
            Ok(one) => all.push(one),
            Err(RecvTimeoutError::Disconnected) => return all,
            Err(RecvTimeoutError::Timeout) => panic!("a sender is still there after {HANG:?}: something hangs"),
        }
    }
}

/// Looks again and again until `happened`, for what cannot send a message; or calls it a hang.
#[track_caller]
pub fn eventually(happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < HANG, "it did not happen: something hangs");
        std::thread::yield_now();
    }
}

/// Runs `f`, which must panic, and returns the panic's message.
#[track_caller]
pub fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("this should have panicked"),
        Err(payload) => message(&*payload),
    }
}

/// The message of a panic, if it has one.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no text)".into())
}
