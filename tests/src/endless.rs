//! Polls that do not return before the test stops them.

use crate::eventually;
use giveway::Runtime;
use giveway::task::{Builder, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Tasks that compute in a single poll until they are stopped.
#[derive(Debug)]
pub struct Endless {
    /// Set to have the polls return.
    pub stop: Arc<AtomicBool>,
    /// The tasks.
    pub tasks: Vec<JoinHandle<()>>,
}

impl Endless {
    /// Spawns `tasks` tasks with `builder`, and returns when at least `begun` of them are in their
    /// polls.
    #[track_caller]
    pub fn start(
        runtime: &Runtime,
        builder: impl Fn() -> Builder,
        tasks: usize,
        begun: usize,
    ) -> Self {
        let (stop, counter) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let poll = || {
            let (stop, counter) = (stop.clone(), counter.clone());
            async move {
                counter.fetch_add(1, Relaxed);
                while !stop.load(Relaxed) {
                    // Offers the CPU to the other tests. For the worker it is still one poll.
                    std::thread::yield_now();
                }
            }
        };
        let tasks = (0..tasks).map(|_| builder().spawn_on(poll(), runtime.handle())).collect();
        eventually(|| counter.load(Relaxed) >= begun);
        Self { stop, tasks }
    }

    /// Makes the polls return, and waits for the tasks.
    pub fn end(self, runtime: &Runtime) {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            runtime.block_on(task).unwrap();
        }
    }
}
