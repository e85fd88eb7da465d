//! A worker whose task blocks: it lends its core to any thread that comes for it, and takes it
//! back. The steps are those of `handoff/hand_off.md`.

use super::{Hold, Stop, Worker};
use crate::handoff::Loan;
use crate::handoff::{CALLS, CallSite, Expect, LONG_CALL};
use crate::runtime::{Phase, Shared, context};
use giveway_budget::{exhaust, without_budget};
use giveway_io::driver;
use giveway_yield::host::renew_signs;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Instant;

/// Takes a core that was lent, if it is still free, and holds it in place of the thread that has
/// lent it.
pub(crate) fn stand_in(shared: &Arc<Shared>, core: usize, loan: Loan) {
    // T1 and T2.
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
            shared.pool.forget_away(core, loan);
        }
        // The home thread goes on with the core, and is counted at the gate for it.
        Stop::GivenBack if !shared.is_spare(core) => {}
        // E2. The monitor has its spare core back, which counts at the gate no more.
        Stop::GivenBack => shared.leave_after_poll(|| ()),
    }
}

impl Worker {
    /// Returns whether the core may be lent: a poll goes on here, and no code of the worker's
    /// further up the stack is in the middle of using the core.
    #[inline]
    pub(crate) fn may_lend(&self) -> bool {
        self.may_lend.get()
    }

    /// Runs `f`, in which the core may be lent if `may` is true.
    #[inline]
    pub(super) fn lending<R>(&self, may: bool, f: impl FnOnce() -> R) -> R {
        let before = self.may_lend.replace(may);
        let result = f();
        self.may_lend.set(before);
        result
    }

    /// Runs `f`, which may block, without the core. `site` says how long it is likely to take.
    /// Without a site no thread is sent for the core before [`Self::about_to_wait`].
    pub(crate) fn lend<R>(&self, site: Option<&'static CallSite>, f: impl FnOnce() -> R) -> R {
        let expect = site.map_or(Expect::Short, CallSite::expect);
        let since = (expect != Expect::Short).then(Instant::now);
        let scheduler = &self.shared.scheduler;
        let somebody_idle = !scheduler.idle.nobody_idle();
        if expect != Expect::Short && somebody_idle {
            // The idle worker is to run the slot's task, of which it was not told. If no worker is
            // idle, the task stays for the stand-in.
            self.shared.unpark(scheduler.hand_over_slot(self.core()));
        }
        // Read while the core is held, for as long as the poll goes on without it.
        let (id, class) = (self.running_id().expect("a task runs here"), self.class());
        self.left_tick.set(self.core().tick());
        self.left_asked.set(self.core().poll_state().times_asked());
        // L1 comes before L2: the thread gives up its worker and its shard of timers before another
        // thread can take the core. It gets them back after L4, only if it has the core again.
        // `Cell`s, because both ends are closures, and the second one also runs if `f` panics.
        let (loan, kept) = (Cell::new(None), Cell::new(false));
        let call = || {
            // L2, and then a thread to take the core: at once if calls from this place are long, by
            // way of the monitor if nothing is known of them.
            loan.set(Some(self.leave_core()));
            match expect {
                Expect::Short => {}
                Expect::Unknown => self.shared.monitor.watch_closely(),
                Expect::Long => self.about_to_wait(),
            }
            // L3. The budget does not count in a blocking call.
            without_budget(f)
        };
        let come_back = || {
            // L4. Without a loan `f` was not reached, and the core was never lent.
            kept.set(loan.get().is_none_or(|loan| self.take_core_back(loan)));
            if let (Some(site), true) = (site, since.is_some() || !kept.get()) {
                // A call from a trusted place is not timed. If it has lost its core it was long:
                // the monitor has seen it at two looks, it has waited in a `block_on`, or the
                // runtime closes.
                CALLS.learn(site, since.is_none_or(|since| since.elapsed() > LONG_CALL));
            }
            kept.get()
        };
        context::away(self, id, class, || driver::lend(call, come_back), || kept.get())
    }

    /// Lends the core to any thread that comes for it (L2).
    #[inline]
    fn leave_core(&self) -> Loan {
        let loan = self.post().lease.lend();
        self.hold.set(Hold::Lent(loan));
        self.offered.set(false);
        // Ordering: SeqCst fence, partner of the one in `Shared::close_gate`. The loan is written
        // before it and the gate read after it; the other side closes the gate before its fence and
        // looks for loans after it. Either this thread sees the closed gate, or the closing thread
        // sees the loan and sends a thread for the core.
        fence(SeqCst);
        if self.shared.gate.phase() != Phase::Open {
            // What is queued on this core is to be dropped, and the call may wait for that.
            self.about_to_wait();
        }
        loan
    }

    /// Takes the core back, if no other thread has taken it (L4). Returns whether it did.
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

