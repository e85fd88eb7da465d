//! What to say after a panic that has a remedy.

use super::Shared;
use crate::task::{contain, panic_message};
use std::any::Any;
use std::io::Write as _;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What tokio says where none of its runtimes is entered.
const NO_TOKIO: &str =
    "there is no reactor running, must be called from the context of a Tokio 1.x runtime";

/// Runs `f`, the future of a `block_on`. If it panics, says what helps.
pub(super) fn around<R>(shared: &Shared, f: impl FnOnce() -> R) -> R {
    contain(f).unwrap_or_else(|payload| {
        after_panic(shared, &*payload);
        resume_unwind(payload)
    })
}

/// Names the remedy if code has panicked because it needs tokio, and the runtime has none. Once in
/// a process is enough.
#[cold]
pub(crate) fn after_panic(shared: &Shared, payload: &(dyn Any + Send)) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let needs_tokio = panic_message(payload).is_some_and(|message| message.contains(NO_TOKIO));
    // Ordering: relaxed; the flag publishes nothing.
    if !needs_tokio || shared.tokio.is_there() || SAID.swap(true, Relaxed) {
        return;
    }
    // To standard error itself: in a test, what `eprintln!` writes would be kept until the test has
    // ended. If that fails, there is no other place for the line.
    let _ = std::io::stderr().write_all(
        b"giveway: this code needs a tokio runtime: turn on the feature `tokio` of the crate \
          `giveway`, and start the runtime with `Builder::tokio(true)` or \
          `#[giveway::main(tokio)]`\n",
    );
}
