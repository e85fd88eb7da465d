//! The monitor: the one thread that never has a core. It notices what a worker cannot notice while
//! it is stuck in a poll.
//!
//! Its duties:
//!
//! - It hands the task in the slot of a worker whose poll does not return to another worker. A slot
//!   is not announced when it is filled (that is what makes a hand-off between two tasks cost no
//!   system call), so a third thread has to look whether the slot's owner comes back.
//! - It tells the other workers to take what waits in the queues of such a worker. They may never
//!   search by themselves, because they always find something at the reactor.
//! - It asks a poll that goes on for 10 ms to return at its next yield point or budgeted operation.
//!   A polite loop on a machine that is not busy never gives way by itself, but a timeout or an
//!   abort around it has to be looked at now and then. A poll that does not return when it is asked
//!   is reported, once a cause (`polls.rs`, `long_poll.rs`, `stack.rs`). It also gets a spare
//!   worker beside it (`spares.rs`), so that the runtime goes on however many of its polls do not
//!   return. A background poll of which nothing is known is asked after 100 µs, and has a spare
//!   worker after some 200 (`overruns.md`).
//! - It has some workers rest while lowered threads want CPUs that polite tasks have (`shares.rs`).
//! - It looks at the reactor when no other thread has for a millisecond, so that timers and I/O go
//!   on beside a bad poll.
//! - It sends a thread for the core of a long blocking call (`handoff/hand_off.md`): after 20 µs
//!   if the place that the call comes from is new, otherwise if the call is the same at two looks.
//! - It starts more lowered threads if none of them comes back from what it does (`relief.rs`).
//! - It wakes a worker if work is queued beside an idle worker and none searches, which must not be
//!   (`rescue.rs`).
//! - It starts blocking threads while jobs wait, also while the runtime closes, and looks for
//!   deadlocks when everything rests.
//!
//! # How often it looks
//!
//! A wake-up costs 10 to 20 µs of some core, more than all the monitor does with it, so the monitor
//! looks as seldom as its duties allow:
//!
//! - Every half millisecond while a task waits in a slot that an idle worker could take over, and
//!   for some looks after that. A monitor that has gone off duty is called back by a running task
//!   that fills its slot beside an idle worker, and by a worker that goes to sleep beside a full
//!   slot.
//! - Every millisecond once it has found something at the reactor, where no thread had looked. When
//!   its looks were needless many times in a row, because there was nothing or another thread had
//!   looked, it stays away for twice as long, up to three milliseconds. So the first bad poll after
//!   a fifth of a second without one is noticed that much later, and those after it soon.
//! - Every 10 ms if it stays away from the reactor for the longest time and finds every worker
//!   idle: then one of them waits in the reactor.
//! - Every three milliseconds while no worker is idle: what waits behind a stuck poll then waits
//!   for two looks.
//! - Every millisecond while blocking jobs wait for a thread, and while work seems to wait for a
//!   wake-up that was lost.
//! - Sooner, while a background poll of which nothing is known goes on (`polls.rs`).
//! - Otherwise every 10 ms, and when every worker has been idle for that long, not at all: an idle
//!   runtime makes no system call. A thread that takes a worker out of the idle set then wakes the
//!   monitor as well, so a load that never lets all workers rest for 10 ms never pays for that. A
//!   turn at the reactor since the last look tells the monitor of a shorter rest.

mod aside;
pub(crate) mod deadlock;
mod long_poll;
mod polls;
mod relief;
mod rescue;
mod shares;
mod spares;
#[cfg(all(feature = "stack-samples", target_os = "linux"))]
mod stack;

pub(crate) use aside::Aside;
pub use deadlock::ExpectedWake;
pub use long_poll::LongPoll;

use crate::handoff::LONG_CALL;
use crate::parker::{Elsewhere, Parker};
use crate::runtime::{Phase, Shared};
use crate::sync::{AtomicBool, fence};
use giveway_io::driver::{Turn, Wait, wake_all};
use polls::Polls;
use relief::Relief;
use rescue::Suspicion;
use shares::Shares;
use spares::Spares;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// How often the monitor looks while a task waits in a slot that an idle worker could take over.
const LOOK_AT_SLOTS_EVERY: Duration = Duration::from_micros(500);

