//! The functions that the user has registered to be called.

use crate::monitor::LongPoll;
use crate::task::{Class, Id, Meta, contain, drop_contained};
use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

type ThreadHook = Arc<dyn Fn() + Send + Sync>;
type SpawnHook = Arc<dyn Fn(&TaskMeta<'_>) + Send + Sync>;
type LongPollHook = Arc<dyn Fn(&LongPoll) + Send + Sync>;
type PanicHook = Arc<dyn Fn(&TaskPanic<'_>) -> PanicPolicy + Send + Sync>;

/// The user's hooks. A panic in a hook is contained: its message goes to the panic hook of the
/// process, and the runtime goes on as if the hook had returned.
#[derive(Clone)]
pub(crate) struct Hooks {
    pub(crate) on_thread_start: Option<ThreadHook>,
    pub(crate) on_thread_stop: Option<ThreadHook>,
    pub(crate) on_task_spawn: Option<SpawnHook>,
    pub(crate) on_task_panic: Option<PanicHook>,
    pub(crate) on_long_poll: Option<LongPollHook>,
    pub(crate) long_poll_threshold: Duration,
    #[cfg(feature = "stack-samples")]
    pub(crate) sample_stacks: bool,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            on_thread_start: None,
            on_thread_stop: None,
            on_task_spawn: None,
            on_task_panic: None,
            on_long_poll: None,
            long_poll_threshold: Duration::from_millis(10),
            #[cfg(feature = "stack-samples")]
            sample_stacks: false,
        }
    }
}

impl Hooks {
    pub(crate) fn thread_started(&self) {
        if let Some(hook) = &self.on_thread_start {
            call(|| hook());
        }
    }

    pub(crate) fn thread_stopping(&self) {
        if let Some(hook) = &self.on_thread_stop {
            call(|| hook());
        }
    }

    /// Tells the user's hook, if there is one, of a task that is about to be queued. The hook may
    /// block in place: afterwards the worker of this thread may have lost its core.
    #[inline]
    pub(crate) fn task_spawned<'a>(&self, meta: impl FnOnce() -> TaskMeta<'a>) {
        if let Some(hook) = &self.on_task_spawn {
            tell(hook, &meta());
        }
    }

    /// Tells the user's hook, if there is one, that a task has panicked. Returns what to do next.
    pub(crate) fn task_panicked(&self, meta: &Meta, payload: &(dyn Any + Send)) -> PanicPolicy {
        let Some(hook) = &self.on_task_panic else { return PanicPolicy::Continue };
        let panic = TaskPanic { meta, payload };
        contain(|| hook(&panic)).unwrap_or_else(|payload| {
            drop_contained(payload);
            PanicPolicy::Continue
        })
    }
}

#[cold]
#[inline(never)]
fn tell(hook: &SpawnHook, meta: &TaskMeta<'_>) {
    call(|| hook(meta));
}

/// Calls a hook whose panic is of no consequence.
fn call(hook: impl FnOnce()) {
    if let Err(payload) = contain(hook) {
        drop_contained(payload);
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("on_thread_start", &self.on_thread_start.is_some())
            .field("on_thread_stop", &self.on_thread_stop.is_some())
            .field("on_task_spawn", &self.on_task_spawn.is_some())
            .field("on_task_panic", &self.on_task_panic.is_some())
            .field("on_long_poll", &self.on_long_poll.is_some())
            .field("long_poll_threshold", &self.long_poll_threshold)
            .finish()
    }
}

/// A task that is being spawned. A hook gets it; see
/// [`Builder::on_task_spawn`](super::Builder::on_task_spawn).
///
/// # Examples
///
/// ```
/// use giveway::task::{self, Class};
/// use std::sync::mpsc;
///
/// let (sent, spawned) = mpsc::channel();
/// let runtime = giveway::Builder::new()
///     .workers(1)
///     .on_task_spawn(move |meta| {
///         let name = meta.name().map(str::to_owned);
///         sent.send((meta.id(), name, meta.class(), meta.spawned_at())).unwrap();
///     })
///     .build()?;
/// let task = task::Builder::new().name("baker").class(Class::Background);
/// let task = task.spawn_on(async {}, runtime.handle());
/// let (id, name, class, spawned_at) = spawned.recv().unwrap();
/// assert_eq!((id, name.as_deref(), class), (task.id(), Some("baker"), Class::Background));
/// assert_eq!(spawned_at.file(), file!());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TaskMeta<'a> {
    id: Id,
    name: Option<&'a str>,
    class: Class,
    spawned_at: &'static Location<'static>,
}

