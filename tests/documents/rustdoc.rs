//! The public crates as rustdoc describes them, in JSON.
//!
//! The format is unstable and belongs to one compiler. With another than the one whose format we know, the checks that
//! need it say so, loudly, and pass: they are for our own machines, not for whoever tests with a newer compiler.

use crate::workspace;
use rustdoc_types::{Crate, FORMAT_VERSION};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The Rust whose descriptions we read, that of the workspace.
const KNOWN: &str = env!("CARGO_PKG_RUST_VERSION");

/// One public crate.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) package: &'static workspace::Package,
    pub(crate) json: PathBuf,
    pub(crate) docs: Crate,
}

/// All public crates, with all features; or `None` if this compiler's description cannot be read.
pub(crate) fn crates() -> Option<&'static [Described]> {
    static CRATES: OnceLock<Option<Vec<Described>>> = OnceLock::new();
    CRATES
        .get_or_init(|| workspace::packages().iter().filter(|package| package.public).map(describe).collect())
        .as_deref()
}

fn describe(package: &'static workspace::Package) -> Option<Described> {
    // What a platform does not have is not in its description, and the lists are Linux's.
    if !cfg!(target_os = "linux") {
        note("the public API is checked on Linux only");
        return None;
    }
    // A folder of its own: whoever runs this test may hold the lock of the usual one.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rustdoc-json");
    let output = workspace::cargo()
        .args(["rustdoc", "--locked", "--lib", "--all-features", "-Zunstable-options", "--output-format", "json"])
        .args(["--package", &package.name])
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_BOOTSTRAP", "1")
        // Flags of the tests (a sanitizer, a cfg) are not for this.
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTDOCFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !is_the_known_compiler() {
        note(&format!("this compiler does not describe {} as {KNOWN} does:\n{complaint}", package.name));
        return None;
    }
    assert!(
        output.status.success(),
        "rustdoc could not describe {0}; `cargo doc -p {0} --all-features` may say why:\n{complaint}",
        package.name
    );
    let json = target.join("doc").join(format!("{}.json", package.crate_name()));
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{}: {error}", json.display()));
    let description: serde_json::Value = serde_json::from_str(&text).expect("rustdoc wrote JSON");
    let version = &description["format_version"];
    if version.as_u64() != Some(FORMAT_VERSION.into()) {
        note(&format!(
            "this compiler describes crates in format {version}, and we read {FORMAT_VERSION}. To check with this compiler, take \
             the versions of `rustdoc-types` and `public-api` in tests/Cargo.toml that know its format"
        ));
        return None;
    }
    let docs = serde_json::from_str(&text).expect("a description in the format that it says");
    Some(Described { package, json, docs })
}

fn is_the_known_compiler() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output();
    output.is_ok_and(|output| output.stdout.starts_with(format!("rustc {KNOWN}.").as_bytes()))
}

/// Past the capture of the test harness, which hides what a passing test prints.
fn note(what: &str) {
    use std::io::Write;
    let line = "=".repeat(100);
    let _ = writeln!(std::io::stderr(), "\n{line}\nNOT CHECKED: the public API and its docs: {what}.\n{line}");
}
