//! Timers that are reset, go to another runtime, or are dropped on another thread.

use super::io_common::{HOUR, Wakes, poll_with, telling, waiting_in};
use giveway::time::{Duration, Instant, sleep};
use giveway::{Runtime, yield_now};
use giveway_tests::{Gate, eventually, runtime, watch, with_runtimes};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;

/// tokio PR 8169: a timer that was reset went to the runtime of the thread that polled it.
#[test]
fn a_sleep_that_is_reset_stays_with_its_runtime_and_fires_without_it() {
    let _watch = watch();
    for polled_between in [false, true] {
        let (one, other) = (runtime(1), runtime(1));
        let (mut nap, wakes) = waiting_in(&one, HOUR);
        let deadline = Instant::now() + Duration::from_millis(20);
        Pin::new(&mut nap).reset(deadline);
        let (gate, mut task) = (Gate::new(), None);
        let nap = async move {
            nap.await;
            assert!(Instant::now() >= deadline);
        };
        if polled_between {
            task = Some(other.spawn(telling(gate.clone(), nap)));
            gate.wait();
            drop(one);
        } else {
            drop(one);
            other.block_on(nap);
        }
        if let Some(task) = task {
            other.block_on(task).unwrap();
        }
        // The end of the runtime may wake the waker of the last poll.
        assert!(wakes.count() <= usize::from(!polled_between));
    }
}

/// A waker that ends its runtime when it is first cloned: a poll is then between its look at the
/// runtime and the insertion of the timer. The number counts its wake-ups.
struct EndsRuntime(Mutex<Option<Runtime>>, AtomicUsize);

impl EndsRuntime {
    const VTABLE: std::task::RawWakerVTable = std::task::RawWakerVTable::new(
        |this| {
            // SAFETY: `this` comes from `Arc::into_raw`. The waker that is cloned has a count, so
            // the value is alive, and only shared references to it exist.
            let whole = unsafe { &*this.cast::<Self>() };
            let runtime = whole.0.lock().unwrap().take();
            if let Some(runtime) = runtime {
                let (ended, has_ended) = mpsc::channel();
                std::thread::spawn(move || {
                    drop(runtime);
                    let _gone = ended.send(());
                });
                // With a limit: the clone may be made under a lock that the end of the runtime
                // needs. Then the runtime cannot end at this point.
                let _ended = has_ended.recv_timeout(Duration::from_millis(200));
            }
            // SAFETY: `this` comes from `Arc::into_raw`. The waker that is cloned has a count, so
            // there is at least one.
            unsafe { Arc::increment_strong_count(this.cast::<Self>()) };
            std::task::RawWaker::new(this, &Self::VTABLE)
        },
        |this| {
            // SAFETY: `this` comes from `Arc::into_raw`. This takes over the count of the waker,
            // which is used up.
            let whole = unsafe { Arc::from_raw(this.cast::<Self>()) };
            whole.1.fetch_add(1, SeqCst);
        },
        |this| {
            // SAFETY: `this` comes from `Arc::into_raw`. The waker that is woken has a count, so
            // the value is alive, and only shared references to it exist.
            let whole = unsafe { &*this.cast::<Self>() };
            whole.1.fetch_add(1, SeqCst);
        },
        // SAFETY: `this` comes from `Arc::into_raw`. This takes over the count of the waker, which
        // is used up.
        |this| unsafe { drop(Arc::from_raw(this.cast::<Self>())) },
    );

    fn waker(self: Arc<Self>) -> Waker {
        let raw = std::task::RawWaker::new(Arc::into_raw(self).cast(), &Self::VTABLE);
        // SAFETY: the functions of `VTABLE` keep the contract of a waker: each waker owns a count
        // of an `Arc`, whose value may be used by all threads.
        unsafe { Waker::from_raw(raw) }
    }
}

