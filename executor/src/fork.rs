//! Noticing a `fork`.
//!
//! A forked child has the parent's memory but none of its threads: a runtime made before the fork would take tasks
//! and never run them. The child counts its forks; a runtime remembers the count it was made under, and whoever
//! would wait for its threads asks first. One load of a line that is never written.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The fork count at a runtime's birth.
#[derive(Clone, Copy)]
pub(crate) struct Birth(u32);

impl Birth {
    /// Remembers this process.
    pub(crate) fn here() -> Self {
        #[cfg(unix)]
        {
            static HANDLER: std::sync::Once = std::sync::Once::new();
            extern "C" fn in_child() {
                FORKS.fetch_add(1, Relaxed);
            }
            // SAFETY: the handler is async-signal-safe: it increments an atomic.
            HANDLER.call_once(|| unsafe {
                libc::pthread_atfork(None, None, Some(in_child));
            });
        }
        // Ordering: relaxed. A child begins with one thread, which ran the handler itself.
        Self(FORKS.load(Relaxed))
    }

    /// Whether this process is a fork of the one that was remembered.
    #[inline]
    pub(crate) fn is_elsewhere(self) -> bool {
        FORKS.load(Relaxed) != self.0
    }
}
