//! A million timers at once, made and dropped in no order, in a process of its own whose memory is
//! measured.

#![cfg(target_os = "linux")]

use super::io_common::Random;
use giveway::Runtime;
use giveway::budget::unconstrained;
use giveway::time::{Duration, Instant, Sleep, sleep_until};
use giveway_tests::{Gate, eventually, in_child, runtime, watch};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::thread;

/// The number of timers that are pending at once.
const TIMERS: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// The number of threads that make timers, and of tasks that do.
const MAKERS: usize = 4;

/// The waker of one timer. It notes how often it was woken, and whether that was ever too early.
struct Waiter {
    deadline: Instant,
    woken: AtomicU32,
    early: AtomicBool,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if Instant::now() < self.deadline {
            self.early.store(true, SeqCst);
        }
        self.woken.fetch_add(1, SeqCst);
    }
}

impl Waiter {
    fn assert_woken(self: &Arc<Self>, times: std::ops::RangeInclusive<u32>) {
        assert!(!self.early.load(SeqCst), "woken before the time had come");
        let woken = self.woken.load(SeqCst);
        assert!(times.contains(&woken), "woken {woken} times, and not {times:?}");
        // A waker that is being woken is released right after.
        eventually(|| Arc::strong_count(self) == 1);
    }
}

/// One maker's timers.
struct Timers {
    random: Random,
    pending: Vec<(Sleep, Arc<Waiter>)>,
    // Dropped before their time.
    never: Vec<Arc<Waiter>>,
    // Dropped when their time had come.
    perhaps: Vec<Arc<Waiter>>,
    // Kept until they had fired.
    fired: Vec<Arc<Waiter>>,
}

impl Timers {
    fn new(seed: usize) -> Self {
        let random = Random(seed as u64);
        Self {
            random,
            pending: Vec::new(),
            never: Vec::new(),
            perhaps: Vec::new(),
            fired: Vec::new(),
        }
    }

    /// Makes a timer. One in eight is due within 20 ms, the others in an hour, in no order.
    fn make(&mut self) {
        let near = self.random.below(8) == 0;
        let nanos = self.random.below(20_000_000) as u64;
        let deadline = Instant::now()
            + Duration::from_nanos(if near { nanos } else { 3_600_000_000_000 + nanos });
        let waiter =
            Arc::new(Waiter { deadline, woken: AtomicU32::new(0), early: AtomicBool::new(false) });
        let mut sleep = sleep_until(deadline);
        let waker = Waker::from(waiter.clone());
        // Without the budget of the calling task: a spent budget would wake `waker` as well.
        if Pin::new(&mut unconstrained(&mut sleep))
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            self.pending.push((sleep, waiter));
        } else {
            assert!(Instant::now() >= deadline, "ready before the time had come");
        }
    }

    /// Ends any one of the pending timers: after it has fired, while it fires, or before its time.
    fn end_one(&mut self) {
        let (sleep, waiter) = self.pending.swap_remove(self.random.below(self.pending.len()));
        if Instant::now() >= waiter.deadline && self.random.below(2) == 0 {
            eventually(|| waiter.woken.load(SeqCst) > 0);
            drop(sleep);
            self.fired.push(waiter);
            return;
        }
        drop(sleep);
        if Instant::now() < waiter.deadline { &mut self.never } else { &mut self.perhaps }
            .push(waiter);
    }

    /// Makes some steps of the second half: ends timers in no order, and makes one more for every
    /// four. Returns false when none is left.
    fn step(&mut self) -> bool {
        for _ in 0..256.min(self.pending.len()) {
            self.end_one();
            if self.random.below(4) == 0 {
                self.make();
            }
        }
        !self.pending.is_empty()
    }

    fn assert_all(&self) {
        self.never.iter().for_each(|waiter| waiter.assert_woken(0..=0));
        self.perhaps.iter().for_each(|waiter| waiter.assert_woken(0..=1));
        self.fired.iter().for_each(|waiter| waiter.assert_woken(1..=1));
        let all = self.never.len() + self.perhaps.len() + self.fired.len();
        // Timers that were due before their first poll are in no list.
        assert!(
            all >= TIMERS / (3 * MAKERS) && !self.fired.is_empty() && !self.never.is_empty(),
            "{all}"
        );
    }
}

/// Returns the resident memory of this process, in bytes, without what the allocator keeps for
/// later.
fn resident() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and only gives unused memory back.
    unsafe {
        libc::malloc_trim(0)
    };
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("the second field");
    pages * 4096
}

/// Every maker fills its list, then all begin at once to drop timers and to make more. Half of the
/// makers are tasks.
fn round(runtime: &Runtime, seed: usize) {
    let (each, all_made) = (TIMERS / (2 * MAKERS), Gate::new());
    let (made, makers_ready) = async_channel::unbounded();
    let tasks: Vec<_> = (0..MAKERS)
        .map(|maker| {
            let (made, begun) = (made.clone(), all_made.clone());
            runtime.spawn(async move {
                let mut timers = Timers::new(seed + maker);
                for n in 0..each {
                    timers.make();
                    if n % 256 == 0 {
                        giveway::yield_now().await;
                    }
                }
                made.try_send(()).unwrap();
                while !begun.is_open() {
                    giveway::yield_now().await;
                }
                while timers.step() {
                    giveway::yield_now().await;
                }
                timers
            })
        })
        .collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..MAKERS)
            .map(|maker| {
                let (made, begun) = (made.clone(), all_made.clone());
                scope.spawn(move || {
                    let _inside = runtime.enter();
                    let mut timers = Timers::new(seed + MAKERS + maker);
                    (0..each).for_each(|_| timers.make());
                    made.try_send(()).unwrap();
                    begun.wait();
                    while timers.step() {}
                    timers
                })
            })
            .collect();
        (0..2 * MAKERS).for_each(|_| makers_ready.recv_blocking().unwrap());
        all_made.open();
        let all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        all.iter().for_each(Timers::assert_all);
    });
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap().assert_all());
}

#[test]
fn a_million_timers_each_fire_once_or_never() {
    let test = "io_timers_stress::a_million_timers_each_fire_once_or_never";
    // A single arena: memory that is free at the end of another one is never given back.
    let child = in_child(test, &[("MALLOC_ARENA_MAX", "1")], || {
        let runtime = runtime(2);
        let (before, mut after_first) = (resident(), 0);
        for seed in 0..3 {
            let _watch = watch();
            round(&runtime, 100 * seed);
            if seed == 0 {
                after_first = resident();
            }
        }
        let grown = resident().saturating_sub(after_first);
        // A timer that was left behind, with its waker, would take a hundred bytes. The makers run
        // in other places in each round, so each place has room for another number of timers.
        assert!(
            grown < (32 << 20) + 2 * TIMERS * 16,
            "grown by {grown} bytes over {} timers",
            2 * TIMERS
        );
        drop(runtime);
        let left = resident().saturating_sub(before);
        println!(
            "grown by {grown} bytes over {} timers, and {left} bytes are left of all",
            2 * TIMERS
        );
        assert!(left < (16 << 20) + TIMERS * 48, "{left} bytes are left when the runtime is gone");
    });
    if let Some(child) = child {
        child.assert_success();
    }
}
