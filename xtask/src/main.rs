//! The checks of the repository, by name. `cargo xtask` lists them; `cargo xtask ci` runs all that
//! must pass before a change lands.

mod api;
mod ci;
mod docs;
mod loom;
mod mutate;
mod soak;
mod workspace;

use anyhow::{Result, bail};
use std::process::ExitCode;
use xshell::Shell;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [STEP]                 everything that must pass before a change lands, or the steps so named
  test [ARGS]               the tests by nextest, in release mode, each with a time limit
  loom [MODEL]              the models under loom
  mutate [MODEL|MUTATION]   weakens one step at a time and expects the models that guard it to fail
  api [--update]            compares the public API with docs/api, or writes it there
  docs                      names, links, commands, and tables in comments and pages
  soak [TIMES] [--loaded]   the tests TIMES in a row; --loaded: beside three endless loops
  chaos [--sanitize] [ARGS] everything that a program may do to a runtime, at random (--for 8h, \
                     --seed N)
  sanitize [ARGS]           the tests under AddressSanitizer; needs a nightly toolchain";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let sh = Shell::new()?;
    sh.change_dir(workspace::root());
    match &*command {
        "ci" => ci::run(&sh, args.first().map(String::as_str)),
        "test" => ci::test(&sh, &args),
        "loom" => loom::run(&sh, args.first().map(String::as_str)),
        "mutate" => mutate::run(&sh, args.first().map(String::as_str)),
        "api" => api::run(&sh, args.iter().any(|arg| arg == "--update")),
        "docs" => docs::run(),
        "soak" => soak::suite(&sh, &args),
        "chaos" => soak::chaos(&sh, &args),
        "sanitize" => soak::sanitize(&sh, &args),
        "" => bail!("{USAGE}"),
        unknown => bail!("there is no command `{unknown}`\n\n{USAGE}"),
    }
}

/// Fails with all complaints at once, and what to do about them.
fn expect_none(complaints: &[String], remedy: &str) -> Result<()> {
    match complaints.len() {
        0 => Ok(()),
        found => bail!("{}\n\n{found} found. {remedy}", complaints.join("\n")),
    }
}
