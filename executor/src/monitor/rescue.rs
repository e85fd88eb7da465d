//! Work that is queued beside an idle worker while no worker searches: a lost wake-up, which must
//! not be.
//!
//! The rule of `sched/sleep.md` allows that state for a moment: to a thread between its push and
//! its announcement, to a worker between its entry into the idle set and its second look, and to a
//! worker between two polls, which announces what it has queued before the next one. A thread that
//! has lost its CPU in such a moment makes it last. So the monitor looks again, a millisecond apart,
//! and
//!
//! - wakes a worker and counts a *rescue* once [`SURE_LOOKS`] looks have shown the state, no worker
//!   was woken or parked between them, every worker that is awake was in a poll at each, and no
//!   thread of the process that wants a CPU has gone without one since the second of them. Then no
//!   thread is left that could announce the work: the wake-up was lost;
//! - wakes a worker and counts nothing if it cannot be sure within [`MOST_LOOKS`], or if a worker
//!   is between two polls for [`SURE_LOOKS`] of them: that worker may be in a waker that blocks.
//!
//! Looks are counted, not milliseconds: a machine that stands still for a second makes one look
//! late, and proves nothing.

use crate::runtime::Shared;
use crate::sync::fence;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How far apart two looks have to be to count as two, and how soon the monitor looks again.
pub(super) const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// How many looks have to show the state.
const SURE_LOOKS: u32 = 10;

/// After this many looks a worker is woken, whatever the reason may be.
const MOST_LOOKS: u32 = 50;

/// A thread that has had this much of a CPU is not where it was: the way from a push to its
/// announcement takes less than a microsecond.
const ENOUGH_TO_ANNOUNCE: Duration = Duration::from_millis(1);

/// What one look at the queues and the idle set shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Nothing is queued, or no worker is idle, or one searches.
    Fine,
    /// Work is queued beside an idle worker, but another is between two polls and may be about to
    /// announce it.
    Unclear,
    /// Work is queued beside an idle worker, and every other worker is in a poll.
    Unannounced,
}

/// What to do after a look.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    LookAgain,
    /// Wake a worker; the work may be about to be announced.
    Wake,
    /// Wake a worker; no other thread will.
    Rescue,
}

/// What the monitor has seen of the state, look by look.
#[derive(Default)]
pub(super) struct Suspicion {
    /// How many looks have shown [`Sight::Unannounced`], since the state began or a worker was last
    /// woken or parked.
    unannounced: u32,
    /// How many looks have shown [`Sight::Unclear`], since the same moment.
    unclear: u32,
    /// When the last look was that counted, and how often workers had been woken or parked by then.
    last: Option<(Instant, u64)>,
    /// The threads of the process at the second look.
    threads: Option<Threads>,
}

impl Suspicion {
    /// Looks once, and wakes a worker if that is due. Returns whether the monitor is to look again
    /// soon.
    pub(super) fn look(&mut self, shared: &Shared, now: Instant) -> bool {
        let sight = look(shared);
        let verdict = self.judge(
            sight,
            shared.meter.woken_and_parked(),
            now,
            Threads::now,
            Threads::all_moved_on,
        );
        match verdict {
            Verdict::Nothing => return false,
            Verdict::LookAgain => return true,
            Verdict::Wake | Verdict::Rescue => *self = Self::default(),
        }
        // By the idle set, like every wake-up: a worker that is woken past it would be counted
        // wrongly for ever (tokio PR 8372).
        let woken = shared.scheduler.announce();
        if verdict == Verdict::Rescue && woken.is_some() {
            shared.monitor.count_rescue();
        }
        shared.unpark(woken);
        false
    }

