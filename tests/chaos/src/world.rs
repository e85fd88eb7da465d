//! A world: one runtime and what is recorded about it, for the ledger and for the report of a
//! failure.

use crate::ledger::Ledger;
use crate::outsiders::Outsiders;
use giveway::{Handle, PanicPolicy};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// How often tasks of ended runtimes were polled.
pub(crate) static PAST_RUNS: AtomicU64 = AtomicU64::new(0);
/// How many tasks were started in ended runtimes.
pub(crate) static PAST_TASKS: AtomicU64 = AtomicU64::new(0);
/// How many runtimes have been started: also the number of the next one.
pub(crate) static RUNTIMES: AtomicU64 = AtomicU64::new(0);

static ALIVE: Mutex<Vec<Weak<World>>> = Mutex::new(Vec::new());

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns every world that still exists.
pub(crate) fn alive() -> Vec<Arc<World>> {
    let mut alive = lock(&ALIVE);
    alive.retain(|world| world.strong_count() > 0);
    alive.iter().filter_map(Weak::upgrade).collect()
}

/// The name of the act that an actor performs. The actor writes it; reports read it.
pub(crate) type Doing = Mutex<&'static str>;

/// A runtime, and what is recorded about it.
pub(crate) struct World {
    name: String,
    /// The number in the names of the runtime's threads.
    pub(crate) number: u64,
    /// The world of the runtime in which this one was started, if there is one.
    pub(crate) parent: Option<Arc<World>>,
    pub(crate) depth: u32,
    pub(crate) ledger: Ledger,
    pub(crate) outsiders: Outsiders,
    handle: OnceLock<Handle>,
    closes: AtomicBool,
    /// Whether a task's panic may shut the runtime down.
    may_end: AtomicBool,
    /// Incremented whenever something ends, such as an act or a stage, here or in a runtime that
    /// was started in here. The watch compares it from look to look.
    ticks: AtomicU64,
    stage: Mutex<&'static str>,
    /// What each actor does, by the actor's number.
    doing: Mutex<Vec<(u64, Weak<Doing>)>>,
}

impl World {
    pub(crate) fn new(name: String, parent: Option<Arc<World>>, outsiders: Outsiders) -> Arc<Self> {
        let depth = parent.as_ref().map_or(0, |parent| parent.depth + 1);
        let world = Arc::new(Self {
            name,
            number: RUNTIMES.fetch_add(1, SeqCst),
            parent,
            depth,
            ledger: Ledger::default(),
            outsiders,
            handle: OnceLock::new(),
            closes: AtomicBool::new(false),
            may_end: AtomicBool::new(false),
            ticks: AtomicU64::new(0),
            stage: Mutex::new("starts"),
            doing: Mutex::default(),
        });
        lock(&ALIVE).push(Arc::downgrade(&world));
        world
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn set_handle(&self, handle: Handle) {
        let first = self.handle.set(handle).is_ok();
        debug_assert!(first, "a world has one runtime");
    }

    /// Returns the handle of the runtime. Panics if the runtime has not been built yet.
    pub(crate) fn handle(&self) -> &Handle {
        self.handle.get().expect("the runtime was built")
    }

    pub(crate) fn try_handle(&self) -> Option<&Handle> {
        self.handle.get()
    }

    /// Returns whether the runtime is ending, or about to end: tasks may be cancelled.
    pub(crate) fn closes(&self) -> bool {
        self.closes.load(SeqCst)
    }

    /// Notes that the runtime is about to end: from now on tasks may be cancelled.
    pub(crate) fn close(&self) {
        self.closes.store(true, SeqCst);
    }

    /// Notes that from now on a task's panic may shut the runtime down.
    pub(crate) fn expect_the_end(&self) {
        self.may_end.store(true, SeqCst);
    }

    /// Decides what the runtime does after a task has panicked.
    pub(crate) fn after_a_panic(&self) -> PanicPolicy {
        if self.may_end.load(SeqCst) {
            self.close();
            return PanicPolicy::Shutdown;
        }
        PanicPolicy::Continue
    }

    /// Notes progress: something has ended.
    pub(crate) fn tick(&self) {
        self.ticks.fetch_add(1, SeqCst);
        if let Some(parent) = &self.parent {
            parent.tick();
        }
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(SeqCst)
    }

    /// Notes that the episode has reached `stage`.
    pub(crate) fn enter(&self, stage: &'static str) {
        *lock(&self.stage) = stage;
        self.tick();
    }

    /// Registers an actor, and returns the place where it writes what it does.
    pub(crate) fn register(&self, actor: u64) -> Arc<Doing> {
        let doing = Arc::new(Mutex::new("nothing yet"));
        let mut all = lock(&self.doing);
        if all.len() == all.capacity() {
            all.retain(|(_, doing)| doing.strong_count() > 0);
        }
        all.push((actor, Arc::downgrade(&doing)));
        doing
    }

    /// Describes the runtime, its actors and its tasks, for a report.
    pub(crate) fn describe(&self) -> String {
        let mut text =
            format!("runtime {}: {}; {}\n", self.name, lock(&self.stage), self.ledger.describe());
        for (actor, doing) in lock(&self.doing).iter() {
            if let Some(doing) = doing.upgrade() {
                text += &format!("  actor {actor}: {}\n", lock(&doing));
            }
        }
        if let Some(handle) = self.handle.get() {
            text += &format!("{}\n{}\n", handle.dump(), handle.metrics());
        }
        text
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
