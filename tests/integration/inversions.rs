//! Lowered threads hold no lock that others need: wherever the kernel stops them, the foreground goes on.

#![cfg(target_os = "linux")]

use futures::io::{AsyncReadExt, AsyncWriteExt};
use giveway::elastic::Pacer;
use giveway::net::UnixStream;
use giveway::task::{Builder, Class};
use giveway::time::{sleep, timeout};
use giveway::{Runtime, spawn, spawn_background, spawn_pinned, yield_now};
use giveway_tests::{HANG, eventually, isolated, rounds, runtime, watch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// The system's allocator, which has locks of its own: a thread is not held while it is in there.
struct Allocator;

thread_local! {
    static ALLOCATING: Cell<bool> = const { Cell::new(false) };
}

fn allocating<R>(f: impl FnOnce() -> R) -> R {
    let before = ALLOCATING.replace(true);
    let result = f();
    ALLOCATING.set(before);
    result
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller owes us, we owe.
        allocating(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        allocating(|| unsafe { System.dealloc(memory, layout) });
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        allocating(|| unsafe { System.realloc(memory, layout, size) })
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// How many threads are held, and the number of the round for which they are.
static HELD: AtomicUsize = AtomicUsize::new(0);
static ROUND: AtomicUsize = AtomicUsize::new(0);

/// Holds the thread that it interrupts, wherever that is, until the next round.
extern "C" fn hold(_signal: libc::c_int) {
    if ALLOCATING.get() {
        return;
    }
    // SAFETY: asks for an address, and touches no memory.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: a variable of the calling thread, which is there for as long as the thread is.
    let errno = unsafe { *location };
    let round = ROUND.load(SeqCst);
    HELD.fetch_add(1, SeqCst);
    while ROUND.load(SeqCst) == round {
        // SAFETY: touches no memory, and a signal handler may call it.
        unsafe { libc::usleep(200) };
    }
    HELD.fetch_sub(1, SeqCst);
    // SAFETY: as above.
    unsafe { *location = errno };
}

/// The threads of this process that are lowered, by their numbers.
fn lowered_threads() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    // SAFETY: asks for a number, and touches no memory.
    let is_lowered = |&thread: &i32| unsafe { libc::getpriority(libc::PRIO_PROCESS, thread.cast_unsigned()) == 19 };
    threads.filter_map(number).filter(is_lowered).collect()
}

/// Lets go of the threads that are held, also if the test fails.
struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        // One that was sent a signal twice is held twice.
        while HELD.load(SeqCst) > 0 {
            ROUND.fetch_add(1, SeqCst);
            thread::yield_now();
        }
    }
}

/// Holds all these threads, wherever they are.
#[must_use]
fn hold_all(threads: &[i32]) -> Held {
    let (held, process) = (Held, std::process::id().cast_signed());
    for (others, &thread) in threads.iter().enumerate() {
        while HELD.load(SeqCst) == others {
            // SAFETY: no memory is involved, and the thread is one of this process, which does not end meanwhile.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2) };
            let start = Instant::now();
            while HELD.load(SeqCst) == others && start.elapsed() < Duration::from_millis(5) {
                thread::yield_now();
            }
        }
    }
    held
}

/// Takes locks of the runtime for most of its time, in one poll.
fn bustle(number: usize, stop: &AtomicBool) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut step = number;
    while !stop.load(SeqCst) {
        step += 1;
        match step % 5 {
            0 => drop(Builder::new().class(Class::Foreground).spawn(async {})),
            1 => drop(Builder::new().name("bustle").spawn(async {})),
            2 => {
                let mut sleep = pin!(sleep(HANG));
                assert!(sleep.as_mut().poll(&mut cx).is_pending());
            }
            3 => {
                let (mut here, _there) = UnixStream::pair().unwrap();
                assert!(pin!(here.read(&mut [0])).poll(&mut cx).is_pending());
            }
            _ => drop(Builder::new().class(Class::Foreground).spawn_blocking(|| ())),
        }
        if step.is_multiple_of(50) {
            // Not more than the workers can do.
            giveway::block_on(spawn(async {})).unwrap();
        }
    }
}

