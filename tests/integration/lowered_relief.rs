//! Lowered polls that wait for a thread, and none is to be had: what else the runtime then does.

use giveway::Builder;
use giveway::task;
use giveway_tests::{Endless, isolated, watch};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// All workers rest, and a lowered poll waits for a thread as long as the others do not return. The
/// monitor, which then looks seldom, still starts threads for blocking jobs that wait for each
/// other.
#[test]
fn jobs_get_their_threads_while_a_lowered_poll_waits_in_vain() {
    isolated("lowered_relief::jobs_get_their_threads_while_a_lowered_poll_waits_in_vain", || {
        let _watch = watch();
        let most = 6;
        let runtime = Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .max_blocking_threads(most)
            .build()
            .unwrap();
        // One more than may ever run at once.
        let lowered =
            Endless::start(&runtime, || task::Builder::new().preemptible(true), most + 1, most);
        // Long after the worker is at rest. (If it is not, the jobs have their threads all the
        // same.)
        thread::sleep(Duration::from_millis(100));
        // More than are started at once.
        let barrier = Arc::new(Barrier::new(most));
        let job = |barrier: Arc<Barrier>| move || _ = barrier.wait();
        let jobs: Vec<_> =
            (0..most).map(|_| runtime.spawn_blocking(job(barrier.clone()))).collect();
        jobs.into_iter().for_each(|job| futures::executor::block_on(job).unwrap());
        assert_eq!(runtime.metrics().lowered_queued, 1);
        lowered.end(&runtime);
    });
}
