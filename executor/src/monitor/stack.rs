//! A look at the stack of another thread, by a signal.
//!
//! The handler walks its own stack and notes the return addresses in a place that was set aside: no memory is allocated and
//! no lock of ours is taken there. What the addresses mean is looked up afterwards, on the thread that asked.
//!
//! Not strictly async-signal-safe: the unwinder is the system's, and asks the dynamic linker where code is. With glibc 2.35
//! and later that takes no lock. This is what profilers do, and for whoever asked for it.

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

const DEEPEST: usize = 64;

/// Go's choice too: nobody else uses it, and nothing happens if it comes by mistake.
const SIGNAL: i32 = libc::SIGURG;

/// The thread that is to note its stack; zero if none is, minus one while it does.
static ASKED: AtomicI32 = AtomicI32::new(0);
static FRAMES: [AtomicUsize; DEEPEST] = [const { AtomicUsize::new(0) }; DEEPEST];
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// What was there before our handler, if we could put ours there.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// Where a thread of this process is. None if it does not answer.
pub(super) fn sample(thread: i32) -> Option<Box<str>> {
    // Several runtimes have a monitor each.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    BEFORE.get_or_init(install).as_ref()?;
    ASKED.store(thread, Release);
    let process = std::process::id().cast_signed();
    // SAFETY: sends a signal for which there is a handler to a thread of this process; if it has ended, nobody gets it.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
    let patience = Instant::now() + Duration::from_millis(20);
    // Ordering: acquire, partner of the release in `note`.
    while sent == 0 && ASKED.load(Acquire) != 0 && Instant::now() < patience {
        std::thread::yield_now();
    }
    // If it has not begun it is not to begin any more; if it has, it is soon done.
    while ASKED.compare_exchange(thread, 0, Acquire, Acquire).is_err_and(|now| now != 0) {
        std::thread::yield_now();
    }
    let depth = DEPTH.swap(0, Relaxed);
    (depth > 0).then(|| describe(&FRAMES[..depth]))
}

fn install() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is a valid value for each field.
    let ours = unsafe { action.assume_init_mut() };
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    let mut before = MaybeUninit::uninit();
    // SAFETY: both point to such a struct; the handler is a function of the kind that `SA_SIGINFO` calls.
    let installed = unsafe { libc::sigaction(SIGNAL, ours, before.as_mut_ptr()) } == 0;
    // SAFETY: written by the call, as it succeeded.
    installed.then(|| unsafe { before.assume_init() })
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: asks for a number, and touches no memory.
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
            // SAFETY: that is what the flag says of a handler which is neither of the two constants.
            let f: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            f(signal, info, context);
        } else {
            // SAFETY: as above, without the flag.
            let f: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            f(signal);
        }
    }
}

fn note() {
    let mut depth = 0;
    // SAFETY: not synchronised with other users of the unwinder, which for walking a stack it need not be; what it walks is
    // this thread's own stack, which does not change meanwhile.
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

/// A line for each function from where the signal hit down to the poll.
fn describe(frames: &[AtomicUsize]) -> Box<str> {
    let address = |frame: &AtomicUsize| ptr::without_provenance_mut(frame.load(Relaxed));
    // Without full debug information names have no path.
    let is_handler = |frame: &AtomicUsize| {
        names(address(frame)).iter().any(|name| name == "handle" || name.contains("stack::handle"))
    };
    // The handler's own frames are of no interest, nor is the system's that called it.
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
                (Some(file), Some(line)) => writeln!(text, "{number:4}: {name} at {}:{line}", file.display()),
                _ => writeln!(text, "{number:4}: {name}"),
            };
            number += 1;
        });
    }
    text.truncate(text.trim_end().len());
    text.into()
}

/// The functions that an address is in: several, if some were inlined.
fn names(address: *mut std::ffi::c_void) -> Vec<String> {
    let mut names = Vec::new();
    backtrace::resolve(address, |symbol| names.extend(symbol.name().map(|name| format!("{name:#}"))));
    names
}
