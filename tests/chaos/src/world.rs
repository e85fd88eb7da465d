//! One runtime and everything that is known of it: for the books, and for a report if something goes wrong.

use crate::ledger::Ledger;
use crate::outsiders::Outsiders;
use giveway::{Handle, PanicPolicy};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Task runs of runtimes that are gone, and the tasks that were started in them.
pub(crate) static PAST_RUNS: AtomicU64 = AtomicU64::new(0);
pub(crate) static PAST_TASKS: AtomicU64 = AtomicU64::new(0);
/// How many runtimes there have been.
pub(crate) static RUNTIMES: AtomicU64 = AtomicU64::new(0);

static ALIVE: Mutex<Vec<Weak<World>>> = Mutex::new(Vec::new());

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every runtime that is not known to be gone.
pub(crate) fn alive() -> Vec<Arc<World>> {
    let mut alive = lock(&ALIVE);
    alive.retain(|world| world.strong_count() > 0);
    alive.iter().filter_map(Weak::upgrade).collect()
}

/// Where an actor says what it does.
pub(crate) type Doing = Mutex<&'static str>;

/// A runtime, and what goes on in it.
pub(crate) struct World {
    name: String,
    /// Its threads are called after this.
    pub(crate) number: u64,
    /// The runtime in one of whose tasks or threads this one was made.
    pub(crate) parent: Option<Arc<World>>,
    pub(crate) depth: u32,
    pub(crate) ledger: Ledger,
    pub(crate) outsiders: Outsiders,
    handle: OnceLock<Handle>,
    closes: AtomicBool,
    // It may end at any time.
    may_end: AtomicBool,
    // Changes whenever anything comes to an end in here, or in a runtime that was made in here.
    ticks: AtomicU64,
    stage: Mutex<&'static str>,
    // What each actor does.
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

    /// The handle of its runtime.
    pub(crate) fn handle(&self) -> &Handle {
        self.handle.get().expect("the runtime was built")
    }

    pub(crate) fn try_handle(&self) -> Option<&Handle> {
        self.handle.get()
    }

    /// Whether its runtime ends, or is about to: tasks are cancelled.
    pub(crate) fn closes(&self) -> bool {
        self.closes.load(SeqCst)
    }

    /// From now on tasks may be cancelled.
    pub(crate) fn close(&self) {
        self.closes.store(true, SeqCst);
    }

    /// From now on a panic may be its end.
    pub(crate) fn expect_the_end(&self) {
        self.may_end.store(true, SeqCst);
    }

    /// What is to become of the runtime when a task has panicked.
    pub(crate) fn after_a_panic(&self) -> PanicPolicy {
        if self.may_end.load(SeqCst) {
            self.close();
            return PanicPolicy::Shutdown;
        }
        PanicPolicy::Continue
    }

    /// Something has come to an end.
    pub(crate) fn tick(&self) {
        self.ticks.fetch_add(1, SeqCst);
        if let Some(parent) = &self.parent {
            parent.tick();
        }
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(SeqCst)
    }

    /// The episode has come to another stage.
    pub(crate) fn enter(&self, stage: &'static str) {
        *lock(&self.stage) = stage;
        self.tick();
    }

    /// A new actor, and where it says what it does.
    pub(crate) fn register(&self, actor: u64) -> Arc<Doing> {
        let doing = Arc::new(Mutex::new("nothing yet"));
        let mut all = lock(&self.doing);
        if all.len() == all.capacity() {
            all.retain(|(_, doing)| doing.strong_count() > 0);
        }
        all.push((actor, Arc::downgrade(&doing)));
        doing
    }

    /// Everything that is known of it, for a report.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("runtime {}: {}; {}\n", self.name, lock(&self.stage), self.ledger.describe());
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
