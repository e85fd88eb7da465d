//! The models under loom: every interleaving of the protocols that we own.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// Runs the models whose names contain `model`, or all.
pub(crate) fn run(sh: &Shell, model: Option<&str>) -> Result<()> {
    let filter = model.unwrap_or("models::");
    let target = crate::soak::target_folder().join("loom");
    let _flags = sh.push_env("RUSTFLAGS", "--cfg giveway_loom -A warnings");
    let _target = sh.push_env("CARGO_TARGET_DIR", target);
    let test = "cargo test --release -p giveway -p giveway-io --lib --";
    println!("$ RUSTFLAGS=\"--cfg giveway_loom\" {test} {filter}");
    let test: &[_] = &test.split(' ').skip(1).collect::<Vec<_>>();
    let found = cmd!(sh, "cargo {test...} {filter} --list").quiet().read()?;
    ensure!(found.contains(": test"), "no model has `{filter}` in its name");
    cmd!(sh, "cargo {test...} {filter}").quiet().run()?;
    Ok(())
}
