//! The runtime as the host of yield points: how a worker, and a thread in `block_on`, answer them.

use crate::metrics::Tally;
use crate::runtime::{MAX_WORKERS, Phase, Shared};
use crate::sched::{Due, LookTimer, Outside, PollState, Settings, Way};
use crate::task::YieldNowIfBusy;
use crate::worker::{Hold, Worker};
use giveway_yield::host::{Host, Paced, Signs, Ticket, paced_poll_begins, with_host};
use std::cell::{Cell, OnceCell};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

/// Gives way if every worker is busy and work waits; otherwise is ready at once. This is the yield
/// point of a polite background loop.
///
/// - If any worker is idle, it is ready at once: a thread-local read, a load and a compare,
///   inlined.
/// - Otherwise it looks whether this worker was asked to give way, and whether anything is in the
///   worker's own queue or in the global one. If not, it is ready at once, after some two
///   nanoseconds.
/// - What waits in the worker's own queue changes places with the task. For anything else, and if
///   the task changed places the last time too, the task goes into the yield queue. Workers take
///   from there only when nothing else is runnable anywhere.
/// - A thread that makes foreground work runnable while no worker is idle asks two workers that can
///   give way to do so. In addition, a worker's yield points look at the queues of all others, at
///   most once in 0.1 ms ([`Builder::wide_look_interval`](crate::Builder::wide_look_interval)).
/// - A poll that has gone on for 10 ms returns at its next yield point even if a worker is idle, so
///   that a timeout around the loop is looked at, and an abort arrives. With nothing else to run,
///   the task is polled again at once.
///
/// Inside `join!`, `select!` or a `FuturesUnordered` the whole task gives way. The futures beside
/// the loop are polled only when it does, or after those 10 ms. In the future of
/// [`block_on`](crate::block_on) its thread gives way. Outside any runtime it is ready at once.
/// When the runtime is shut down, it gives way for good.
///
/// # Not guaranteed
///
/// Fairness among the tasks that gave way, or that one of them runs again while there is other
/// work: [`Builder::yield_patience`](crate::Builder::yield_patience) sets a limit. Nor that the
/// task gives way in an executor nested inside of it, which polls in a loop and never lets the task
/// return: there it is ready after some polls.
///
/// # Cancel safety
///
/// Dropping the future before it is ready has no effect but one spurious wake-up: a task that waits
/// at no yield point when its poll returns does not give way.
///
/// # Examples
///
/// ```
/// # fn work_on(_: u32) {}
/// giveway::block_on(async {
///     let job = giveway::spawn(async {
///         for chunk in 0..1_000 {
///             work_on(chunk); // some tens of microseconds
///             giveway::yield_now_if_busy().await; // foreground work goes first
///         }
///     });
///     job.await.unwrap();
/// });
/// ```
#[inline]
pub fn yield_now_if_busy() -> YieldNowIfBusy {
    giveway_yield::yield_now_if_busy()
}

/// Returns whether [`yield_now_if_busy`] would give way. This is the same look, for loops that
/// cannot await. Outside any runtime it returns false.
///
/// # Not guaranteed
///
/// That the answer is the same a moment later.
///
/// # Examples
///
/// ```
/// # fn hash(_: usize) {}
/// giveway::block_on(async {
///     let mut next = 0;
///     while next < 1_000 {
///         // A library without async gets as far as it can,
///         while next < 1_000 && !giveway::should_yield() {
///             hash(next);
///             next += 1;
///         }
///         // and its caller lets others go first.
///         giveway::yield_now_if_busy().await;
///     }
/// });
/// ```
#[inline]
#[must_use]
pub fn should_yield() -> bool {
    giveway_yield::should_yield()
}

impl Worker {
    /// Runs `f` with this worker answering the yield points of this thread, and with its interrupt
    /// cutting budgets short.
    pub(crate) fn with_yield_points<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(not(all(test, giveway_loom)))]
        let f = || {
            giveway_budget::with_interrupt(self.shared().scheduler.interrupts.flag(self.index()), f)
        };
        with_host(self, f)
    }

    /// Returns whether a worker is idle that can take all that waits. Then the yield point goes on,
    /// though it was told to ask (`ask_once`). The idle worker gets what the running task has left
    /// in the slot. It cannot take what is pinned here: with that in the inbox the answer is false.
    fn an_idle_worker_takes_over(&self) -> bool {
        let scheduler = &self.shared().scheduler;
        let idle = scheduler.idle.idle_hint().load(Relaxed) > 0;
        if idle {
            self.shared().unpark(scheduler.hand_over_slot(self.core()));
        }
        idle && !scheduler.has_pinned(self.core())
    }

    /// Names the poll that goes on: the runtime, the worker, and the number of the poll on its
    /// core.
    fn ticket(&self, tick: u32) -> Ticket {
        // There are as many spare cores as workers.
        const _: () = assert!(2 * MAX_WORKERS <= 1 << 13);
        ticket(1 << 63 | self.shared().number << 45 | (self.index() as u64) << 32 | u64::from(tick))
    }
}

