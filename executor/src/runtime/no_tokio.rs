//! What stands in the place of `tokio.rs` without the feature `tokio`: no runtime has a tokio
//! beside it.

use super::Shared;
use std::convert::Infallible;
use std::time::Instant;

/// The tokio runtime beside a runtime: none.
#[derive(Default)]
pub(crate) struct Beside(());

impl Beside {
    pub(crate) fn is_there(&self) -> bool {
        false
    }

    pub(crate) fn enter(&self) -> Option<Infallible> {
        None
    }

    pub(crate) fn enter_for_good(&self) {}

    pub(super) fn wait_ended(&self, _deadline: Option<Instant>) -> bool {
        true
    }

    pub(super) fn threads(&self) -> usize {
        0
    }

    pub(crate) fn end(&self) {}

    pub(crate) fn join(&self) {}

    pub(super) fn give_up(&self) {}

    pub(super) fn never_used(&self) {}
}

/// Returns whether the calling thread is one of the tokio runtime beside `shared`.
pub(super) fn is_thread_of(_shared: &Shared) -> bool {
    false
}

/// Runs `f`, which may block, on a thread that is in no task of Giveway's.
#[inline]
pub(crate) fn in_place<R>(f: impl FnOnce() -> R) -> R {
    f()
}
