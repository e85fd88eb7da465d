//! Detection of deadlocks: nothing will ever happen again.
//!
//! When every worker is idle and every thread in `block_on` waits, only something from outside of
//! the tasks can move them: a timer, a socket, a blocking job, or a foreign thread that holds a
//! waker. The runtime knows the first three. Of the last it knows what it is told
//! ([`Handle::expect_wake`]). If there is none of them, the tasks that wait, wait for each other.
//!
//! The monitor looks when everything has come to rest: when it is about to sleep, and whenever a
//! thread in `block_on` begins to wait. It looks twice. If anything has moved between the two
//! looks, they do not count: a wake-up may be on its way from one thread to another.

use crate::parker::Parker;
use crate::runtime::{Handle, Shared};
use giveway_io::driver::on_behalf;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The report names at most this many tasks.
const MOST: usize = 100;

/// What a runtime that looks for deadlocks knows of the threads that wait.
#[derive(Default)]
pub(crate) struct Watch(Mutex<State>);

/// Behind the lock of [`Watch`]. Written by the threads in `block_on` and by [`ExpectedWake`], read
/// by the monitor.
#[derive(Default)]
struct State {
    /// How many threads are in `block_on`.
    callers: usize,
    /// Those of them that wait: where each parks, and where its verdict is left.
    waiting: Vec<(Arc<Parker>, Arc<Verdict>)>,
    /// How many threads from outside are known to hold a waker.
    expected: usize,
    /// Grows with every change of the fields above.
    epoch: u64,
    /// The epoch and the number of polls at the last look, if all was at rest then. Written by the
    /// monitor.
    last: Option<(u64, u64)>,
}

/// What a thread in `block_on` is told when nothing will wake it any more.
#[derive(Default)]
pub(crate) struct Verdict(Mutex<Option<Arc<str>>>);

impl Watch {
    /// Locks the state for a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under this lock.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.epoch += 1;
        state
    }

    /// Looks whether anything can move, and wakes every waiting thread with a verdict if nothing
    /// can. Returns true if another look should follow soon. The monitor calls this when every
    /// worker is idle.
    pub(crate) fn look(&self, shared: &Shared) -> bool {
        if shared.reactor.is_waited_for() || shared.pools().iter().any(|pool| pool.has_jobs()) {
            return false;
        }
        // The ticks of all polls so far, in one number: it changes with every poll.
        let polls = shared.scheduler.cores().iter().map(|core| u64::from(core.polling())).sum();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that was woken may not have had a CPU since.
        let woken = state.waiting.iter().any(|(parker, _)| parker.has_token());
        let at_rest = state.callers > 0
            && state.waiting.len() == state.callers
            && state.expected == 0
            && !woken;
        if !at_rest || shared.scheduler.idle.counts().idle() < shared.scheduler.idle.workers() {
            state.last = None;
            return false;
        }
        let now = (state.epoch, polls);
        if state.last.replace(now) != Some(now) {
            return true;
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        let verdict: Arc<str> = describe_deadlock(shared).into();
        for (parker, told) in waiting {
            *told.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict.clone());
            parker.unpark();
        }
        false
    }
}

/// Returns the text of the verdict: the tasks that wait, or the first of them.
fn describe_deadlock(shared: &Shared) -> String {
    let (mut tasks, mut count) = (Vec::new(), 0);
    shared.registry.for_each(|meta| {
        count += 1;
        if count <= MOST {
            tasks.push((meta.id, meta.to_string()));
        }
    });
    tasks.sort();
    let mut text = String::from(
        "deadlock: every worker is idle, `block_on` waits, and there is no timer, no I/O and no \
         blocking job that could wake anything.",
    );
    match count {
        0 => text.push_str(" No task waits but the future of `block_on` itself."),
        1 => text.push_str(" One task waits:"),
        _ => text.push_str(&format!(" {count} tasks wait:")),
    }
    tasks.iter().for_each(|(_, task)| text.push_str(&format!("\n  {task}")));
    if count > MOST {
        text.push_str(&format!("\n  and {} more", count - MOST));
    }
    text.push_str(
        "\nIf another thread is going to wake one of them, say so with `Handle::expect_wake`.",
    );
    text
}

/// A thread in `block_on`, if its runtime looks for deadlocks.
pub(crate) struct Caller<'a> {
    shared: &'a Shared,
    watch: &'a Watch,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Option<Self> {
        let watch = shared.deadlocks.as_ref()?;
        on_behalf(|| watch.lock().callers += 1);
        Some(Self { shared, watch })
    }

    /// Parks until woken. Returns the verdict, if it was woken because nothing else would wake it.
    pub(crate) fn park(&self, parker: &Arc<Parker>) -> Option<Arc<str>> {
        let verdict = Arc::<Verdict>::default();
        // The thread is on the list before the monitor looks.
        on_behalf(|| self.watch.lock().waiting.push((parker.clone(), verdict.clone())));
        self.shared.monitor.call();
        parker.park();
        on_behalf(|| {
            self.watch.lock().waiting.retain(|(_, other)| !Arc::ptr_eq(other, &verdict));
            verdict.0.lock().unwrap_or_else(PoisonError::into_inner).take()
        })
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        on_behalf(|| self.watch.lock().callers -= 1);
        self.shared.monitor.call();
    }
}

/// Announces that a thread from outside is going to wake something; see [`Handle::expect_wake`].
#[must_use = "the runtime expects nothing any more when this is dropped"]
pub struct ExpectedWake(Handle);

impl ExpectedWake {
    pub(crate) fn new(handle: &Handle) -> Self {
        if let Some(watch) = &handle.shared.deadlocks {
            on_behalf(|| watch.lock().expected += 1);
        }
        Self(handle.clone())
    }
}

impl Drop for ExpectedWake {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        if let Some(watch) = &shared.deadlocks {
            on_behalf(|| watch.lock().expected -= 1);
            shared.monitor.call();
        }
    }
}

impl fmt::Debug for ExpectedWake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExpectedWake")
    }
}
