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

use crate::scope;
use crate::timer::{Deferred, Shard, Timer};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

/// The timers that are to be registered when the outermost poll on this thread returns.
struct List {
    // Whether there is anything in the list: one load at the end of each poll.
    any: Cell<bool>,
    // A serial of zero: it was dropped. Without a destructor, which makes the thread-local cheaper to get at: `free` frees it.
    timers: RefCell<ManuallyDrop<Vec<Deferred>>>,
    next_serial: Cell<u64>,
}

thread_local! {
    static LIST: List = const {
        List {
            any: Cell::new(false),
            timers: RefCell::new(ManuallyDrop::new(Vec::new())),
            next_serial: Cell::new(0),
        }
    };
}

/// A longer list is not kept for the next poll.
const KEEP: usize = 1_024;

/// Polls a task: `poll` is to use this waker. For executors, on threads that are inside of [`enter`](crate::driver::enter);
/// elsewhere it makes no difference.
///
/// Registers the timers that the task waits for when `poll` returns. A task that is done waits for none. If the reactor was
/// closed meanwhile, the task is woken instead.
///
/// # Examples
///
/// See the page of the [module](crate::driver).
#[inline]
pub fn poll_task<T>(waker: &Waker, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    let ended = Ended(scope::begin_poll(waker));
    let result = poll();
    if any() && ended.0.is_none() && result.is_pending() {
        scope::defer_no_more();
        register(waker);
    }
    drop(ended);
    result
}

struct Ended(scope::Outer);

impl Drop for Ended {
    #[inline]
    fn drop(&mut self) {
        scope::end_poll(self.0);
        // The task has ended, or panicked: nothing waits for what is left, or it is polled again first.
        if any() && self.0.is_none() {
            forget();
        }
    }
}

/// Whether timers were deferred.
#[inline]
pub(crate) fn any() -> bool {
    LIST.with(|list| list.any.get())
}

fn take() -> Vec<Deferred> {
    LIST.with(|list| {
        list.any.set(false);
        ManuallyDrop::into_inner(list.timers.take())
    })
}

#[cold]
fn forget() {
    let timers = take();
    if let (Some(shard), Some(last)) = (scope::attended(), timers.last()) {
        shard.expect_none_up_to(last.timer.serial);
    }
    keep(timers);
}

/// Registers what was deferred, all of it with this waker: that of the outermost poll in the current scope, which
/// [defers no more](scope::defer_no_more).
#[cold]
pub(crate) fn register(waker: &Waker) {
    let mut timers = take();
    for deferred in timers.iter_mut().filter(|deferred| deferred.timer.serial != 0) {
        deferred.waker = Some(waker.clone());
    }
    // A shard that is not attended any more was lent, and then the list was registered before.
    let refused = scope::attended().is_some_and(|shard| !shard.insert_deferred(&mut timers));
    keep(timers);
    if refused {
        // The runtime is shut down. The task finds out when it polls its timer, wherever that is.
        waker.wake_by_ref();
    }
}

/// Keeps the memory of a list for the next poll.
fn keep(mut timers: Vec<Deferred>) {
    timers.clear();
    timers.shrink_to(KEEP);
    LIST.with(|list| {
        if !list.any.get() {
            drop(ManuallyDrop::into_inner(list.timers.replace(ManuallyDrop::new(timers))));
        }
    });
}

/// A number that no other timer of the process has, and larger than those that this thread has had before, and than those
/// that any thread had before this one called [`new_serials`].
pub(crate) fn next_serial() -> u64 {
    const BLOCK: u64 = 1 << 16;
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    LIST.with(|list| {
        let next = list.next_serial.get();
        // Ordering: relaxed; all that matters is that a block is taken once.
        let serial = if next.is_multiple_of(BLOCK) { BLOCKS.fetch_add(1, Relaxed) * BLOCK } else { next };
        list.next_serial.set(serial + 1);
        serial
    })
}

/// The thread comes to serve a shard: its serials are larger than those of any thread that has served it before. Returns the
/// number of its first poll.
pub(crate) fn new_serials() -> u64 {
    static SCOPES: AtomicU64 = AtomicU64::new(1);
    LIST.with(|list| list.next_serial.set(0));
    // Ordering: relaxed; all that matters is that no other scope has it. There is a number for each poll of many years.
    SCOPES.fetch_add(1, Relaxed) << 40
}

/// The thread serves no shard any more: frees the list.
pub(crate) fn free() {
    drop(take());
}

/// Defers a timer: the shard that it will go to, and its place in the list. None if it is to be registered at once.
#[inline]
pub(crate) fn defer(timer: Timer, waker: &Waker) -> Option<(&'static Shard, usize)> {
    let shard = scope::defers_to(waker).filter(|shard| !shard.is_elsewhere())?;
    let place = LIST.with(|list| {
        let mut timers = list.timers.borrow_mut();
        timers.push(Deferred { timer, waker: None });
        list.any.set(true);
        timers.len() - 1
    });
    Some((shard, place))
}

/// Calls `f` with this thread's list if a timer is still in its place there. False if it is not.
#[inline]
fn with_deferred(place: usize, serial: u64, f: impl FnOnce(&mut Vec<Deferred>)) -> bool {
    LIST.with(|list| {
        if !list.any.get() {
            return false;
        }
        let mut timers = list.timers.borrow_mut();
        let there = timers.get(place).is_some_and(|deferred| deferred.timer.serial == serial);
        if there {
            f(&mut timers);
            list.any.set(!timers.is_empty());
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
    with_deferred(place, serial, |timers| {
        timers[place].timer.serial = 0;
        while timers.pop_if(|last| last.timer.serial == 0).is_some() {}
    })
}

/// Moves a timer that is still in this thread's list to another time. False if it is not there.
pub(crate) fn reset(place: usize, Timer { serial, deadline }: Timer) -> bool {
    with_deferred(place, serial, |timers| timers[place].timer.deadline = deadline)
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
