//! Failure: ends a soak that has found a fault.

use crate::world;
use giveway_patience::threads;
use std::io::Write;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static SEED: OnceLock<u64> = OnceLock::new();

/// The payload of every planned panic, with a number that identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told(pub(crate) u64);

/// Installs a panic hook that ends the soak at every panic whose payload is not [`Told`].
pub(crate) fn expect_told_panics(seed: u64) {
    SEED.get_or_init(|| seed);
    let default = take_hook();
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if !panic.payload().is::<Told>() {
            default(panic);
            fail(&format!("a panic that nobody was told to make: {panic}"));
        }
    }));
}

/// Ends the process with a report of all runtimes and threads. The first caller does; later callers
/// are parked.
pub(crate) fn fail(what: &str) -> ! {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.swap(true, SeqCst) {
        loop {
            std::thread::park();
        }
    }
    let say = |text: &str| _ = writeln!(std::io::stderr(), "{text}");
    say(&format!(
        "\nFAILED: {what}\n  in thread {:?}",
        std::thread::current().name().unwrap_or("?")
    ));
    if let Some(seed) = SEED.get() {
        say(&format!(
            "  seed {seed}: run it again with --seed {seed}, or one episode with --seed {seed} \
             --episode T.N"
        ));
    }
    for world in world::alive() {
        say(&world.describe());
    }
    say(&format!("threads:\n{}", threads()));
    // Not `exit`: it would run destructors of data that running threads still use.
    // SAFETY: `_exit` takes no pointer, runs no handler and does not return.
    unsafe { libc::_exit(1) }
}

/// Fails the soak unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            $crate::failure::fail(&format!($($what)+));
        }
    };
}
pub(crate) use ensure;
