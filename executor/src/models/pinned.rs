//! Models of the inbox: every interleaving under loom, many real ones otherwise. See
//! `crate::models`.

use super::sleep;
use crate::parker::Parker;
use crate::sched::{Scheduler, Settings};
use crate::sync::{AtomicBool, AtomicUsize, model, thread};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// A pinned task is pushed while its worker, the only one that may run it, goes to sleep. The
/// worker takes it.
///
/// Red (deadlock) without the worker's look at its inbox after it was counted out.
#[test]
fn pinned_push_against_sleep() {
    model(|| {
        let (scheduler, mut locals) = Scheduler::<Box<usize>>::new(1, Settings::default());
        let (shared, core) = (Arc::new((scheduler, Parker::new())), locals.remove(0));
        shared.1.bind();
        let pusher = thread::spawn({
            let shared = shared.clone();
            move || {
                if shared.0.push_pinned(0, Box::new(1)).is_some() {
                    shared.1.unpark();
                }
            }
        });
        let (scheduler, parker) = &*shared;
        while scheduler.take_pinned(&core).is_none() {
            sleep(&scheduler.idle, parker, 0, false, |_| scheduler.has_pinned(&core));
            scheduler.idle.abandon_search();
        }
        pusher.join().unwrap();
    });
}

/// A pinned task is pushed while its worker begins something polite. The worker sees the task when
/// it looks, or is asked to give way.
///
/// Red without the fence in `push_pinned`, and if the worker looks before it is armed.
#[test]
fn pinned_push_against_politeness() {
    model(|| {
        let (scheduler, mut locals) = Scheduler::<Box<usize>>::new(1, Settings::default());
        let (scheduler, core) = (Arc::new(scheduler), locals.remove(0));
        let pusher = thread::spawn({
            let scheduler = scheduler.clone();
            move || assert!(scheduler.push_pinned(0, Box::new(1)).is_none(), "nobody is idle")
        });
        // As in `begin_polite` and `resume`.
        scheduler.interrupts.arm(0);
        let seen = scheduler.has_pinned(&core);
        pusher.join().unwrap();
        assert!(seen || scheduler.interrupts.is_raised(0), "it goes on beside a pinned task");
        drop(scheduler.take_pinned(&core));
    });
}

/// A pinned task is spawned while the runtime closes. The spawning thread sees that it closes, or
/// the home thread waits for the task.
///
/// Red without the fence of either side. (The code is in `pinned::Lodging` and
/// `Worker::drop_pinned`: it takes a whole runtime to run it.)
#[test]
fn pinned_spawn_against_end() {
    model(|| {
        let closed = Arc::new(AtomicBool::new(false));
        let lodgers = Arc::new(AtomicUsize::new(0));
        let spawner = thread::spawn({
            let (closed, lodgers) = (closed.clone(), lodgers.clone());
            move || {
                lodgers.fetch_add(1, Relaxed);
                crate::sync::fence(SeqCst);
                closed.load(Acquire)
            }
        });
        closed.store(true, Relaxed);
        crate::sync::fence(SeqCst);
        let waits = lodgers.load(Acquire) > 0;
        assert!(spawner.join().unwrap() || waits, "nobody drops the task");
    });
}
