//! The watch: a thread that prints the progress, and fails the soak when a runtime makes none.

use crate::actor::MADE;
use crate::acts::ACTS;
use crate::failure::{ensure, fail};
use crate::roll_call::{Belongings, resident};
use crate::world::{self, PAST_RUNS, PAST_TASKS, RUNTIMES};
use giveway_patience::Progress;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After how many looks the progress is printed.
const SAY_EVERY: u32 = 5;

/// After this many looks without progress a runtime hangs. A look does not count if the process
/// wanted a CPU before it and got next to none.
const MOST_QUIET_LOOKS: u32 = 60;

/// A handle to the thread of the watch.
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Watch {
    pub(crate) fn start(start: Instant) -> Self {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            let (mut seen, mut looks, mut progress) = (HashMap::new(), 0, Progress::new());
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                looks += 1;
                look(&mut seen, progress.had_its_chance());
                if looks % SAY_EVERY == 0 {
                    say(start);
                }
            }
        };
        let thread =
            thread::Builder::new().name("watch".into()).spawn(run).expect("a thread starts");
        Self { stop, thread }
    }

    pub(crate) fn stop(self) {
        drop(self.stop);
        let _ended = self.thread.join();
    }
}

/// Checks whether each runtime has made progress since the last look. `seen` holds, by the world's
/// number, its ticks at the last look and the number of looks since they changed.
fn look(seen: &mut HashMap<u64, (u64, u32)>, had_its_chance: bool) {
    let alive = world::alive();
    seen.retain(|number, _| alive.iter().any(|world| world.number == *number));
    for world in alive {
        let (ticks, quiet) = seen.entry(world.number).or_default();
        if world.ticks() != *ticks {
            (*ticks, *quiet) = (world.ticks(), 0);
        } else if had_its_chance {
            *quiet += 1;
        }
        if *quiet >= MOST_QUIET_LOOKS {
            fail(&format!(
                "nothing has come to an end in {} for {quiet} seconds: something hangs",
                world.name()
            ));
        }
        if let Some(handle) = world.try_handle() {
            let metrics = handle.metrics();
            ensure!(
                metrics.monitor_rescues == 0,
                "wake-ups were lost in {}\n{metrics}",
                world.name()
            );
        }
    }
}

/// Returns how many polls and how many tasks there were, in ended runtimes and in those that exist.
fn totals() -> (u64, u64) {
    let alive = world::alive();
    let runs =
        alive.iter().filter_map(|world| Some(world.try_handle()?.metrics().polls())).sum::<u64>();
    let tasks = alive.iter().map(|world| world.ledger.started()).sum::<u64>();
    (PAST_RUNS.load(SeqCst) + runs, PAST_TASKS.load(SeqCst) + tasks)
}

fn say(start: Instant) {
    let ((runs, tasks), seconds) = (totals(), start.elapsed().as_secs_f64());
    let Belongings { threads, descriptors } = Belongings::now();
    println!(
        "{seconds:>6.0} s  {:>7.2} million task runs, {:>4.0} thousand a second; {:.2} million \
         tasks, {} runtimes; {} MB, {threads} threads, {descriptors} descriptors",
        runs as f64 / 1e6,
        runs as f64 / 1e3 / seconds,
        tasks as f64 / 1e6,
        RUNTIMES.load(SeqCst),
        resident() >> 20,
    );
}

/// Prints what the soak did.
pub(crate) fn summary(start: Instant) {
    say(start);
    for (act, made) in ACTS.iter().zip(&MADE) {
        println!("  {:>10} {}", made.load(Relaxed), act.name);
    }
    println!("  {:>10} processes that forked", crate::forks::MADE.load(Relaxed));
    println!("nothing was lost, nothing leaked, nothing was rescued");
}
