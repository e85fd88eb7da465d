//! The one thread without a core: it notices what workers that are stuck in a poll cannot.
//!
//! Its duties so far:
//!
//! - A task in the slot of a worker whose poll does not return is handed to another. A slot is not announced when it is
//!   filled (that is what makes a hand-off between two tasks cost no system call), so somebody has to look whether its
//!   owner ever comes back.
//! - A poll that goes on for 10 ms is asked to return at its next yield point or budgeted operation. A polite loop on a
//!   machine that is not busy never gives way by itself; but a timeout around it wants to be looked at now and then, and
//!   so does an abort.
//! - The reactor is looked at when nobody has for a millisecond, so that timers and I/O go on beside a bad poll. To see to
//!   that every millisecond would cost one to two per cent of a core, for 10 to 20 µs a wake-up, on behalf of workers that
//!   almost always look by themselves. So the monitor comes half as often each time it finds that somebody has, down to
//!   every four milliseconds, and every millisecond again once it finds that nobody had.
//!
//! Asleep soon after every worker is: it makes no system call in an idle runtime. Whoever takes a worker out of the idle
//! set then wakes the monitor as well; a load that never lets all workers rest for 10 ms never pays for that.

use crate::parker::Parker;
use crate::runtime::{Phase, Shared};
use crate::sync::{AtomicBool, fence};
use giveway_io::driver::Wait;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How often the monitor looks while a worker is idle and could take over.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// How often it looks while every worker is busy, so that there is nobody to hand a stuck task to.
const LOOK_BUSY_EVERY: Duration = Duration::from_millis(10);

/// How long the reactor may be left alone while every worker is busy or stuck.
const LOOK_AT_IO_EVERY: Duration = Duration::from_millis(1);

/// The longest pause while workers are busy and look at the reactor by themselves.
const TRUST_FOR: Duration = Duration::from_millis(4);

/// How long a poll may go on before it is asked to return.
const SLICE: Duration = Duration::from_millis(10);

/// How many looks in a row have to find every worker idle before the monitor sleeps without a deadline: some 10 ms, so
/// that a load with short pauses does not pay for rousing it after each.
const QUIET_LOOKS: u32 = 20;

/// The monitor's share of a runtime.
pub(crate) struct Monitor {
    parker: Parker,
    // Set by the monitor before it sleeps without a deadline, cleared by the first to rouse it.
    asleep: AtomicBool,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { parker: Parker::new(), asleep: AtomicBool::new(false) }
    }

    /// Wakes the monitor if it sleeps. Called by whoever has taken a worker out of the idle set, itself included.
    pub(crate) fn rouse(&self) {
        // Ordering: SeqCst fence, partner of the one in `sleep`. The caller has counted a worker out of the idle set
        // before it; the monitor looks at the idle set after its own. One of the two sees the other.
        fence(SeqCst);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.parker.unpark();
        }
    }

    /// Sleeps until somebody is taken out of the idle set, unless `all_idle` is false by now.
    pub(crate) fn sleep(&self, all_idle: impl FnOnce() -> bool) {
        self.asleep.store(true, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `rouse`: either it sees us asleep, or we see its worker awake.
        fence(SeqCst);
        if all_idle() {
            self.parker.park();
        }
        // Ordering: relaxed; a rouser that still sees true leaves a token, and our next pause is cut short.
        self.asleep.store(false, Relaxed);
    }

    /// Makes the calling thread the monitor.
    pub(crate) fn bind(&self) {
        self.parker.bind();
    }

    /// Wakes the monitor for the last time.
    pub(crate) fn stop(&self) {
        self.parker.unpark();
    }
}

/// The monitor thread.
pub(crate) fn run(shared: &Shared) {
    let monitor = &shared.monitor;
    monitor.bind();
    let mut seen = vec![Seen { poll: 0, since: Instant::now(), asked: false }; shared.workers()];
    let mut quiet = 0;
    let mut trust = LOOK_AT_IO_EVERY;
    while shared.gate.phase() == Phase::Open {
        // Read before the look, which may wake the only idle worker.
        let somebody_idle = shared.scheduler.idle.counts().idle() > 0;
        if !all_idle(shared) {
            quiet = 0;
            look_at_polls(shared, &mut seen);
        } else if quiet < QUIET_LOOKS {
            quiet += 1;
            (0..shared.workers()).for_each(|worker| shared.scheduler.has_returned(worker));
        } else {
            monitor.sleep(|| all_idle(shared) && shared.gate.phase() == Phase::Open);
            quiet = 0;
            continue;
        }
        let waits_for_io = shared.reactor.has_something();
        if waits_for_io {
            trust = if look_at_io(shared) { LOOK_AT_IO_EVERY } else { (trust * 2).min(TRUST_FOR) };
        }
        let pause = match somebody_idle {
            true => LOOK_EVERY,
            false if waits_for_io => trust,
            false => LOOK_BUSY_EVERY,
        };
        monitor.parker.park_until(Instant::now() + pause);
    }
}

fn all_idle(shared: &Shared) -> bool {
    shared.scheduler.idle.counts().idle() == shared.workers()
}

/// Takes a turn at the reactor, if nobody else has for a while. False if somebody has.
fn look_at_io(shared: &Shared) -> bool {
    let last_look = Duration::from_nanos(shared.now().saturating_sub(shared.reactor.looked_at()));
    if last_look < LOOK_AT_IO_EVERY {
        return false;
    }
    let mut ready = Vec::new();
    // An error here is one of our own making, and the next turn that waits tells of it.
    let _looked = shared.reactor.turn(Wait::Not, &mut ready);
    ready.into_iter().for_each(Waker::wake);
    true
}

/// The poll that a worker was in, and since when.
#[derive(Clone, Copy)]
struct Seen {
    poll: u32,
    since: Instant,
    // It was asked to return at the last look.
    asked: bool,
}

/// Looks for polls that were going on at the last look too: gets help for the slots behind them, and asks those that have
/// had their time to return.
fn look_at_polls(shared: &Shared, seen: &mut [Seen]) {
    let (scheduler, now) = (&shared.scheduler, Instant::now());
    let mut stuck = false;
    for (index, (core, seen)) in scheduler.cores().iter().zip(seen).enumerate() {
        let poll = core.polling();
        if poll != seen.poll {
            *seen = Seen { poll, since: now, asked: false };
            continue;
        }
        if !core.slot.is_empty_relaxed() {
            core.mark_stuck(poll);
            stuck = true;
        }
        if seen.asked || shared.posts[index].running().is_none() {
            // It does not hear, having no yield points; or it was over already when it was asked. Asking makes every yield
            // point of the runtime look closer, so it is not kept up.
            scheduler.has_returned(index);
            *seen = Seen { poll, since: now, asked: false };
        } else if now - seen.since >= SLICE {
            scheduler.ask_to_return(index, poll);
            seen.asked = true;
        }
    }
    // A searcher comes by these slots in its last round. If one is searching now, it may have passed already: then
    // the next look finds the slot still stuck. If nobody is idle, a polite task gives way to it.
    if stuck {
        shared.unpark(scheduler.announce());
    }
}
