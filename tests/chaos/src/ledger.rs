//! The ledger of one runtime: which tasks were started in it, and how they ended.
//!
//! Every task owns a [`Ticket`]. Finishing the task uses the ticket up. A ticket that is dropped
//! before records how the task ended. The output of the task is a [`Receipt`] with the same number.
//! When a runtime is gone, no ticket and no receipt of it exists, and the recorded ends are as many
//! as the tickets.

use crate::failure::{Told, ensure};
use crate::world::World;
use giveway::task::JoinError;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

/// How a task is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The task finishes, unless it is aborted or its runtime ends.
    Finishes,
    /// The task finishes, and its output panics if it is dropped unread.
    FinishesWithBomb,
    /// The task panics, unless it is aborted or its runtime ends.
    Panics,
    /// The task waits until it is aborted or its runtime ends.
    Held,
    /// Like [`Self::Held`], and the future's destructor panics.
    HeldWithBomb,
}

/// The counts of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    started: AtomicU64,
    finished: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
    /// How many receipts exist.
    receipts: AtomicI64,
}

impl Ledger {
    /// Returns how many tasks were started.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(SeqCst)
    }

    /// Returns how many tasks have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.finished.load(SeqCst) + self.panicked.load(SeqCst) + self.cancelled.load(SeqCst)
    }

    /// Returns whether every task that was started has ended, and no output is left. The ends are
    /// read before the starts, so that a task that is started meanwhile makes this false.
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

/// A task's entry in the ledger: owned by the task's future.
#[derive(Debug)]
pub(crate) struct Ticket {
    world: Arc<World>,
    number: u64,
    fate: Fate,
    /// The task has finished: its end is recorded already.
    used: bool,
    /// The task is about to panic as planned.
    panics: bool,
}

impl Ticket {
    pub(crate) fn new(world: &Arc<World>, number: u64, fate: Fate) -> Self {
        world.ledger.started.fetch_add(1, SeqCst);
        Self { world: world.clone(), number, fate, used: false, panics: false }
    }

    /// Returns how the task is to end.
    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    /// Records that the task finished, and makes its output.
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
        Receipt {
            world: self.world.clone(),
            number: self.number,
            bomb: self.fate == Fate::FinishesWithBomb,
        }
    }

    /// Records the task's planned panic, and panics.
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

/// The output of a task that finished.
#[derive(Debug)]
pub(crate) struct Receipt {
    world: Arc<World>,
    number: u64,
    bomb: bool,
}

impl Receipt {
    /// Reads the receipt, which then does not panic.
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

/// What the handle of a task is expected to report.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) world: Arc<World>,
    pub(crate) number: u64,
    pub(crate) fate: Fate,
    /// Whether the task has been aborted.
    pub(crate) aborted: bool,
}

impl Expected {
    /// Compares `result` with what is expected. Returns false if the task ended because its runtime
    /// did.
    #[track_caller]
    pub(crate) fn check(&self, result: Result<Receipt, JoinError>) -> bool {
        let place = std::panic::Location::caller();
        let (number, name) = (self.number, self.world.name());
        match result {
            Ok(receipt) => {
                let says = receipt.number();
                ensure!(
                    says == number,
                    "{place}: task {number} of {name} gave the output of task {says}"
                );
                true
            }
            Err(error) if error.is_panic() => {
                let (text, payload) = (error.to_string(), error.into_panic());
                let may = matches!(self.fate, Fate::Panics | Fate::HeldWithBomb);
                let told = payload.downcast_ref();
                ensure!(
                    may,
                    "{place}: task {number} of {name} panicked, and was not told to: {text}, \
                     {told:?}"
                );
                ensure!(
                    told == Some(&Told(number)),
                    "{place}: task {number} of {name}: {text}, {told:?}"
                );
                true
            }
            Err(error) => {
                let may = self.aborted || self.world.closes();
                ensure!(
                    may,
                    "{place}: task {number} of {name} was cancelled, and nobody asked for it: \
                     {error}"
                );
                self.aborted
            }
        }
    }
}