/// For how many looks the monitor keeps that rate after it has seen such a slot.
const ALERT_LOOKS: u32 = 4;

/// How often the monitor looks if there is nothing to look for but polls that go on for too long.
/// When every worker has been idle for this long it does not look at all.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long the reactor may be left alone.
const LOOK_AT_IO_EVERY: Duration = Duration::from_millis(1);

/// The longest pause while workers look at the reactor by themselves.
const TRUST_FOR: Duration = Duration::from_millis(3);

/// How many times in a row a look has to be needless for the pause to be doubled.
const EARN_TRUST: u32 = 64;

/// What the monitor shares with the other threads of a runtime.
pub(crate) struct Monitor {
    /// Where the monitor waits.
    parker: Parker,
    /// Set by the monitor before it sleeps without a deadline, cleared by the first thread to rouse
    /// it.
    asleep: AtomicBool,
    /// Set by the monitor while it does not look at slots, cleared by the first thread to call it
    /// back.
    off_duty: AtomicBool,
    /// Whether a blocking call or a poll has begun that may be long. Set by the caller, cleared by
    /// the monitor.
    watch_closely: AtomicBool,
    /// How many lost wake-ups the monitor has made good. Written by the monitor. Not part of any
    /// protocol, and so not modelled.
    rescues: AtomicU64,
    /// How often a spare worker was sent. Written by the monitor.
    spares: AtomicU64,
    /// How many background polls were overrun. Written by the monitor.
    overruns: AtomicU64,
    /// Calls the monitor back from the reactor.
    call_back: Box<dyn Fn() + Send + Sync>,
}

impl Monitor {
    pub(crate) fn new(call_back: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            parker: Parker::new(),
            asleep: AtomicBool::new(false),
            off_duty: AtomicBool::new(false),
            watch_closely: AtomicBool::new(false),
            rescues: AtomicU64::new(0),
            spares: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            call_back: Box::new(call_back),
        }
    }

    /// Has the monitor look at slots: one is full, its owner is in a poll, and a worker is idle.
    ///
    /// There is no fence, because this is on the way of every hand-off. A monitor that goes off
    /// duty at this very moment may miss the slot. (It looks once more, so the store of the slot
    /// would have to take longer than that.) It finds the slot at its next look then, some
    /// milliseconds later.
    #[inline]
    pub(crate) fn watch_slots(&self) {
        if self.off_duty.load(Relaxed) && self.off_duty.swap(false, Relaxed) {
            self.call();
        }
    }

    /// Has the monitor look now, and again in 20 µs: a blocking call has begun, or a background
    /// poll is about to, and it is not known how long it takes.
    pub(crate) fn watch_closely(&self) {
        // Ordering: relaxed; the token, which both sides swap, orders it.
        if !self.watch_closely.swap(true, Relaxed) {
            self.call();
        }
    }

    /// Has the monitor look at once.
    pub(crate) fn call(&self) {
        self.parker.unpark_from(|_turn| (self.call_back)());
    }

    /// Wakes the monitor if it sleeps. Called by each thread that takes a worker out of the idle
    /// set, the worker itself included, and by a thread that queues a job for which no thread is
    /// free.
    pub(crate) fn rouse(&self) {
        // Ordering: SeqCst fence, partner of the one in `sleep`. The caller has counted a worker
        // out of the idle set, or queued a job, before its fence; the monitor looks at the idle set
        // and at the jobs after its own. One of the two sees the other.
        fence(SeqCst);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.call();
        }
    }

    /// Sleeps until [`rouse`](Self::rouse) wakes the monitor, or until `deadline`, unless
    /// `all_rest` is false by now.
    pub(crate) fn sleep(&self, deadline: Option<Instant>, all_rest: impl FnOnce() -> bool) {
        // Said before the look: in the other order a worker could leave the idle set between the
        // two, and find no monitor to wake.
        self.asleep.store(true, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `rouse`: either the rouser sees the monitor
        // asleep, or the monitor sees the rouser's worker awake.
        fence(SeqCst);
        if all_rest() {
            match deadline {
                Some(deadline) => _ = self.parker.park_until(deadline),
                None => self.parker.park(),
            }
        }
        // Ordering: relaxed. A rouser that still sees true leaves a token, which only cuts the
        // monitor's next pause short.
        self.asleep.store(false, Relaxed);
    }

    /// Pauses until `deadline`, off duty as far as slots are concerned. Returns true if it was
    /// called back for a slot, or need not pause because one waits.
    fn is_called_before(&self, deadline: Instant, slot_waits: impl Fn() -> bool) -> bool {
        self.off_duty.store(true, Relaxed);
        // Ordering: SeqCst fence, to which `watch_slots` has no partner: the reason is said there.
        fence(SeqCst);
        if !slot_waits() {
            self.parker.park_until(deadline);
        }
        !self.off_duty.swap(false, Relaxed) || slot_waits()
    }

    /// Counts a lost wake-up that the monitor has made good.
    fn count_rescue(&self) {
        // Ordering: relaxed, here and below: a count.
        self.rescues.fetch_add(1, Relaxed);
    }

    /// Returns how many lost wake-ups the monitor has made good.
    pub(crate) fn rescues(&self) -> u64 {
        self.rescues.load(Relaxed)
    }

    /// Counts a spare worker that is sent.
    fn count_spare(&self) {
        self.spares.fetch_add(1, Relaxed);
    }

    /// Returns how often a spare worker was sent.
    pub(crate) fn spares_sent(&self) -> u64 {
        self.spares.load(Relaxed)
    }

    /// Counts a background poll that is overrun.
    fn count_overrun(&self) {
        self.overruns.fetch_add(1, Relaxed);
    }

    /// Returns how many background polls were overrun.
    pub(crate) fn overruns(&self) -> u64 {
        self.overruns.load(Relaxed)
    }

    /// Makes the calling thread the monitor.
    pub(crate) fn bind(&self) {
        self.parker.bind();
    }
}

