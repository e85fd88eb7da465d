//! Spawning: which runtime and which class a task gets, and where it is queued first.
//!
//! Blocking jobs (`blocking/spawn.rs`) and pinned tasks (`pinned.rs`) have a class by the same
//! rules, and queues of their own.

use super::{Class, JoinHandle, Runnable, allocate};
use crate::runtime::{Shared, TaskMeta, context, default_runtime};
use crate::worker::Worker;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

/// The place where a spawn puts its task.
///
/// It is not handed to a closure, because a closure that captures the user's future is one more
/// copy of the future.
#[derive(Clone, Copy)]
enum Current<'a> {
    /// This thread's worker, which belongs to the runtime and holds its core.
    Worker(&'a Worker),
    /// The runtime, for a thread that holds no core of it.
    Outside(&'a Arc<Shared>),
}

impl<'a> Current<'a> {
    #[inline]
    fn of(shared: &'a Arc<Shared>, worker: Option<&'a Worker>) -> Self {
        match worker {
            Some(worker) if worker.belongs_to(shared) => Self::Worker(worker),
            _ => Self::Outside(shared),
        }
    }

    /// Spawns the future here. Only the allocation depends on the type of the future; the rest is
    /// compiled once.
    #[inline]
    #[track_caller]
    fn spawn<F>(
        self,
        name: Option<Box<str>>,
        class: Option<Class>,
        location: &'static Location<'static>,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let class = class.unwrap_or_else(|| self.class());
        let (runnable, handle) = allocate(self.shared(), name, class, location, future);
        self.submit(runnable);
        handle
    }

    /// Returns the runtime.
    #[inline]
    fn runtime(self) -> &'a Arc<Shared> {
        match self {
            Self::Worker(worker) => worker.shared(),
            Self::Outside(shared) => shared,
        }
    }

    #[inline]
    #[track_caller]
    fn shared(self) -> *const Shared {
        let shared = self.runtime();
        // Checked on a worker too: a task may fork.
        shared.refuse_in_forked_child();
        Arc::as_ptr(shared)
    }

    /// Returns the class that a child inherits. It is inherited only within a runtime: the
    /// background of one runtime may be the foreground of another.
    #[inline]
    fn class(self) -> Class {
        match self {
            Self::Worker(worker) => worker.class(),
            Self::Outside(shared) => context::running_class(shared).unwrap_or(Class::Foreground),
        }
    }

    /// Queues a new task, of which the user's hook is told first.
    #[inline]
    fn submit(self, runnable: Runnable) {
        if self.runtime().hooks.on_task_spawn.is_some() {
            self.tell_and_submit(runnable);
        } else {
            self.submit_untold(runnable);
        }
    }

    /// Tells the user's hook of a new task, and queues the task.
    #[cold]
    #[inline(never)]
    fn tell_and_submit(self, runnable: Runnable) {
        // 1. The runtime is counted: the hook may leave it, if this thread has entered it, and drop
        //    it.
        let shared = Arc::clone(self.runtime());
        shared.hooks.task_spawned(|| TaskMeta::of(runnable.metadata()));
        // 2. The place of the task is looked up anew: the hook may have blocked in place, and the
        //    worker may have lost its core in that call.
        // SAFETY: the reference is used in this frame and in calls from it, and is not stored.
        Current::of(&shared, unsafe { context::worker() }).submit_untold(runnable);
    }

    #[inline]
    fn submit_untold(self, runnable: Runnable) {
        match self {
            Self::Worker(worker) => worker.submit(runnable),
            Self::Outside(shared) => shared.submit(runnable),
        }
    }
}

/// Returns the class that a child of what runs on this thread inherits in the runtime `shared`.
pub(crate) fn class_in(shared: &Arc<Shared>) -> Class {
    // SAFETY: the reference is used in this frame alone.
    Current::of(shared, unsafe { context::worker() }).class()
}

/// Spawns a future onto the current runtime; outside of any, onto the default one. Without a class
/// the task inherits one.
#[inline]
#[track_caller]
pub(crate) fn spawn<F>(
    name: Option<Box<str>>,
    class: Option<Class>,
    location: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let entered = context::entered();
    // SAFETY: the reference is used in this frame and in calls from it, and is not stored.
    let worker = unsafe { context::worker() };
    let default;
    let current = match (entered.as_deref(), worker) {
        (None, Some(worker)) => Current::Worker(worker),
        (Some(shared), worker) => Current::of(shared, worker),
        // SAFETY: the reference is used in this frame and in calls from it, and is not stored.
        (None, None) => match unsafe { context::worker_away() } {
            Some(away) => Current::Outside(away.shared()),
            None => {
                default = default_runtime();
                Current::Outside(&default)
            }
        },
    };
    current.spawn(name, class, location, future)
}

/// Spawns a future onto the runtime `shared`. Without a class the task inherits one.
#[inline]
#[track_caller]
pub(crate) fn spawn_on<F>(
    shared: &Arc<Shared>,
    name: Option<Box<str>>,
    class: Option<Class>,
    location: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: the reference is used in this frame and in calls from it, and is not stored.
    let worker = unsafe { context::worker() };
    Current::of(shared, worker).spawn(name, class, location, future)
}

/// Spawns a future onto the runtime `shared`; `lowered` says whether lowered threads poll the task.
/// If they do, it is a background task.
#[track_caller]
pub(crate) fn spawn_preemptible_or_not<F>(
    shared: &Arc<Shared>,
    name: Option<Box<str>>,
    class: Option<Class>,
    lowered: bool,
    location: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: the reference is used in this frame and in calls from it, and is not stored.
    let current = Current::of(shared, unsafe { context::worker() });
    let class = if lowered { Class::Background } else { class.unwrap_or_else(|| current.class()) };
    let (runnable, handle) = allocate(current.shared(), name, class, location, future);
    runnable.metadata().set_preemptible_by_user(lowered);
    if lowered {
        shared.hooks.task_spawned(|| TaskMeta::of(runnable.metadata()));
        shared.submit_lowered(runnable);
    } else {
        current.submit(runnable);
    }
    handle
}
