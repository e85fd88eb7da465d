//! How the background divides the CPUs that the foreground leaves: how many workers rest.
//!
//! Polite tasks run on workers. All other background code runs on lowered threads, which have a CPU
//! only when no worker wants it. Each of the two is to have its part, job by job. Lowered threads
//! get what workers do not use. So the monitor compares that with their part a hundred times a
//! second, keeps account of what they are owed, and has as many workers rest as pays it back.
//!
//! Let there be `N` CPUs, of which the foreground uses `F`, `P` polite tasks, and `L` lowered
//! threads that want a CPU. The part of the lowered threads is `(N - F) * L / (P + L)`, or `L` if
//! there is enough for all. The account settles on that whatever `F` is, because it counts what was
//! left over, not what was meant to be.

use crate::blocking::Kind;
use crate::os;
use crate::runtime::Shared;
use std::time::{Duration, Instant};

/// How often the account is made up. The number of workers that rest is the same between two times;
/// a part of a worker is a worker that rests for some of them.
const EVERY: Duration = Duration::from_millis(10);

/// The share of the foreground is an average over about this many looks.
const LOOKS: f64 = 8.0;

/// What the lowered threads of a runtime are owed.
#[derive(Default)]
pub(super) struct Shares {
    /// When the monitor last looked whether there is anything to divide.
    looked_at: Option<Instant>,
    /// The last look, while there is something to divide.
    last: Option<Look>,
    /// How many CPUs the foreground uses, on average.
    foreground: f64,
    /// What the lowered threads are owed, in CPUs times looks.
    owed: f64,
}

/// What the last look saw.
struct Look {
    at: Instant,
    /// The CPU time of all workers.
    used: Duration,
}

/// How many CPUs each kind of background could use.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Demand {
    polite: f64,
    lowered: f64,
}

impl Shares {
    /// Returns whether there is anything to divide, so that the monitor must look again.
    pub(super) fn any(&self) -> bool {
        self.last.is_some()
    }

    /// Has all workers serve the yield queue again, because the monitor looks no more. The last
    /// worker of a runtime that closes sleeps until a task is announced to it, and that may be one
    /// of the background.
    pub(super) fn look_no_more(&mut self, shared: &Shared) {
        rest(shared, 0);
    }

    /// Makes up the account, if it is time, and has workers rest.
    pub(super) fn look(&mut self, shared: &Shared, now: Instant) {
        if self.looked_at.is_some_and(|at| now - at < EVERY) {
            return;
        }
        self.looked_at = Some(now);
        let scheduler = &shared.scheduler;
        let running = ask_to_rest(shared);
        let polite = running + scheduler.yielded.len();
        // Asked last, because it asks the OS about each of those threads.
        let Some(lowered) = (if polite == 0 { Some(0) } else { wanting(shared) }) else { return };
        if lowered == 0 {
            if self.any() {
                *self = Self { looked_at: self.looked_at, ..Self::default() };
                rest(shared, 0);
            }
            return;
        }
        let used = shared.posts[..shared.workers()].iter().filter_map(|post| post.had_cpu()).sum();
        if let Some(last) = self.last.replace(Look { at: now, used }) {
            let cpus = shared.workers() as f64;
            let demand =
                Demand { polite: cpus.min(polite as f64), lowered: cpus.min(lowered as f64) };
            let used = used.saturating_sub(last.used).as_secs_f64() / (now - last.at).as_secs_f64();
            self.settle(cpus, used.min(cpus), running as f64, demand);
            rest(shared, self.resting(shared.workers()));
        }
    }

    /// Makes up the account of one look: of `cpus` CPUs the workers have used `used` since the last
    /// look, and polite tasks had `running`, as far as one look tells.
    fn settle(&mut self, cpus: f64, used: f64, running: f64, Demand { polite, lowered }: Demand) {
        self.foreground += ((used - running).max(0.0) - self.foreground) / LOOKS;
        let left = cpus - self.foreground;
        let part =
            if polite + lowered <= left { lowered } else { left * lowered / (polite + lowered) };
        self.owed = (self.owed + part - (cpus - used)).clamp(0.0, cpus);
    }

    /// Returns how many of `workers` workers are to rest.
    fn resting(&self, workers: usize) -> usize {
        (self.owed.round() as usize).min(workers)
    }
}

/// Has the first `workers` workers rest.
fn rest(shared: &Shared, workers: usize) {
    if workers != shared.scheduler.idle.resting() {
        shared.unpark(shared.scheduler.set_resting(workers));
        // Asks those that are to rest from now on.
        ask_to_rest(shared);
    }
}

/// Asks the polite polls of workers that are to rest to return. Returns how many polls are polite.
fn ask_to_rest(shared: &Shared) -> usize {
    // A poll that is overrun does not hear, and is not polite.
    let in_poll = |core: usize| {
        let post = &shared.posts[core];
        post.is_running() && !post.is_overrun(shared.scheduler.core(core).polling())
    };
    shared.scheduler.ask_to_rest(in_poll)
}

