//! The sandwich counter: how background work delays requests, and what giving way changes.
//!
//! `cargo run --release --example sandwich [-- --secs S] [--rate R] [--background N] [--workers N]
//! [--picture FILE] [--json]`
//!
//! A small server answers requests over loopback TCP. Requests are sent at random times, 2,000 a
//! second on average, whether or not earlier ones have been answered (customers do not stay at home
//! until the queue is short). The same runtime also runs background jobs that would use every CPU
//! (the cooks chop vegetables for tomorrow). Five acts run one after the other, on the same
//! runtime, with the same connections and the same random times:
//!
//! 1. no background jobs;
//! 2. jobs that never yield: 5 ms from start to end;
//! 3. the same jobs with `yield_now` after every 20 µs: what every runtime offers;
//! 4. the same jobs with `yield_now_if_busy`;
//! 5. the jobs of act 2, spawned by `spawn_background`: the kernel preempts polls that do not give
//!    way.
//!
//! At the end the program prints a table and a sentence, and draws a picture of all acts.
//! `kitchen.rs` is the program under test, and worth reading; the other files send the requests,
//! measure and draw.

mod customers;
mod kitchen;
mod machine;
mod options;
mod outcome;
mod picture;
mod progress;

use customers::Customers;
use kitchen::{Act, Kitchen};
use options::Options;
use outcome::Outcome;
use progress::Progress;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    // Help is no error: it goes to standard output, with success.
    let options = Options::parse(std::env::args()).unwrap_or_else(|error| error.exit());
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandwich: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    let mut builder = giveway::Builder::new().workers(options.workers);
    let real_time = machine::allows_real_time();
    if !real_time {
        builder = builder.on_thread_start(machine::step_back);
    }
    let runtime = builder.build()?;
    let kitchen = Kitchen::open(&runtime, options.workers)?;
    let customers = Customers::come(kitchen.address())?;
    let mut progress = Progress::new(Act::ALL.len(), options.time);
    let mut outcomes = Vec::new();
    let others = machine::Others::start();
    for act in Act::ALL {
        let background = kitchen.start_background(act, options.background);
        let before = machine::cpu_time()?;
        let mut work = Vec::new();
        let requests = customers.order(options.rate, options.time, |elapsed| {
            work.push((elapsed, background.done()));
            progress.show(act.name(), elapsed);
        })?;
        let elapsed = work.last().map_or(options.time, |&(elapsed, _)| elapsed);
        let cpu_time = machine::cpu_time()? - before;
        background.end();
        outcomes.push(Outcome::of(act, requests, &work, cpu_time, elapsed));
        progress.act_over(act.name());
    }
    progress.end();
    // An error of the picture is returned last: the figures are printed in any case.
    let drawn = picture::draw(&options.picture, &outcomes, options);
    let text = if options.json {
        outcome::json(&outcomes, options)
    } else {
        let picture = match drawn {
            Ok(()) => {
                format!("\n\nThe requests, act by act, as a picture: {}", options.picture.display())
            }
            Err(_) => String::new(),
        };
        let others = outcome::others(others.part());
        format!(
            "{}{others}\n{}{picture}",
            outcome::table(&outcomes, options, real_time),
            outcome::moral(&outcomes)
        )
    };
    say(&text)?;
    drawn
}

/// Prints a text. A reader that closes the pipe early (`| head`) is no error.
fn say(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Converts a time to seconds, for the arithmetic of reports.
fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
