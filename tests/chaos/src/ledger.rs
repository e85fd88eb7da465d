//! The books of one runtime: which tasks were started in it, and how they ended.
//!
//! Every task owns a [`Ticket`]. It is used up when the task finishes, and notes how the task ended if it is dropped before.
//! What the task gives back is a [`Receipt`] with the same number. When a runtime is gone there is neither a ticket nor a
//! receipt of it, and as many ends as tickets.

use crate::failure::{Told, ensure};
use crate::world::World;
use giveway::task::JoinError;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

/// What becomes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It finishes, unless it is aborted or its runtime ends.
    Finishes,
    /// It finishes, and its output panics if it is dropped unread.
    FinishesWithBomb,
    /// It panics, unless it is aborted or its runtime ends.
    Panics,
    /// It is aborted, or goes with its runtime.
    Held,
    /// The same, and its destructor panics.
    HeldWithBomb,
}

/// The counts of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    started: AtomicU64,
    finished: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
    // Receipts that exist.
    receipts: AtomicI64,
}

impl Ledger {
    /// How many tasks were started.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(SeqCst)
    }

    /// How many have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.finished.load(SeqCst) + self.panicked.load(SeqCst) + self.cancelled.load(SeqCst)
    }

    /// Whether every task that was started has ended, and nothing of any is left. Ends are read first: a task that is started
    /// meanwhile makes this false.
    pub(crate) fn balances(&self) -> bool {
        let ended = self.ended();
        ended == self.started() && self.receipts.load(SeqCst) == 0
    }

    pub(crate) fn describe(&self) -> String {
        let load = |count: &AtomicU64| count.load(SeqCst);
        format!(
            "{} started, {} finished, {} panicked, {} cancelled, {} outputs alive",
            load(&self.started),
            load(&self.finished),
            load(&self.panicked),
            load(&self.cancelled),
            self.receipts.load(SeqCst)
        )
    }
}

/// A task's own entry in the books.
#[derive(Debug)]
pub(crate) struct Ticket {
    world: Arc<World>,
    number: u64,
    fate: Fate,
    // It has finished, or is about to panic because it was told to.
    used: bool,
    panics: bool,
}

impl Ticket {
    pub(crate) fn new(world: &Arc<World>, number: u64, fate: Fate) -> Self {
        world.ledger.started.fetch_add(1, SeqCst);
        Self { world: world.clone(), number, fate, used: false, panics: false }
    }

    /// How the task is to end.
    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    /// The task is over.
    pub(crate) fn finish(mut self) -> Receipt {
        ensure!(
            matches!(self.fate, Fate::Finishes | Fate::FinishesWithBomb),
            "task {} of {} finished, and was to end as {:?}",
            self.number,
            self.world.name(),
            self.fate
        );
        self.used = true;
        self.world.ledger.finished.fetch_add(1, SeqCst);
        self.world.ledger.receipts.fetch_add(1, SeqCst);
        Receipt { world: self.world.clone(), number: self.number, bomb: self.fate == Fate::FinishesWithBomb }
    }

    /// The task panics as it was told to.
    pub(crate) fn panic(mut self) -> ! {
        self.panics = true;
        let payload = Box::new(Told(self.number));
        drop(self);
        std::panic::resume_unwind(payload)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let ledger = &self.world.ledger;
        if self.used {
            return;
        }
        if self.panics { &ledger.panicked } else { &ledger.cancelled }.fetch_add(1, SeqCst);
        self.world.tick();
        if self.fate == Fate::HeldWithBomb && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Told(self.number)));
        }
    }
}

/// What a task that finished gives back.
#[derive(Debug)]
pub(crate) struct Receipt {
    world: Arc<World>,
    number: u64,
    bomb: bool,
}

impl Receipt {
    /// Reads it.
    fn number(mut self) -> u64 {
        self.bomb = false;
        self.number
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.world.ledger.receipts.fetch_sub(1, SeqCst);
        if self.bomb && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Told(self.number)));
        }
    }
}

/// What a handle is expected to say.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) world: Arc<World>,
    pub(crate) number: u64,
    pub(crate) fate: Fate,
    /// Somebody has asked for its end.
    pub(crate) aborted: bool,
}

impl Expected {
    /// Compares with what the handle says. True if the task came to its own end, and not to that of its runtime.
    #[track_caller]
    pub(crate) fn check(&self, result: Result<Receipt, JoinError>) -> bool {
        let place = std::panic::Location::caller();
        let (number, name) = (self.number, self.world.name());
        match result {
            Ok(receipt) => {
                let says = receipt.number();
                ensure!(says == number, "{place}: task {number} of {name} gave the output of task {says}");
                true
            }
            Err(error) if error.is_panic() => {
                let (text, payload) = (error.to_string(), error.into_panic());
                let may = matches!(self.fate, Fate::Panics | Fate::HeldWithBomb);
                let told = payload.downcast_ref();
                ensure!(may, "{place}: task {number} of {name} panicked, and was not told to: {text}, {told:?}");
                ensure!(told == Some(&Told(number)), "{place}: task {number} of {name}: {text}, {told:?}");
                true
            }
            Err(error) => {
                let may = self.aborted || self.world.closes();
                ensure!(may, "{place}: task {number} of {name} was cancelled, and nobody asked for it: {error}");
                self.aborted
            }
        }
    }
}
