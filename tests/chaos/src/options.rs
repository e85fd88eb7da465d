//! The command line.

use std::time::{Duration, SystemTime};

const USAGE: &str = "usage: giveway-chaos [--for TIME] [--seed N] [--workers N] [--threads N] \
                     [--episode T.N]
  --for TIME     how long: 90s, 10m, 8h; by default 10m
  --seed N       by default another one each time; printed first
  --workers N    the most workers of a runtime, by default 8
  --threads N    how many threads run episodes, by default 2
  --episode T.N  this episode of this thread, again and again";

/// What the process is to do.
pub(crate) enum Command {
    Soak(Options),
    /// Be a process that forks: the soak starts such processes.
    Fork {
        seed: u64,
    },
}

/// The options of a soak.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    /// The thread and number of the only episode to run.
    pub(crate) episode: Option<(usize, u64)>,
}

/// Parses the arguments. The error is a message for the user.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut options = Options {
        time: Duration::from_secs(600),
        seed: now.as_nanos() as u64 % 1_000_000_007,
        workers: 8,
        threads: 2,
        episode: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().ok_or_else(|| format!("{argument} wants a value\n{USAGE}"));
        match &*argument {
            "--for" => options.time = time(&value()?)?,
            "--seed" => options.seed = number(&value()?)?,
            "--workers" => options.workers = number(&value()?)?.clamp(1, 64) as usize,
            "--threads" => options.threads = number(&value()?)?.clamp(1, 16) as usize,
            "--episode" => options.episode = Some(episode(&value()?)?),
            "--act-fork" => return Ok(Command::Fork { seed: number(&value()?)? }),
            _ => return Err(format!("unknown: {argument}\n{USAGE}")),
        }
    }
    if let Some((thread, _)) = options.episode {
        options.threads = 1.max(thread + 1);
    }
    Ok(Command::Soak(options))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a number: {text}\n{USAGE}"))
}

fn episode(text: &str) -> Result<(usize, u64), String> {
    let (thread, episode) =
        text.split_once('.').ok_or_else(|| format!("not an episode: {text}\n{USAGE}"))?;
    Ok((number(thread)? as usize, number(episode)?))
}

/// Parses a time such as `90s`, `10m` or `8h`.
fn time(text: &str) -> Result<Duration, String> {
    let (digits, unit) =
        text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(format!("not a time: {text}\n{USAGE}")),
    };
    Ok(Duration::from_secs(number(digits)? * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soak(arguments: &str) -> Result<Options, String> {
        match parse(arguments.split_whitespace().map(str::to_owned))? {
            Command::Soak(options) => Ok(options),
            Command::Fork { .. } => Err("a fork".into()),
        }
    }

    #[test]
    fn the_command_line_is_understood() {
        let options = soak("--for 8h --seed 7 --workers 3 --episode 1.42").unwrap();
        assert_eq!(
            (options.time, options.seed, options.workers),
            (Duration::from_secs(8 * 3_600), 7, 3)
        );
        assert_eq!((options.episode, options.threads), (Some((1, 42)), 2));
        assert_eq!(soak("").unwrap().time, Duration::from_secs(600));
        assert_eq!(soak("--for 90s").unwrap().time, Duration::from_secs(90));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (arguments, says) in
            [("--for 8", "not a time: 8"), ("--seed", "--seed wants a value"), ("soak", "unknown")]
        {
            assert!(soak(arguments).unwrap_err().starts_with(says), "{arguments}");
        }
    }
}
