//! A look at the stack of another thread, by a signal.
//!
//! The handler walks its own stack and notes the return addresses in a place that was set aside. It
//! allocates no memory and takes none of our locks. What the addresses mean is looked up
//! afterwards, on the thread that asked.
//!
//! This is not strictly async-signal-safe: the unwinder is the system's, and asks the dynamic
//! linker where code is. With glibc 2.35 and later that takes no lock. Profilers do the same, and
//! it is done only for users that ask for it.

use crate::sync::lock;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How many frames of a stack are noted at most.
const DEEPEST: usize = 64;

/// Go's choice too: no other code uses this signal, and nothing happens if it comes by mistake.
const SIGNAL: i32 = libc::SIGURG;

/// The thread that is to note its stack; zero if none is, minus one while it does. Set by the
/// thread that asks, which also withdraws it; minus one and back to zero by the handler.
static ASKED: AtomicI32 = AtomicI32::new(0);
/// The return addresses. Written by the handler, and read by the thread that asked once [`ASKED`]
/// is zero.
static FRAMES: [AtomicUsize; DEEPEST] = [const { AtomicUsize::new(0) }; DEEPEST];
/// How many of [`FRAMES`] there are.
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// The handler that was there before ours, if ours could be installed.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// Returns where a thread of this process is, or none if it does not answer.
pub(super) fn sample(thread: i32) -> Option<Box<str>> {
    // Several runtimes have a monitor each, and there is one place for frames.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    BEFORE.get_or_init(install).as_ref()?;
    // 1. Ask, before the signal: the handler looks whether it was asked.
    //
    // Ordering: release, partner of the acquire in `handle`: the last sample has been read before
    // this one is written.
    ASKED.store(thread, Release);
    let process = std::process::id().cast_signed();
    // SAFETY: the call takes three numbers and touches no memory of this process. The thread is
    // named together with this process, so no other process can get the signal, and if the thread
    // has ended, no thread gets it. `install` has put a handler there for the signal.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
    // 2. Wait for a while.
    let patience = Instant::now() + Duration::from_millis(20);
    // Ordering: acquire, partner of the release in `note`: the frames are whole.
    while sent == 0 && ASKED.load(Acquire) != 0 && Instant::now() < patience {
        std::thread::yield_now();
    }
    // 3. Withdraw. A thread that has not begun must not begin any more, because the next sample may
    //    be of another. A thread that has begun is soon done.
    //
    // Ordering: acquire, partner of the release in `note`, also if the handler was first.
    while ASKED.compare_exchange(thread, 0, Acquire, Acquire).is_err_and(|now| now != 0) {
        std::thread::yield_now();
    }
    let depth = DEPTH.swap(0, Relaxed);
    (depth > 0).then(|| describe(&FRAMES[..depth]))
}

fn install() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all bytes are zero, and zero is a valid value for each field: numbers, a set of
    // signals, and function pointers that may be null.
    let ours = unsafe { action.assume_init_mut() };
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    let mut before = MaybeUninit::uninit();
    // SAFETY: `ours` is an initialised `sigaction`, and `before` is writable for one. The handler
    // is a function of the kind that `SA_SIGINFO` calls, and lives as long as the program. What it
    // does may be done in a signal handler, as far as the head of this file says.
    let installed = unsafe { libc::sigaction(SIGNAL, ours, before.as_mut_ptr()) } == 0;
    // SAFETY: the call has succeeded, so it has written the whole of `before`.
    installed.then(|| unsafe { before.assume_init() })
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `gettid` has no arguments and touches no memory.
    let me = unsafe { libc::gettid() };
    // Ordering: acquire, partner of the release in `sample`.
    if ASKED.compare_exchange(me, -1, Acquire, Relaxed).is_ok() {
        note();
    }
    if let Some(Some(before)) = BEFORE.get() {
        let (handler, with_info) = (before.sa_sigaction, before.sa_flags & libc::SA_SIGINFO != 0);
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            return;
        }
        if with_info {
            // SAFETY: `handler` is neither of the two constants, so it is the address of a
            // function, and the flag says that the function takes these three arguments. The size
            // is that of a function pointer.
            let f: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            f(signal, info, context);
        } else {
            // SAFETY: `handler` is neither of the two constants, so it is the address of a
            // function, and without the flag the function takes the signal alone. The size is that
            // of a function pointer.
            let f: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            f(signal);
        }
    }
}

fn note() {
    let mut depth = 0;
    // SAFETY: the call takes no lock against other users of the unwinder. To walk a stack it needs
    // none, and what it walks is this thread's own stack, which does not change meanwhile.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            FRAMES[depth].store(frame.ip().addr(), Relaxed);
            depth += 1;
            depth < DEEPEST
        });
    }
    DEPTH.store(depth, Relaxed);
    // Ordering: release, partner of the acquire in `sample`: the frames are there.
    ASKED.store(0, Release);
}

/// Returns a line for each function from where the signal hit down to the poll.
fn describe(frames: &[AtomicUsize]) -> Box<str> {
    let address = |frame: &AtomicUsize| ptr::without_provenance_mut(frame.load(Relaxed));
    // Without full debug information names have no path.
    let is_handler = |frame: &AtomicUsize| {
        names(address(frame)).iter().any(|name| name == "handle" || name.contains("stack::handle"))
    };
    // The handler's own frames are of no interest, nor is that of the system which called it.
    let handler = frames.iter().position(is_handler);
    let (mut text, mut number) = (String::new(), 0);
    for frame in &frames[handler.map_or(0, |handler| (handler + 2).min(frames.len()))..] {
        // Nor is the worker's loop.
        if names(address(frame)).iter().any(|name| name.contains("giveway::task::future")) {
            break;
        }
        backtrace::resolve(address(frame), |symbol| {
            let name = symbol.name().map_or_else(|| "?".to_owned(), |name| format!("{name:#}"));
            // Writing to a string cannot fail.
            let _ = match (symbol.filename(), symbol.lineno()) {
                (Some(file), Some(line)) => {
                    writeln!(text, "{number:4}: {name} at {}:{line}", file.display())
                }
                _ => writeln!(text, "{number:4}: {name}"),
            };
            number += 1;
        });
    }
    text.truncate(text.trim_end().len());
    text.into()
}

/// Returns the functions that an address is in: several, if some were inlined.
fn names(address: *mut std::ffi::c_void) -> Vec<String> {
    let mut names = Vec::new();
    backtrace::resolve(address, |symbol| {
        names.extend(symbol.name().map(|name| format!("{name:#}")))
    });
    names
}
