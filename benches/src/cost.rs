//! What does one yield call cost when there is no reason to yield?
//!
//! A task calls the yield point in a loop, eight times a turn, and does nothing else. The figure
//! contains the loop's own instructions; `--bin give_way` prints the time of a loop without a call
//! beside it.
//!
//! Not isolated: what else the machine does. Therefore callers take the median of several runs.

use crate::crew::Crew;
use crate::peers::Peer;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

/// Returns the nanoseconds of a call, in a task that calls the peer's polite yield `calls` times.
pub fn per_call<P: Peer>(calls: u64, clock: fn() -> f64) -> f64 {
    let mut task = Box::pin(async move {
        let start = clock();
        for i in 0..calls / 8 {
            black_box(i);
            // Eight in a turn: the counter of a loop around an `await` is in memory, and loading
            // and storing it would be most of the figure.
            P::polite_yield().await;
            P::polite_yield().await;
            P::polite_yield().await;
            P::polite_yield().await;
            P::polite_yield().await;
            P::polite_yield().await;
            P::polite_yield().await;
            P::polite_yield().await;
        }
        (clock() - start) / calls as f64
    });
    let task = poll_fn(move |cx| measured(task.as_mut(), cx));
    P::block_on(async { P::spawn(task).await })
}

/// Returns the nanoseconds of the wall clock since its first call.
pub fn wall_time() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as f64
}

/// Returns the nanoseconds of CPU time that the calling thread has had, so time in which another
/// thread has the CPU does not count. For calls that do not give way: then the task stays on its
/// thread.
///
/// # Panics
///
/// If the system has no such clock.
pub fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable `timespec` that lives during the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every thread has a clock");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Polls the task, under a name by which `benches/instructions` finds the loop.
#[inline(never)]
fn measured<T>(task: Pin<&mut (dyn Future<Output = T> + Send)>, cx: &mut Context<'_>) -> Poll<T> {
    task.poll(cx)
}

/// Returns the nanoseconds of a turn of the same loop without a call.
pub fn empty_loop<P: Peer>(turns: u64) -> f64 {
    let task = async move {
        let start = thread_time();
        for i in 0..turns {
            black_box(i);
        }
        (thread_time() - start) / turns as f64
    };
    P::block_on(async { P::spawn(task).await })
}

/// Starts polite loops on every worker but one, so that a task beside them finds no worker idle and
/// no task waiting. Returns when each loop runs.
pub fn keep_others_busy<P: Peer>(workers: usize) -> Crew<P> {
    let running = Arc::new(AtomicUsize::new(0));
    let crew = Crew::start(workers - 1, |stop| {
        let running = running.clone();
        P::spawn(async move {
            running.fetch_add(1, Relaxed);
            while !stop.load(Relaxed) {
                P::polite_yield().await;
            }
        })
    });
    while running.load(Relaxed) < workers - 1 {
        std::thread::yield_now();
    }
    crew
}
