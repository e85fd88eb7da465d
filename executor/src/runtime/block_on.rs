//! Running a future on a thread of the user's, or inside of a task.

use crate::monitor::deadlock;
use crate::parker::Parker;
use crate::runtime::host::BlockOnHost;
use crate::runtime::{Phase, Shared, Waiter, context};
use crate::sched::{Way, Yielded};
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
    // The parker and the waker of this thread's `block_on`, while no `block_on` uses them.
    static CACHED: RefCell<Option<(Arc<Parker>, Waker)>> = const { RefCell::new(None) };
}

fn new_parker() -> (Arc<Parker>, Waker) {
    let parker = Arc::new(Parker::new());
    parker.bind();
    let waker = Waker::from(parker.clone());
    (parker, waker)
}

/// Polls `future` on this thread until it is ready, and parks in between.
pub(crate) fn block_on<F: Future>(
    shared: &Arc<Shared>,
    place: &Location<'_>,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    // A `block_on` within this one finds the cache empty and makes a parker of its own. A wake-up
    // that was meant for an earlier user of a cached parker costs one needless poll.
    let (parker, waker) = CACHED.try_with(RefCell::take).ok().flatten().unwrap_or_else(new_parker);
    let mut cx = Context::from_waker(&waker);
    let (caller, watched, fatal) =
        (BlockOnHost::new(shared), deadlock::Caller::new(shared), Waiter::new(shared));
    let park = || match &watched {
        Some(watched) => watched.park(&parker),
        None => {
            parker.park();
            None
        }
    };
    // The interrupt is a flag of its own. The flag of a worker or of another executor further up
    // the stack is cleared only when the poll that this call is in returns.
    let mut verdict = None;
    let poll_to_the_end = || {
        loop {
            // 1. The verdict comes before the poll: a result that the poll then finds missing stays
            // missing.
            let verdict_before = fatal.as_ref().and_then(Waiter::verdict);
            caller.begin_poll();
            match with_budget(OPERATIONS, || future.as_mut().poll(&mut cx)) {
                Poll::Ready(output) => break output,
                Poll::Pending => {
                    // 2. Inside of a blocking call that has lent its core, what this future waits
                    // for may be queued on that core.
                    context::with_away(|away| {
                        if let Some(worker) = away {
                            worker.about_to_wait();
                        }
                    });
                    // 3. Giving way comes before parking: the yield point that asked has woken the
                    // future.
                    match caller.asked() {
                        Some(Way::YieldQueue) => {
                            wait_in_yield_queue(shared);
                            continue;
                        }
                        Some(Way::Swap) => continue,
                        None => {}
                    }
                    // 4. A verdict is believed only after one more poll, and if the future was not
                    // woken since: a wake-up may have come at the moment of the verdict.
                    if let Some(verdict) =
                        verdict.take().or(verdict_before).filter(|_| !parker.has_token())
                    {
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

/// Waits in the yield queue until a worker takes the entry. The whole future gives way: it is not
/// polled meanwhile, whatever else it waits for.
#[cold]
fn wait_in_yield_queue(shared: &Arc<Shared>) {
    let (turn, waker) = new_parker();
    shared.meter.yield_point_outside(true);
    shared.push_to_yield_queue(Yielded::Thread(waker));
    // Closing wakes the threads in the queue, under its lock, after the gate is closed. If that has
    // passed before the push, the lock makes the closed gate visible here.
    if shared.gate.phase() == Phase::Open {
        turn.park();
    }
}
