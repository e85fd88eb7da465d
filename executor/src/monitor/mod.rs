//! The one thread that never has a core: it notices what workers that are stuck in a poll cannot.
//!
//! Its duties:
//!
//! - A task in the slot of a worker whose poll does not return is handed to another. A slot is not announced when it is
//!   filled (that is what makes a hand-off between two tasks cost no system call), so somebody has to look whether its
//!   owner ever comes back.
//! - What waits in the queues of such a worker is taken by others also if they never search, because they always find
//!   something at the reactor: they are told to.
//! - A poll that goes on for 10 ms is asked to return at its next yield point or budgeted operation. A polite loop on a
//!   machine that is not busy never gives way by itself; but a timeout around it wants to be looked at now and then, and
//!   so does an abort.
//!   One that does not return when it is asked is reported, once a cause (`polls.rs`, `long_poll.rs`, `stack.rs`).
//!   It also gets a spare worker beside it (`spares.rs`): then the runtime goes on, however many of its polls do not return.
//!   A background poll of which nothing is known is asked after 100 µs, and has a spare worker after some 200 (`overruns.md`).
//! - While lowered threads want CPUs that polite tasks have, some workers rest (`shares.rs`).
//! - The reactor is looked at when nobody has for a millisecond, so that timers and I/O go on beside a bad poll.
//! - Somebody is sent for the core of a blocking call that is long (`blocking/hand_off.md`): after 20 µs if the place that it
//!   comes from is new, otherwise if it is the same at two looks.
//! - More lowered threads are started if none of them comes back from what it does (`relief.rs`).
//! - A worker is woken if work is queued beside one that is idle and nobody searches, which must not be (`rescue.rs`).
//! - Blocking threads are started while jobs wait, also while the runtime closes, and deadlocks are looked for when
//!   everything rests.
//!
//! # How often it looks
//!
//! A wake-up costs 10 to 20 µs of some core, more than all the monitor does with it, so it comes as seldom as its duties
//! allow:
//!
//! - Every half millisecond while a task waits in a slot that an idle worker could take over, and for some looks after
//!   that. A running task that fills its slot beside an idle worker calls the monitor to it, if it has gone off duty;
//!   so does a worker that goes to sleep beside a full slot.
//! - Every millisecond once it has found something at the reactor, where nobody had looked. When somebody had, or there was
//!   nothing, many times in a row, it stays away for twice as long, up to three milliseconds: so the first bad poll after a
//!   fifth of a second without is noticed that much later, and those after it soon.
//! - Every 10 ms if it stays away that long and finds every worker idle: then one of them waits in the reactor.
//! - Every three milliseconds while nobody is idle: what waits behind a stuck poll then waits for two looks.
//! - Every millisecond while blocking jobs wait for a thread, and while work seems to wait for a wake-up that was lost.
//! - Otherwise every 10 ms, and when every worker has been idle for that long, not at all: an idle runtime makes no system
//!   call. Whoever takes a worker out of the idle set then wakes the monitor as well; a load that never lets all
//!   workers rest for 10 ms never pays for that. A turn at the reactor since the last look tells of a rest that was shorter.

mod aside;
mod long_poll;
mod polls;
mod relief;
mod rescue;
mod shares;
mod spares;
#[cfg(all(feature = "stack-samples", target_os = "linux"))]
mod stack;

pub(crate) use aside::Aside;
pub use long_poll::LongPoll;

use crate::parker::{Elsewhere, Parker};
use crate::runtime::{Phase, Shared};
use crate::sites::LONG_CALL;
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

/// How often the monitor looks while a task waits in a slot and a worker is idle that could take over.
const LOOK_AT_SLOTS_EVERY: Duration = Duration::from_micros(500);

/// For how many looks it goes on with that after it has seen one.
const ALERT_LOOKS: u32 = 4;

/// How often it looks if there is nothing to look for but polls that go on for too long. After as long as that with every
/// worker idle it does not look at all.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long the reactor may be left alone.
const LOOK_AT_IO_EVERY: Duration = Duration::from_millis(1);

/// The longest pause while workers look at the reactor by themselves.
const TRUST_FOR: Duration = Duration::from_millis(3);

/// How many times in a row a look has to have been needless for the pause to be doubled.
const EARN_TRUST: u32 = 64;

