//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Duration;

pub(crate) const HELP: &str = "\
The sandwich counter: requests over loopback TCP beside background jobs, in four acts.

  --secs S         seconds an act takes (5)
  --rate R         requests a second (2000)
  --background N   background jobs at a time (64 for each worker that has a CPU)
  --workers N      worker threads (as many as there are CPUs)
  --picture FILE   where the picture goes (target/sandwich.svg), in a directory that exists
  --json           for machines: the figures as JSON on standard output
  --help           this";

/// How many background jobs there are for each worker that can run at the same time as the others.
const JOBS_FOR_EACH_WORKER: usize = 64;

/// Where the picture goes if nothing is said. Its directory is made if need be.
pub(crate) const PICTURE: &str = "target/sandwich.svg";

/// Every request is kept until the end, for the percentiles: some 50 bytes each, in each act.
const MOST_REQUESTS: f64 = 1e7;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// How long an act takes.
    pub(crate) time: Duration,
    /// Requests a second.
    pub(crate) rate: u32,
    pub(crate) background: usize,
    pub(crate) workers: usize,
    /// CPUs that this process may use.
    pub(crate) cpus: usize,
    pub(crate) picture: PathBuf,
    pub(crate) json: bool,
}

impl Options {
    /// `None` if help is wanted.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut secs, mut rate, mut background, mut workers) = (5.0, 2_000, None, None);
        let (mut picture, mut json) = (PathBuf::from(PICTURE), false);
        // `--secs=5` is `--secs 5`.
        let mut args = args.into_iter().flat_map(|arg| match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => vec![flag.to_owned(), value.to_owned()],
            _ => vec![arg],
        });
        while let Some(flag) = args.next() {
            match flag.as_str() {
                "--help" | "-h" => return Ok(None),
                "--json" => json = true,
                "--secs" => secs = number(&flag, args.next(), 0.1, 3_600.0)?,
                "--rate" => rate = number(&flag, args.next(), 1, 200_000)?,
                "--background" => background = Some(number(&flag, args.next(), 1, 100_000)?),
                "--workers" => workers = Some(number(&flag, args.next(), 1, giveway::MAX_WORKERS)?),
                "--picture" => picture = args.next().ok_or("--picture needs the name of a file")?.into(),
                _ => return Err(format!("{flag} is no option")),
            }
        }
        if secs * f64::from(rate) > MOST_REQUESTS {
            return Err(format!("--secs {secs} with --rate {rate}: more than {MOST_REQUESTS} requests an act"));
        }
        let cpus = available_parallelism().map_or(1, usize::from);
        let workers = workers.unwrap_or(cpus);
        let background = background.unwrap_or(JOBS_FOR_EACH_WORKER * workers.min(cpus));
        Ok(Some(Self { time: Duration::from_secs_f64(secs), rate, background, workers, cpus, picture, json }))
    }

    /// How many CPUs' worth of background work can be done.
    pub(crate) fn most_cpus(&self) -> usize {
        self.workers.min(self.cpus)
    }
}

fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    flag: &str,
    value: Option<String>,
    least: T,
    most: T,
) -> Result<T, String> {
    let value = value.ok_or(format!("{flag} needs a number"))?;
    match value.parse() {
        Ok(number) if (&least..=&most).contains(&&number) => Ok(number),
        _ => Err(format!("{flag} {value}: a number from {least} to {most} is wanted")),
    }
}
