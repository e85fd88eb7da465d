//! Helpers of the integration tests: gates that order events, detection of hangs, child processes,
//! and runs of a test with several worker counts.
//!
//! `giveway-patience` defines what a hang is. No limit here can be reached because a machine is
//! slow.

#![expect(clippy::missing_panics_doc, reason = "helpers of tests panic where the test fails")]

mod child;
mod counting;
mod endless;
mod futures;
#[cfg(doctest)]
mod pages;
mod rounds;
mod workers;

pub use child::{Child, in_child, isolated};
pub use counting::{Drops, Log, Polls};
pub use endless::Endless;
pub use futures::{Parked, Wakers, hold, on_drop};
pub use giveway_patience::{Patience, WaitingFor, Watch, watch};
pub use rounds::{dawdle, rounds};
pub use workers::{block_in_place, each_strict, occupy, on_one_worker, outside};

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A timeout that must not expire, for calls that require one. A [`watch`] notices a hang long
/// before.
pub const HANG: Duration = Duration::from_secs(24 * 3600);

/// Returns the worker counts to run tests with: those of `GIVEWAY_TEST_WORKERS` (a list such as
/// `1,2,8,64`), or else 1, 2 and 8.
pub fn worker_counts() -> Vec<usize> {
    match std::env::var("GIVEWAY_TEST_WORKERS") {
        Ok(list) => list
            .split(',')
            .map(|n| n.trim().parse().expect("GIVEWAY_TEST_WORKERS lists numbers"))
            .collect(),
        Err(_) => vec![1, 2, 8],
    }
}

/// Runs `test` with a new runtime of each worker count. After it, checks that no wake-up was lost,
/// and drops the runtime.
pub fn with_runtimes(test: impl Fn(&giveway::Runtime)) {
    with_runtimes_of(1, test);
}

/// Like [`with_runtimes`], for tests that need at least `least` workers.
pub fn with_runtimes_of(least: usize, test: impl Fn(&giveway::Runtime)) {
    each_watched(least, |runtime, watch| {
        let handle = runtime.handle().clone();
        watch.report(move || format!("{}\n{}", handle.dump(), handle.metrics()));
        test(&runtime);
        let metrics = runtime.metrics();
        assert_eq!(metrics.monitor_rescues, 0, "wake-ups were lost\n{metrics}");
    });
}

/// Passes `test` a runtime of each worker count, at least `least`. The test owns it, and ends it.
pub fn each_runtime(least: usize, test: impl Fn(giveway::Runtime)) {
    each_watched(least, |runtime, _| test(runtime));
}

fn each_watched(least: usize, test: impl Fn(giveway::Runtime, &Watch)) {
    let mut counts: Vec<_> =
        worker_counts().into_iter().map(|workers| workers.max(least)).collect();
    counts.dedup();
    for workers in counts {
        let watch = watch();
        test(runtime(workers), &watch);
    }
}

/// Starts a runtime with `workers` workers and no spare ones: a worker that a test keeps in a poll
/// is not replaced.
pub fn runtime(workers: usize) -> giveway::Runtime {
    giveway::Builder::new().workers(workers).max_spare_workers(0).build().expect("a runtime starts")
}

/// A one-way gate for threads and tasks: closed until [`Gate::open`], then open for good.
#[derive(Debug, Clone)]
pub struct Gate(std::sync::Arc<(std::sync::Mutex<bool>, std::sync::Condvar)>);

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        Self(std::sync::Arc::default())
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Returns whether the gate is open.
    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Blocks the thread until the gate is open. In a task this is a poll that does not return.
    #[track_caller]
    pub fn wait(&self) {
        let (open, opened) = &*self.0;
        let is_open = |pause| {
            *opened.wait_timeout_while(open.lock().unwrap(), pause, |open| !*open).unwrap().0
        };
        let came = Patience::new().keep_trying(|pause| is_open(pause).then_some(()));
        assert!(came.is_some(), "a gate was not opened: something hangs");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// A value whose clones can be counted: `Arc::strong_count` tells how many have not been dropped.
pub type Alive = std::sync::Arc<()>;

/// Receives a message, or fails the test if that hangs.
#[track_caller]
pub fn recv<T>(receiver: &mpsc::Receiver<T>) -> T {
    let came = Patience::new().keep_trying(|pause| match receiver.recv_timeout(pause) {
        Err(RecvTimeoutError::Timeout) => None,
        came => Some(came),
    });
    came.expect("nothing came: something hangs").expect("every sender is gone")
}

/// Receives until every sender has been dropped, or fails the test if that hangs.
#[track_caller]
pub fn drain<T>(receiver: &mpsc::Receiver<T>) -> Vec<T> {
    let mut all = Vec::new();
    let gone = Patience::new().keep_trying(|pause| match receiver.recv_timeout(pause) {
        Ok(one) => {
            all.push(one);
            None
        }
        Err(RecvTimeoutError::Disconnected) => Some(()),
        Err(RecvTimeoutError::Timeout) => None,
    });
    assert!(gone.is_some(), "a sender is still there, and sends nothing: something hangs");
    all
}

/// Calls `happened` until it returns true, or fails the test if that hangs. For events that cannot
/// send a message.
#[track_caller]
pub fn eventually(happened: impl Fn() -> bool) {
    const AWAKE: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let came = Patience::new().keep_trying(|_| {
        if happened() {
            return Some(());
        }
        // The thread stays awake at first, because most events happen soon. Then it sleeps between
        // looks: a process with a thread that is always busy would not be recognized as hanging.
        if start.elapsed() < AWAKE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    });
    assert!(came.is_some(), "it did not happen: something hangs");
}

/// Runs `f`, which must panic, and returns the panic's message.
#[track_caller]
pub fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("this should have panicked"),
        Err(payload) => message(&*payload),
    }
}

/// Returns the message of a panic, or `(no text)`.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no text)".into())
}