/// The monitor's share of a runtime.
pub(crate) struct Monitor {
    parker: Parker,
    // Set by the monitor before it sleeps without a deadline, cleared by the first to rouse it.
    asleep: AtomicBool,
    // Set by the monitor while it does not look at slots, cleared by the first to call it back.
    off_duty: AtomicBool,
    // A blocking call or a poll has begun that may be long. Set by the caller, cleared by the monitor.
    watch_closely: AtomicBool,
    // How many lost wake-ups the monitor has made good. Written by the monitor. Not part of any protocol, and so not
    // modelled.
    rescues: AtomicU64,
    // How often a spare worker was sent, and how many background polls were overrun. As above.
    spares: AtomicU64,
    overruns: AtomicU64,
    // Calls the monitor back from the reactor.
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

    /// A slot is full, its owner is in a poll, and a worker is idle: has the monitor look at slots.
    ///
    /// Without a fence, for this is on the way of every hand-off: a monitor that goes off duty at this very moment may
    /// miss it (it looks once more, so the store of the slot would have to take longer than that), and then finds the slot
    /// at its next look, some milliseconds later.
    #[inline]
    pub(crate) fn watch_slots(&self) {
        if self.off_duty.load(Relaxed) && self.off_duty.swap(false, Relaxed) {
            self.call();
        }
    }

    /// A blocking call has begun, or a background poll is about to, and it is not known how long it takes: has the monitor look
    /// now, and again in 20 µs.
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

    /// Wakes the monitor if it sleeps. Called by whoever has taken a worker out of the idle set, itself included.
    pub(crate) fn rouse(&self) {
        // Ordering: SeqCst fence, partner of the one in `sleep`. The caller has counted a worker out of the idle set
        // before it; the monitor looks at the idle set after its own. One of the two sees the other.
        fence(SeqCst);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.call();
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

    /// Goes off duty as far as slots are concerned. True if it is called back before `deadline`, or need not go.
    fn is_called_before(&self, deadline: Instant, slot_waits: impl Fn() -> bool) -> bool {
        self.off_duty.store(true, Relaxed);
        // Ordering: SeqCst fence, for which `watch_slots` has no partner: see there.
        fence(SeqCst);
        if !slot_waits() {
            self.parker.park_until(deadline);
        }
        !self.off_duty.swap(false, Relaxed) || slot_waits()
    }

    /// Counts a wake-up that was lost, and that the monitor has made good.
    fn count_rescue(&self) {
        // Ordering: relaxed, here and below: a count.
        self.rescues.fetch_add(1, Relaxed);
    }

    /// How many lost wake-ups the monitor has made good.
    pub(crate) fn rescues(&self) -> u64 {
        self.rescues.load(Relaxed)
    }

    /// Counts a spare worker that is sent.
    fn count_spare(&self) {
        self.spares.fetch_add(1, Relaxed);
    }

    /// How often a spare worker was sent.
    pub(crate) fn spares_sent(&self) -> u64 {
        self.spares.load(Relaxed)
    }

    /// Counts a background poll that is overrun.
    fn count_overrun(&self) {
        self.overruns.fetch_add(1, Relaxed);
    }

    /// How many background polls were overrun.
    pub(crate) fn overruns(&self) -> u64 {
        self.overruns.load(Relaxed)
    }

    /// Makes the calling thread the monitor.
    pub(crate) fn bind(&self) {
        self.parker.bind();
    }
}

/// The monitor thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    shared.monitor.bind();
    watch(shared);
    serve_the_last(shared);
}

/// While the runtime closes there may be threads that wait for a timer or a socket inside of a task, and no worker any more
/// to serve them; and jobs that were accepted and wait for a thread, perhaps for each other.
fn serve_the_last(shared: &Arc<Shared>) {
    let (parker, mut ready) = (&shared.monitor.parker, Vec::new());
    while shared.gate.phase() != Phase::Terminated {
        let jobs_wait = grow_crews(shared);
        let mut turn = Ok(Turn::Taken);
        parker.park_elsewhere(Elsewhere::Turn, |has_token| {
            let wait = if jobs_wait { Wait::Not } else { Wait::Unless(has_token) };
            turn = shared.reactor.turn(wait, &mut ready);
        });
        wake_all(&mut ready);
        if jobs_wait || !turn.is_ok_and(|turn| turn == Turn::Taken) {
            // Or a worker that has not left yet is at the reactor.
            parker.park_until(Instant::now() + LOOK_AT_IO_EVERY);
        } else {
            parker.take_token();
        }
    }
    while !shared.crews().iter().all(|crew| crew.is_drained()) {
        if grow_crews(shared) {
            parker.park_until(Instant::now() + LOOK_AT_IO_EVERY);
        } else {
            // The thread that takes the last job calls.
            parker.park();
        }
    }
}