/// Runs the monitor thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    shared.monitor.bind();
    watch(shared);
    serve_the_last(shared);
}

/// Serves what is left while the runtime closes. Threads may wait for a timer or a socket inside of
/// a task, with no worker left to take turns at the reactor for them. Jobs that were accepted may
/// wait for a thread, perhaps for each other.
fn serve_the_last(shared: &Arc<Shared>) {
    let (parker, mut ready) = (&shared.monitor.parker, Vec::new());
    let mut relief = Relief::default();
    let mut jobs_wait = || {
        relief.look(shared, Instant::now());
        grow_pools(shared) || Relief::is_due(shared)
    };
    while shared.gate.phase() != Phase::Terminated {
        let jobs_wait = jobs_wait();
        let mut turn = Ok(Turn::Taken);
        parker.park_elsewhere(Elsewhere::Turn, |has_token| {
            let wait = if jobs_wait { Wait::Not } else { Wait::Unless(has_token) };
            turn = shared.reactor.turn(wait, &mut ready);
        });
        wake_all(&mut ready);
        if jobs_wait || !turn.is_ok_and(|turn| turn == Turn::Taken) {
            // More threads may be due in a millisecond, or no turn was taken because a worker that
            // has not left yet is at the reactor.
            parker.park_until(Instant::now() + LOOK_AT_IO_EVERY);
        } else {
            parker.take_token();
        }
    }
    // Before the jobs are gone: they may wait for something that a task of tokio's keeps.
    shared.tokio.end();
    while !shared.pools().iter().all(|pool| pool.is_drained()) {
        // The runtime is terminated, but the jobs that were accepted still run.
        if jobs_wait() {
            parker.park_until(Instant::now() + LOOK_AT_IO_EVERY);
        } else {
            // The thread that takes the last job calls.
            parker.park();
        }
    }
    shared.tokio.join();
}

