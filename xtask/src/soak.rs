//! Long runs: the suite many times over, beside load, or under a sanitizer; and the chaos soak.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Instant;
use xshell::{Shell, cmd};

/// Returns the folder of cargo's output.
pub(crate) fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    crate::workspace::root().join(folder.unwrap_or_else(|| "target".into()))
}

/// Endless loops on three threads of their own processes, which end with this.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..3 {
            load.0.push(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the README's test command `TIMES` in a row (by default 20), and stops at the first failure.
pub(crate) fn suite(sh: &Shell, args: &[String]) -> Result<()> {
    let mut times = 20;
    let mut load = None;
    let test = &crate::ci::test_command()?;
    cmd!(sh, "cargo {test...} --no-run").run()?;
    for arg in args {
        match &**arg {
            "--loaded" => load = Some(Load::start()?),
            number => {
                times =
                    number.parse().with_context(|| format!("`{number}` is no number of rounds"))?
            }
        }
    }
    for round in 1..=times {
        let start = Instant::now();
        let output = cmd!(sh, "cargo {test...}").quiet().ignore_status().output()?;
        let seconds = start.elapsed().as_secs();
        if !output.status.success() {
            let output = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&output);
            let lines: Vec<_> = text.lines().collect();
            bail!(
                "{}\nround {round} of {times}: failed after {seconds} s",
                lines[lines.len().saturating_sub(120)..].join("\n")
            );
        }
        println!("round {round} of {times}: passed in {seconds} s");
    }
    drop(load);
    Ok(())
}

/// Runs the chaos soak. Its `main.rs` says what it does and what it checks.
pub(crate) fn chaos(sh: &Shell, args: &[String]) -> Result<()> {
    let (sanitized, args): (Vec<_>, Vec<_>) = args.iter().partition(|arg| *arg == "--sanitize");
    let (sanitizer, toolchain) = if sanitized.is_empty() {
        (None, None)
    } else {
        (Some(Sanitizer::new(sh)?), Some("+nightly"))
    };
    let target: Vec<String> = sanitizer.as_ref().map(Sanitizer::target).unwrap_or_default();
    let _variables = sanitizer.map(|sanitizer| sanitizer.enter(sh));
    cmd!(sh, "cargo {toolchain...} run --release {target...} -p giveway-chaos -- {args...}")
        .run()?;
    Ok(())
}

/// What cannot run under a sanitizer: tests that measure memory, tests that limit the address space,
/// which the sanitizer itself needs, and tests in which tokio leaks: a guard of its own that a task
/// forgets, and what it has when it panics in the middle of its start.
const NOT_SANITIZED: [&str; 9] = [
    "bytes_each",
    "leaves_memory_flat",
    "an_os_that_refuses_threads",
    "a_million_timers",
    "blocking_refused",
    "a_thread_that_was_refused",
    "the_os_refuses_a_thread",
    "a_guard_of_tokio_that_a_task_forgets",
    "a_tokio_that_cannot_be_started",
];

/// Runs the tests under AddressSanitizer, with its leak check.
pub(crate) fn sanitize(sh: &Shell, args: &[String]) -> Result<()> {
    let sanitizer = Sanitizer::new(sh)?;
    let target = sanitizer.target();
    let _variables = sanitizer.enter(sh);
    let skip = NOT_SANITIZED.iter().flat_map(|test| ["--skip", test]);
    let tests = ["-p", "giveway", "-p", "giveway-tests", "--lib", "--tests"];
    cmd!(sh, "cargo +nightly test {target...} {tests...} -- {skip...} {args...}").run()?;
    Ok(())
}

/// AddressSanitizer, for the target of this machine.
struct Sanitizer {
    target: String,
}

impl Sanitizer {
    fn new(sh: &Shell) -> Result<Self> {
        let version = cmd!(sh, "rustc -vV").quiet().read()?;
        let target = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("rustc names its host")?;
        Ok(Self { target: target.to_owned() })
    }

    /// An explicit target keeps the sanitizer out of build scripts.
    fn target(&self) -> Vec<String> {
        vec!["--target".to_owned(), self.target.clone()]
    }

    /// Sets the environment until the returned guards drop.
    fn enter<'a>(&self, sh: &'a Shell) -> [xshell::PushEnv<'a>; 3] {
        [
            sh.push_env("RUSTFLAGS", "-Zsanitizer=address -Cforce-frame-pointers=yes"),
            sh.push_env("CARGO_TARGET_DIR", target_folder().join("asan")),
            sh.push_env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1"),
        ]
    }
}