/// The runtime ends between a poll's look at it and the insertion of the timer. No thread fires
/// that timer, so the task that waits for it must be woken.
#[test]
fn a_sleep_that_is_polled_while_its_runtime_ends_wakes_its_task() {
    let _watch = watch();
    let one = runtime(1);
    let (mut nap, _) = waiting_in(&one, HOUR);
    Pin::new(&mut nap).reset(Instant::now() + Duration::from_millis(1));
    let state = Arc::new(EndsRuntime(Mutex::new(Some(one)), AtomicUsize::new(0)));
    let waker = state.clone().waker();
    if poll_with(&mut nap, &waker).is_pending() {
        eventually(|| state.1.load(SeqCst) > 0);
    }
    let _watch = watch();
    futures::executor::block_on(nap);
}

/// A task that waits is woken at the time that another task has set meanwhile.
#[test]
fn a_reset_by_another_task_moves_the_time_of_who_waits() {
    with_runtimes(|runtime| {
        moved_while_waiting(runtime, HOUR, Duration::from_millis(5));
        // The time may be over before the other task comes, but not in every attempt.
        let put_off =
            |_| moved_while_waiting(runtime, Duration::from_millis(5), Duration::from_millis(20));
        assert!((0..1_000).any(put_off), "it is always over before it is moved");
    });
}

/// Has a task wait for `first`, and another move its time to `then` from now. Returns false if that
/// came too late.
fn moved_while_waiting(runtime: &Runtime, first: Duration, then: Duration) -> bool {
    let nap = Arc::new(Mutex::new(sleep(first)));
    let (waits, shared) = (Gate::new(), nap.clone());
    let waiting = runtime.spawn(telling(waits.clone(), async move {
        poll_fn(|cx| Pin::new(&mut *shared.lock().unwrap()).poll(cx)).await;
    }));
    waits.wait();
    let deadline = Instant::now() + then;
    let moved = runtime.spawn(async move {
        let mut nap = nap.lock().unwrap();
        let in_time = !nap.is_elapsed();
        Pin::new(&mut *nap).reset(deadline);
        in_time
    });
    let in_time = runtime.block_on(moved).unwrap();
    runtime.block_on(waiting).unwrap();
    assert!(!in_time || Instant::now() >= deadline, "early");
    in_time
}

#[test]
fn a_sleep_that_is_reset_and_polled_again_fires_once_at_the_new_time() {
    with_runtimes(|runtime| {
        for (first, then) in [
            (HOUR, Duration::from_millis(5)),
            (Duration::from_millis(1), Duration::from_millis(20)),
        ] {
            let (mut nap, old) = waiting_in(runtime, first);
            let deadline = Instant::now() + then;
            Pin::new(&mut nap).reset(deadline);
            let (new, waker) = Wakes::new();
            if poll_with(&mut nap, &waker).is_pending() {
                eventually(|| new.count() > 0);
            }
            assert!(Instant::now() >= deadline, "early");
            assert!(poll_with(&mut nap, &waker).is_ready());
            assert!(old.count() <= usize::from(first < HOUR) && new.count() <= 1);
        }
    });
}

#[test]
fn a_sleep_may_be_dropped_on_another_thread_than_it_was_polled() {
    with_runtimes(|runtime| {
        let (send, naps) = mpsc::channel();
        let polling = runtime.spawn(async move {
            for n in 0..2_000 {
                let far = n % 2 == 0;
                let (mut nap, (wakes, waker)) =
                    (sleep(if far { HOUR } else { Duration::from_micros(n) }), Wakes::new());
                let _ready = poll_with(&mut nap, &waker);
                send.send((nap, wakes, far)).unwrap();
                yield_now().await;
            }
        });
        for (nap, wakes, far) in naps {
            drop(nap);
            // No thread has its waker any more, unless it is being woken at this moment.
            eventually(|| Arc::strong_count(&wakes) == 1);
            assert!(wakes.count() <= usize::from(!far));
        }
        runtime.block_on(polling).unwrap();
    });
}
