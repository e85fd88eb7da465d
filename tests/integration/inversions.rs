//! Lowered threads hold no lock that others need: wherever the kernel stops them, the foreground
//! goes on.

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
    /// Whether this thread is in the allocator. Only this thread and its signal handler read it.
    static ALLOCATING: Cell<bool> = const { Cell::new(false) };
}

fn allocating<R>(f: impl FnOnce() -> R) -> R {
    let before = ALLOCATING.replace(true);
    let result = f();
    ALLOCATING.set(before);
    result
}

// SAFETY: each method passes its arguments to the method of `System` with the same name, which
// fulfils the contract. `allocating` neither allocates nor unwinds: its thread-local is constant,
// and has no destructor.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the size in `layout` is not zero.
        allocating(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that `memory` came from this allocator, so from `System`,
        // and was allocated with `layout`.
        allocating(|| unsafe { System.dealloc(memory, layout) });
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `memory` came from this allocator, so from `System`,
        // and was allocated with `layout`; that `size` is not zero; and that `size`, rounded up to
        // the alignment of `layout`, does not overflow `isize`.
        allocating(|| unsafe { System.realloc(memory, layout, size) })
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The number of threads that are held.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The number of this round. Threads are held until it changes.
static ROUND: AtomicUsize = AtomicUsize::new(0);

/// The signal handler: holds the thread that it interrupts, wherever that is, until the next round.
/// A thread in the allocator is not held.
extern "C" fn hold(_signal: libc::c_int) {
    if ALLOCATING.get() {
        return;
    }
    // SAFETY: the call takes no argument, and only returns an address.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: `location` points to a variable of the calling thread, which is valid for as long as
    // the thread runs.
    let errno = unsafe { *location };
    let round = ROUND.load(SeqCst);
    HELD.fetch_add(1, SeqCst);
    while ROUND.load(SeqCst) == round {
        // SAFETY: the call takes no pointer, and a signal handler may call it.
        unsafe { libc::usleep(200) };
    }
    HELD.fetch_sub(1, SeqCst);
    // SAFETY: `location` points to a variable of the calling thread, which is valid for as long as
    // the thread runs. No reference to it exists.
    unsafe { *location = errno };
}

/// Returns the numbers of this process's lowered threads.
fn lowered_threads() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let number =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    // SAFETY: the call takes no pointer, and only returns a number.
    let is_lowered = |&thread: &i32| unsafe {
        libc::getpriority(libc::PRIO_PROCESS, thread.cast_unsigned()) == 19
    };
    threads.filter_map(number).filter(is_lowered).collect()
}

/// Releases the threads that are held, also if the test fails.
struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        // A thread that was sent the signal twice is held twice.
        while HELD.load(SeqCst) > 0 {
            ROUND.fetch_add(1, SeqCst);
            thread::yield_now();
        }
    }
}

/// Holds all of `threads`, wherever they are, until the returned value is dropped.
#[must_use]
fn hold_all(threads: &[i32]) -> Held {
    let (held, process) = (Held, std::process::id().cast_signed());
    for (others, &thread) in threads.iter().enumerate() {
        while HELD.load(SeqCst) == others {
            // SAFETY: the call takes no pointer. `thread` belongs to this process, and does not end
            // meanwhile.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2) };
            let start = Instant::now();
            while HELD.load(SeqCst) == others && start.elapsed() < Duration::from_millis(5) {
                thread::yield_now();
            }
        }
    }
    held
}

/// Computes in one poll until `stop` is set, and takes locks of the runtime for most of that time.
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
            // Waits for the workers, so that no more is queued than they can run.
            giveway::block_on(spawn(async {})).unwrap();
        }
    }
}

/// Uses everything that a foreground task may ask of its runtime, while no lowered thread moves.
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
        // No thread comes to these two before the lowered threads are released.
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
        // SAFETY: `hold` has the signature of a handler, and calls only what a handler may.
        let before =
            unsafe { libc::signal(libc::SIGUSR2, hold as *const () as libc::sighandler_t) };
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
            // Work that waits for a lowered thread for long gets one more. Only the threads that
            // were there at first are held.
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
        // SAFETY: the call takes no pointer, and only returns a number of the calling thread.
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

/// The first lowered thread that leaves wakes every task under a lock, and each wake of a lowered
/// thread is a call of its proxy. The proxy may be waiting for that lock, in the call of another
/// lowered thread.
#[test]
fn lowered_threads_close_a_runtime_together() {
    let _watch = watch();
    for _ in rounds(30) {
        let runtime = runtime(2);
        let inside = runtime.enter();
        // These are polled on lowered threads first, so lowered threads share the lock of their
        // list.
        let idle: Vec<_> = (0..200)
            .map(|_| Builder::new().preemptible(true).spawn(std::future::pending::<()>()))
            .collect();
        // A runtime that closes refuses tasks. Until then this task does not run, because the
        // workers are held.
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
