//! The command line.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Duration;

pub(crate) const HELP: &str = "\
The sandwich counter: requests over loopback TCP beside background jobs, in five acts.

  --secs S         seconds an act takes (5)
  --rate R         requests a second (2000)
  --background N   background jobs at a time (64 for each worker that has a CPU)
  --workers N      worker threads (as many as there are CPUs)
  --picture FILE   where the picture goes, in a directory that exists (sandwich.svg in cargo's \
                               target directory)
  --json           for machines: the figures as JSON on standard output
  --help           this";

/// The default number of background jobs for each worker that has a CPU.
const JOBS_FOR_EACH_WORKER: usize = 64;

/// The default file name of the picture.
const PICTURE: &str = "sandwich.svg";

/// The most requests in an act. Every request is kept until the end, for the percentiles: some 50
/// bytes each.
const MOST_REQUESTS: f64 = 1e7;

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
    /// Parses the arguments. `None` if help is requested.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut secs, mut rate, mut background, mut workers) = (5.0, 2_000, None, None);
        let (mut picture, mut json) = (None, false);
        // `--secs=5` is `--secs 5`.
        let mut args = args.into_iter().flat_map(|arg| match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => {
                vec![flag.to_owned(), value.to_owned()]
            }
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
                "--picture" => {
                    picture = Some(args.next().ok_or("--picture needs the name of a file")?.into());
                }
                _ => return Err(format!("{flag} is no option")),
            }
        }
        if secs * f64::from(rate) > MOST_REQUESTS {
            return Err(format!(
                "--secs {secs} with --rate {rate}: more than {MOST_REQUESTS} requests an act"
            ));
        }
        let cpus = available_parallelism().map_or(1, usize::from);
        let workers = workers.unwrap_or(cpus);
        let background = background.unwrap_or(JOBS_FOR_EACH_WORKER * workers.min(cpus));
        let picture = picture.unwrap_or_else(|| target_directory().join(PICTURE));
        Ok(Some(Self {
            time: Duration::from_secs_f64(secs),
            rate,
            background,
            workers,
            cpus,
            picture,
            json,
        }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{self, Path};

    #[test]
    fn the_picture_goes_into_the_target_directory_that_cargo_used() {
        // This test program is two folders below the target directory.
        let target = env::current_exe().unwrap().ancestors().nth(3).map(Path::to_owned);
        let options = Options::parse([]).unwrap().unwrap();
        assert_eq!(path::absolute(&options.picture).unwrap().parent().map(Path::to_owned), target);
    }

    #[test]
    fn the_picture_goes_where_it_is_told_to() {
        let options = Options::parse(["--picture=here.svg".to_owned()]).unwrap().unwrap();
        assert_eq!(options.picture, PathBuf::from("here.svg"));
    }
}