/// Makes a ticket with this number. Numbers of workers have the highest bit set, those of lowered
/// polls the second, those of tokio's threads the second and the third, those of `block_on` none of
/// them.
pub(crate) fn ticket(number: u64) -> Ticket {
    Ticket::new(NonZeroU64::new(number).expect("a ticket has a bit set"))
}

impl Outside for Worker {
    fn now(&self) -> u64 {
        self.shared().now()
    }

    fn looked_at(&self) -> Option<u64> {
        let reactor = &self.shared().reactor;
        reactor.has_anything_for(self.index()).then(|| reactor.looked_at())
    }

    fn look(&self) {
        self.take_turn();
    }
}

/// In a blocking call the worker has no core to ask, and the call could not give way. If the worker
/// has lost its core, the rest of the poll gives way at once, so that its task comes back for a
/// core.
impl Host for Worker {
    fn signs(&self) -> Signs<'_> {
        match self.hold() {
            Hold::Core => {
                signs(self.shared(), Some(self.index()), &self.core().poll_state().look_timer)
            }
            Hold::Lent(_) | Hold::Lost(_) => Signs {
                idle: &NOBODY,
                asked: &ALWAYS,
                queued: [&NOTHING, &NOTHING],
                countdown: &NO_COUNT,
            },
        }
    }

    fn work_waits(&self) -> bool {
        if self.shared().process.in_forked_child() {
            return false;
        }
        match self.hold() {
            Hold::Core => {
                let waits = !self.an_idle_worker_takes_over()
                    && self.shared().scheduler.would_give_way(self.core(), self);
                if !waits {
                    Tally::count(&self.tally().yields_declined);
                }
                waits
            }
            Hold::Lent(_) => false,
            Hold::Lost(_) => true,
        }
    }

    fn give_way(&self) -> Option<Ticket> {
        if self.shared().process.in_forked_child() {
            // What was asked of this poll was asked in the parent. In the child no thread would
            // come back to it.
            return None;
        }
        match self.hold() {
            Hold::Core => {}
            Hold::Lent(_) => return None,
            Hold::Lost(_) => return Some(self.ticket(self.ask_away())),
        }
        let idle = self.an_idle_worker_takes_over();
        let way = if idle { None } else { self.shared().scheduler.yield_point(self.core(), self) };
        let Some(way) = way else {
            Tally::count(&self.tally().yields_declined);
            return None;
        };
        self.core().poll_state().ask(way);
        Some(self.ticket(self.core().tick()))
    }

    fn take_back(&self, ticket: Ticket) -> bool {
        match self.hold() {
            Hold::Core if ticket == self.ticket(self.core().tick()) => {
                self.core().poll_state().take_back()
            }
            Hold::Lost(_) if ticket == self.ticket(self.tick_away()) => self.take_back_away(),
            _ => return false,
        }
        true
    }

    fn paced(&self) -> Option<Paced> {
        let (shared, now) = (self.shared(), self.shared().now());
        if shared.process.in_forked_child() {
            return None;
        }
        Some(Paced::new(shared.elastic.admission(shared), now, self.spent(now)))
    }
}

pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);
static ALWAYS: AtomicBool = AtomicBool::new(true);
pub(crate) static NOBODY: AtomicIsize = AtomicIsize::new(0);
pub(crate) static NOTHING: AtomicUsize = AtomicUsize::new(0);
static NO_COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns what the yield points of a worker look at, or those of a thread that is no worker and is
/// never asked.
#[cfg(not(all(test, giveway_loom)))]
fn signs<'a>(shared: &'a Shared, worker: Option<usize>, look_timer: &'a LookTimer) -> Signs<'a> {
    let scheduler = &shared.scheduler;
    Signs {
        idle: scheduler.idle.idle_hint(),
        asked: worker.map_or(&NEVER, |worker| scheduler.interrupts.flag(worker)),
        queued: scheduler.injector.lengths(),
        countdown: look_timer.countdown(),
    }
}

/// Returns the same without the queues: the models have no yield points of other crates.
#[cfg(all(test, giveway_loom))]
fn signs<'a>(shared: &'a Shared, _worker: Option<usize>, look_timer: &'a LookTimer) -> Signs<'a> {
    let idle = shared.scheduler.idle.idle_hint();
    Signs { idle, asked: &NEVER, queued: [&NOTHING, &NOTHING], countdown: look_timer.countdown() }
}

