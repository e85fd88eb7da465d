//! Scopes of a thread, nested in each other and in polls: the outer scope is restored, and nothing
//! of it is lost.

use futures::join;
use giveway::time::{Duration, Sleep, sleep};
use giveway_io::driver::{Reactor, Wait, enter, lend, poll_task, wake_all};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

const HOUR: Duration = Duration::from_secs(3_600);

struct Bell {
    rung: AtomicBool,
    reactor: Arc<Reactor>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, SeqCst);
        self.reactor.notify();
    }
}

/// The executor of one task that the page of `driver` shows.
fn block_on<F: Future>(future: F) -> F::Output {
    let reactor = Reactor::new(1).expect("a reactor starts");
    let bell = Arc::new(Bell { rung: AtomicBool::new(true), reactor: reactor.clone() });
    let waker = Waker::from(bell.clone());
    let (mut future, mut woken) = (pin!(future), Vec::new());
    enter(&reactor, 0, || {
        loop {
            if bell.rung.swap(false, SeqCst) {
                let mut cx = Context::from_waker(&waker);
                if let Poll::Ready(output) = poll_task(&waker, || future.as_mut().poll(&mut cx)) {
                    return output;
                }
            }
            reactor
                .turn(Wait::Unless(&|| bell.rung.load(SeqCst)), &mut woken)
                .expect("the reactor waits");
            wake_all(&mut woken);
        }
    })
}

/// Counts how often its waker is woken.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counter() -> (Arc<Counter>, Waker) {
    let counter = Arc::<Counter>::default();
    (counter.clone(), Waker::from(counter))
}

fn started(duration: Duration, waker: &Waker) -> Sleep {
    let mut sleep = sleep(duration);
    assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(waker)).is_pending());
    sleep
}

/// Takes turns until a timer has fired.
fn turn_until(reactor: &Reactor, fired: impl Fn() -> bool) {
    let mut woken = Vec::new();
    while !fired() {
        reactor.turn(Wait::Not, &mut woken).expect("the reactor looks");
        wake_all(&mut woken);
    }
}

/// The timer of the outer poll was thrown away when the inner executor left its reactor.
#[test]
fn an_executor_nested_in_a_poll_leaves_its_timers_alone() {
    let nested = async { block_on(sleep(Duration::from_millis(1))) };
    giveway::block_on(giveway::spawn(async { join!(sleep(Duration::from_millis(5)), nested) }))
        .unwrap();
    block_on(async {
        join!(sleep(Duration::from_millis(5)), async { block_on(sleep(Duration::from_millis(1))) })
    });
}

#[test]
fn a_nested_scope_that_panics_leaves_the_outer_as_it_was() {
    let (outer, inner) = (Reactor::new(1).unwrap(), Reactor::new(1).unwrap());
    let (count, waker) = counter();
    enter(&outer, 0, || {
        let mut sleeps = Vec::new();
        let _pending = poll_task::<()>(&waker, || {
            sleeps.push(started(Duration::from_nanos(1), &waker));
            let nested = AssertUnwindSafe(|| {
                enter(&inner, 0, || -> () {
                    let (_, waker) = counter();
                    let _ = poll_task::<()>(&waker, || {
                        let _inner = started(HOUR, &waker);
                        panic!("in the inner scope")
                    });
                });
            });
            assert!(catch_unwind(nested).is_err());
            assert!(!inner.is_waited_for(), "the inner timer was dropped");
            sleeps.push(started(Duration::from_nanos(1), &waker));
            Poll::Pending
        });
        turn_until(&outer, || count.0.load(SeqCst) == 2);
    });
}

/// A poll enters the same shard again, and a timer moves while its list is on the way.
#[test]
fn the_same_shard_may_be_entered_again_inside_of_a_poll() {
    let reactor = Reactor::new(1).unwrap();
    let (count, waker) = counter();
    let (inner_count, inner_waker) = counter();
    enter(&reactor, 0, || {
        let mut sleeps = Vec::new();
        let _pending = poll_task::<()>(&waker, || {
            let mut moved = started(HOUR, &waker);
            enter(&reactor, 0, || {
                let _pending = poll_task::<()>(&inner_waker, || {
                    sleeps.push(started(Duration::from_nanos(1), &inner_waker));
                    Poll::Pending
                });
            });
            Pin::new(&mut moved).reset(std::time::Instant::now());
            sleeps.push(moved);
            Poll::Pending
        });
        turn_until(&reactor, || (count.0.load(SeqCst), inner_count.0.load(SeqCst)) == (1, 1));
    });
}

/// Two threads that attend one shard would mix up which deferred timers have come.
#[test]
fn a_shard_that_two_threads_enter_loses_no_timer() {
    let reactor = Reactor::new(1).unwrap();
    let (count, waker) = counter();
    enter(&reactor, 0, || {
        let mut kept = None;
        let _pending = poll_task::<()>(&waker, || {
            let mut moved = started(HOUR, &waker);
            // Takes serials that are larger than those of `moved`, and brings them to the shard
            // first.
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    enter(&reactor, 0, || {
                        let (_, waker) = counter();
                        let _pending = poll_task::<()>(&waker, || {
                            std::mem::forget(started(HOUR, &waker));
                            Poll::Pending
                        });
                    });
                });
            });
            // On a thread that does not have the list of `moved`.
            let moved = std::thread::scope(|threads| {
                let reset = || {
                    Pin::new(&mut moved).reset(std::time::Instant::now());
                    moved
                };
                threads.spawn(reset).join().unwrap()
            });
            kept = Some(moved);
            Poll::Pending
        });
        turn_until(&reactor, || count.0.load(SeqCst) == 1);
    });
}

