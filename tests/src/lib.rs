//! What the integration tests share: gates to order events by, and a way to run a test with several worker counts.

use std::sync::mpsc;
use std::time::Duration;

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
    for workers in worker_counts() {
        let runtime = runtime(workers.max(least));
        test(&runtime);
    }
}

/// A runtime with so many workers.
pub fn runtime(workers: usize) -> giveway::Runtime {
    giveway::Builder::new().workers(workers).build().expect("a runtime starts")
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
