//! The end of a pool: jobs that were accepted run, unless the shutdown gives up on them. See
//! `runtime/shutdown.md`.

use super::state::State;
use super::{Kind, Pool, Unserved, Work};
use crate::runtime::{Shared, wait_while};
use crate::task::Runnable;
use giveway_io::driver::on_behalf;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::Instant;

/// What a pool has not brought to its end.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) kind: Kind,
    /// How many threads have not ended.
    pub(crate) threads: usize,
    /// What they do.
    pub(crate) going_on: Vec<Work>,
    /// The jobs that no thread has taken yet.
    pub(crate) waiting: Vec<Work>,
}

impl Pool {
    /// Closes the pool to new jobs. Jobs that were accepted still run, and the threads end when
    /// none is left. Polls that wait are returned: their tasks are dropped with all others.
    pub(crate) fn close(&self) -> Vec<Runnable> {
        let mut state = self.lock();
        state.closed = true;
        let idle = std::mem::take(&mut state.idle);
        let polls =
            if self.kind() == Kind::Lowered { state.jobs.drain(..).collect() } else { Vec::new() };
        self.publish(&state);
        drop(state);
        idle.iter().for_each(|(_, parker)| parker.unpark());
        polls
    }

    /// Returns whether no job is left to begin, and none will come. The monitor calls it.
    pub(crate) fn is_drained(&self) -> bool {
        self.lock().is_drained()
    }

    /// Waits until every job has run, every thread has ended and no thread is away, or until the
    /// deadline. Returns whether all of that is so.
    pub(crate) fn wait_ended(&self, deadline: Option<Instant>) -> bool {
        let state = wait_while(&self.one_fewer, self.lock(), deadline, |state| !state.has_ended());
        state.has_ended()
    }

    /// Returns what is left after [`Self::close`].
    pub(crate) fn left(&self) -> Left {
        self.lock().left(self.kind())
    }

    /// Cancels the jobs that no thread has taken, after [`Self::close`]. Returns what was left
    /// before that.
    pub(crate) fn give_up(&self, shared: &Arc<Shared>) -> Left {
        let (left, unserved) = on_behalf(|| self.take_the_rest(shared));
        // On this thread, because it runs destructors.
        self.refuse(shared, unserved);
        left
    }

    fn take_the_rest(&self, shared: &Arc<Shared>) -> (Left, Option<Unserved>) {
        let mut state = self.lock();
        let left = state.left(self.kind());
        let given_up = std::mem::take(&mut state.jobs);
        state.given_up.extend(given_up);
        self.publish(&state);
        // Every thread that there is may be stuck in a job.
        let one_more = (!left.waiting.is_empty()).then(|| state.reserve());
        drop(state);
        // The monitor may wait for the queue to be empty.
        shared.monitor.call();
        (left, one_more.and_then(|number| self.start(shared, number)))
    }

    /// Takes the handles of all threads, for a caller that waits for their end.
    pub(crate) fn take_handles(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        let retired = std::mem::take(&mut state.retired);
        retired
            .into_iter()
            .chain(state.members.values_mut().filter_map(|member| member.handle.take()))
            .collect()
    }

    /// Returns whether this is one of the pool's threads.
    pub(crate) fn has(&self, thread: ThreadId) -> bool {
        on_behalf(|| {
            let state = self.lock();
            state.members.values().any(|member| member.thread == Some(thread))
                // It is in the destructors of its thread-locals.
                || state.retired.iter().any(|handle| handle.thread().id() == thread)
        })
    }
}

impl State {
    /// Returns what is left.
    fn left(&self, kind: Kind) -> Left {
        Left {
            kind,
            // The cores count the threads that hold one.
            threads: self.members.len().saturating_sub(self.standing_in) + self.away.len(),
            going_on: self.going_on().cloned().collect(),
            waiting: self.jobs.iter().map(Work::of).collect(),
        }
    }

    /// Returns whether nothing goes on, and nothing will.
    fn has_ended(&self) -> bool {
        self.members.is_empty() && self.away.is_empty() && self.jobs.is_empty()
    }
}
