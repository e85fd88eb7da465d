//! Tasks that go on until they are told to stop. A helper of several benchmarks.

use crate::peers::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Tasks that go on until they are told to stop.
#[derive(Debug)]
pub struct Crew<P: Peer> {
    stop: Arc<AtomicBool>,
    tasks: Vec<P::Handle<()>>,
}

impl<P: Peer> Crew<P> {
    /// Calls `spawn` `tasks` times, each time with the flag by which its task is told to stop.
    pub fn start(tasks: usize, mut spawn: impl FnMut(Arc<AtomicBool>) -> P::Handle<()>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = P::block_on(async { (0..tasks).map(|_| spawn(stop.clone())).collect() });
        Self { stop, tasks }
    }

    /// Tells the tasks to stop, and waits until they have.
    pub fn end(self) {
        self.stop.store(true, Relaxed);
        P::block_on(async {
            for task in self.tasks {
                task.await;
            }
        });
    }
}
