//! Runtimes in which the test controls what every worker does.

use crate::{Gate, recv, watch, worker_counts};
use giveway::task::JoinHandle;
use giveway::{Builder, Handle, Runtime};
use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

/// Runs `body` as a task of a runtime with one worker, so that no worker is idle while `body` runs.
#[track_caller]
pub fn on_one_worker<F>(body: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let _watch = watch();
    // Without these settings a poll that is long because the machine is loaded would get a spare
    // worker, and later polls could move to lowered threads.
    let builder = Builder::new().workers(1).max_spare_workers(0).preempt_background(false);
    let runtime = builder.build().expect("a runtime starts");
    runtime.block_on(runtime.spawn(body)).unwrap()
}

/// Calls `test` with a runtime of each worker count, at least `least`. Its yield points look at
/// other workers' queues only after an interrupt: the interval of their timed look is an hour.
pub fn each_strict(least: usize, test: impl Fn(Runtime)) {
    let mut counts: Vec<_> =
        worker_counts().into_iter().map(|workers| workers.max(least)).collect();
    counts.dedup();
    for workers in counts {
        let _watch = watch();
        let builder = Builder::new().workers(workers).wide_look_interval(Duration::from_secs(3600));
        let builder = builder.max_spare_workers(0).preempt_background(false);
        test(builder.build().expect("a runtime starts"));
    }
}

/// Runs `f` on a thread of its own, and blocks until it returns. Tasks that `f` spawns or wakes go
/// into the injector. Called in a task, it keeps the task's poll going meanwhile.
pub fn outside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join().unwrap())
}

/// Keeps each of `workers` workers in a poll until `gate` opens. Returns when all are in their
/// polls.
#[track_caller]
pub fn occupy(handle: &Handle, workers: usize, gate: &Gate) -> Vec<JoinHandle<()>> {
    spawn_waiting(handle, workers, gate, |wait| wait())
}

/// Spawns `tasks` tasks that block in place until `gate` opens. Returns when all of them block.
#[track_caller]
pub fn block_in_place(handle: &Handle, tasks: usize, gate: &Gate) -> Vec<JoinHandle<()>> {
    spawn_waiting(handle, tasks, gate, |wait| giveway::block_in_place(wait))
}

#[track_caller]
fn spawn_waiting(
    handle: &Handle,
    tasks: usize,
    gate: &Gate,
    how: fn(&dyn Fn()),
) -> Vec<JoinHandle<()>> {
    let (started, starts) = mpsc::channel();
    let spawn_one = || {
        let (gate, started) = (gate.clone(), started.clone());
        handle.spawn(async move {
            how(&|| {
                started.send(()).unwrap();
                gate.wait();
            });
        })
    };
    let tasks: Vec<_> = (0..tasks).map(|_| spawn_one()).collect();
    tasks.iter().for_each(|_| recv(&starts));
    tasks
}
