//! Timers: when they fire, which waker they wake, and what wakers may do.

use super::io_common::{HOUR, Random, Wakes, poll_with, waiting_in};
use giveway::time::MissedTickBehavior::{Burst, Delay, Skip};
use giveway::time::{Duration, Instant, Sleep, interval, interval_at, sleep, sleep_until, timeout};
use giveway::{yield_now, yield_now_if_busy};
use giveway_tests::{eventually, recv, rounds, runtime, watch, with_runtimes};
use std::future::{pending, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::thread;

/// tokio PR 8252: a cancellation that raced with an insertion. Two threads make and drop timers
/// that are first and due at once, so that each is inserted, fired and removed at the same time. A
/// task beside them sleeps for real.
#[test]
fn timers_dropped_while_they_fire_do_not_disturb_others() {
    with_runtimes(|runtime| {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..2 {
                let done = &done;
                scope.spawn(move || {
                    let (_inside, mut random) = (runtime.enter(), Random(seed));
                    // The end of the sleeper ends the loop.
                    while !done.load(SeqCst) {
                        let (wakes, waker) = Wakes::new();
                        let mut nap = sleep(Duration::from_micros(random.below(30) as u64));
                        let _ready = poll_with(&mut nap, &waker);
                        (0..random.below(2_000)).for_each(|_| std::hint::spin_loop());
                        drop(nap);
                        assert!(wakes.count() <= 1);
                    }
                });
            }
            let sleeper = runtime.spawn(async {
                for nap in rounds(200) {
                    let nap = nap as u64;
                    sleep(Duration::from_micros(nap)).await;
                    let inner = sleep(Duration::from_micros(nap));
                    _ = timeout(Duration::from_micros(nap), inner).await;
                }
            });
            runtime.block_on(sleeper).unwrap();
            done.store(true, SeqCst);
        });
    });
}

/// A worker goes to wait in the reactor while another, which has just been there, fires what was
/// due. The first must not wait for longer than it says, or it sleeps through a timer that is made
/// then. Everything is at rest between two rounds, so that no other thread comes by.
#[test]
fn a_timer_made_while_others_fire_is_not_slept_through() {
    with_runtimes(|runtime| {
        let (_far, mut random) = (waiting_in(runtime, HOUR), Random(5));
        for _ in rounds(500) {
            let mut nap = |most| Duration::from_micros(random.below(most) as u64);
            let tasks: Vec<_> = (0..4).map(|_| runtime.spawn(sleep(nap(50)))).collect();
            runtime.block_on(async {
                sleep(nap(50)).await;
                sleep(nap(200)).await;
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    });
}

#[test]
fn only_the_waker_of_the_last_poll_is_woken() {
    with_runtimes(|runtime| {
        let (mut nap, first) = waiting_in(runtime, Duration::from_millis(20));
        let mut all = vec![first];
        for _ in 0..10 {
            let (wakes, waker) = Wakes::new();
            // If the machine stood still meanwhile, the time has come, and the waker before this
            // one was the last.
            if poll_with(&mut nap, &waker).is_ready() {
                break;
            }
            all.push(wakes);
        }
        let last = all.pop().unwrap();
        eventually(|| last.count() == 1);
        assert!(all.iter().all(|wakes| wakes.count() == 0), "and nobody else");
    });
}

#[test]
fn no_time_is_over_at_once_and_all_time_never() {
    with_runtimes(|runtime| {
        let times = runtime.spawn(async {
            let mut never = [
                sleep(Duration::MAX),
                sleep(HOUR * 24 * 365 * 1000),
                sleep_until(Instant::now() + HOUR),
            ];
            for nap in &mut never {
                assert!(futures::poll!(nap).is_pending());
            }
            for _ in 0..1000 {
                sleep(Duration::ZERO).await;
                sleep_until(Instant::now()).await;
            }
            assert_eq!(timeout(Duration::ZERO, ready(1)).await, Ok(1));
            assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());
            assert!(timeout(Duration::MAX, sleep(Duration::from_micros(100))).await.is_ok());
            for missed in [Burst, Delay, Skip] {
                let mut rare = interval(Duration::MAX);
                rare.set_missed_tick_behavior(missed);
                rare.tick().await;
                assert!(futures::poll!(pin!(rare.tick())).is_pending());
                let mut frequent = interval(Duration::from_nanos(1));
                frequent.set_missed_tick_behavior(missed);
                for _ in 0..100 {
                    frequent.tick().await;
                }
            }
        });
        runtime.block_on(times).unwrap();
    });
}

#[test]
fn an_interval_after_a_stall_does_as_it_was_told() {
    with_runtimes(|runtime| {
        let ticking = runtime.spawn(async {
            let period = Duration::from_millis(4);
            for missed in [Burst, Delay, Skip] {
                let start = Instant::now();
                let mut ticks = interval_at(start, period);
                assert_eq!(ticks.tick().await, start);
                // Not earlier: this task may have been late for the first tick already.
                ticks.set_missed_tick_behavior(missed);
                // The stall, of three and a half periods at least, in which no tick is taken.
                while start.elapsed() < period * 7 / 2 {
                    yield_now().await;
                }
                let late = Instant::now();
                assert_eq!(
                    ticks.tick().await,
                    start + period,
                    "{missed:?}: the one that was due first comes at once"
                );
                let next = ticks.tick().await;
                match missed {
                    Burst => assert_eq!(next, start + 2 * period),
                    Delay => assert!(next >= late + period),
                    Skip => {
                        assert!(next > late, "the missed ones are left out");
                        assert_eq!(
                            (next - start).as_nanos() % period.as_nanos(),
                            0,
                            "and the rest come when they would"
                        );
                    }
                }
                assert!(Instant::now() >= next);
            }
        });
        runtime.block_on(ticking).unwrap();
    });
}

/// The tick is late by less than a period, so none was missed. The behaviour applies all the same,
/// as in tokio.
#[test]
fn an_interval_whose_tick_was_taken_late_does_as_it_was_told() {
    with_runtimes(|runtime| {
        let ticking = runtime.spawn(async {
            let period = Duration::from_millis(20);
            for missed in [Burst, Delay, Skip] {
                let start = Instant::now() - period * 9 / 10;
                let mut ticks = interval_at(start, period);
                ticks.set_missed_tick_behavior(missed);
                let late = Instant::now();
                assert_eq!(ticks.tick().await, start, "{missed:?}: it comes at once");
                let next = ticks.tick().await;
                match missed {
                    Burst => assert_eq!(next, start + period),
                    Delay => assert!(
                        next >= late + period,
                        "a period after the late one: {:?}",
                        next - late
                    ),
                    Skip => assert_eq!(
                        (next - start).as_nanos() % period.as_nanos(),
                        0,
                        "at one of the old times"
                    ),
                }
            }
        });
        runtime.block_on(ticking).unwrap();
    });
}

/// Makes and drops timers when it is woken and when it is dropped.
struct Meddler {
    drops: Mutex<Vec<Sleep>>,
    woken: mpsc::Sender<Sleep>,
}

impl Meddler {
    fn meddle(&self) {
        drop(std::mem::take(&mut *self.drops.lock().unwrap()));
        let mut nap = sleep(HOUR);
        assert!(poll_with(&mut nap, Waker::noop()).is_pending());
        drop(nap);
    }
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        self.meddle();
        let mut nap = sleep(Duration::from_millis(1));
        let _pending = poll_with(&mut nap, Waker::noop());
        self.woken.send(nap).unwrap();
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.meddle();
    }
}

#[test]
fn wakers_may_make_and_drop_timers_when_they_are_woken_and_dropped() {
    with_runtimes(|runtime| {
        let (woken, wakes) = mpsc::channel();
        let _inside = runtime.enter();
        for round in 0..100 {
            // The waker owns other timers: one due at the same time, one far away, one whose waker
            // meddles too.
            let meddler = |drops| {
                Waker::from(Arc::new(Meddler { drops: Mutex::new(drops), woken: woken.clone() }))
            };
            let deadline = Instant::now() + Duration::from_micros(100 * (round % 5));
            let mut others = [sleep_until(deadline), sleep(HOUR), sleep(HOUR)];
            _ = poll_with(&mut others[0], Waker::noop());
            _ = poll_with(&mut others[1], Waker::noop());
            _ = poll_with(&mut others[2], &meddler(Vec::new()));
            let mut nap = sleep_until(deadline + Duration::from_micros(1));
            let waker = meddler(others.into());
            if poll_with(&mut nap, &waker).is_pending() {
                drop(recv(&wakes));
            }
            // The first waker is replaced by the second, which is dropped with its timer: both are
            // dropped.
            let mut nap = sleep(HOUR);
            _ = poll_with(&mut nap, &meddler(vec![sleep(HOUR)]));
            _ = poll_with(&mut nap, &meddler(vec![sleep(HOUR)]));
        }
        drop(woken);
    });
}

/// Panics when it is dropped, unless its number is zero. The payload does the same, with a number
/// that is smaller by one.
struct Panics(usize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        drop(Self(3));
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Self(self.0 - 1));
        }
    }
}

