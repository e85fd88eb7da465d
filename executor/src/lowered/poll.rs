//! Polls on lowered threads: polls that the OS is to preempt.
//!
//! A yield point lets the foreground go first within microseconds, if the task reaches one. A
//! compressor, a sort or another author's library has none, and such a task holds the worker that
//! polls it for as long as it takes. So a task that asks for it
//! ([`task::Builder::preemptible`](crate::task::Builder::preemptible)) is never polled by a worker.
//! It waits in the queue of a pool whose threads have the lowest priority, and the kernel takes the
//! CPU from it, at any instruction, for whatever a worker has to do.
//!
//! A lowered thread holds no core. What its task wakes or spawns goes where tasks go that other
//! threads wake and spawn. Its yield points give way only to other tasks on lowered threads, after
//! [`SLICE`], because to everything else the kernel gives way. At the gate it counts as a poll
//! without a core (`handoff/hand_off.md`), so that the runtime does not end under it.

use super::proxy;
use crate::blocking::Kind;
use crate::handoff::{Expect, POLLS};
use crate::os::thread_time;
use crate::runtime::host::{NEVER, NOBODY, NOTHING, SLICE, ticket};
use crate::runtime::{Phase, Shared, context};
use crate::sched::{LookTimer, Settings};
use crate::task::{Meta, Runnable, with_polled};
use giveway_budget::{OPERATIONS, with_budget};
use giveway_yield::host::{Host, Paced, Signs, Ticket, paced_poll_begins, with_host};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// In the place of [`SLICE`], and of the budget of one poll, for a task that the runtime itself has
/// chosen for lowered threads. They are small, so that a task which gives way after all can show
/// it.
const PROBATION: u64 = 100_000;
const PROBATION_OPERATIONS: u8 = 2;

/// A poll that had a CPU for longer than this, in nanoseconds, would not have returned in time on a
/// worker.
const LONG_POLL: u64 = 3 * PROBATION;

/// Polls a task on the calling thread, which is a lowered one and has joined the gate. Returns the
/// task if it was woken while it ran: then it goes to the back of the queue, to be polled again.
#[must_use = "the task is in no queue"]
pub(crate) fn poll(shared: &Arc<Shared>, task: Runnable) -> Option<Runnable> {
    if shared.gate.phase() != Phase::Open {
        drop(task);
        return None;
    }
    let site = task.metadata().may_be_lowered().then(|| POLLS.at(task.metadata().location()));
    if site.is_some_and(|site| site.expect() != Expect::Long || !shared.preempts_background()) {
        shared.send_back(task);
        return None;
    }
    let (began, watched) = (thread_time(), proxy::watched());
    let again = poll_now(shared, task, site.is_some());
    let took = thread_time().zip(began).map(|(now, began)| now.saturating_sub(began));
    if let Some(took) = took {
        shared.meter.count_lowered(took);
    }
    if let (Some(site), Some(took)) = (site, took) {
        // A worker would not have had to wait for the proxy.
        POLLS.learn(site, took.saturating_sub(proxy::watched() - watched) > LONG_POLL);
    }
    again
}

fn poll_now(shared: &Arc<Shared>, task: Runnable, on_probation: bool) -> Option<Runnable> {
    let (meta, now) = (task.metadata(), shared.now());
    meta.take_mark();
    let (id, is_paced) = (meta.id, meta.is_paced());
    let (slice, operations) =
        if on_probation { (PROBATION, PROBATION_OPERATIONS) } else { (SLICE, OPERATIONS) };
    let host = Slice::new(shared, now, slice);
    if is_paced {
        host.paced_since.set(Some(now));
    }
    let again = context::Again::new(None);
    context::in_lowered_poll(shared, id, &again, || {
        with_host(&host, || {
            if is_paced {
                paced_poll_begins();
            }
            with_budget(operations, || task.run())
        })
    });
    again.into_inner()
}

/// The host that answers the yield points of one poll.
struct Slice<'a> {
    shared: &'a Arc<Shared>,
    look_timer: LookTimer,
    /// Tells the tickets of this poll from all others.
    number: u64,
    /// When the slice ends, by the runtime's clock.
    until: u64,
    /// Of a paced task: when the poll began, or when the task was last told how long it takes.
    paced_since: Cell<Option<u64>>,
}

impl<'a> Slice<'a> {
    fn new(shared: &'a Arc<Shared>, now: u64, slice: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Ordering: relaxed; the number only has to be unique.
        let number = NUMBER.fetch_add(1, Relaxed);
        let look_timer = LookTimer::new(Settings::default().wide_look_interval);
        Self { shared, look_timer, number, until: now + slice, paced_since: Cell::new(None) }
    }

    /// Returns whether the poll has had its time, or the runtime closes.
    ///
    /// If no other task is queued this one is polled again at once (`Pool::take_turns`). It is
    /// asked all the same, because it may have been aborted.
    fn is_over(&self) -> bool {
        let (shared, now) = (self.shared, self.shared.now());
        if self.look_timer.ran_out() {
            // Begins the next count.
            self.look_timer.due(now, None);
        }
        let over = (now >= self.until || shared.gate.phase() != Phase::Open)
            && !shared.process.in_forked_child();
        if over {
            // The answer may have been for `should_yield`, and then the next yield point has to
            // hear it too.
            self.look_timer.hurry();
        }
        over
    }

    fn ticket(&self) -> Ticket {
        ticket(1 << 62 | self.number & ((1 << 62) - 1))
    }
}

impl Host for Slice<'_> {
    fn signs(&self) -> Signs<'_> {
        let queued = [self.shared.pool_of(Kind::Lowered).queued(), &NOTHING];
        Signs { idle: &NOBODY, asked: &NEVER, queued, countdown: self.look_timer.countdown() }
    }

    fn work_waits(&self) -> bool {
        self.is_over()
    }

    fn give_way(&self) -> Option<Ticket> {
        self.is_over().then(|| self.ticket())
    }

    fn take_back(&self, ticket: Ticket) -> bool {
        // Nothing was noted that would have to be undone: a task that gives way wakes itself, and
        // so goes to the back of the queue.
        ticket == self.ticket()
    }

    fn paced(&self) -> Option<Paced> {
        let now = self.shared.now();
        if self.shared.process.in_forked_child() {
            return None;
        }
        with_polled(|task| task.map(Meta::set_paced));
        let spent =
            self.paced_since.replace(Some(now)).map_or(0, |since| now.saturating_sub(since));
        Some(Paced::new(self.shared.elastic.admission(self.shared), now, spent))
    }
}