/// Returns how many lowered threads want a CPU, or none if that cannot be told now. Zero if the OS
/// has refused to lower them, because then the OS divides the CPUs.
fn wanting(shared: &Shared) -> Option<usize> {
    if shared.is_lowering_refused() {
        return Some(0);
    }
    let mut wanting = 0;
    for kind in [Kind::Background, Kind::Lowered] {
        let threads = shared.pool_of(kind).threads_in_jobs();
        wanting +=
            threads.into_iter().filter(|&thread| os::wants_cpu(thread) == Some(true)).count();
    }
    Some(wanting)
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    /// Runs an account for a while beside a foreground that uses `foreground` CPUs. Returns how
    /// many CPUs polite tasks and lowered threads had on average.
    fn divided(cpus: usize, foreground: f64, polite: f64, lowered: f64) -> (f64, f64) {
        let (mut shares, mut had) = (Shares::default(), (0.0, 0.0));
        let demand = Demand { polite, lowered };
        let looks = 2_000;
        for _ in 0..looks {
            let serving = (cpus - shares.resting(cpus)) as f64;
            let running = polite.min(serving).min(cpus as f64 - foreground);
            let used = foreground + running;
            had.0 += running / f64::from(looks);
            had.1 += lowered.min(cpus as f64 - used) / f64::from(looks);
            shares.settle(cpus as f64, used, running, demand);
        }
        had
    }

    fn about((polite, lowered): (f64, f64), expected: (f64, f64)) {
        let near = |a: f64, b: f64| (a - b).abs() < 0.06;
        assert!(
            near(polite, expected.0) && near(lowered, expected.1),
            "{polite} and {lowered}, not {expected:?}"
        );
    }

    #[test]
    fn two_of_each_kind_have_a_cpu_each() {
        about(divided(2, 0.0, 2.0, 2.0), (1.0, 1.0));
    }

    #[test]
    fn parts_of_a_cpu_are_divided_too() {
        about(divided(1, 0.0, 1.0, 1.0), (0.5, 0.5));
        about(divided(2, 0.0, 2.0, 1.0), (1.33, 0.67));
        about(divided(2, 0.0, 1.0, 2.0), (0.67, 1.33));
        about(divided(64, 0.0, 64.0, 1.0), (63.02, 0.98));
    }

    #[test]
    fn what_the_foreground_leaves_is_divided() {
        about(divided(2, 1.0, 2.0, 2.0), (0.5, 0.5));
        about(divided(2, 0.2, 2.0, 2.0), (0.9, 0.9));
        about(divided(2, 1.0, 1.0, 1.0), (0.5, 0.5));
        about(divided(8, 6.0, 8.0, 8.0), (1.0, 1.0));
    }

    /// The number of resting workers is set by hand, because on a machine with other processes the
    /// monitor may have no reason to.
    #[test]
    fn polite_tasks_leave_workers_that_rest_and_go_on_when_these_come_back() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
        static STOP: AtomicBool = AtomicBool::new(false);
        static STEPS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
        let runtime = crate::Builder::new().workers(2).build().unwrap();
        let shared = &runtime.handle().shared;
        let spawn = |steps: &'static AtomicUsize| async move {
            while !STOP.load(Relaxed) {
                steps.fetch_add(1, Relaxed);
                crate::yield_now_if_busy().await;
            }
        };
        let jobs = [
            runtime.spawn(spawn(&STEPS[0])),
            runtime.spawn(spawn(&STEPS[1])),
            runtime.spawn_background(spawn(&STEPS[2])),
        ];
        let until = |what: &dyn Fn() -> bool| {
            while !what() {
                std::thread::yield_now();
            }
        };
        for _ in 0..50 {
            rest(shared, 2);
            until(&|| {
                // The monitor does this every 10 ms, because a request may come between two polls.
                ask_to_rest(shared);
                shared.scheduler.yielded.len() == 3 && shared.scheduler.idle.counts().idle() == 2
            });
            assert_eq!(
                runtime.block_on(runtime.spawn(async { 42 })).unwrap(),
                42,
                "workers that rest run the rest"
            );
            let before: usize = STEPS.iter().map(|steps| steps.load(Relaxed)).sum();
            rest(shared, 1);
            until(&|| STEPS.iter().map(|steps| steps.load(Relaxed)).sum::<usize>() > before);
            rest(shared, 0);
        }
        STOP.store(true, Relaxed);
        jobs.into_iter().for_each(|job| runtime.block_on(job).unwrap());
        assert_eq!(runtime.metrics().monitor_rescues, 0);
    }

    #[test]
    fn nobody_rests_while_there_is_enough_for_all() {
        about(divided(4, 0.0, 2.0, 2.0), (2.0, 2.0));
        about(divided(4, 1.0, 1.0, 2.0), (1.0, 2.0));
    }
}