/// How long a poll goes on past its yield points when no other task wants its thread, in
/// nanoseconds: in a `block_on`, on a lowered thread, and, by the monitor, on a worker.
pub(crate) const SLICE: u64 = 10_000_000;

/// A thread in `block_on`. It holds no core and is never interrupted, so it looks for itself.
pub(crate) struct BlockOnHost<'a> {
    shared: &'a Arc<Shared>,
    poll_state: PollState,
    /// The number of the poll that goes on.
    poll: Cell<u64>,
    /// When a yield point of that poll first read the clock, if one has.
    since: Cell<Option<u64>>,
    /// Tells the tickets of this caller from those of others, once it has made one.
    number: OnceCell<u64>,
    /// If the future is paced: when its poll began, or when the pacer last asked how long it has
    /// gone on.
    paced_since: Cell<Option<u64>>,
}

impl<'a> BlockOnHost<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>) -> Self {
        let poll_state = PollState::new(Settings::default().wide_look_interval);
        Self {
            shared,
            poll_state,
            poll: Cell::new(0),
            since: Cell::new(None),
            number: OnceCell::new(),
            paced_since: Cell::new(None),
        }
    }

    pub(crate) fn begin_poll(&self) {
        self.poll.set(self.poll.get() + 1);
        self.since.set(None);
        self.poll_state.begin_poll(false, false);
        if self.paced_since.get().is_some() {
            self.paced_since.set(Some(self.shared.now()));
            paced_poll_begins();
        }
    }

    /// Returns how the poll that has returned is to give way, if it is to.
    pub(crate) fn asked(&self) -> Option<Way> {
        self.poll_state.asked()
    }

    /// Returns how the future is to give way, if it is to: into the yield queue if work waits and
    /// no worker is idle; to nothing but itself if its poll has had its time.
    fn look(&self) -> Option<Way> {
        let (shared, scheduler) = (self.shared, &self.shared.scheduler);
        // After the runtime is closed, and in the child of a fork, no worker would wake this thread
        // again.
        if shared.gate.phase() != Phase::Open || shared.process.in_forked_child() {
            return None;
        }
        let look_timer = &self.poll_state.look_timer;
        let now = look_timer.ran_out().then(|| shared.now());
        let due = now.is_some_and(|now| look_timer.due(now, None) == Due::Everything);
        let unanswered = self.poll_state.take_unanswered();
        if scheduler.idle.idle_hint().load(Relaxed) <= 0
            && (!scheduler.injector.is_empty() || (due | unanswered) && scheduler.work_waits())
        {
            return Some(Way::YieldQueue);
        }
        // Something else in the future may want its turn, a timeout for instance.
        let since = self.since.get().or(now);
        self.since.set(since);
        let went_on = now.zip(since).map_or(0, |(now, since)| now - since);
        (went_on >= SLICE).then_some(Way::Swap)
    }

    fn ticket(&self) -> Ticket {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        // Ordering: relaxed. The number has to differ from all others, and publishes nothing.
        let number = self.number.get_or_init(|| NUMBER.fetch_add(1, Relaxed));
        ticket(number << 24 & !(1 << 63) | self.poll.get() & 0xff_ffff)
    }
}

impl Host for BlockOnHost<'_> {
    fn signs(&self) -> Signs<'_> {
        // An idle worker does not end the count: no other thread asks this one to return.
        Signs { idle: &NOBODY, ..signs(self.shared, None, &self.poll_state.look_timer) }
    }

    fn work_waits(&self) -> bool {
        let waits = self.look().is_some();
        if waits {
            // The look may have been the only one for a while. The next yield point has to come to
            // the same answer.
            self.poll_state.look_again();
        } else {
            self.shared.meter.yield_point_outside(false);
        }
        waits
    }

    fn give_way(&self) -> Option<Ticket> {
        let Some(way) = self.look() else {
            self.shared.meter.yield_point_outside(false);
            return None;
        };
        self.poll_state.ask(way);
        Some(self.ticket())
    }

    fn take_back(&self, ticket: Ticket) -> bool {
        let this_poll = ticket == self.ticket();
        if this_poll {
            self.poll_state.take_back();
        }
        this_poll
    }

    fn paced(&self) -> Option<Paced> {
        let now = self.shared.now();
        if self.shared.process.in_forked_child() {
            return None;
        }
        let spent =
            self.paced_since.replace(Some(now)).map_or(0, |since| now.saturating_sub(since));
        Some(Paced::new(self.shared.elastic.admission(self.shared), now, spent))
    }
}
