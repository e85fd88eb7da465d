//! Who holds a core: one word. The protocol is in `hand_off.md`.

use crate::sync::{AtomicU8, AtomicUsize, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Who holds a core. Even: somebody does. Odd: it is left to whoever takes it first.
pub(crate) struct Lease(AtomicUsize);

/// One time that a core was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Loan(usize);

impl Lease {
    /// Held.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Leaves the core to whoever [takes](Self::take) it first. The holder's to call.
    #[inline]
    pub(crate) fn lend(&self) -> Loan {
        // Nobody else writes it while the core is held.
        let loan = self.0.load(Relaxed).wrapping_add(1);
        // Ordering: release, partner of the acquire in `take`: the taker finds the core as it was left.
        self.0.store(loan, Release);
        Loan(loan)
    }

    /// Takes the core, if it is still there. True for one, the one that lent it included.
    #[inline]
    #[must_use = "whoever took the core has to hold it"]
    pub(crate) fn take(&self, Loan(loan): Loan) -> bool {
        // Ordering: acquire, partner of the release in `lend`. Release, so that whoever fails sees what the taker did
        // before: it has written down who is away.
        self.0.compare_exchange(loan, loan.wrapping_add(1), AcqRel, Acquire).is_ok()
    }

    /// The loan that is open, if one is.
    pub(crate) fn on_loan(&self) -> Option<Loan> {
        // Ordering: relaxed; `take` orders.
        let word = self.0.load(Relaxed);
        (!word.is_multiple_of(2)).then_some(Loan(word))
    }

    /// Whether this loan was open a moment ago.
    pub(crate) fn is_open(&self, Loan(loan): Loan) -> bool {
        // Ordering: acquire, partner of the release in `lend`: whoever comes for the core sees which task lends it.
        self.0.load(Acquire) == loan
    }
}

/// Whether the home thread of a core wants it back.
pub(crate) struct Recall(AtomicU8);

const NOT: u8 = 0;
const WANTED: u8 = 1;
const GIVEN: u8 = 2;

impl Recall {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(NOT))
    }

    /// The home thread wants its core. It looks whether it can have it *afterwards*.
    pub(crate) fn want(&self) {
        self.0.store(WANTED, Relaxed);
        // Ordering: SeqCst fence. The stand-in is counted out under the lock of the idle set, and looks after that; the
        // caller takes that lock next. The fence is for the looks that go by no lock: see `is_wanted`.
        fence(SeqCst);
    }

    /// Whether the core is to be given back.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        // Ordering: relaxed. One that is missed between two polls is seen after the next; before a sleep the lock of the
        // idle set orders it.
        self.0.load(Relaxed) == WANTED
    }

    /// Gives the core back, if it is still wanted. The stand-in's to call; it holds the core no more if this is true.
    #[must_use = "the core was given away, or it was not"]
    pub(crate) fn give(&self) -> bool {
        // Ordering: release, partner of the acquire in `take_given`.
        self.0.compare_exchange(WANTED, GIVEN, AcqRel, Relaxed).is_ok()
    }

    /// Takes what was given. Home's to call.
    #[must_use = "the core is held now, or it is not"]
    pub(crate) fn take_given(&self) -> bool {
        // Ordering: acquire, partner of the release in `give`.
        self.0.compare_exchange(GIVEN, NOT, AcqRel, Relaxed).is_ok()
    }

    /// Wants it no more: it has the core, or the runtime closes. False if the core has just been given.
    #[must_use = "if the core was given it has to be taken"]
    pub(crate) fn give_up(&self) -> bool {
        // Ordering: AcqRel, to stand in one chain with `give`.
        self.0.compare_exchange(WANTED, NOT, AcqRel, Relaxed).is_ok()
    }
}
