//! The chaos soak: everything that a program may do to a runtime, at random and at once, for as long as it is told.
//!
//! `.ci/chaos` runs it: ten minutes by default, `--for 8h`, `--seed N`, `--episode T.N` for one episode again and again.
//!
//! # How it works
//!
//! Some threads each run *episodes* (`episode.rs`). An episode builds a runtime, sets *actors* loose in it (`actor.rs`), and
//! ends the runtime: when the actors are done or in the middle of everything, from here or from any other place, also from
//! its own threads. An actor is a task that makes a number of *acts* (`acts/`): spawns, cancels, panics, timers, sockets with
//! faults, blocking calls, nested runtimes. *Outsiders* (`outsiders.rs`) are threads that know nothing of runtimes, and wake
//! what they were given, also when it is long gone. Child processes fork (`forks.rs`).
//!
//! # What is checked
//!
//! - Nothing is lost: each task holds a *ticket* (`ledger.rs`), and when its runtime is gone every ticket was used once:
//!   finished, panicked as told, or cancelled. A handle says the same as the ticket. Every wake-up arrives: an episode in
//!   which nothing happens for a minute, while the machine gives this process its CPUs, ends the soak with a dump (`watch.rs`).
//! - Nothing leaks: no future and no output outlives its runtime, and no thread; descriptors, threads and memory are what
//!   they were whenever all episodes pause (`roll_call.rs`).
//! - Nothing was rescued: [`monitor_rescues`](giveway::metrics::Metrics::monitor_rescues) is zero.
//!
//! # Replay
//!
//! What an actor does depends on the seed, the numbers of the thread, the episode and the actor, and on nothing else. The order
//! in which threads run is the machine's: a seed replays the load, not the race.

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
    println!("seed {}, for {:?}, {} threads of episodes", options.seed, options.time, options.threads);
    soak(&options);
    ExitCode::SUCCESS
}

fn soak(options: &Options) {
    // Timers that outlive their runtime go to the default one: its threads are there from the beginning to the end.
    giveway::block_on(giveway::time::sleep(Duration::from_millis(1)));
    let start = Instant::now();
    let outsiders = outsiders::Outsiders::start(options.seed);
    let roll_call = Arc::new(RollCall::new(options.threads));
    let watch = watch::Watch::start(start);
    thread::scope(|scope| {
        for number in 0..options.threads {
            let (roll_call, outsiders) = (&roll_call, &outsiders);
            let run = move || episode::run_until(start + options.time, number, options, outsiders, roll_call);
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
