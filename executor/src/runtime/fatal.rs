//! A panic that has ended the runtime. Threads in `block_on` must not wait for what will not come.
//!
//! After [`PanicPolicy::Shutdown`](super::PanicPolicy::Shutdown) every handle still gets its
//! result, so the futures of `block_on` are polled until all tasks are gone and all jobs have run.
//! A future that is pending even then waits for nothing that this runtime could bring about, and
//! `block_on` panics. A poll that does not return keeps the runtime from its end, and so does a job
//! or a task that itself waits in a `block_on`. Therefore `block_on` gives up after [`GRACE`] in
//! any case.
//!
//! Only a runtime with a panic hook has a [`Fatal`]; a `block_on` of any other runtime pays
//! nothing.

use super::{Phase, Shared};
use crate::parker::Parker;
use crate::task::{Meta, panic_message};
use giveway_io::driver::on_behalf;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long after the panic a `block_on` goes on waiting for the rest of the runtime to end.
const GRACE: Duration = Duration::from_secs(5);

/// How often a `block_on` looks whether the runtime has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is known of the panic that has ended the runtime.
#[derive(Default)]
pub(crate) struct Fatal(Mutex<State>);

#[derive(Default)]
struct State {
    /// The task that has panicked, described, and when it did. `None` before that.
    panic: Option<(Arc<str>, Instant)>,
    /// The parkers of threads that park in `block_on`. Each thread adds and removes its own; the
    /// thread that shuts down takes and unparks all.
    waiting: Vec<Arc<Parker>>,
}

impl Fatal {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Shuts the runtime down because the task of `meta` has panicked.
    #[cold]
    pub(crate) fn close_after_panic(self: &Arc<Self>, meta: &Meta, payload: &(dyn Any + Send)) {
        self.close();
        let Some(fatal) = &self.fatal else { return };
        let text = match panic_message(payload) {
            Some(message) => format!("{meta}, panicked with message {message:?}"),
            None => format!("{meta}, panicked"),
        };
        let waiting = on_behalf(|| {
            let mut state = fatal.lock();
            state.panic.get_or_insert_with(|| (text.into(), Instant::now()));
            std::mem::take(&mut state.waiting)
        });
        waiting.iter().for_each(|parker| parker.unpark());
    }
}

/// A thread in `block_on` of a runtime that a panic may end.
pub(crate) struct Waiter<'a> {
    shared: &'a Shared,
    fatal: &'a Fatal,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Option<Self> {
        Some(Self { shared, fatal: shared.fatal.as_ref()? })
    }

    /// Returns what to say of a future that still waits, if nothing is left of the runtime that
    /// could wake it. To be called before a poll: what that poll finds missing will not come any
    /// more.
    pub(crate) fn verdict(&self) -> Option<Arc<str>> {
        let (text, since) = on_behalf(|| self.fatal.lock().panic.clone())?;
        // Ordering: acquire in `Gate::phase`, partner of the release in `Gate::terminate`; for jobs
        // the locks of the pools do the same. The poll that follows sees every result.
        let ended = self.shared.gate.phase() == Phase::Terminated
            && on_behalf(|| {
                self.shared.pools().iter().all(|pool| pool.is_drained() && !pool.has_jobs())
            });
        (ended || since.elapsed() >= GRACE).then(|| {
            format!(
                "the runtime was shut down because a task has panicked (`PanicPolicy::Shutdown`), \
                 and the future of `block_on` still waits.\n  {text}"
            )
            .into()
        })
    }

    /// Parks as `park` does until a panic ends the runtime. After that, parks until the future is
    /// woken or there is a verdict.
    pub(crate) fn park<R: Default>(&self, parker: &Arc<Parker>, park: impl FnOnce() -> R) -> R {
        let waits = on_behalf(|| {
            let mut state = self.fatal.lock();
            // Under the lock that records a panic: one that is recorded later finds the parker in
            // the list.
            if state.panic.is_none() {
                state.waiting.push(parker.clone());
            }
            state.panic.is_none()
        });
        if waits {
            let parked = park();
            on_behalf(|| self.fatal.lock().waiting.retain(|other| !Arc::ptr_eq(other, parker)));
            return parked;
        }
        while !parker.take_token() && self.verdict().is_none() {
            if parker.park_until(Instant::now() + LOOK_EVERY) {
                break;
            }
        }
        R::default()
    }
}
