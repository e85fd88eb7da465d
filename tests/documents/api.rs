//! The lists of the public API in `docs/api/`, beside the code.

use crate::{rustdoc, workspace};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Auto traits that users rely on. The others (`Freeze`, `UnsafeUnpin`) are the compiler's own.
const AUTO_TRAITS: [&str; 5] = ["marker::Send", "marker::Sync", "marker::Unpin", "UnwindSafe", "RefUnwindSafe"];

/// The items of a crate, a line each: first the items, then the auto traits of its types.
fn list(described: &rustdoc::Described) -> String {
    let listed = |builder: public_api::Builder| -> BTreeSet<String> {
        let api = builder.omit_blanket_impls(true).sorted(true).build();
        let api = api.unwrap_or_else(|error| panic!("{}: {error}", described.package.name));
        api.items().map(ToString::to_string).collect()
    };
    let builder = || public_api::Builder::from_rustdoc_json(&described.json).include_function_parameter_names(true);
    let items = listed(builder().omit_auto_trait_impls(true));
    let all = listed(builder());
    let auto =
        all.difference(&items).filter(|line| AUTO_TRAITS.iter().any(|name| line.contains(&format!("{name} for"))));
    let mut text = String::new();
    for line in items.iter().chain(auto) {
        writeln!(text, "{line}").expect("a string takes everything");
    }
    text
}

/// What is in only one of two lists, as lines with `-` and `+`.
fn difference(before: &str, now: &str) -> Vec<String> {
    let (before, now): (BTreeSet<_>, BTreeSet<_>) = (before.lines().collect(), now.lines().collect());
    let gone = before.difference(&now).map(|line| (*line, '-'));
    let come = now.difference(&before).map(|line| (*line, '+'));
    let mut lines: Vec<_> = gone.chain(come).collect();
    lines.sort_unstable();
    lines.into_iter().map(|(line, sign)| format!("{sign} {line}")).collect()
}

#[test]
fn the_public_api_is_as_listed() {
    let Some(crates) = rustdoc::crates() else { return };
    let update = std::env::var_os("GIVEWAY_UPDATE_API").is_some();
    let mut complaints = Vec::new();
    for described in crates {
        let path = format!("docs/api/{}.txt", described.package.name);
        let file = workspace::root().join(&path);
        let now = list(described);
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        if update {
            std::fs::create_dir_all(file.parent().expect("a file is in a folder")).expect("docs/api can be made");
            std::fs::write(&file, &now).unwrap_or_else(|error| panic!("{path}: {error}"));
        } else if now != before {
            complaints.push(format!("{path}:\n{}", difference(&before, &now).join("\n")));
        }
    }
    crate::expect_none(
        &complaints,
        "The public API is not what its list says (`-` is listed, `+` is in the code). If that is meant, \
         write it into CHANGELOG.md, and the lists with: \
         GIVEWAY_UPDATE_API=1 cargo test -p giveway-tests --test documents the_public_api",
    );
}

#[test]
fn every_list_of_the_api_has_its_crate() {
    let crates: BTreeSet<_> = workspace::packages().iter().filter(|package| package.public).map(|p| &*p.name).collect();
    let stray: Vec<_> = workspace::files_ending(".txt")
        .filter_map(|path| path.strip_prefix("docs/api/"))
        .filter(|file| !crates.contains(file.trim_end_matches(".txt")))
        .map(|file| format!("docs/api/{file}: there is no public crate of that name"))
        .collect();
    crate::expect_none(&stray, "Delete these lists.");
}

#[test]
fn a_changed_signature_is_shown_as_both_lines() {
    let before = "pub fn a()\npub fn b(n: u8)\n";
    let now = "pub fn a()\npub fn b(n: u16)\n";
    assert_eq!(difference(before, now), ["+ pub fn b(n: u16)", "- pub fn b(n: u8)"]);
    assert!(difference(now, now).is_empty());
}
