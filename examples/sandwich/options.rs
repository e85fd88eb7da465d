//! The command line.

use clap::{Parser, value_parser};
use std::env;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

/// The default number of background jobs for each worker that has a CPU.
const JOBS_FOR_EACH_WORKER: usize = 64;

/// The default file name of the picture.
const PICTURE: &str = "sandwich.svg";

/// The most requests in an act. Every request is kept until the end, for the percentiles: some 50
/// bytes each.
const MOST_REQUESTS: f64 = 1e7;

/// The sandwich counter: requests over loopback TCP beside background jobs, in five acts.
#[derive(Debug, Parser)]
#[command(name = "sandwich")]
struct Args {
    /// Seconds an act takes.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    secs: f64,
    /// Requests a second.
    #[arg(long, value_name = "R", default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=200_000))]
    rate: u32,
    /// Background jobs at a time [default: 64 for each worker that has a CPU].
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=100_000))]
    background: Option<u64>,
    /// Worker threads [default: as many as there are CPUs].
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=giveway::MAX_WORKERS as u64))]
    workers: Option<u64>,
    /// Where the picture goes, in a directory that exists [default: sandwich.svg in cargo's target
    /// directory].
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// For machines: the figures as JSON on standard output.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.1..=3_600.0).contains(&number) => Ok(number),
        _ => Err("a number from 0.1 to 3600 is wanted".to_owned()),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// How long an act takes.
    pub(crate) time: Duration,
    /// Requests a second.
    pub(crate) rate: u32,
    pub(crate) background: usize,
    pub(crate) workers: usize,
    /// How many CPUs this process may use.
    pub(crate) cpus: usize,
    pub(crate) picture: PathBuf,
    pub(crate) json: bool,
}

impl Options {
    /// Parses the arguments, of which the first is the program's name.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, clap::Error> {
        let args = Args::try_parse_from(args)?;
        let (secs, rate) = (args.secs, args.rate);
        if secs * f64::from(rate) > MOST_REQUESTS {
            let kind = clap::error::ErrorKind::ValueValidation;
            let text = format!(
                "--secs {secs} with --rate {rate}: more than {MOST_REQUESTS} requests an act\n"
            );
            return Err(clap::Error::raw(kind, text));
        }
        let cpus = available_parallelism().map_or(1, usize::from);
        let workers = args.workers.map_or(cpus, |workers| workers as usize);
        let for_all = JOBS_FOR_EACH_WORKER * workers.min(cpus);
        Ok(Self {
            time: Duration::from_secs_f64(secs),
            rate,
            background: args.background.map_or(for_all, |jobs| jobs as usize),
            workers,
            cpus,
            picture: args.picture.unwrap_or_else(|| target_directory().join(PICTURE)),
            json: args.json,
        })
    }

    /// Returns how many CPUs the background work can use at most.
    pub(crate) fn most_cpus(&self) -> usize {
        self.workers.min(self.cpus)
    }
}

/// Returns cargo's target directory that contains this program, also one set by `CARGO_TARGET_DIR`,
/// relative to the current directory if it is inside of that. An empty path, which is the current
/// directory, if the program has been moved out of it.
fn target_directory() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    // `target/release/examples/sandwich`
    match (program.parent(), program.ancestors().nth(3)) {
        (Some(folder), Some(target)) if folder.ends_with("examples") => {
            let here = env::current_dir().unwrap_or_default();
            target.strip_prefix(here).unwrap_or(target).to_owned()
        }
        _ => PathBuf::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{self, Path};

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        let args = ["sandwich"].iter().chain(args);
        Options::parse(args.map(|arg| (*arg).to_owned()))
    }

    #[test]
    fn the_picture_goes_into_the_target_directory_that_cargo_used() {
        // This test program is two folders below the target directory.
        let target = env::current_exe().unwrap().ancestors().nth(3).map(Path::to_owned);
        let options = parse(&[]).unwrap();
        assert_eq!(path::absolute(&options.picture).unwrap().parent().map(Path::to_owned), target);
    }

    #[test]
    fn the_picture_goes_where_it_is_told_to() {
        let options = parse(&["--picture=here.svg"]).unwrap();
        assert_eq!(options.picture, PathBuf::from("here.svg"));
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        for arg in ["--secs=0", "--secs=NaN", "--rate=0", "--background=0", "--workers=4097"] {
            assert!(parse(&[arg]).is_err(), "{arg}");
        }
        assert!(parse(&["--secs=3600", "--rate=200000"]).is_err(), "too much to remember");
    }
}
