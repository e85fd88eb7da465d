//! A worker that blocks in a task: it leaves its core to whoever needs it, and comes back for it. See
//! `blocking/hand_off.md`.

use super::{Hold, Stop, Worker};
use crate::blocking::Loan;
use crate::runtime::{Phase, Shared, context};
use crate::sites::{CALLS, Expect, LONG_CALL, Site};
use giveway_budget::{exhaust, without_budget};
use giveway_io::driver;
use giveway_yield::host::renew_signs;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Instant;

/// Holds a core for another thread, if it is still to be had.
pub(crate) fn stand_in(shared: &Arc<Shared>, core: usize, loan: Loan) {
    if !shared.take_core(core, loan, || ()) {
        return;
    }
    let worker = Worker::new(shared.clone(), core, false);
    worker.tally().held(shared.now());
    match worker.at_work(|| ()) {
        Stop::Closed => {
            worker.tally().rest(shared.now());
            shared.gate.core_ended(core);
        }
        Stop::Lost(loan) => {
            worker.poll_ended_away(loan);
            shared.crew.forget_away(core, loan);
        }
        // A home thread goes on with the core, and counts for it.
        Stop::GivenBack if !shared.is_spare(core) => {}
        Stop::GivenBack => shared.leave_after_poll(|| ()),
    }
}

impl Worker {
    /// Whether the core can be lent: a poll goes on here, and nobody further up the stack has the core in his hands.
    #[inline]
    pub(crate) fn may_lend(&self) -> bool {
        self.may_lend.get()
    }

    /// Runs `f`, in which the core may be lent or may not.
    #[inline]
    pub(super) fn lending<R>(&self, may: bool, f: impl FnOnce() -> R) -> R {
        let before = self.may_lend.replace(may);
        let result = f();
        self.may_lend.set(before);
        result
    }

    /// Runs `f`, which may block, without the core. `site` says how long it is likely to take; without one nobody is told
    /// before [`Self::about_to_wait`].
    pub(crate) fn lend<R>(&self, site: Option<&'static Site>, f: impl FnOnce() -> R) -> R {
        let expect = site.map_or(Expect::Short, Site::expect);
        let since = (expect != Expect::Short).then(Instant::now);
        let scheduler = &self.shared.scheduler;
        let somebody_idle = !scheduler.idle.nobody_idle();
        if expect != Expect::Short && somebody_idle {
            // The idle one is to have it. (With nobody idle it is the stand-in's.)
            self.shared.unpark(scheduler.hand_over_slot(self.core()));
        }
        let (id, class) = (self.running_id().expect("a task runs here"), self.class());
        self.left_tick.set(self.core().tick());
        self.left_asked.set(self.core().manners().times_asked());
        // The thread stops being what it is for others before the core is to be had (L1 of `hand_off.md`), and is it again
        // only if it has the core again. `Cell`s: the two ends are closures, and the second also runs if `f` panics.
        let (loan, kept) = (Cell::new(None), Cell::new(false));
        let call = || {
            loan.set(Some(self.leave_core()));
            match expect {
                Expect::Short => {}
                Expect::Unknown => self.shared.monitor.watch_closely(),
                Expect::Long => self.about_to_wait(),
            }
            without_budget(f)
        };
        let come_back = || {
            kept.set(loan.get().is_none_or(|loan| self.take_core_back(loan)));
            if let (Some(site), true) = (site, since.is_some() || !kept.get()) {
                // Without a time it was trusted to be short, and the monitor has come by twice.
                CALLS.learn(site, since.is_none_or(|since| since.elapsed() > LONG_CALL));
            }
            kept.get()
        };
        context::away(self, id, class, || driver::lend(call, come_back), || kept.get())
    }

