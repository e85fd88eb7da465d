//! The models under loom: every interleaving of the protocols that we own.

use anyhow::Result;
use xshell::{Shell, cmd};

/// Runs the models whose names contain `model`, or all.
pub(crate) fn run(sh: &Shell, model: Option<&str>) -> Result<()> {
    let filter = model.unwrap_or("models::");
    let target = crate::soak::target_folder().join("loom");
    cmd!(sh, "cargo test --release -p giveway -p giveway-io --lib -- {filter}")
        .env("RUSTFLAGS", "--cfg giveway_loom")
        .env("CARGO_TARGET_DIR", target)
        .run()?;
    Ok(())
}