/// `lend` registers the timers of the poll, wherever in the poll it is called. A thread that has
/// lost its shard is served elsewhere.
#[test]
fn lending_registers_the_timers_of_the_poll_and_losing_sends_the_others_elsewhere() {
    for keeps in [true, false] {
        let reactor = Reactor::new(1).unwrap();
        let (count, waker) = counter();
        let (_, nested_waker) = counter();
        enter(&reactor, 0, || {
            let mut sleeps = Vec::new();
            let _pending = poll_task::<()>(&waker, || {
                sleeps.push(started(Duration::from_nanos(1), &waker));
                let _nested = poll_task::<()>(&nested_waker, || {
                    lend(|| turn_until(&reactor, || count.0.load(SeqCst) == 1), || keeps);
                    Poll::Pending
                });
                sleeps.push(started(HOUR, &waker));
                Poll::Pending
            });
            assert_eq!(reactor.is_waited_for(), keeps);
        });
    }
}

/// Once a use after free: a poll that had ended was taken for one that goes on.
#[test]
fn a_call_that_lent_its_shard_in_a_poll_leaves_nothing_behind_when_that_poll_ends() {
    let reactor = Reactor::new(1).unwrap();
    enter(&reactor, 0, || {
        let (_, waker) = counter();
        let waker = Box::new(waker);
        let _ = poll_task::<()>(&waker, || {
            let panics = AssertUnwindSafe(|| lend(|| panic!("in the call"), || true));
            assert!(catch_unwind::<_, ()>(panics).is_err());
            Poll::Pending
        });
        let mut late = sleep(HOUR);
        assert!(Pin::new(&mut late).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        lend(|| (), || true);
        assert!(reactor.is_waited_for());
    });
}

/// A poll ends on a reactor that was closed meanwhile: nothing would ever wake its task.
#[test]
fn a_deferred_timer_that_comes_to_a_closed_reactor_wakes_its_task() {
    let reactor = Reactor::new(1).unwrap();
    let (count, waker) = counter();
    enter(&reactor, 0, || {
        let mut kept = None;
        let _pending = poll_task::<()>(&waker, || {
            kept = Some(started(HOUR, &waker));
            reactor.close();
            Poll::Pending
        });
    });
    assert_eq!(count.0.load(SeqCst), 1);
}

/// A timer that is polled with another waker may fire between the two looks at it. Then the new
/// waker is dropped, and that may run any code.
#[test]
fn a_waker_that_comes_too_late_for_its_timer_may_drop_another_timer() {
    let reactor = Reactor::new(1).unwrap();
    enter(&reactor, 0, || {
        let mut short = started(Duration::from_millis(1), Waker::noop());
        let other = started(HOUR, Waker::noop());
        let late = Arc::new(Late {
            reactor: reactor.clone(),
            short: short.deadline(),
            holds: Mutex::new(Some(other)),
        });
        let waker = late_waker::waker(late);
        let polled = Pin::new(&mut short).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending() || polled.is_ready());
    });
}

/// The state of a waker that fires the timer when it is cloned, and drops another timer with its
/// clone.
struct Late {
    reactor: Arc<Reactor>,
    short: std::time::Instant,
    holds: Mutex<Option<Sleep>>,
}

impl Late {
    fn cloned(&self) {
        while std::time::Instant::now() < self.short {
            std::hint::spin_loop();
        }
        let mut woken = Vec::new();
        self.reactor.turn(Wait::Not, &mut woken).expect("the reactor looks");
    }

    fn dropped(&self) {
        drop(self.holds.lock().unwrap().take());
    }
}

/// A waker with its own `clone` and `drop`.
mod late_waker {
    use super::Late;
    use std::sync::Arc;
    use std::task::{RawWaker, RawWakerVTable, Waker};

    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, drop, |_| (), drop);

    pub(super) fn waker(late: Arc<Late>) -> Waker {
        // SAFETY: the functions of `VTABLE` must keep the contract of a waker. Each takes the
        // pointer as that of an `Arc<Late>`, of which every waker holds one count: `clone` adds a
        // count, `drop` gives one back, for a wake-up by value too, and a wake-up by reference
        // changes nothing. `Late` is `Send` and `Sync`.
        unsafe { Waker::new(Arc::into_raw(late).cast(), &VTABLE) }
    }

    fn clone(late: *const ()) -> RawWaker {
        // SAFETY: the pointer comes from `Arc::into_raw`, and the waker that is cloned holds a
        // count for the length of the call.
        unsafe { Arc::increment_strong_count(late.cast::<Late>()) };
        // SAFETY: the pointer comes from `Arc::into_raw`, so it is aligned and its value is
        // initialized. The waker that is cloned holds a count, so the value is alive; there are
        // only shared references to it.
        unsafe { &*late.cast::<Late>() }.cloned();
        RawWaker::new(late, &VTABLE)
    }

    fn drop(late: *const ()) {
        // SAFETY: the pointer comes from `Arc::into_raw`, and the waker that ends here gives its
        // count to this `Arc`, once.
        let late = unsafe { Arc::from_raw(late.cast::<Late>()) };
        late.dropped();
    }
}
