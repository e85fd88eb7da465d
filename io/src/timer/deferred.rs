//! Timers that the poll under way has started: they are registered when the poll returns.
//!
//! A timer wakes its task. A task that is being polled need not be woken, so its timers are kept in
//! a list of the thread, and go to the shard when the poll returns `Pending`. A timer that is
//! dropped before that is never registered. Most timers are dropped early: an operation with a
//! timeout usually ends in the poll that created the timeout, or in the next. A timer that is
//! created and dropped in one poll costs a look at the clock and some stores to a thread-local
//! list: no lock, no reference count, no memory.
//!
//! Only timers that are polled with the waker of the task itself are deferred. The waker is
//! recognized by its *address*: combinators that poll their parts with the task's own context pass
//! that address on. An executor nested in the task has a waker of its own and blocks the thread
//! until that is woken, so its timers must not wait for the task's poll to return.
//!
//! A timer may be sent to another thread within the poll, and dropped or moved to another time
//! there. The list belongs to the thread that deferred the timer, so the other thread leaves a word
//! at the shard (`Shard::remove`, `Shard::reset`). The word is read when the list comes to the
//! shard.

use crate::scope;
use crate::timer::{Deferred, Shard, Timer};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

/// The timers to register when the outermost poll on this thread returns. Only this thread reads or
/// writes the list.
struct List {
    /// Whether the list holds anything: one load at the end of each poll.
    any: Cell<bool>,
    /// The deferred timers, in the order of their serials. A serial of zero marks a timer that was
    /// dropped; the last entry never has it, since `cancel` pops those. `ManuallyDrop` keeps the
    /// thread-local without a destructor, which makes access cheaper; [`free`] frees the memory.
    timers: RefCell<ManuallyDrop<Vec<Deferred>>>,
    /// The serial of this thread's next timer. At a multiple of the block size the thread takes a
    /// new block first.
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

/// The capacity, in timers, above which a list's memory is not kept for the next poll.
const KEEP: usize = 1_024;

/// Polls a task with `poll`, which has to use this waker. For executors, on threads that are inside
/// of [`enter`](crate::driver::enter); elsewhere it only calls `poll`.
///
/// If `poll` returns `Pending`, the timers that the task waits for are registered. A task that is
/// done waits for none. If the reactor was closed meanwhile, the task is woken instead.
///
/// See the [module](crate::driver) for an example.
#[inline]
pub fn poll_task<T>(waker: &Waker, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    // 1. Name the poll. `defer` compares the wakers of timers with this one.
    let ended = Ended(scope::begin_poll(waker));
    let result = poll();
    // 2. Register what the poll has deferred. Only the outermost poll does: the list is that of its
    //    task. `defer_no_more` comes first, because `register` clones the waker, and a clone may
    //    start a timer: one that was deferred now would miss the list, and step 3 would forget it.
    if any() && ended.0.is_none() && result.is_pending() {
        scope::defer_no_more();
        register(waker);
    }
    // 3. End the poll last: before step 2 this would drop the list instead of registering it.
    drop(ended);
    result
}

/// Ends a poll when it is dropped, also if the task panics. Holds the poll around this one.
struct Ended(scope::Outer);

impl Drop for Ended {
    #[inline]
    fn drop(&mut self) {
        scope::end_poll(self.0);
        // The poll was the outermost, and the list was not registered: the task is done, or has
        // panicked. Nothing waits for these timers: one that outlives its task is polled again
        // before it is waited for.
        if any() && self.0.is_none() {
            forget();
        }
    }
}

/// Returns whether timers are deferred on this thread.
#[inline]
pub(crate) fn any() -> bool {
    LIST.with(|list| list.any.get())
}

/// Takes the list out, and leaves it empty.
fn take() -> Vec<Deferred> {
    LIST.with(|list| {
        list.any.set(false);
        ManuallyDrop::into_inner(list.timers.take())
    })
}

/// Drops the list of a poll that nothing waits for. Tells the shard that these timers never come,
/// so that it keeps no word of another thread about them.
#[cold]
fn forget() {
    let timers = take();
    if let (Some(shard), Some(last)) = (scope::attended(), timers.last()) {
        shard.expect_none_up_to(last.timer.serial);
    }
    keep(timers);
}

/// Registers all deferred timers with this waker: that of the outermost poll in the current scope.
/// The caller has called [`scope::defer_no_more`].
#[cold]
pub(crate) fn register(waker: &Waker) {
    // 1. Take the list. The wakers that are cloned in step 2 run code of others, which may drop or
    //    move a timer of the list: it finds the list empty, and leaves a word at the shard.
    let mut timers = take();
    // 2. Clone the wakers, before the shard's lock is taken: no code of others runs under it.
    for deferred in timers.iter_mut().filter(|deferred| deferred.timer.serial != 0) {
        deferred.waker = Some(waker.clone());
    }
    // 3. Hand the list to the shard, which reads the words under its lock. A thread that attends no
    //    shard any more has lent it: `lend` registered the list then, and nothing was deferred
    //    since.
    let refused = scope::attended().is_some_and(|shard| !shard.insert_deferred(&mut timers));
    // 4. Drop the wakers of timers that were not added, without the lock.
    keep(timers);
    if refused {
        // 5. The reactor is closed. The task finds out when it polls its timer, in whichever
        //    runtime that is.
        waker.wake_by_ref();
    }
}

/// Keeps the memory of a list for the next poll, unless timers were deferred meanwhile.
fn keep(mut timers: Vec<Deferred>) {
    timers.clear();
    timers.shrink_to(KEEP);
    LIST.with(|list| {
        if !list.any.get() {
            drop(ManuallyDrop::into_inner(list.timers.replace(ManuallyDrop::new(timers))));
        }
    });
}

/// Returns a serial that no other timer of the process has. It is larger than each that this thread
/// has had before, and than each that any thread had before this one last called [`new_serials`].
pub(crate) fn next_serial() -> u64 {
    const BLOCK: u64 = 1 << 16;
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    LIST.with(|list| {
        let next = list.next_serial.get();
        // Ordering: relaxed; all that matters is that each block is taken once.
        let serial =
            if next.is_multiple_of(BLOCK) { BLOCKS.fetch_add(1, Relaxed) * BLOCK } else { next };
        list.next_serial.set(serial + 1);
        serial
    })
}

/// Makes the serials of this thread larger than those of every thread that has attended its shard
/// before. Called when the thread begins to serve a reactor. Returns the number from which the
/// polls of its scope are counted.
pub(crate) fn new_serials() -> u64 {
    static SCOPES: AtomicU64 = AtomicU64::new(1);
    LIST.with(|list| list.next_serial.set(0));
    // Ordering: relaxed; all that matters is that no other scope has the number. The bits below
    // leave a number for each poll of many years.
    SCOPES.fetch_add(1, Relaxed) << 40
}

/// Frees the list: the thread serves no shard any more.
pub(crate) fn free() {
    drop(take());
}

/// Defers a timer. Returns the shard that it goes to and its place in the list, or `None` if it has
/// to be registered at once: the waker is not that of the task being polled, or the shard is that
/// of a parent process.
#[inline]
pub(crate) fn defer(timer: Timer, waker: &Waker) -> Option<(&'static Shard, usize)> {
    let shard = scope::defers_to(waker).filter(|shard| !shard.in_forked_child())?;
    let place = LIST.with(|list| {
        let mut timers = list.timers.borrow_mut();
        timers.push(Deferred { timer, waker: None });
        list.any.set(true);
        timers.len() - 1
    });
    Some((shard, place))
}

/// Calls `f` with this thread's list if the timer is still in its place there. Returns whether it
/// is. The serial tells the timer from one in the same place of another list.
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

/// Returns whether the timer is still in this thread's list.
pub(crate) fn has(place: usize, serial: u64) -> bool {
    with_deferred(place, serial, |_| ())
}

/// Drops a timer that is still in this thread's list. Returns whether it was there.
#[inline]
pub(crate) fn cancel(place: usize, serial: u64) -> bool {
    with_deferred(place, serial, |timers| {
        // Not removed: that would change the places of the timers behind it.
        timers[place].timer.serial = 0;
        while timers.pop_if(|last| last.timer.serial == 0).is_some() {}
    })
}

/// Moves a timer that is still in this thread's list to another time. Returns whether it was there.
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

    /// A timer that outlives the poll in which its task ended is registered where it is polled
    /// next, and leaves nothing behind.
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
            let result =
                poll_task(waker, || Pin::new(&mut late).poll(&mut Context::from_waker(waker)));
            assert!(result.is_ready());
        });
    }
}
