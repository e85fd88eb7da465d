//! Timers: created, awaited, reset, dropped, and moved between tasks, threads and runtimes.

use crate::actor::Actor;
use crate::failure::ensure;
use crate::ledger::Fate;
use crate::random::Random;
use futures::FutureExt;
use giveway::time::{Duration, Instant, Sleep, interval, sleep, sleep_until, timeout};
use std::pin::{Pin, pin};

/// Returns a random time: mostly some tens of microseconds, now and then up to three milliseconds.
pub(crate) fn nap(random: &mut Random) -> Duration {
    Duration::from_micros(if random.once_in(16) { random.below(3_000) } else { random.below(120) })
}

fn check(deadline: Instant) {
    let now = Instant::now();
    ensure!(now >= deadline, "a timer was early by {:?}", deadline - now);
}

async fn one(mut random: Random) {
    let nap = nap(&mut random);
    let deadline = Instant::now() + nap;
    match random.below(8) {
        0 => {
            let mut many: Vec<_> =
                (0..random.small(63)).map(|_| sleep(Duration::from_secs(3_600))).collect();
            many.iter_mut().filter(|_| random.once_in(2)).for_each(|far| _ = far.now_or_never());
        }
        1 => ensure!(
            timeout(nap, std::future::pending::<()>()).await.is_err(),
            "what never ends has ended"
        ),
        2 => ensure!(
            timeout(Duration::from_secs(3_600), async {}).await.is_ok(),
            "an hour has passed"
        ),
        3 => {
            let mut far = pin!(sleep(Duration::from_secs(3_600)));
            _ = far.as_mut().now_or_never();
            far.as_mut().reset(deadline);
            far.await;
            check(deadline);
        }
        4 => {
            let mut ticks = interval(nap.max(Duration::from_micros(1)));
            for _ in 0..3 {
                ticks.tick().await;
            }
        }
        5 => {
            futures::join!(sleep(nap), sleep(nap / 2), sleep_until(deadline));
            check(deadline);
        }
        _ => {
            sleep_until(deadline).await;
            check(deadline);
        }
    }
}

/// Uses timers in this task and in others.
pub(crate) async fn timers(actor: &mut Actor) {
    let count = actor.random.small(15);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let random = actor.random.child();
            actor.start(Fate::Finishes, one(random))
        })
        .collect();
    one(actor.random.child()).await;
    super::burst::join_all(tasks).await;
}

/// Polls a timer here, and moves it to another task, thread or runtime.
pub(crate) async fn moved(actor: &mut Actor) {
    let nap = nap(&mut actor.random);
    let deadline = Instant::now() + nap;
    let mut timer = Box::pin(sleep_until(deadline));
    if actor.random.once_in(4) {
        timer = Box::pin(sleep(nap));
    }
    if !actor.random.once_in(4) {
        _ = timer.as_mut().now_or_never();
    }
    let wait = move |timer: Pin<Box<Sleep>>| async move {
        timer.await;
        check(deadline);
    };
    match actor.random.below(6) {
        0 => _ = actor.start(Fate::Finishes, wait(timer)).join().await,
        1 => drop(actor.start(Fate::Finishes, wait(timer))),
        2 => actor.world.outsiders.clone().run(&mut actor.random, move || drop(timer)),
        // An executor of `futures` on an outsider drives it; this task does not wait for that.
        3 => actor
            .world
            .outsiders
            .clone()
            .run(&mut actor.random, move || futures::executor::block_on(wait(timer))),
        4 => {
            // The runtime around this one, which may be closing.
            if let Some(parent) = actor.world.parent.clone()
                && let Some(handle) = parent.try_handle()
            {
                let task = handle.spawn(wait(timer));
                let result = task.await;
                ensure!(
                    result.is_ok() || parent.closes(),
                    "a timer went to another runtime and was lost: {result:?}"
                );
            }
        }
        _ => {
            timer.as_mut().reset(deadline + Duration::from_micros(20));
            wait(timer).await;
        }
    }
}
