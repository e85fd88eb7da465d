//! Tasks that wake each other, and tasks that are woken by threads of no runtime.

use crate::actor::Actor;
use crate::acts::burst::join_all;
use crate::failure::ensure;
use crate::ledger::Fate;
use crate::world::lock;
use giveway::yield_now;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Starts two tasks that send a number to each other.
pub(crate) async fn ping_pong(actor: &mut Actor) {
    let trips = 1 + actor.random.small(255) as u64;
    let room = 1 + actor.random.index(2);
    let (there, arrivals) = async_channel::bounded::<u64>(room);
    let (back, returns) = async_channel::bounded::<u64>(room);
    let world = actor.world.clone();
    let ping = actor.start(Fate::Finishes, async move {
        for trip in 0..trips {
            if there.send(trip).await.is_err() {
                break;
            }
            match returns.recv().await {
                Ok(answer) => ensure!(answer == trip + 1, "trip {trip} was answered with {answer}"),
                Err(_) => {
                    ensure!(world.closes(), "the other end of a channel is gone in trip {trip}")
                }
            }
        }
    });
    let pong = actor.start(Fate::Finishes, async move {
        while let Ok(trip) = arrivals.recv().await {
            if back.send(trip + 1).await.is_err() {
                break;
            }
        }
    });
    join_all(vec![ping, pong]).await;
}

/// Starts tasks in a ring that pass a baton around several times. Each wakes the next directly by
/// its waker.
pub(crate) async fn relay(actor: &mut Actor) {
    struct Seat {
        has_baton: bool,
        waker: Option<Waker>,
    }
    let (seats, rounds) = (2 + actor.random.small(14), 1 + actor.random.small(31));
    let ring: Arc<Vec<_>> =
        Arc::new((0..seats).map(|n| Mutex::new(Seat { has_baton: n == 0, waker: None })).collect());
    let tasks = (0..seats).map(|seat| {
        let ring = ring.clone();
        actor.start(Fate::Finishes, async move {
            for _ in 0..rounds {
                poll_fn(|cx| {
                    let mut own = lock(&ring[seat]);
                    if std::mem::take(&mut own.has_baton) {
                        return Poll::Ready(());
                    }
                    own.waker = Some(cx.waker().clone());
                    Poll::Pending
                })
                .await;
                let mut next = lock(&ring[(seat + 1) % ring.len()]);
                next.has_baton = true;
                let waker = next.waker.take();
                drop(next);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        })
    });
    let tasks = tasks.collect();
    join_all(tasks).await;
}

/// A future that waits until an outsider rings it. Every poll gives the outsiders another clone of
/// the waker.
struct Bell {
    rung: Arc<AtomicBool>,
    waits: bool,
    world: Arc<crate::world::World>,
    random: crate::random::Random,
}

impl Future for Bell {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.rung.load(SeqCst) {
            return Poll::Ready(());
        }
        let (outsiders, rung) = (self.world.outsiders.clone(), self.rung.clone());
        // This waker counts: the outsider sets `rung` first and wakes second. In the other order
        // the task could be polled before `rung` is set, and would not be woken again.
        let waker = cx.waker().clone();
        if !std::mem::replace(&mut self.waits, true) || self.random.once_in(2) {
            outsiders.run(&mut self.random, move || {
                rung.store(true, SeqCst);
                waker.wake();
            });
        } else {
            // `rung` is set already or will be. The task must be woken by its latest waker, so pass
            // it on.
            outsiders.run(&mut self.random, move || waker.wake());
        }
        if self.random.once_in(2) {
            outsiders.wake(&mut self.random, cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Starts tasks that wait for outsiders, which also wake them more often than needed and too late.
pub(crate) async fn outside(actor: &mut Actor) {
    let count = 1 + actor.random.small(7);
    let tasks = (0..count).map(|_| {
        let (world, mut random) = (actor.world.clone(), actor.random.child());
        actor.start(Fate::Finishes, async move {
            for _ in 0..1 + random.below(3) {
                let (rung, random) = (Arc::default(), random.child());
                Bell { rung, waits: false, world: world.clone(), random }.await;
                yield_now().await;
            }
        })
    });
    let tasks = tasks.collect();
    join_all(tasks).await;
}
