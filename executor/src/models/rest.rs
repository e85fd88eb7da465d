//! Models of resting workers: every interleaving under loom, many real ones otherwise. See
//! `crate::models`.

use super::sleep;
use crate::parker::Parker;
use crate::sched::{IdleSet, Queued, Scheduler, SecondLook, Settings, Ticket, YieldQueue, Yielded};
use crate::sync::{model, thread};
use std::sync::Arc;

struct Runtime {
    yielded: YieldQueue<usize>,
    idle: IdleSet,
    parker: Parker,
}

impl Runtime {
    fn new(workers: usize, resting: usize) -> Arc<Self> {
        let idle = IdleSet::new(workers, 0);
        idle.set_resting(resting);
        Arc::new(Self { yielded: YieldQueue::new(), idle, parker: Parker::new() })
    }

    fn push(&self) {
        self.yielded.push(Yielded::Task(1), 0);
    }

    /// Looks again as `Worker::sleep` does, up to where it parks.
    fn look_again(&self, worker: usize) -> SecondLook {
        let queued = if self.yielded.is_empty() { Queued::Nothing } else { Queued::Yielded };
        self.idle.second_look(worker, queued)
    }
}

/// The monitor ends the rest of a worker that goes to sleep beside a full yield queue. The worker
/// takes what is there.
///
/// Red (deadlock) without the fence in `announce_yielded`, and without the one in `enter`.
#[test]
fn end_of_rest_against_sleep() {
    model(|| {
        let runtime = Runtime::new(1, 1);
        runtime.parker.bind();
        runtime.push();
        let monitor = thread::spawn({
            let runtime = runtime.clone();
            move || {
                // As `Scheduler::set_resting`.
                runtime.idle.set_resting(0);
                if runtime.idle.announce_yielded().is_some() {
                    runtime.parker.unpark();
                }
            }
        });
        let mut searching = runtime.idle.try_start_search();
        while runtime.idle.rests(0) || runtime.yielded.take().is_none() {
            let look_again = |ticket: &Ticket| {
                ticket.looks_again()
                    && match runtime.look_again(0) {
                        SecondLook::Leave => true,
                        SecondLook::Park(None) => false,
                        SecondLook::Park(Some(_)) => {
                            runtime.parker.unpark();
                            false
                        }
                    }
            };
            sleep(&runtime.idle, &runtime.parker, 0, searching, look_again);
            searching = true;
        }
        monitor.join().unwrap();
    });
}

/// Something is pushed into the yield queue while the only searcher, a worker that rests, goes to
/// sleep. One of the two threads wakes the worker that serves the queue.
///
/// Red without the fence in `announce_yielded`, without the one in `enter`, and if a worker
/// that rests wakes no other.
#[test]
fn yield_against_sleep_of_a_resting_searcher() {
    model(|| {
        let runtime = Runtime::new(2, 1);
        let _asleep = runtime.idle.enter(1, false);
        assert!(runtime.idle.try_start_search());
        let pusher = thread::spawn({
            let runtime = runtime.clone();
            move || {
                runtime.push();
                runtime.idle.announce_yielded()
            }
        });
        let woken = match runtime.idle.enter(0, true).looks_again() {
            true => match runtime.look_again(0) {
                SecondLook::Leave => panic!("it rests"),
                SecondLook::Park(woken) => woken,
            },
            false => None,
        };
        let woken_by_pusher = pusher.join().unwrap();
        assert_eq!(
            woken.or(woken_by_pusher),
            Some(1),
            "what has given way waits beside an idle worker"
        );
        assert!(woken.is_none() || woken_by_pusher.is_none(), "woken twice");
    });
}

/// Something is pushed into the yield queue while the rest of a worker that is asleep ends. One of
/// the two threads wakes that worker.
///
/// Red without the fence in `announce_yielded`, and if the end of a rest is not announced.
#[test]
fn yield_against_end_of_rest() {
    model(|| {
        let (scheduler, _locals) = Scheduler::<Box<usize>>::new(1, Settings::default());
        let scheduler = Arc::new(scheduler);
        assert_eq!(scheduler.set_resting(1), None);
        let _asleep = scheduler.idle.enter(0, false);
        let pusher = thread::spawn({
            let scheduler = scheduler.clone();
            move || {
                scheduler.push_to_yield_queue(Yielded::Task(Box::new(1)), 0, || 0);
                scheduler.announce_yielded()
            }
        });
        let woken = scheduler.set_resting(0);
        let woken_by_pusher = pusher.join().unwrap();
        assert_eq!(
            woken.or(woken_by_pusher),
            Some(0),
            "what has given way waits beside an idle worker"
        );
        drop(scheduler.yielded.take());
    });
}
