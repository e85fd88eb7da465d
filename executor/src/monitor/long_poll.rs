//! What is reported of a poll that goes on for too long, to whom, and how often: once a cause.

use crate::runtime::Shared;
use crate::task::{Id, contain, describe, drop_contained};
use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// The most causes that are reported: to a program that has more of them, further reports are of no
/// use.
const MOST: usize = 1_024;

/// A poll that has not returned after this long is reported while it goes on, and in every build.
pub(super) const HANGS: Duration = Duration::from_secs(1);

/// What can take so long in one poll.
const CAUSES: &str = "a call that blocks, a long computation, or a loop over a channel or stream \
                      that is always ready";

/// What to do about it.
const REMEDIES: &str = "  Remedies: `spawn_blocking` or `block_in_place` around a call that \
                        blocks; `yield_now_if_busy` or `budget::cooperative` in a loop; \
                        `task::Builder::preemptible` for a computation that cannot yield. \
                        Reported once per spawn location; `Builder::on_long_poll` replaces this \
                        message.";

/// A poll that went on for too long; see [`Builder::on_long_poll`](crate::Builder::on_long_poll).
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let (report, reports) = mpsc::channel();
/// let runtime = giveway::Builder::new().on_long_poll(move |poll| report.send(poll.clone()).unwrap()).build()?;
/// let task = giveway::task::Builder::new().name("mule").spawn_on(
///     async { std::thread::sleep(Duration::from_millis(50)) }, // should have been `giveway::time::sleep`
///     runtime.handle(),
/// );
/// let id = task.id();
/// runtime.block_on(task).unwrap();
///
/// let poll = reports.recv().unwrap();
/// assert_eq!((poll.id(), poll.name()), (id, Some("mule")));
/// assert_eq!(poll.spawned_at().file(), file!());
/// assert!(poll.worker() < runtime.handle().workers());
/// assert!(poll.length() > Duration::ZERO);
/// assert!(poll.has_ended() || poll.length() > Duration::from_millis(500), "it took long, or very long");
/// assert_eq!(poll.stack(), None, "nobody asked for it");
/// println!("{poll}"); // task "mule" (1), spawned at src/main.rs:6:45, was in one poll for 50 ms on worker 0 (a call that …)
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LongPoll {
    id: Id,
    name: Option<String>,
    spawned_at: &'static Location<'static>,
    worker: usize,
    length: Duration,
    has_ended: bool,
    out: bool,
    stack: Option<Box<str>>,
}

impl LongPoll {
    /// Returns the task's number.
    ///
    /// See [`LongPoll`] for an example.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the task's name, if it was given one.
    ///
    /// See [`LongPoll`] for an example.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns where the task was spawned.
    ///
    /// See [`LongPoll`] for an example.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned_at
    }

    /// Returns the number of the worker that the poll kept. From
    /// [`Handle::workers`](crate::Handle::workers) on it is a [spare
    /// one](crate::Builder::max_spare_workers).
    ///
    /// See [`LongPoll`] for an example.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Returns how long the poll took, to within some 10 ms: no thread looks at the clock when a
    /// poll begins.
    ///
    /// See [`LongPoll`] for an example.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Returns whether the poll has returned. A poll that has not returned after a second is
    /// reported while it goes on.
    ///
    /// See [`LongPoll`] for an example.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns where in the program the poll was when it had gone on for too long, if the
    /// [`Builder`](crate::Builder)'s `sample_stacks` asked for it.
    ///
    /// See [`LongPoll`] for an example.
    pub fn stack(&self) -> Option<&str> {
        self.stack.as_deref()
    }

    pub(super) fn is_out(&self) -> bool {
        self.out
    }

    pub(super) fn go_on(&mut self, length: Duration) {
        self.length = length;
    }

    pub(super) fn end(&mut self, length: Duration) {
        (self.length, self.has_ended) = (length, true);
    }
}

impl fmt::Display for LongPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.id, self.name(), self.spawned_at)?;
        let (was, length) =
            (if self.has_ended { "was" } else { "has been" }, self.length.as_millis());
        write!(f, ", {was} in one poll for {length} ms on worker {} ({CAUSES})", self.worker)?;
        match &self.stack {
            Some(stack) => write!(f, ", here:\n{stack}"),
            None => Ok(()),
        }
    }
}

/// The causes that were reported.
#[derive(Default)]
pub(super) struct Reports {
    /// By what they say, and not by address: the compiler may make several copies of one.
    causes: HashSet<&'static Location<'static>>,
}

impl Reports {
    /// Returns whether a poll that has gone on for this long is to be reported. A release build
    /// with neither a hook nor `tracing` reports only a poll that seems to hang.
    pub(super) fn are_wanted(&self, shared: &Shared, length: Duration) -> bool {
        let heard = shared.hooks.on_long_poll.is_some()
            || cfg!(feature = "tracing")
            || cfg!(debug_assertions);
        (heard || length >= HANGS) && self.causes.len() < MOST
    }

    /// Begins the report of a poll that has gone on for too long, unless its cause was reported
    /// before.
    pub(super) fn begin(&mut self, shared: &Shared, worker: usize) -> Option<LongPoll> {
        let (id, spawned_at) = shared.posts[worker].running()?;
        if !self.causes.insert(spawned_at) {
            return None;
        }
        let name = shared.registry.name_of(id);
        let stack = sample(shared, worker);
        Some(LongPoll {
            id,
            name,
            spawned_at,
            worker,
            length: Duration::ZERO,
            has_ended: false,
            out: false,
            stack,
        })
    }

    /// Sends a report to the hook and to `tracing`, or prints it.
    pub(super) fn send(&mut self, shared: &Shared, poll: &mut LongPoll) {
        poll.out = true;
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "giveway",
            id = %poll.id,
            name = poll.name(),
            spawned_at = %poll.spawned_at,
            worker = poll.worker,
            length_ms = poll.length.as_millis() as u64,
            has_ended = poll.has_ended,
            stack = poll.stack(),
            "a task goes on or went on for too long in one poll ({CAUSES})"
        );
        if let Some(hook) = &shared.hooks.on_long_poll {
            if let Err(payload) = contain(|| hook(poll)) {
                drop_contained(payload);
            }
        } else if cfg!(debug_assertions) || !cfg!(feature = "tracing") {
            eprintln!("giveway: {poll}\n{REMEDIES}");
        }
    }
}

#[cfg(all(feature = "stack-samples", target_os = "linux"))]
fn sample(shared: &Shared, worker: usize) -> Option<Box<str>> {
    shared.hooks.sample_stacks.then(|| super::stack::sample(shared.posts[worker].thread()))?
}

#[cfg(not(all(feature = "stack-samples", target_os = "linux")))]
fn sample(_: &Shared, _: usize) -> Option<Box<str>> {
    None
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;
    use crate::Runtime;

    /// In a release build without `tracing`, too.
    #[test]
    fn a_poll_that_hangs_is_reported_in_every_build() {
        let (runtime, reports) = (Runtime::new().unwrap(), Reports::default());
        let shared = &runtime.handle().shared;
        assert!(reports.are_wanted(shared, HANGS));
        let heard = cfg!(debug_assertions) || cfg!(feature = "tracing");
        assert_eq!(reports.are_wanted(shared, HANGS / 2), heard);
    }
}
