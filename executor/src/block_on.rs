//! Running a future on a thread of the user's, or inside of a task.

use crate::deadlock;
use crate::host::Caller;
use crate::parker::Parker;
use crate::runtime::{Phase, Shared, Waiter, context};
use crate::sched::Yielded;
use giveway_budget::{OPERATIONS, with_budget, with_interrupt};
use giveway_yield::host::with_host;
use std::cell::RefCell;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Wake, Waker};

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

thread_local! {
    // The parker and waker of this thread's `block_on`, while none is using them.
    static CACHED: RefCell<Option<(Arc<Parker>, Waker)>> = const { RefCell::new(None) };
}

fn new_parker() -> (Arc<Parker>, Waker) {
    let parker = Arc::new(Parker::new());
    parker.bind();
    let waker = Waker::from(parker.clone());
    (parker, waker)
}

/// Polls `future` on this thread until it is ready, parking in between.
pub(crate) fn block_on<F: Future>(shared: &Arc<Shared>, place: &Location<'_>, future: F) -> F::Output {
    let mut future = pin!(future);
    // A `block_on` within this one finds the cache empty and makes a parker of its own. A wake-up meant for an
    // earlier user of a cached parker costs one poll too many.
    let (parker, waker) = CACHED.try_with(RefCell::take).ok().flatten().unwrap_or_else(new_parker);
    let mut cx = Context::from_waker(&waker);
    let (caller, watched, fatal) = (Caller::new(shared), deadlock::Caller::new(shared), Waiter::new(shared));
    let park = || match &watched {
        Some(watched) => watched.park(&parker),
        None => {
            parker.park();
            None
        }
    };
    // A flag of its own: that of a worker or of another executor further up the stack is lowered only when the poll that
    // this is in returns.
    let mut verdict = None;
    let poll_to_the_end = || {
        loop {
            let verdict_before = fatal.as_ref().and_then(Waiter::verdict);
            caller.begin_poll();
            match with_budget(OPERATIONS, || future.as_mut().poll(&mut cx)) {
                Poll::Ready(output) => break output,
                Poll::Pending => {
                    context::with_away(|away| {
                        if let Some(worker) = away {
                            worker.about_to_wait();
                        }
                    });
                    if caller.asked() {
                        give_way(shared);
                        continue;
                    }
                    // Polled once more before it is believed: it may have been woken at this very moment.
                    if let Some(verdict) = verdict.take().or(verdict_before).filter(|_| !parker.has_token()) {
                        panic!("{verdict}\n`block_on` was called at {place}");
                    }
                    verdict = match &fatal {
                        Some(fatal) => fatal.park(&parker, park),
                        None => park(),
                    };
                }
            }
        }
    };
    let output = with_host(&caller, || with_interrupt(&AtomicBool::new(false), poll_to_the_end));
    let _ = CACHED.try_with(|cached| cached.replace(Some((parker, waker))));
    output
}

/// Waits in the yield queue. Whatever else the future waits for, it is not polled meanwhile: the whole of it gives way.
#[cold]
fn give_way(shared: &Arc<Shared>) {
    let (turn, waker) = new_parker();
    shared.meter.yield_point_outside(true);
    shared.push_yielded(Yielded::Thread(waker));
    // Closing wakes whoever is in the queue, under its lock, after the gate is closed: if that has passed, the lock shows
    // us the gate.
    if shared.gate.phase() == Phase::Open {
        turn.park();
    }
}
