//! Polls on lowered threads: what the OS is to preempt.
//!
//! A yield point lets the foreground go first within microseconds, if it is reached. A compressor, a sort or somebody else's
//! library has none, and a worker that polls such a task is held for as long as that takes. So a task that says so
//! ([`task::Builder::preemptible`](crate::task::Builder::preemptible)) is never polled by a worker. It waits in the queue of a crew
//! whose threads have the lowest priority, and the kernel takes the CPU from it, at any instruction, for whatever a worker has to
//! do.
//!
//! A lowered thread holds no core. What its task wakes or spawns goes where what other threads wake and spawn goes; its yield
//! points give way to other tasks of its kind alone, after [`SLICE`], for to all others the kernel gives way. At the gate it
//! counts as a poll without a core (`blocking/hand_off.md`), so that the runtime does not end under it.

use super::Kind;
use crate::host::{NEVER, NOBODY, NOTHING, ticket};
use crate::os::thread_time;
use crate::runtime::{Phase, Shared, context};
use crate::sched::{Pace, Settings};
use crate::sites::{Expect, POLLS};
use crate::task::{Meta, Runnable, with_polled};
use giveway_budget::{OPERATIONS, with_budget};
use giveway_yield::host::{Host, Paced, Signs, Ticket, paced_poll_begins, with_host};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long a poll goes on past its yield points, in nanoseconds: what the monitor grants polls on workers.
const SLICE: u64 = 10_000_000;

/// As [`SLICE`], and as the budget of one poll, if the runtime has found the task to be one for lowered threads by itself: one
/// that gives way after all is to show it.
const PROBATION: u64 = 100_000;
const PROBATION_OPERATIONS: u8 = 2;

/// A poll that had a CPU for longer, in nanoseconds, would not have returned in time on a worker.
const LONG_POLL: u64 = 3 * PROBATION;

/// Polls a task on the calling thread, which is a lowered one and has joined the gate. Returns the task if it is to be polled
/// again: it was woken while it ran, and goes to the back of the queue.
#[must_use = "the task is in no queue"]
pub(super) fn poll(shared: &Arc<Shared>, task: Runnable) -> Option<Runnable> {
    if shared.gate.phase() != Phase::Open {
        drop(task);
        return None;
    }
    let site = task.metadata().may_be_lowered().then(|| POLLS.at(task.metadata().location()));
    if site.is_some_and(|site| site.expect() != Expect::Long || !shared.preempts_background()) {
        shared.send_back(task);
        return None;
    }
    let began = thread_time();
    let again = poll_now(shared, task, site.is_some());
    let took = thread_time().zip(began).map(|(now, began)| now.saturating_sub(began));
    if let Some(took) = took {
        shared.meter.count_lowered(took);
    }
    if let (Some(site), Some(took)) = (site, took) {
        POLLS.learn(site, took > LONG_POLL);
    }
    again
}

fn poll_now(shared: &Arc<Shared>, task: Runnable, on_probation: bool) -> Option<Runnable> {
    let (meta, now) = (task.metadata(), shared.now());
    meta.take_mark();
    let (id, is_paced) = (meta.id, meta.is_paced());
    let (slice, operations) = if on_probation { (PROBATION, PROBATION_OPERATIONS) } else { (SLICE, OPERATIONS) };
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

/// The host of one poll.
struct Slice<'a> {
    shared: &'a Arc<Shared>,
    pace: Pace,
    // Tells the tickets of this poll from all others.
    number: u64,
    until: u64,
    // If the task is paced: since when the poll goes on, or since when it was told how long it takes.
    paced_since: Cell<Option<u64>>,
}

impl<'a> Slice<'a> {
    fn new(shared: &'a Arc<Shared>, now: u64, slice: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Ordering: relaxed; all that matters is that it is nobody else's.
        let number = NUMBER.fetch_add(1, Relaxed);
        let pace = Pace::new(Settings::default().wide_look_interval);
        Self { shared, pace, number, until: now + slice, paced_since: Cell::new(None) }
    }

    /// Whether the poll has had its time, or the runtime closes. With nobody else in the queue the task is polled again at
    /// once; but it may have been aborted.
    fn is_over(&self) -> bool {
        let (shared, now) = (self.shared, self.shared.now());
        if self.pace.ran_out() {
            // Begins the next count.
            self.pace.due(now, None);
        }
        let over = (now >= self.until || shared.gate.phase() != Phase::Open) && !shared.birth.is_elsewhere();
        if over {
            // The answer may have been for `should_yield`: the next yield point is to hear it too.
            self.pace.hurry();
        }
        over
    }

    fn ticket(&self) -> Ticket {
        ticket(1 << 62 | self.number & ((1 << 62) - 1))
    }
}

impl Host for Slice<'_> {
    fn signs(&self) -> Signs<'_> {
        let queued = [self.shared.crew_of(Kind::Lowered).queued(), &NOTHING];
        Signs { idle: &NOBODY, asked: &NEVER, queued, countdown: self.pace.countdown() }
    }

    fn work_waits(&self) -> bool {
        self.is_over()
    }

    fn give_way(&self) -> Option<Ticket> {
        self.is_over().then(|| self.ticket())
    }

    fn take_back(&self, ticket: Ticket) -> bool {
        // Nothing is noted: the task has woken itself, and so goes to the back of the queue.
        ticket == self.ticket()
    }

    fn paced(&self) -> Option<Paced> {
        let now = self.shared.now();
        if self.shared.birth.is_elsewhere() {
            return None;
        }
        with_polled(|task| task.map(Meta::set_paced));
        let spent = self.paced_since.replace(Some(now)).map_or(0, |since| now.saturating_sub(since));
        Some(Paced::new(self.shared.elastic.admission(self.shared), now, spent))
    }
}
