//! The chaos soak: does everything that a program may do to a runtime, at random and concurrently,
//! for a given time.
//!
//! `cargo xtask chaos` runs it. Options: `--for 8h` (ten minutes by default), `--seed N`, and
//! `--episode T.N` to repeat one episode.
//!
//! # How it works
//!
//! Several threads each run *episodes* (`episode.rs`). An episode builds a runtime, starts *actors*
//! in it (`actor.rs`), and ends the runtime: after the actors are done or while they act, from the
//! thread of the episode or from another place, including the runtime's own threads. An actor is a
//! task that performs a number of *acts* (`acts/`): spawns, cancels, panics, timers, sockets with
//! faults, blocking calls, nested runtimes. *Outsiders* (`outsiders.rs`) are threads of no runtime;
//! they wake the wakers that they are given, also long after the task is gone. Child processes fork
//! (`forks.rs`).
//!
//! # What is checked
//!
//! - Nothing is lost. Each task holds a *ticket* (`ledger.rs`). When its runtime is gone, every
//!   ticket has been used once: the task finished, panicked as planned, or was cancelled. The
//!   task's handle reports the same. Every wake-up arrives: if nothing happens in an episode for a
//!   minute, although the process gets CPU time, the soak fails with a dump (`watch.rs`).
//! - Nothing leaks. No future, no output and no thread outlives its runtime. Whenever all episodes
//!   pause, the numbers of descriptors and threads and the memory are what they were at first
//!   (`roll_call.rs`).
//! - Nothing was rescued: [`monitor_rescues`](giveway::metrics::Metrics::monitor_rescues) is zero.
//!
//! # Replay
//!
//! What an actor does depends only on the seed and on the numbers of the thread, the episode and
//! the actor. The order in which threads run depends on the machine: a seed replays the load, not
//! the race.

mod actor;
mod acts;
mod episode;
mod failure;
mod forks;
mod ledger;
mod options;
mod outsiders;
mod random;
mod roll_call;
mod watch;
mod world;

use options::{Command, Options};
use roll_call::RollCall;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Command::Soak(options)) => options,
        Ok(Command::Fork { seed }) => return forks::act(seed),
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(64);
        }
    };
    failure::expect_told_panics(options.seed);
    println!(
        "seed {}, for {:?}, {} threads of episodes",
        options.seed, options.time, options.threads
    );
    soak(&options);
    ExitCode::SUCCESS
}

fn soak(options: &Options) {
    // Timers that outlive their runtime move to the default runtime. It is started now, so that its
    // threads exist before the first count of threads.
    giveway::block_on(giveway::time::sleep(Duration::from_millis(1)));
    let start = Instant::now();
    let outsiders = outsiders::Outsiders::start(options.seed);
    let roll_call = Arc::new(RollCall::new(options.threads));
    let watch = watch::Watch::start(start);
    thread::scope(|scope| {
        for number in 0..options.threads {
            let (roll_call, outsiders) = (&roll_call, &outsiders);
            let run = move || {
                episode::run_until(start + options.time, number, options, outsiders, roll_call)
            };
            thread::Builder::new()
                .name(format!("episodes-{number}"))
                .spawn_scoped(scope, run)
                .expect("a thread starts");
        }
        forks::run_until(start + options.time, options);
    });
    watch.stop();
    outsiders.stop();
    watch::summary(start);
}
