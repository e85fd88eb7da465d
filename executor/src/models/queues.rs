//! Models of the slot and the injector. See `crate::models`.

use crate::sched::{Injector, Slot};
use crate::sync::{AtomicUsize, model, thread};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One thread takes the first of two tasks, for which the rings change places; another looks
/// meanwhile. One task is always left, so the look never finds the queue empty.
///
/// Red when the lengths are published, or read, in the other order.
#[test]
fn rings_change_places_against_look() {
    model(|| {
        let injector = Arc::new(Injector::new());
        injector.push(1);
        injector.push(2);
        let looker = thread::spawn({
            let injector = injector.clone();
            move || injector.is_empty()
        });
        assert_eq!(injector.take_one(), Some(1));
        assert!(!looker.join().unwrap(), "one task was there all the time");
    });
}

/// The owner puts two tasks in and takes; a thief takes. Each task comes out exactly once,
/// whole.
///
/// Red when `put` stores where it must swap (a task lost), and when the release store or the
/// acquire swap is relaxed (loom then lets the thief read the value before it was written).
#[test]
fn slot_against_thief() {
    model(|| {
        let slot = Arc::new(Slot::<Box<Payload>>::new());
        let sum = Arc::new(AtomicUsize::new(0));
        let thief = thread::spawn({
            let (slot, sum) = (slot.clone(), sum.clone());
            move || {
                for _ in 0..2 {
                    if let Some(task) = slot.take() {
                        sum.fetch_add(task.read(), Relaxed);
                    }
                }
            }
        });
        let mut mine = 0;
        for value in [1, 10] {
            if let Some(displaced) = slot.put(Box::new(Payload::new(value))) {
                mine += displaced.read();
            }
        }
        mine += slot.take().map_or(0, |task| task.read());
        thief.join().unwrap();
        mine += slot.take().map_or(0, |task| task.read());
        assert_eq!(mine + sum.load(Relaxed), 11, "each task once");
    });
}

/// A value whose unsynchronised access loom reports.
struct Payload(#[cfg(giveway_loom)] loom::cell::UnsafeCell<usize>, #[cfg(not(giveway_loom))] usize);

#[cfg(giveway_loom)]
impl Payload {
    fn new(value: usize) -> Self {
        let cell = loom::cell::UnsafeCell::new(0);
        // SAFETY: no other thread has the cell yet.
        cell.with_mut(|p| unsafe { *p = value });
        Self(cell)
    }

    fn read(&self) -> usize {
        // SAFETY: no other thread writes the value: the slot handed the box to this thread
        // alone. Loom checks that this is true.
        self.0.with(|p| unsafe { *p })
    }
}

#[cfg(not(giveway_loom))]
impl Payload {
    fn new(value: usize) -> Self {
        Self(value)
    }

    fn read(&self) -> usize {
        self.0
    }
}
