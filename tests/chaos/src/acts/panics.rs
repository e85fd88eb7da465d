//! Panics: in polls, in destructors of futures and outputs, in wakers.

use crate::actor::Actor;
use crate::failure::{Told, ensure};
use crate::ledger::Fate;
use futures::FutureExt;
use giveway::net::UnixStream;
use giveway::time::{Duration, sleep};
use giveway::yield_now;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// Starts tasks that panic, at once or after a while, and joins some of them.
pub(crate) async fn in_polls(actor: &mut Actor) {
    for _ in 0..1 + actor.random.small(15) {
        let body = super::burst::tiny(actor.random.child());
        let task = actor.start(Fate::Panics, body);
        if !actor.random.once_in(4) && !task.join().await {
            return;
        }
    }
    if actor.random.once_in(4) {
        // A panic that calls the panic hook, and unwinds through a nested `block_on`.
        let number = actor.random.next();
        let nested = || giveway::block_on(async { panic_any(Told(number)) });
        let payload = catch_unwind(AssertUnwindSafe(nested)).expect_err("it panics");
        ensure!(
            payload.downcast_ref() == Some(&Told(number)),
            "a nested panic has another's payload"
        );
    }
}

/// Drops outputs and futures whose destructors panic: by the runtime, by a handle, by an abort.
pub(crate) async fn in_destructors(actor: &mut Actor) {
    for _ in 0..1 + actor.random.small(7) {
        let body = super::burst::tiny(actor.random.child());
        let fate = actor.random.pick(&[Fate::FinishesWithBomb, Fate::HeldWithBomb]);
        let mut task = actor.start(fate, body);
        for _ in 0..actor.random.below(3) {
            yield_now().await;
        }
        if fate == Fate::HeldWithBomb {
            task.abort();
        }
        if actor.random.once_in(2) {
            drop(task);
        } else if !task.join().await {
            return;
        }
    }
}

/// A waker that panics when it is woken, with this number in the payload.
struct Panics(u64);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new(Told(self.0)));
    }
}

/// Leaves timers and sockets with a waker that panics. The thread that wakes it must survive. (Not
/// handles of tasks: async-task holds their wakers, and a panic there ends the process, as the docs
/// of `JoinHandle` say.)
pub(crate) async fn in_wakers(actor: &mut Actor) {
    for _ in 0..1 + actor.random.small(7) {
        let waker = Waker::from(Arc::new(Panics(actor.random.next())));
        // A poll without budget calls the waker at once, so it may panic here.
        let poll = |future: Pin<&mut dyn Future<Output = ()>>| {
            catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker))))
        };
        if actor.random.once_in(4) {
            let Ok((one, other)) = UnixStream::pair() else { return };
            let mut readable = Box::pin(one.readable().map(drop));
            let polled = poll(readable.as_mut());
            drop(other);
            // A future that has panicked must not be polled again.
            if polled.is_ok_and(|poll| poll.is_pending()) && actor.random.once_in(2) {
                readable.await;
            }
        } else {
            let mut nap = pin!(sleep(Duration::from_micros(actor.random.below(60))));
            let _pending_or_panicked = poll(nap.as_mut());
            if actor.random.once_in(2) {
                sleep(Duration::from_micros(30)).await;
            }
            if actor.random.once_in(2) {
                nap.await;
            } else {
                _ = nap.now_or_never();
            }
        }
    }
}