impl<'a> TaskMeta<'a> {
    pub(crate) fn new(
        id: Id,
        name: Option<&'a str>,
        class: Class,
        spawned_at: &'static Location<'static>,
    ) -> Self {
        Self { id, name, class, spawned_at }
    }

    /// Returns what the hook is told of a task that is allocated.
    pub(crate) fn of(meta: &'a Meta) -> Self {
        Self::new(meta.id, meta.name(), meta.class(), meta.location())
    }

    /// Returns the task's number. See [`TaskMeta`] for an example.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the task's name, if it was given one. See [`TaskMeta`] for an example.
    pub fn name(&self) -> Option<&'a str> {
        self.name
    }

    /// Returns the task's class: the one that it was given, or has inherited. See [`TaskMeta`] for
    /// an example.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the place where the task is spawned. See [`TaskMeta`] for an example.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned_at
    }
}

/// What to do after a task has panicked. A hook returns it; see
/// [`Builder::on_task_panic`](super::Builder::on_task_panic).
///
/// # Examples
///
/// ```
/// use giveway::PanicPolicy;
///
/// // This process is to be restarted rather than to go on after a bug.
/// let runtime = giveway::Builder::new().on_task_panic(|_| PanicPolicy::Shutdown).build()?;
/// let panicking = runtime.spawn(async { panic!("a bug") });
/// let other = runtime.spawn(std::future::pending::<()>());
/// runtime.block_on(async {
///     assert!(panicking.await.unwrap_err().is_panic());
///     assert!(other.await.unwrap_err().is_cancelled());
/// });
/// // Nothing else that `block_on` waits for will come.
/// let waits = std::panic::catch_unwind(|| runtime.block_on(std::future::pending::<()>()));
/// assert!(waits.unwrap_err().downcast_ref::<String>().unwrap().contains("a bug"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// Gives the panic to the task's `JoinHandle` and goes on. The default.
    Continue,
    /// Shuts the runtime down: every other task is cancelled. The panic still goes to the task's
    /// `JoinHandle`.
    ///
    /// Threads in [`block_on`](crate::Runtime::block_on) go on until every handle has its result. A
    /// future that still waits when nothing is left of the runtime waits for nothing that could
    /// come. Then `block_on` panics, and says which task panicked, where it was spawned, and with
    /// what message. If a poll or a blocking job keeps the runtime from its end, `block_on` panics
    /// five seconds after the panic of the task. A `block_on` that is called later and has to wait
    /// panics in the same way.
    Shutdown,
    /// Aborts the process.
    Abort,
}

/// A task that panicked. A hook gets it; see
/// [`Builder::on_task_panic`](super::Builder::on_task_panic).
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
///
/// let (report, reports) = mpsc::channel();
/// let runtime = giveway::Builder::new()
///     .workers(1)
///     .on_task_panic(move |panic| {
///         let message = panic.payload().downcast_ref::<&str>().copied();
///         report
///             .send((panic.id(), panic.name().map(str::to_owned), panic.spawned_at(), message))
///             .unwrap();
///         giveway::PanicPolicy::Continue
///     })
///     .build()?;
/// let task = giveway::task::Builder::new()
///     .name("baker")
///     .spawn_on(async { panic!("no bread") }, runtime.handle());
/// let task_id = task.id();
/// assert!(runtime.block_on(task).is_err());
/// let (id, name, spawned_at, message) = reports.recv().unwrap();
/// assert_eq!((id, name.as_deref(), message), (task_id, Some("baker"), Some("no bread")));
/// assert_eq!(spawned_at.file(), file!());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TaskPanic<'a> {
    meta: &'a Meta,
    payload: &'a (dyn Any + Send),
}

impl<'a> TaskPanic<'a> {
    /// Returns the task's number. See [`TaskPanic`] for an example.
    pub fn id(&self) -> Id {
        self.meta.id
    }

    /// Returns the task's name, if it was given one. See [`TaskPanic`] for an example.
    pub fn name(&self) -> Option<&'a str> {
        self.meta.name()
    }

    /// Returns the place where the task was spawned. See [`TaskPanic`] for an example.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.meta.location()
    }

    /// Returns the value that the task panicked with. See [`TaskPanic`] for an example.
    pub fn payload(&self) -> &'a (dyn Any + Send) {
        self.payload
    }
}

impl fmt::Debug for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPanic")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("spawned_at", &self.spawned_at())
            .finish_non_exhaustive()
    }
}