fn watch(shared: &Arc<Shared>) {
    let monitor = &shared.monitor;
    let (mut polls, mut suspicion) = (Polls::new(shared.posts.len()), Suspicion::default());
    let (mut spares, mut shares, mut relief) = (Spares::new(shared), Shares::default(), Relief::default());
    let mut grown_at = Instant::now();
    let (mut quiet_since, mut alert, mut trust) = (None, 0_u32, Trust { pause: TRUST_FOR, earned: 0 });
    let mut last_turn = 0;
    while shared.gate.phase() == Phase::Open {
        let now = Instant::now();
        // For tasks that come to wait after a poll in which no worker looked at the clock.
        shared.meter.tell_time(shared.now());
        // Read before the look, which may wake the only idle worker.
        let somebody_idle = shared.scheduler.idle.counts().idle() > 0;
        let work_waits = suspicion.look(shared, now);
        relief.look(shared, now);
        let all_rest = all_idle(shared);
        if shared.reactor.looked_at() != last_turn {
            quiet_since = None;
        }
        if !all_rest {
            quiet_since = None;
            let slots = polls.look(shared, now);
            alert = if slots { ALERT_LOOKS } else { alert.saturating_sub(1) };
            spares.look(shared, |core| polls.holds(core));
            shares.look(shared, now);
        } else if spares.any_out() || shares.any() {
            spares.look(shared, |_| false);
            shares.look(shared, now);
        } else if now - *quiet_since.get_or_insert(now) < LOOK_EVERY {
            polls.all_over(shared, now);
            shared.scheduler.set_stuck(false);
            for core in 0..shared.posts.len() {
                shared.scheduler.has_returned(core);
            }
        } else if work_waits {
            monitor.parker.park_until(now + rescue::LOOK_AGAIN_AFTER);
            continue;
        } else {
            if Relief::is_due(shared) {
                monitor.parker.park_until(now + relief::EVERY);
                continue;
            }
            if shared.deadlocks.as_ref().is_some_and(|watch| watch.look(shared)) {
                monitor.parker.park_until(now + LOOK_EVERY);
                continue;
            }
            let may_sleep = || !jobs_wait(shared) && !Relief::is_due(shared);
            monitor.sleep(|| all_idle(shared) && shared.gate.phase() == Phase::Open && may_sleep());
            quiet_since = None;
            continue;
        }
        let waits_for_io = shared.reactor.has_something();
        if waits_for_io {
            trust.learn(look_at_io(shared));
        }
        // After the look, which may have been a turn.
        last_turn = shared.reactor.looked_at();
        // However often it looks: threads are to come a few at a time.
        let jobs_wait = jobs_wait(shared);
        if jobs_wait && now - grown_at >= LOOK_AT_IO_EVERY {
            grown_at = now;
            grow_crews(shared);
        }
        if monitor.watch_closely.swap(false, Relaxed) {
            // Of those that have just begun, one that is still the same after this is long.
            monitor.parker.park_until(now + LONG_CALL);
            continue;
        }
        let pause = if let Some(pause) = polls.look_again_after() {
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
    pause: Duration,
    earned: u32,
}

impl Trust {
    /// Whether the workers have looked at the reactor by themselves for so long that the pause is the longest.
    fn is_earned(&self) -> bool {
        self.pause >= TRUST_FOR
    }

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
    shared.crews().iter().any(|crew| crew.is_stalled())
}

/// Starts threads for jobs that wait for one. Whether any did.
fn grow_crews(shared: &Arc<Shared>) -> bool {
    let stalled = shared.crews().map(|crew| crew.is_stalled().then(|| crew.grow(shared)));
    stalled.iter().any(Option::is_some)
}

fn all_idle(shared: &Shared) -> bool {
    shared.scheduler.idle.counts().idle() == shared.scheduler.idle.workers()
}

/// What a look at the reactor has brought.
#[derive(PartialEq, Eq)]
enum Look {
    /// Somebody would have waited for as long as nobody looked.
    Found,
    /// Nobody would, or somebody else has looked.
    Needless,
}

/// Takes a turn at the reactor, if nobody else has for a while.
fn look_at_io(shared: &Shared) -> Look {
    if Duration::from_nanos(shared.reactor.alone_for()) < LOOK_AT_IO_EVERY {
        return Look::Needless;
    }
    let mut ready = Vec::new();
    // An error here is one of our own making, and the next turn that waits tells of it. If somebody has the turn, and has
    // had it for so long, he waits there.
    let _looked = shared.reactor.turn(Wait::Not, &mut ready);
    let look = if ready.is_empty() { Look::Needless } else { Look::Found };
    wake_all(&mut ready);
    look
}