    /// Notes that the poll has lost its core, and has it return soon: from now on its yield points
    /// always give way, and its budget is spent.
    #[cold]
    fn lost(&self, loan: Loan) {
        self.hold.set(Hold::Lost(loan));
        renew_signs();
        exhaust();
    }

    /// Sends a thread for the core, once a loan. Called when this thread is about to wait inside of
    /// a blocking call, because what it waits for may be queued on this very core.
    pub(crate) fn about_to_wait(&self) {
        if let Hold::Lent(loan) = self.hold.get()
            && !self.offered.replace(true)
        {
            self.shared.offer(self.index, loan);
        }
    }

    /// Notes that a yield point of a poll that has lost its core wants to give way. Returns the
    /// number of the poll.
    pub(crate) fn ask_away(&self) -> u32 {
        self.left_asked.set(self.left_asked.get() + 1);
        self.left_tick.get()
    }

    /// Takes back one request of [`Self::ask_away`].
    pub(crate) fn take_back_away(&self) {
        self.left_asked.set(self.left_asked.get().saturating_sub(1));
    }

    /// Returns the number of the poll that has lost its core.
    pub(crate) fn tick_away(&self) -> u32 {
        self.left_tick.get()
    }

    /// Ends a poll that has lost its core, after its task was queued or dropped. The thread leaves
    /// the gate, which was joined for it when its core was taken (T1).
    pub(super) fn poll_ended_away(&self, loan: Loan) {
        self.shared.pool.poll_ended(self.index, loan);
        self.shared.leave_after_poll(|| {
            if self.home {
                self.drop_pinned();
            }
        });
    }

    /// Gives the core back to its home thread, or a spare core to the monitor, if it is wanted
    /// there. Returns true if the calling thread holds the core no more (S1).
    #[inline]
    pub(super) fn give_back(&self) -> bool {
        self.post().recall.is_wanted() && self.give_back_now()
    }

    #[cold]
    fn give_back_now(&self) -> bool {
        // 1. The next holder does not begin as a searcher, so the search is ended while this thread
        // holds the core.
        self.end_search();
        if self.shared.is_spare(self.index) {
            return self.retire();
        }
        // 2. If it is not wanted any more, the home thread has given up, and this one goes on.
        let given = self.post().recall.give();
        if given {
            // 3. After the core is given: a home thread that wakes up looks for it, and parks again
            // if there is none.
            self.post().home.unpark();
        }
        given
    }

    /// Gives a spare core back to the monitor, if the monitor still wants it.
    fn retire(&self) -> bool {
        let (shared, now) = (&self.shared, self.shared.now());
        // E1. The core is emptied before it is given: only its holder may touch its deque.
        shared.unpark(shared.scheduler.empty(self.core()));
        // This, too, comes before the core is given: the next holder says the opposite. The monitor
        // cannot say it in place of this thread, because it does not come any more if the runtime
        // closes now.
        shared.gate.core_ended(self.index);
        self.tally().rest(now);
        // If it is not given, the monitor needs the core again (M5), and this thread goes on with
        // it.
        let given = self.post().recall.give();
        if !given {
            shared.gate.core_held(self.index);
            self.tally().held(now);
        }
        given
    }

    /// Waits until this thread has its core again. Returns false if the runtime closes first.
    pub(super) fn reclaim(&self) -> bool {
        let (post, shared) = (self.post(), &self.shared);
        // H1 comes before the looks below. A stand-in that goes to sleep is put into the idle set
        // first and looks at the recall second; either it sees the recall, or H3 sees it asleep.
        post.recall.want();
        loop {
            // H4.
            if post.recall.take_given() {
                break;
            }
            // H2.
            if let Some(loan) = post.lease.on_loan()
                && shared.take_core(self.index, loan, || self.drop_pinned())
            {
                // This thread holds the core now, so no other can give it.
                let nobody_else_gave_it = post.recall.give_up();
                debug_assert!(nobody_else_gave_it, "only the holder of a core gives it");
                break;
            }
            if shared.gate.phase() != Phase::Open {
                // If this fails, the stand-in has just given the core, which has to be taken: no
                // core is given to a thread that is gone.
                if post.recall.give_up() {
                    return false;
                }
                continue;
            }
            // H3.
            if shared.scheduler.idle.remove(self.index) {
                // The holder is asleep. It is woken as a searcher, sees the recall and gives the
                // core.
                shared.unpark(Some(self.index));
            } else {
                // The holder is in a poll, or is about to look at the recall. A polite poll returns
                // at its next yield point, though a worker may be idle.
                shared.scheduler.ask_to_yield(self.index);
            }
            // The holder unparks this thread when it gives the core, a thread that lends the core
            // does, and so does the one that closes the runtime.
            post.home.park();
        }
        self.hold.set(Hold::Core);
        true
    }
}
