//! The words that say which thread holds a core: the lease and the recall. The protocol, with the
//! steps named here (L2, T2, H1, …), is in `hand_off.md`.

use crate::sync::{AtomicU8, AtomicUsize, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Whether a core is held (even) or on loan (odd): a loan is open to the first thread that takes
/// it.
///
/// Written by the holder when it lends the core, and by the thread that takes it. Each change adds
/// one.
pub(crate) struct Lease(AtomicUsize);

/// The number of one loan of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Loan(usize);

impl Lease {
    /// Returns the lease of a core that is held.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Lends the core to the first thread that [takes](Self::take) it (L2). Only the holder may
    /// call this.
    #[inline]
    pub(crate) fn lend(&self) -> Loan {
        // Only the holder writes the word while the core is held.
        let loan = self.0.load(Relaxed).wrapping_add(1);
        // Ordering: release, partner of the acquire in `take`: the taker finds the core as the
        // holder left it.
        self.0.store(loan, Release);
        Loan(loan)
    }

    /// Takes the core if the loan is still open (L4 by the lender, T2 by any other thread). Returns
    /// true to exactly one caller for each loan.
    #[inline]
    #[must_use = "whoever took the core has to hold it"]
    pub(crate) fn take(&self, Loan(loan): Loan) -> bool {
        // Ordering: acquire, partner of the release in `lend`. The release half is the partner of
        // the acquire on failure: the lender that fails sees what the taker did before, which has
        // noted the lender's poll with `Pool::note_away`.
        self.0.compare_exchange(loan, loan.wrapping_add(1), AcqRel, Acquire).is_ok()
    }

    /// Returns the open loan, if there is one.
    pub(crate) fn on_loan(&self) -> Option<Loan> {
        // Ordering: relaxed, because a caller acts on the loan only through `take`, which orders.
        let word = self.0.load(Relaxed);
        (!word.is_multiple_of(2)).then_some(Loan(word))
    }

    /// Returns whether this loan was open a moment ago.
    pub(crate) fn is_open(&self, Loan(loan): Loan) -> bool {
        // Ordering: acquire, partner of the release in `lend`: a thread that comes for the core
        // sees which task was running when the core was lent.
        self.0.load(Acquire) == loan
    }
}

/// Whether the home thread of a core wants it back, and whether it was given back. For a spare core
/// the monitor takes the part of the home thread.
///
/// The home thread writes [`WANTED`] and [`NOT`], the stand-in writes [`GIVEN`].
pub(crate) struct Recall(AtomicU8);

const NOT: u8 = 0;
const WANTED: u8 = 1;
const GIVEN: u8 = 2;

impl Recall {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(NOT))
    }

    /// Asks for the core (H1). The home thread looks whether it can have the core *after* this
    /// call: a stand-in that missed the request is seen by that look.
    pub(crate) fn want(&self) {
        self.0.store(WANTED, Relaxed);
        // Ordering: SeqCst fence. Before a sleep the lock of the idle set orders both sides: the
        // stand-in is counted out under it and then looks at the recall, and the caller takes that
        // lock next. The fence is for the looks without that lock, such as the caller's next look
        // at the lease; a look of `is_wanted` that misses the request only comes later.
        fence(SeqCst);
    }

    /// Returns whether the core is to be given back.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        // Ordering: relaxed. A request that is missed between two polls is seen after the next
        // poll. Before a sleep the lock of the idle set orders it.
        self.0.load(Relaxed) == WANTED
    }

    /// Gives the core back if it is still wanted (S1). Only the stand-in may call this. If this
    /// returns true, the stand-in no longer holds the core.
    #[must_use = "the core was given away, or it was not"]
    pub(crate) fn give(&self) -> bool {
        // Ordering: release, partner of the acquire in `take_given`: the home thread finds the core
        // as the stand-in left it.
        self.0.compare_exchange(WANTED, GIVEN, AcqRel, Relaxed).is_ok()
    }

    /// Takes the core if it was given (H4). Only the home thread may call this.
    #[must_use = "the core is held now, or it is not"]
    pub(crate) fn take_given(&self) -> bool {
        // Ordering: acquire, partner of the release in `give`.
        self.0.compare_exchange(GIVEN, NOT, AcqRel, Relaxed).is_ok()
    }

    /// Withdraws the request, because the home thread has the core or the runtime closes (for a
    /// spare core, because it is needed again: M5). Returns false if the core has just been given.
    #[must_use = "if the core was given it has to be taken"]
    pub(crate) fn give_up(&self) -> bool {
        // Ordering: AcqRel, so that this change and the one in `give` are in one chain.
        self.0.compare_exchange(WANTED, NOT, AcqRel, Relaxed).is_ok()
    }
}