/// Looks after the workers until the gate closes.
///
/// One round of the loop is one look, and the pause after it:
///
/// 1. Lost wake-ups, and threads for jobs and lowered polls, in every state of the workers.
/// 2. The workers. While some are awake: their polls, then the spare workers, which depend on what
///    was seen of the polls, then the shares. While all rest: what earlier looks have left behind.
///    After 10 ms of rest: nothing more, and the monitor sleeps.
/// 3. The reactor, if no other thread has looked there.
/// 4. The pause, by the first duty that asks for one.
fn watch(shared: &Arc<Shared>) {
    let monitor = &shared.monitor;
    let (mut polls, mut suspicion) = (Polls::new(shared.posts.len()), Suspicion::default());
    let (mut spares, mut shares, mut relief) =
        (Spares::new(shared), Shares::default(), Relief::default());
    let mut grown_at = Instant::now();
    let (mut quiet_since, mut alert, mut trust) =
        (None, 0_u32, Trust { pause: TRUST_FOR, earned: 0 });
    let mut last_turn = 0;
    while shared.gate.phase() == Phase::Open {
        let now = Instant::now();
        // For tasks that come to wait after a poll in which no worker looked at the clock.
        shared.meter.tell_time(shared.now());
        // Read before the looks, which may wake the only idle worker.
        let somebody_idle = shared.scheduler.idle.counts().idle() > 0;
        // 1. First, in every state of the workers: a lost wake-up may have left all of them idle.
        let work_waits = suspicion.look(shared, now);
        relief.look(shared, now);
        // At most once a millisecond, however often the monitor looks: threads are to come a few at
        // a time.
        let jobs_wait = jobs_wait(shared);
        if jobs_wait && now - grown_at >= LOOK_AT_IO_EVERY {
            grown_at = now;
            grow_pools(shared);
        }
        // Taken before the look at the polls. A call or poll that begins after this has left a
        // token with its request, so it has a look of its own, and the short pause after that.
        let closely = monitor.watch_closely.swap(false, Relaxed);
        let all_rest = all_idle(shared);
        // A turn at the reactor since the last look tells of a rest that was shorter.
        if shared.reactor.looked_at() != last_turn {
            quiet_since = None;
        }
        // 2. The workers.
        if !all_rest {
            quiet_since = None;
            // The polls come before the spare workers, because `holds` is what this look has seen.
            let slots = polls.look(shared, now);
            alert = if slots { ALERT_LOOKS } else { alert.saturating_sub(1) };
            spares.look(shared, |core| polls.holds(core));
            shares.look(shared, now);
        } else if spares.any_out() || shares.any() {
            // No worker is in a poll, so no spare core is needed. This goes on until all of them
            // are back and the account of the shares is closed.
            spares.look(shared, |_| false);
            shares.look(shared, now);
        } else if now - *quiet_since.get_or_insert(now) < LOOK_EVERY {
            // All have rested for less than `LOOK_EVERY`. What the looks left behind is undone now:
            // nothing is stuck, and no poll is asked to return any more.
            polls.all_over(shared, now);
            shared.scheduler.set_stuck(false);
        } else if work_waits {
            // They have rested for long, but work waits for a wake-up that may be lost.
            monitor.parker.park_until(now + rescue::LOOK_AGAIN_AFTER);
            continue;
        } else {
            // They have rested for long: the monitor sleeps until a thread rouses it. Until a
            // deadline if something is due for which no thread would: a thread for a job or a
            // lowered poll, or another look at what may be a deadlock.
            let due = [jobs_wait, Relief::is_due(shared)];
            let may_be_stuck = || shared.deadlocks.as_ref().is_some_and(|watch| watch.look(shared));
            let pause = match due {
                [true, _] => Some(LOOK_AT_IO_EVERY),
                [_, true] => Some(relief::EVERY),
                _ => may_be_stuck().then_some(LOOK_EVERY),
            };
            // Asked in `sleep`, after its fence: what came before the monitor was said to be asleep
            // has not woken it.
            let nothing_new = || due == [self::jobs_wait(shared), Relief::is_due(shared)];
            let open = || shared.gate.phase() == Phase::Open;
            monitor.sleep(pause.map(|pause| now + pause), || {
                all_idle(shared) && open() && nothing_new()
            });
            if pause.is_none() {
                quiet_since = None;
            }
            continue;
        }
        // 3. The reactor.
        let waits_for_io = shared.reactor.has_something();
        if waits_for_io {
            trust.learn(look_at_io(shared));
        }
        // Read after the look, which may have been a turn: that one is no worker's.
        last_turn = shared.reactor.looked_at();
        // 4. The pause.
        if closely {
            // Of what had just begun, a call or poll that is still the same after this time is
            // long. The look at the polls has seen it for the first time.
            monitor.parker.park_until(now + LONG_CALL);
            continue;
        }
        let pause = if !all_rest && let Some(pause) = polls.look_again_after() {
            pause
        } else if jobs_wait {
            LOOK_AT_IO_EVERY
        } else if work_waits {
            rescue::LOOK_AGAIN_AFTER
        } else if waits_for_io && !(all_rest && trust.is_earned()) {
            trust.pause
        } else if somebody_idle {
            LOOK_EVERY
        } else {
            TRUST_FOR
        };
        // An alert monitor pauses without going off duty, because it looks at slots soon anyway.
        // Otherwise a slot that is filled meanwhile calls it back.
        if alert > 0 && somebody_idle {
            monitor.parker.park_until(now + LOOK_AT_SLOTS_EVERY.min(pause));
        } else if monitor.is_called_before(now + pause, || shared.slot_waits()) {
            alert = ALERT_LOOKS;
        }
    }
    // What is known by now is not lost with the runtime.
    polls.look_no_more(shared, Instant::now());
    shares.look_no_more(shared);
}

