//! The lists of the public API in `docs/api/`, beside the code.

use crate::workspace::{FILES, crate_name, public_packages, root};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use xshell::{Shell, cmd};

/// Auto traits that users rely on. The others (`Freeze`, `UnsafeUnpin`) are the compiler's own.
const AUTO_TRAITS: [&str; 5] =
    ["marker::Send", "marker::Sync", "marker::Unpin", "UnwindSafe", "RefUnwindSafe"];

/// Compares each public crate with its list, or writes the list.
///
/// The description that rustdoc writes is unstable and belongs to one compiler; with another than
/// that of the workspace the check is skipped, with a word.
pub(crate) fn run(sh: &Shell, update: bool) -> Result<()> {
    if !is_known_compiler(sh)? {
        println!("skipped: only Rust {KNOWN} on Linux describes the API as the lists have it");
        return Ok(());
    }
    let mut complaints = Vec::new();
    for package in public_packages() {
        let path = format!("docs/api/{}.txt", package.name);
        let now = list(&describe(sh, &package.name, &crate_name(package))?)?;
        let before = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        if update {
            sh.write_file(&path, &now)?;
        } else if now != before {
            complaints.push(format!("{path}:\n{}", difference(&before, &now).join("\n")));
        }
    }
    let lists: BTreeSet<_> =
        public_packages().map(|package| format!("docs/api/{}.txt", package.name)).collect();
    let stray = FILES.iter().filter(|file| file.starts_with("docs/api/") && !lists.contains(*file));
    complaints.extend(stray.map(|file| format!("{file}: there is no public crate of that name")));
    crate::expect_none(
        &complaints,
        "The public API is not what its list says (`-` is listed, `+` is in the code). If that is meant, write it into \
         CHANGELOG.md, and the lists with: cargo xtask api --update",
    )
}

/// The Rust whose descriptions `public-api` reads, that of the workspace.
const KNOWN: &str = "1.95";

fn is_known_compiler(sh: &Shell) -> Result<bool> {
    let version = cmd!(sh, "rustc --version").quiet().read()?;
    Ok(cfg!(target_os = "linux") && version.starts_with(&format!("rustc {KNOWN}.")))
}

/// Has rustdoc describe a crate in JSON, with all features.
fn describe(sh: &Shell, package: &str, crate_name: &str) -> Result<std::path::PathBuf> {
    let target = crate::soak::target_folder().join("rustdoc-json");
    let json = ["-Zunstable-options", "--output-format", "json"];
    cmd!(sh, "cargo rustdoc --locked --lib --all-features {json...} --package {package}")
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTDOCFLAGS")
        .run()?;
    Ok(target.join("doc").join(format!("{crate_name}.json")))
}

/// Lists a crate's items, one a line, and then the auto traits of its types.
fn list(description: &Path) -> Result<String> {
    let builder = || {
        let builder = public_api::Builder::from_rustdoc_json(description);
        builder.include_function_parameter_names(true).omit_blanket_impls(true).sorted(true)
    };
    let lines = |builder: public_api::Builder| -> Result<BTreeSet<String>> {
        let api = builder.build().with_context(|| description.display().to_string())?;
        Ok(api.items().map(ToString::to_string).collect())
    };
    let items = lines(builder().omit_auto_trait_impls(true))?;
    let all = lines(builder())?;
    let is_ours =
        |line: &&String| AUTO_TRAITS.iter().any(|name| line.contains(&format!("{name} for")));
    let auto = all.difference(&items).filter(is_ours);
    Ok(items.iter().chain(auto).flat_map(|line| [line, "\n"]).collect())
}

/// Returns the lines that are in only one of two lists, with `-` and `+`.
fn difference(before: &str, now: &str) -> Vec<String> {
    let (before, now): (BTreeSet<_>, BTreeSet<_>) =
        (before.lines().collect(), now.lines().collect());
    let removed = before.difference(&now).map(|line| (*line, '-'));
    let added = now.difference(&before).map(|line| (*line, '+'));
    let mut lines: Vec<_> = removed.chain(added).collect();
    lines.sort_unstable();
    lines.into_iter().map(|(line, sign)| format!("{sign} {line}")).collect()
}

#[test]
fn a_changed_signature_is_shown_as_both_lines() {
    let before = "pub fn a()\npub fn b(n: u8)\n";
    let now = "pub fn a()\npub fn b(n: u16)\n";
    assert_eq!(difference(before, now), ["+ pub fn b(n: u16)", "- pub fn b(n: u8)"]);
    assert!(difference(now, now).is_empty());
}