    /// Lets others have the core (L2).
    #[inline]
    fn leave_core(&self) -> Loan {
        let loan = self.post().lease.lend();
        self.hold.set(Hold::Lent(loan));
        self.offered.set(false);
        // Ordering: SeqCst fence, partner of the one in `Shared::close_gate`.
        fence(SeqCst);
        if self.shared.gate.phase() != Phase::Open {
            // What is queued here is to be dropped, and the call may wait for that.
            self.about_to_wait();
        }
        loan
    }

    /// Takes the core back, if it is still there (L4).
    #[inline]
    fn take_core_back(&self, loan: Loan) -> bool {
        let kept = self.post().lease.take(loan);
        if kept {
            self.hold.set(Hold::Core);
        } else {
            self.lost(loan);
        }
        kept
    }

    /// From now on the poll has no core, and is to end soon.
    #[cold]
    fn lost(&self, loan: Loan) {
        self.hold.set(Hold::Lost(loan));
        renew_signs();
        exhaust();
    }

    /// The thread is about to wait inside of a blocking call, for something that may be queued on this very core.
    pub(crate) fn about_to_wait(&self) {
        if let Hold::Lent(loan) = self.hold.get()
            && !self.offered.replace(true)
        {
            self.shared.offer(self.index, loan);
        }
    }

    /// A yield point of a poll that has lost its core wants to give way.
    pub(crate) fn ask_away(&self) -> u32 {
        self.left_asked.set(self.left_asked.get() + 1);
        self.left_tick.get()
    }

    /// It does not any more.
    pub(crate) fn take_back_away(&self) {
        self.left_asked.set(self.left_asked.get().saturating_sub(1));
    }

    /// The number of the poll that has lost its core.
    pub(crate) fn tick_away(&self) -> u32 {
        self.left_tick.get()
    }

    /// A poll that has lost its core is over, and its task is where it belongs.
    pub(super) fn poll_ended_away(&self, loan: Loan) {
        self.shared.crew.poll_ended(self.index, loan);
        self.shared.leave_after_poll(|| {
            if self.home {
                self.drop_pinned();
            }
        });
    }

    /// Gives the core back to its home thread, if that wants it. Then this one holds it no more.
    #[inline]
    pub(super) fn give_back(&self) -> bool {
        self.post().recall.is_wanted() && self.give_back_now()
    }

    #[cold]
    fn give_back_now(&self) -> bool {
        if self.searching.get() {
            self.stop_search();
        }
        if self.shared.is_spare(self.index) {
            return self.retire();
        }
        let given = self.post().recall.give();
        if given {
            self.post().home.unpark();
        }
        given
    }

    /// Gives a spare core back to the monitor, if that still wants it.
    fn retire(&self) -> bool {
        let (shared, now) = (&self.shared, self.shared.now());
        shared.unpark(shared.scheduler.empty(self.core()));
        // Before it is given: whoever holds it next says the opposite. And not for the monitor to say, which does not come
        // any more if the runtime closes now.
        shared.gate.core_ended(self.index);
        self.tally().rest(now);
        let given = self.post().recall.give();
        if !given {
            shared.gate.core_held(self.index);
            self.tally().held(now);
        }
        given
    }

    /// Waits until this thread has its core again. False if the runtime closes first.
    pub(super) fn reclaim(&self) -> bool {
        let (post, shared) = (self.post(), &self.shared);
        post.recall.want();
        loop {
            if post.recall.take_given() {
                break;
            }
            if let Some(loan) = post.lease.on_loan()
                && shared.take_core(self.index, loan, || self.drop_pinned())
            {
                let nobody_else_gave_it = post.recall.give_up();
                debug_assert!(nobody_else_gave_it, "only the holder of a core gives it");
                break;
            }
            if shared.gate.phase() != Phase::Open {
                if post.recall.give_up() {
                    return false;
                }
                continue;
            }
            if shared.scheduler.idle.remove(self.index) {
                // Its holder is asleep, and is woken as a searcher.
                shared.unpark(Some(self.index));
            } else {
                shared.scheduler.ask_to_yield(self.index);
            }
            post.home.park();
        }
        self.hold.set(Hold::Core);
        true
    }
}
