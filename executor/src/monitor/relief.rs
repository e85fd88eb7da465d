//! More lowered threads, if none comes back from what it does.
//!
//! There are as many lowered threads as workers, which is enough to use every CPU. But a poll or a
//! job may never end, or wait for another that waits for a thread, and then those behind it would
//! wait for ever. So while some wait, and none was begun for a while, one more may run.

use crate::blocking::Kind;
use crate::runtime::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long no poll or job is begun before one more may run.
pub(super) const EVERY: Duration = Duration::from_millis(100);

const KINDS: [Kind; 2] = [Kind::Background, Kind::Lowered];

/// How many polls and jobs were begun up to the last look.
#[derive(Default)]
pub(super) struct Relief {
    looked_at: Option<Instant>,
    begun: [u64; KINDS.len()],
}

impl Relief {
    /// Returns whether anything waits for a lowered thread.
    pub(super) fn is_due(shared: &Shared) -> bool {
        KINDS.iter().any(|&kind| shared.pool_of(kind).has_queue())
    }

    /// Lets one more run in each pool whose queue has not moved since the last look, at most once
    /// every [`EVERY`].
    pub(super) fn look(&mut self, shared: &Arc<Shared>, now: Instant) {
        if self.looked_at.is_some_and(|at| now - at < EVERY) {
            return;
        }
        self.looked_at = Some(now);
        for (kind, before) in KINDS.into_iter().zip(&mut self.begun) {
            let pool = shared.pool_of(kind);
            let begun = pool.begun();
            if pool.has_queue() && begun == *before {
                pool.relieve(shared);
            }
            *before = begun;
        }
    }
}