/// For how long the monitor leaves the reactor to the workers.
struct Trust {
    /// The pause between two looks at the reactor.
    pause: Duration,
    /// How many looks in a row were needless since `pause` was changed.
    earned: u32,
}

impl Trust {
    /// Returns whether the workers have looked at the reactor by themselves for so long that the
    /// pause is the longest.
    fn is_earned(&self) -> bool {
        self.pause >= TRUST_FOR
    }

    /// Adapts the pause to what a look has brought.
    fn learn(&mut self, look: Look) {
        if look == Look::Found {
            *self = Self { pause: LOOK_AT_IO_EVERY, earned: 0 };
        } else if self.earned < EARN_TRUST {
            self.earned += 1;
        } else {
            *self = Self { pause: (self.pause * 2).min(TRUST_FOR), earned: 0 };
        }
    }
}

fn jobs_wait(shared: &Shared) -> bool {
    shared.pools().iter().any(|pool| pool.is_stalled())
}

/// Starts threads for jobs that wait for one. Returns whether any jobs did.
fn grow_pools(shared: &Arc<Shared>) -> bool {
    let stalled = shared.pools().map(|pool| pool.is_stalled().then(|| pool.grow(shared)));
    stalled.iter().any(Option::is_some)
}

fn all_idle(shared: &Shared) -> bool {
    shared.scheduler.idle.counts().idle() == shared.scheduler.idle.workers()
}

/// What a look at the reactor has brought.
#[derive(PartialEq, Eq)]
enum Look {
    /// A task would have waited for as long as no thread looked.
    Found,
    /// No task would have waited, or another thread has looked.
    Needless,
}

/// Takes a turn at the reactor, if no other thread has for a while.
fn look_at_io(shared: &Shared) -> Look {
    if Duration::from_nanos(shared.reactor.alone_for()) < LOOK_AT_IO_EVERY {
        return Look::Needless;
    }
    let mut ready = Vec::new();
    // An error here is one of our own making, and the next turn that waits tells of it. If another
    // thread has had the turn for this long, it waits in the reactor, which serves as well.
    let _looked = shared.reactor.turn(Wait::Not, &mut ready);
    let look = if ready.is_empty() { Look::Needless } else { Look::Found };
    wake_all(&mut ready);
    look
}