    /// Decides what a look means together with those before it. `changes` is how often workers were
    /// woken or parked.
    fn judge(
        &mut self,
        sight: Sight,
        changes: u64,
        now: Instant,
        threads: impl FnOnce() -> Option<Threads>,
        all_moved_on: impl FnOnce(&Threads) -> bool,
    ) -> Verdict {
        if sight == Sight::Fine {
            *self = Self::default();
            return Verdict::Nothing;
        }
        match self.last {
            Some((_, before)) if before != changes => *self = Self::default(),
            Some((last, _)) if now - last < LOOK_AGAIN_AFTER => return Verdict::LookAgain,
            _ => {}
        }
        self.last = Some((now, changes));
        if sight == Sight::Unclear {
            self.unclear += 1;
        } else {
            self.unannounced += 1;
            if self.unannounced == 2 {
                // Not at the first look: a task that yields beside an idle worker shows the state
                // for an instant, often.
                self.threads = threads();
            }
        }
        if self.unannounced >= SURE_LOOKS && self.threads.as_ref().is_some_and(all_moved_on) {
            Verdict::Rescue
        } else if self.unclear >= SURE_LOOKS || self.unclear + self.unannounced >= MOST_LOOKS {
            Verdict::Wake
        } else {
            Verdict::LookAgain
        }
    }
}

/// Looks at the queues and the idle set.
fn look(shared: &Shared) -> Sight {
    let (scheduler, workers) = (&shared.scheduler, shared.scheduler.idle.workers());
    let in_polls = || shared.posts.iter().filter(|post| post.is_running()).count();
    let polls = || shared.posts.iter().map(|post| post.polls().0).sum::<u64>();
    let before = (polls(), in_polls(), scheduler.idle.counts());
    // Ordering: SeqCst fences, so that the queues are read between the two looks at the workers.
    // They have no partner: a worker writes its own words relaxed, and a look that is deceived by
    // that is one of many.
    fence(SeqCst);
    if !scheduler.idle.must_wake() || !scheduler.anything_announced() {
        return Sight::Fine;
    }
    fence(SeqCst);
    let after = (polls(), in_polls(), scheduler.idle.counts());
    let (_, polling, counts) = after;
    if before == after && polling + counts.idle() == workers {
        Sight::Unannounced
    } else {
        Sight::Unclear
    }
}

/// The threads of the process, and how long each has had a CPU.
struct Threads(HashMap<i32, Duration>);

impl Threads {
    /// Returns the threads of this moment, if the OS tells.
    fn now() -> Option<Self> {
        let threads = each_thread()?.map(|thread| (thread.id, thread.had_cpu));
        Some(Self(threads.collect()))
    }

    /// Returns whether each of them has had a CPU since, or wants none. False if the OS does not
    /// tell.
    fn all_moved_on(&self) -> bool {
        let moved_on = |thread: Thread| {
            let before = self.0.get(&thread.id).copied().unwrap_or_default();
            thread.sleeps || thread.had_cpu.saturating_sub(before) >= ENOUGH_TO_ANNOUNCE
        };
        each_thread().is_some_and(|mut threads| threads.all(moved_on))
    }
}

/// What the OS tells of a thread.
struct Thread {
    id: i32,
    had_cpu: Duration,
    /// Whether it neither has a CPU nor waits for one, nor for a page, nor was stopped.
    sleeps: bool,
}

/// Returns every thread of the process but the caller, and except for those that end meanwhile.
#[cfg(target_os = "linux")]
fn each_thread() -> Option<impl Iterator<Item = Thread>> {
    // SAFETY: `gettid` has no arguments and touches no memory.
    let own = unsafe { libc::gettid() };
    let ids = std::fs::read_dir("/proc/self/task").ok()?;
    let ids = ids
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(move |&id| id != own);
    Some(ids.filter_map(|id: i32| {
        let read = |name| std::fs::read_to_string(format!("/proc/self/task/{id}/{name}")).ok();
        let had_cpu = read("schedstat")?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
            .map(Duration::from_nanos)?;
        // Behind the name, which is in brackets and may contain some.
        let sleeps = read("stat")?.rsplit_once(") ")?.1.starts_with(['S', 'I', 'Z', 'X']);
        Some(Thread { id, had_cpu, sleeps })
    }))
}

