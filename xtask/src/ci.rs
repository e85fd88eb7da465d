//! Everything that must pass before a change lands. Needs Rust, gcc and the registries.

use crate::{api, docs, loom, mutate, soak, workspace};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use xshell::{Shell, cmd};

type Step = (&'static str, fn(&Shell) -> Result<()>);

/// In the order in which a fault is likely, and is found cheaply.
const STEPS: [Step; 16] = [
    ("the README's test command", readme_tests),
    ("rustfmt", |sh| Ok(cmd!(sh, "cargo fmt --all --check").run()?)),
    ("clippy", |sh| {
        Ok(cmd!(sh, "cargo clippy --workspace --all-targets --all-features -- -D warnings")
            .run()?)
    }),
    ("names, links and commands in comments and pages", |_| docs::run()),
    ("the public API", |sh| api::run(sh, false)),
    ("rustdoc", rustdoc),
    ("packages", packages),
    ("features", features),
    ("the oldest Rust", oldest_rust),
    ("examples and benches", examples),
    ("loom models", |sh| loom::run(sh, None)),
    ("mutations", |sh| mutate::run(sh, None)),
    ("the portable reactor", |sh| {
        Ok(cmd!(sh, "cargo test -p giveway-io --features portable --lib --tests").run()?)
    }),
    ("release tests with more workers", more_workers),
    ("chaos", |sh| soak::chaos(sh, &["--for", "20s", "--seed", "1"].map(str::to_owned))),
    ("sanitizers", sanitizers),
];

/// Runs all steps, or those whose names contain `only`, and says how long each took.
pub(crate) fn run(sh: &Shell, only: Option<&str>) -> Result<()> {
    let steps = STEPS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only)));
    ensure!(
        steps.clone().next().is_some(),
        "no step has `{}` in its name",
        only.unwrap_or_default()
    );
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for (name, step) in steps {
        println!("\n== {name}");
        let start = Instant::now();
        step(sh).with_context(|| format!("the step \"{name}\" failed"))?;
        times.push((name, start.elapsed()));
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("\n== all checks passed");
    for (name, time) in times.into_iter().chain([("total", total)]) {
        println!("{:>5} s  {name}", time.as_secs());
    }
    Ok(())
}

/// Returns what stands behind `cargo` in the command that the README gives for the tests.
pub(crate) fn test_command() -> Result<Vec<String>> {
    let readme = workspace::read("README.md");
    let line = readme.lines().find(|line| line.starts_with("cargo test"));
    let line = line.context("README.md has no line that starts with `cargo test`")?;
    Ok(line.split(' ').skip(1).map(str::to_owned).collect())
}

fn readme_tests(sh: &Shell) -> Result<()> {
    let test = test_command()?;
    cmd!(sh, "cargo {test...}").run()?;
    Ok(())
}

/// Runs the tests by nextest, which gives each its own process and a time limit
/// (`.config/nextest.toml`).
pub(crate) fn test(sh: &Shell, args: &[String]) -> Result<()> {
    let tools = soak::target_folder().join("tools");
    if cmd!(sh, "cargo nextest --version").quiet().ignore_stderr().ignore_stdout().run().is_err() {
        let installed = tools.join("bin");
        if !sh.path_exists(installed.join("cargo-nextest")) {
            // Without its self-update, and not optimized: half as long to build.
            let build = ["--debug", "--no-default-features", "--features", "default-no-update"];
            cmd!(sh, "cargo install --locked {build...} --root {tools} cargo-nextest").run()?;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths([installed].into_iter().chain(std::env::split_paths(&path)))?;
        sh.set_var("PATH", path);
    }
    cmd!(sh, "cargo nextest run --release -p giveway -p giveway-axum -p giveway-io -p giveway-tests {args...}")
        .run()?;
    Ok(())
}

fn more_workers(sh: &Shell) -> Result<()> {
    let _workers = sh.push_env("GIVEWAY_TEST_WORKERS", "2,64");
    test(sh, &[])
}

fn rustdoc(sh: &Shell) -> Result<()> {
    let _flags = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(sh, "cargo doc --workspace --no-deps --all-features").run()?;
    cmd!(sh, "cargo doc -p giveway -p giveway-io --no-deps").run()?;
    Ok(())
}

/// Every published crate builds from its package.
///
/// In a folder whose name was never used: cargo unpacks a package once for each path, and would
/// build what it unpacked there in an earlier run.
fn packages(sh: &Shell) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let folder = std::env::temp_dir().join(format!("giveway-packages-{now}"));
    let packages = workspace::public_packages().flat_map(|package| ["-p", package.name.as_str()]);
    let built = cmd!(sh, "cargo package --allow-dirty {packages...}")
        .env("CARGO_TARGET_DIR", &folder)
        .run();
    sh.remove_path(&folder)?;
    Ok(built?)
}

/// Every feature by itself: the tests turn on all at once.
fn features(sh: &Shell) -> Result<()> {
    for package in workspace::public_packages() {
        let name = package.name.as_str();
        cmd!(sh, "cargo check -p {name} --no-default-features").run()?;
        for feature in package.features.keys().filter(|feature| *feature != "default") {
            cmd!(sh, "cargo check -p {name} --no-default-features --features {feature}").run()?;
        }
    }
    Ok(())
}

/// The published crates build with the Rust that their manifests name. Skipped, with a word, on a
/// machine without that toolchain.
fn oldest_rust(sh: &Shell) -> Result<()> {
    let public = || workspace::public_packages();
    let version = public().find_map(|package| package.rust_version.clone());
    let version = version.context("a manifest names the oldest Rust")?;
    let oldest = format!("{}.{}", version.major, version.minor);
    if !has_toolchain(sh, &oldest) {
        println!("skipped: there is no toolchain {oldest}");
        return Ok(());
    }
    let (packages, toolchain) =
        (public().flat_map(|package| ["-p", package.name.as_str()]), format!("+{oldest}"));
    cmd!(sh, "cargo {toolchain} check {packages...} --all-features")
        .env("CARGO_TARGET_DIR", soak::target_folder().join("oldest"))
        .run()?;
    Ok(())
}

/// Whether rustup has a toolchain whose name begins like that.
fn has_toolchain(sh: &Shell, name: &str) -> bool {
    let list = cmd!(sh, "rustup toolchain list").quiet().ignore_stderr().read();
    list.is_ok_and(|list| list.lines().any(|line| line.starts_with(name)))
}

/// Every example runs, and ends by itself.
fn examples(sh: &Shell) -> Result<()> {
    cmd!(sh, "cargo build --workspace --benches --examples").run()?;
    let mut found = false;
    for package in workspace::packages() {
        for example in package.targets.iter().filter(|target| target.is_example()) {
            found = true;
            let (package, name) = (&package.name, &example.name);
            let features = example.required_features.join(",");
            let run = ["-p", package.as_str(), "--features", &features, "--example", name];
            cmd!(sh, "timeout 60 cargo run -q {run...}").stdin("").run()?;
        }
    }
    ensure!(found, "no package has an example");
    Ok(())
}

/// The optional part: skipped, with a word, on a machine without the toolchain.
fn sanitizers(sh: &Shell) -> Result<()> {
    if !has_toolchain(sh, "nightly") {
        println!("skipped: there is no nightly toolchain");
        return Ok(());
    }
    soak::sanitize(sh, &[])?;
    soak::chaos(sh, &["--sanitize", "--for", "20s", "--seed", "1"].map(str::to_owned))
}