/// Everything that a foreground task may ask of its runtime, while no lowered thread moves.
fn use_everything(runtime: &Runtime) {
    runtime.block_on(async {
        spawn(async { yield_now().await }).await.unwrap();
        sleep(Duration::from_micros(100)).await;
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.write_all(b"ping").await.unwrap();
        timeout(HANG, there.read_exact(&mut [0; 4])).await.unwrap().unwrap();
        Builder::new().class(Class::Foreground).spawn_blocking(|| ()).await.unwrap();
        spawn_background(sleep(Duration::from_micros(10))).await.unwrap();
        spawn_pinned(|| async { yield_now().await }).await.unwrap();
        Builder::new().name("named").spawn(async { Pacer::new().pace().await }).await.unwrap();
        // Nobody comes to these two before the threads are let go.
        let _later = Builder::new().preemptible(true).spawn(async {});
        let _later = Builder::new().class(Class::Background).spawn_blocking(|| ());
    });
    assert_eq!(runtime.metrics().monitor_rescues, 0);
    assert!(!runtime.handle().dump().tasks().is_empty());
}

#[test]
fn the_foreground_goes_on_wherever_lowered_threads_are_stopped() {
    isolated("inversions::the_foreground_goes_on_wherever_lowered_threads_are_stopped", || {
        let _watch = watch();
        // SAFETY: the handler calls only what a handler may.
        let before = unsafe { libc::signal(libc::SIGUSR2, hold as *const () as libc::sighandler_t) };
        assert_ne!(before, libc::SIG_ERR);
        let (runtime, stop) = (runtime(2), Arc::new(AtomicBool::new(false)));
        let _inside = runtime.enter();
        let bustle = |number| {
            let stop = stop.clone();
            move || bustle(number, &stop)
        };
        let task = |number| {
            let bustle = bustle(number);
            Builder::new().preemptible(true).spawn(async move { bustle() })
        };
        let job = |number| Builder::new().class(Class::Background).spawn_blocking(bustle(number));
        let (tasks, jobs) = ([task(0), task(1)], [job(2), job(3)]);
        eventually(|| lowered_threads().len() >= 4);
        let threads = lowered_threads();
        for _ in rounds(400) {
            // What waits for a thread for long gets one more: those that were there at first are held.
            let held = hold_all(&threads);
            use_everything(&runtime);
            drop(held);
        }
        stop.store(true, SeqCst);
        for ended in tasks.into_iter().chain(jobs) {
            runtime.block_on(ended).unwrap();
        }
        assert_eq!(runtime.metrics().monitor_rescues, 0);
    });
}

/// Threads inherit the priority of the thread that starts them, and cannot raise it.
#[test]
fn what_a_lowered_thread_starts_for_the_foreground_is_not_lowered() {
    fn nice() -> i32 {
        // SAFETY: asks for a number of the calling thread, and touches no memory.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }
    let _watch = watch();
    let (runtime, own) = (runtime(1), nice());
    let job = Builder::new().class(Class::Background).spawn_blocking_on(
        || {
            let job = Builder::new().class(Class::Foreground).spawn_blocking(nice);
            (nice(), giveway::block_on(job).unwrap())
        },
        runtime.handle(),
    );
    assert_eq!(runtime.block_on(job).unwrap(), (19, own));
}

/// The first of them to leave wakes every task under a lock, and each wake of a lowered thread is a call of its proxy, which may be
/// waiting for that lock in the call of another.
#[test]
fn lowered_threads_close_a_runtime_together() {
    let _watch = watch();
    for _ in rounds(30) {
        let runtime = runtime(2);
        let inside = runtime.enter();
        // First polled on lowered threads: so it is those that share the lock of their list.
        let idle: Vec<_> =
            (0..200).map(|_| Builder::new().preemptible(true).spawn(std::future::pending::<()>())).collect();
        // A runtime that closes refuses tasks. Until then nothing runs this one: the workers are held.
        let is_open = || !spawn(async {}).is_finished();
        let held = [(); 2].map(|()| spawn(async move { while is_open() {} }));
        let poll = Builder::new().preemptible(true).spawn(async move { while is_open() {} });
        let handle = runtime.handle().clone();
        let look = move || {
            while is_open() {
                handle.metrics();
            }
            (0..500).for_each(|_| drop(handle.metrics()));
        };
        let job = Builder::new().class(Class::Background).spawn_blocking(look);
        drop(inside);
        drop(runtime);
        drop((idle, held, poll, job));
    }
}