#[cfg(not(target_os = "linux"))]
fn each_thread() -> Option<std::iter::Empty<Thread>> {
    None
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;
    use crate::task::{Class, Mark};
    use Sight::{Fine, Unannounced, Unclear};
    use Verdict::{LookAgain, Nothing, Rescue, Wake};

    /// Makes looks of a runtime that is not there.
    struct Looks {
        suspicion: Suspicion,
        now: Instant,
        starved: bool,
    }

    impl Looks {
        fn new(starved: bool) -> Self {
            Self { suspicion: Suspicion::default(), now: Instant::now(), starved }
        }

        fn look(&mut self, sight: Sight, changes: u64) -> Verdict {
            self.now += LOOK_AGAIN_AFTER;
            let starved = self.starved;
            let threads = || Some(Threads(HashMap::new()));
            self.suspicion.judge(sight, changes, self.now, threads, |_| !starved)
        }

        fn looks(&mut self, sight: Sight, times: u32) {
            for _ in 0..times {
                assert_eq!(self.look(sight, 0), LookAgain);
            }
        }
    }

    #[test]
    fn what_nobody_is_left_to_announce_is_a_rescue() {
        let mut looks = Looks::new(false);
        looks.looks(Unannounced, SURE_LOOKS - 1);
        assert_eq!(looks.look(Unannounced, 0), Rescue);
    }

    #[test]
    fn a_thread_without_a_cpu_may_be_about_to_announce_and_is_no_rescue() {
        let mut looks = Looks::new(true);
        looks.looks(Unannounced, MOST_LOOKS - 1);
        assert_eq!(looks.look(Unannounced, 0), Wake);
    }

    #[test]
    fn a_worker_between_two_polls_may_be_about_to_announce_and_is_no_rescue() {
        let mut looks = Looks::new(false);
        looks.looks(Unclear, SURE_LOOKS - 1);
        assert_eq!(looks.look(Unclear, 0), Wake);
    }

    #[test]
    fn a_look_that_finds_all_well_and_a_worker_that_was_woken_begin_anew() {
        let mut looks = Looks::new(false);
        looks.looks(Unannounced, SURE_LOOKS - 1);
        assert_eq!(looks.look(Fine, 0), Nothing);
        looks.looks(Unannounced, SURE_LOOKS - 1);
        assert_eq!(looks.look(Unannounced, 1), LookAgain, "a worker was woken, or parked");
        assert_eq!(looks.look(Unannounced, 1), LookAgain);
    }

    #[test]
    fn looks_in_the_same_millisecond_count_as_one() {
        let mut looks = Looks::new(false);
        let threads = || Some(Threads(HashMap::new()));
        for _ in 0..10 * MOST_LOOKS {
            let verdict = looks.suspicion.judge(Unannounced, 0, looks.now, threads, |_| true);
            assert_eq!(verdict, LookAgain);
        }
    }

    /// A task that is queued and never announced, which is what a lost wake-up comes to, still
    /// runs. It is counted, unless other tests leave a thread of this process without a CPU
    /// meanwhile.
    #[test]
    #[cfg(target_os = "linux")]
    fn work_that_was_queued_in_silence_runs_and_is_counted() {
        let runtime = crate::Builder::new().workers(2).build().unwrap();
        let shared = &runtime.handle().shared;
        for _ in 0..1_000 {
            if runtime.metrics().monitor_rescues > 0 {
                return;
            }
            while shared.scheduler.idle.counts().idle() < shared.workers() {
                std::thread::yield_now();
            }
            let location = std::panic::Location::caller();
            let (task, handle) = crate::task::allocate(
                std::sync::Arc::as_ptr(shared),
                None,
                Class::Foreground,
                location,
                async { 42 },
            );
            task.metadata().set_mark(Mark::QUEUED);
            shared.scheduler.injector.push(task);
            // A wake-up that is really lost is lost before the monitor sleeps. Here everything
            // rests and the monitor may sleep, so it is called.
            shared.monitor.call();
            assert_eq!(runtime.block_on(handle).unwrap(), 42);
        }
        panic!("a thousand wake-ups were lost, and none was counted");
    }

    /// Between the polls of the task, the queue holds it unannounced beside an idle worker. (While
    /// the task was queued before the poll was said to be over, that was counted as a rescue once
    /// in a hundred runs or so beside other programs.)
    #[test]
    fn a_task_that_yields_beside_an_idle_worker_is_no_rescue() {
        let runtime = crate::Builder::new().workers(2).build().unwrap();
        runtime.block_on(async {
            let yields = crate::spawn(async {
                for _ in 0..300_000 {
                    crate::yield_now().await;
                }
            });
            yields.await.unwrap();
        });
        assert_eq!(runtime.metrics().monitor_rescues, 0);
    }
}
