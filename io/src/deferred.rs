//! Timers of the poll that goes on: they are not registered before it is over.
//!
//! A timer wakes its task. While the task is being polled there is nothing to wake, so a timer that it waits for can be
//! registered when the poll returns, and one that is dropped before that never is. Most are: an operation with a timeout
//! usually ends in the poll that made the timeout, or in the next. Made and dropped like that a timer costs a look at the
//! clock and some stores to a list of the thread's own: no lock, no reference count, no memory.
//!
//! Only for timers that are waited for with the waker of the task itself, and that is told by its *address*: combinators
//! that poll their parts with the task's own context pass it on. An executor that is nested in the task has a waker of
//! its own, and blocks the thread until it is woken; its timers must not wait for the task's poll to return.
//!
//! A timer may be moved to another thread within the poll, and dropped or waited for there. The list is this thread's
//! alone, so the other one leaves word at the shard (`Shard::remove`), and it is read when the list comes there.

use crate::current;
use crate::timer::{Shard, Timer};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

thread_local! {
    // The waker of the task that is being polled on this thread; null if none is. Marked (see `marked`), and so unlike any
    // waker, while one is polled inside of another and while the thread is outside.
    static TASK: Cell<*const Waker> = const { Cell::new(ptr::null()) };
    // The number of the poll that goes on. No other thread has it.
    static STAMP: Cell<u64> = const { Cell::new(0) };
    // Whether there is anything in the list. It has no destructor, and costs one load at the end of each poll.
    static ANY: Cell<bool> = const { Cell::new(false) };
    // Timers that are to be registered when the poll is over. A serial of zero: it was dropped. Without a destructor too,
    // which makes it cheaper to get at: `leave` frees it.
    static LIST: RefCell<ManuallyDrop<Vec<Timer>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// A longer list is not kept for the next poll.
const KEEP: usize = 1_024;

/// Polls a task: `poll` is to use this waker. For executors, on threads that are inside [`enter`](crate::driver::enter);
/// elsewhere it makes no difference.
///
/// Registers the timers that the task waits for when `poll` returns. A task that is done waits for none. The waker is cloned
/// for each, under a lock: its clone must not make or drop timers.
///
/// # Examples
///
/// See the page of the [module](crate::driver).
#[inline]
pub fn poll_task<T>(waker: &Waker, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    let outer = TASK.get();
    // A task that is polled inside of another's poll, whoever does that, defers nothing: the list is the other's.
    TASK.set(if outer.is_null() { waker } else { marked(outer) });
    STAMP.set(STAMP.get() + 1);
    let ended = Ended { outer };
    let result = poll();
    if ANY.get() && outer.is_null() && result.is_pending() {
        register(waker);
    }
    drop(ended);
    result
}

/// The same waker, but unlike any other: what compares itself with it defers nothing.
fn marked(task: *const Waker) -> *const Waker {
    const { assert!(align_of::<Waker>() > 1) };
    task.map_addr(|address| address | 1)
}

struct Ended {
    outer: *const Waker,
}

impl Drop for Ended {
    #[inline]
    fn drop(&mut self) {
        TASK.set(self.outer);
        // It has ended, or panicked. What is left is nobody's timer, or somebody's who polls it again.
        if ANY.get() && self.outer.is_null() {
            forget();
        }
    }
}

#[cold]
fn forget() {
    LIST.with_borrow_mut(|list| {
        if let (Some(shard), Some(last)) = (current::own_timers(), list.last()) {
            shard.expect_none_up_to(last.serial);
        }
        list.clear();
    });
    ANY.set(false);
}

#[cold]
fn register(waker: &Waker) {
    LIST.with_borrow_mut(|list| {
        if let Some(shard) = current::own_timers() {
            shard.insert_deferred(list, waker);
        }
        list.clear();
        list.shrink_to(KEEP);
    });
    ANY.set(false);
}

/// A number that no other timer of the process has, and larger than those that this thread has had before, and than those
/// that any thread had before this one called [`enter`].
pub(crate) fn next_serial() -> u64 {
    const BLOCK: u64 = 1 << 16;
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    let next = NEXT.get();
    // Ordering: relaxed; all that matters is that a block is taken once.
    let serial = if next.is_multiple_of(BLOCK) { BLOCKS.fetch_add(1, Relaxed) * BLOCK } else { next };
    NEXT.set(serial + 1);
    serial
}

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// The thread comes to serve a shard: its serials are larger than those of whoever has before.
pub(crate) fn enter() {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    NEXT.set(0);
    // Ordering: relaxed; all that matters is that it is nobody else's. A thread has a number for each poll of many years.
    STAMP.set(THREADS.fetch_add(1, Relaxed) << 44);
}

/// Names the poll that goes on; zero if none does, or not in a worker.
#[inline]
pub(crate) fn this_poll() -> u64 {
    if TASK.get().is_null() { 0 } else { STAMP.get() }
}

/// The thread serves it no more.
pub(crate) fn leave() {
    ANY.set(false);
    STAMP.set(0);
    drop(ManuallyDrop::into_inner(LIST.take()));
}

/// The poll that goes on stops being served by this thread's shard, which another thread may come to serve: what it has
/// deferred is registered now, and nothing more is deferred. Returns what [`step_in`] needs.
pub(crate) fn step_out() -> *const Waker {
    let task = TASK.get();
    if ANY.get() {
        // SAFETY: without the mark it is the waker that the outermost `poll_task` on this thread borrows. That has not
        // returned: it empties the list before it does, and there is something in it.
        register(unsafe { &*task.map_addr(|address| address & !1) });
    }
    if !task.is_null() {
        TASK.set(marked(task));
    }
    task
}

/// The poll goes on as before [`step_out`].
pub(crate) fn step_in(task: *const Waker) {
    TASK.set(task);
}

/// Whether a timer with this waker can be deferred.
#[inline]
pub(crate) fn is_own(waker: &Waker) -> bool {
    ptr::eq(TASK.get(), waker)
}

/// Defers a timer: the shard that it will go to, and its place in the list. None if it is to be registered at once.
#[inline]
pub(crate) fn defer(timer: Timer, waker: &Waker) -> Option<(&'static Shard, usize)> {
    if !is_own(waker) {
        return None;
    }
    let shard = current::own_timers()?;
    let place = LIST.with_borrow_mut(|list| {
        list.push(timer);
        list.len() - 1
    });
    ANY.set(true);
    Some((shard, place))
}

/// Calls `f` with this thread's list if a timer is still in its place there. False if it is not.
#[inline]
fn with_deferred(place: usize, serial: u64, f: impl FnOnce(&mut Vec<Timer>)) -> bool {
    ANY.get()
        && LIST.with_borrow_mut(|list| {
            let there = list.get(place).is_some_and(|timer| timer.serial == serial);
            if there {
                f(list);
            }
            there
        })
}

/// Whether a timer is still in this thread's list.
pub(crate) fn has(place: usize, serial: u64) -> bool {
    with_deferred(place, serial, |_| ())
}

/// Drops a timer that is still in this thread's list. False if it is not.
#[inline]
pub(crate) fn cancel(place: usize, serial: u64) -> bool {
    with_deferred(place, serial, |list| {
        list[place].serial = 0;
        while list.pop_if(|last| last.serial == 0).is_some() {}
        ANY.set(!list.is_empty());
    })
}

/// Moves a timer that is still in this thread's list to another time. False if it is not there.
pub(crate) fn reset(place: usize, Timer { serial, deadline }: Timer) -> bool {
    with_deferred(place, serial, |list| list[place].deadline = deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Reactor;
    use crate::time::{Sleep, sleep};
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Wake};
    use std::time::Duration;

    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    fn in_worker(f: impl FnOnce(&Waker, &Shard)) {
        let reactor = Reactor::new(1).expect("a reactor starts");
        crate::driver::enter(&reactor, 0, || f(&Waker::from(Arc::new(Task)), reactor.shard(0)));
    }

    fn start(waker: &Waker) -> Sleep {
        let mut sleep = sleep(Duration::from_secs(3_600));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(waker)).is_pending());
        sleep
    }

    #[test]
    fn a_timer_is_registered_when_the_poll_is_over_and_not_before() {
        in_worker(|waker, shard| {
            let mut kept = None;
            let _pending = poll_task::<()>(waker, || {
                kept = Some(start(waker));
                drop(start(waker));
                assert_eq!(shard.len(), 0);
                Poll::Pending
            });
            assert_eq!(shard.len(), 1);
            drop(kept);
            assert_eq!(shard.len(), 0);
        });
    }

    #[test]
    fn tasks_polled_inside_of_a_poll_leave_its_timers_alone() {
        in_worker(|waker, shard| {
            let others = [Waker::from(Arc::new(Task)), Waker::from(Arc::new(Task))];
            let mut kept = Vec::new();
            let _pending = poll_task::<()>(waker, || {
                kept.push(start(waker));
                for result in [Poll::Ready(()), Poll::Pending] {
                    let _inner = poll_task(&others[0], || {
                        kept.push(start(&others[0]));
                        poll_task(&others[1], || result)
                    });
                }
                assert_eq!(shard.len(), 2, "those of the inner ones are registered at once");
                Poll::Pending
            });
            assert_eq!(shard.len(), 3);
        });
    }

    /// What outlives the poll in which its task ended is registered where it is polled next, and leaves nothing behind.
    #[test]
    fn a_timer_that_outlives_its_task_leaves_nothing_behind() {
        in_worker(|waker, shard| {
            for _ in 0..100 {
                let mut kept = None;
                let _ready = poll_task(waker, || {
                    kept = Some(start(waker));
                    Poll::Ready(())
                });
                drop(kept);
            }
            assert_eq!((shard.len(), shard.words()), (0, 0));
        });
    }

    #[test]
    fn a_sleep_that_is_first_polled_late_is_over() {
        in_worker(|waker, _| {
            let mut late = None;
            let _pending = poll_task::<()>(waker, || {
                late = Some(sleep(Duration::from_nanos(1)));
                Poll::Pending
            });
            let mut late = late.expect("it was made");
            std::thread::sleep(Duration::from_millis(1));
            let result = poll_task(waker, || Pin::new(&mut late).poll(&mut Context::from_waker(waker)));
            assert!(result.is_ready());
        });
    }
}