/// Other wakers that are due at the same time are woken all the same. The runtime goes on, and
/// ends.
#[test]
fn a_waker_that_panics_does_not_harm_others() {
    let _watch = watch();
    let runtime = runtime(2);
    let deadline = Instant::now() + Duration::from_millis(100);
    let mut naps: Vec<_> = (0..20).map(|_| sleep_until(deadline)).collect();
    let mut all = Vec::new();
    let inside = runtime.enter();
    for (n, nap) in naps.iter_mut().enumerate() {
        let (wakes, waker) = Wakes::new();
        let panics = Waker::from(Arc::new(Panics(0)));
        assert!(poll_with(nap, if n % 2 == 0 { &panics } else { &waker }).is_pending());
        all.push(wakes);
    }
    drop(inside);
    eventually(|| all.iter().skip(1).step_by(2).all(|wakes| wakes.count() == 1));
    runtime.block_on(runtime.spawn(sleep(Duration::from_millis(1)))).unwrap();
    drop(runtime);
}

/// golang 38860: timers were served late while every worker of the scheduler computed.
#[test]
fn timers_fire_while_every_worker_computes() {
    with_runtimes(|runtime| {
        let done = Arc::new(AtomicBool::new(false));
        let computing: Vec<_> = (0..2 * runtime.handle().workers())
            .map(|n| {
                let done = done.clone();
                runtime.spawn(async move {
                    let mut sum = n;
                    while !done.load(SeqCst) {
                        sum = (0..10_000).fold(sum, |sum, n| sum.rotate_left(1) ^ n);
                        yield_now_if_busy().await;
                    }
                    sum
                })
            })
            .collect();
        let ticking = runtime.spawn(async {
            let mut ticks = interval(Duration::from_millis(1));
            for _ in 0..20 {
                ticks.tick().await;
                sleep(Duration::from_micros(100)).await;
            }
        });
        runtime.block_on(ticking).unwrap();
        runtime.block_on(sleep(Duration::from_millis(1)));
        done.store(true, SeqCst);
        computing.into_iter().for_each(|task| _ = runtime.block_on(task).unwrap());
    });
}
