//! No stale names: what comments, messages and pages name in backticks exists.
//!
//! Looked at is what reads as code: a word by itself, and among others one with an underscore, in
//! capitals or CamelCase, a path, a call, a macro; and a file. It must be a word of the code; of
//! `Type::member` the type must have the member. What belongs to others (a system call, another
//! project's function) stands in `foreign_names.txt`.

use super::commands;
use super::prose::{PROSE, Prose};
use super::vocabulary::Vocabulary;
use crate::workspace::{FILES, read};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

const FOREIGN: &str = "xtask/src/docs/foreign_names.txt";

pub(crate) const REMEDY: &str = "If the thing was renamed, write its new name; if it is gone, so \
                                 is the reason for the sentence. Only what is not ours goes into \
                                 xtask/src/docs/foreign_names.txt, in its place in the order.";

/// Returns the names that no code has, and lines of the list of foreign names without a use.
pub(crate) fn check() -> Vec<String> {
    let unknown = unknown();
    let foreign = read(FOREIGN);
    let foreign: Vec<_> = foreign.lines().collect();
    let mut sorted = foreign.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let stray = foreign.iter().filter(|name| !unknown.contains_key(**name));
    let mut complaints: Vec<_> = stray
        .map(|name| {
            format!("{FOREIGN}: `{name}` is named nowhere, or the code has it: delete the line")
        })
        .collect();
    complaints.extend(
        (sorted != foreign)
            .then(|| format!("{FOREIGN} is not sorted: `LC_ALL=C sort -u` mends it")),
    );
    let foreign: BTreeSet<_> = foreign.into_iter().collect();
    complaints.extend(
        unknown
            .iter()
            .filter(|(name, _)| !foreign.contains(&***name))
            .flat_map(|(_, places)| places.clone()),
    );
    complaints
}

/// Returns the names that no code has, with where they stand and what is wrong with them.
fn unknown() -> BTreeMap<String, Vec<String>> {
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Prose { path, line, markdown } in &*PROSE {
        for (offset, span) in &markdown.spans {
            for (name, fault) in
                names(span).into_iter().filter_map(|name| Some((name.clone(), fault(&name)?)))
            {
                let complaint = format!("{path}:{}: `{name}`: {fault}", line + offset - 1);
                unknown.entry(name).or_default().push(complaint);
            }
        }
    }
    unknown
}

/// A string, or a path with what stands around it.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#""[^"]*"|(?P<lifetime>')?\b(?P<path>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)(?:::\{(?P<items>[^}]*)\})?(?P<next>!=|[(!…])?"#)
        .expect("a regular expression")
});

/// Returns the names in a code span that read as code. One that ends with `…` begins a name.
fn names(span: &str) -> Vec<String> {
    if is_file(span) {
        return vec![span.to_owned()];
    }
    if commands::is_command(span) || span.contains("://") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in NAME.captures_iter(span) {
        let Some(path) =
            name.name("path").filter(|_| name.name("lifetime").is_none()).map(|path| path.as_str())
        else {
            continue;
        };
        let next = name.name("next").map(|next| next.as_str());
        if let Some(items) = name.name("items") {
            let items = items
                .as_str()
                .split(',')
                .map(str::trim)
                .filter(|item| !["", "self"].contains(item));
            found.extend(items.map(|item| format!("{path}::{item}")));
        } else if path.ends_with('_') || next == Some("…") && path.contains('_') {
            found.push(format!("{path}…"));
        } else if matches!(next, Some("(" | "!"))
            || looks_like_code(path)
            || path == span && path.len() > 2
        {
            found.push(path.to_owned());
        }
    }
    found
}

/// Whether a word has an underscore inside, is in CamelCase or CAPITALS, or is a path.
fn looks_like_code(path: &str) -> bool {
    let inside = path.trim_matches('_');
    path.contains("::")
        || inside.len() > 1 && (inside.contains('_') || inside.starts_with(char::is_uppercase))
}

/// Whether a span is a file of the repository, or a folder with a slash at its end.
fn is_file(span: &str) -> bool {
    let plain = |char: char| char.is_ascii_alphanumeric() || "._-/".contains(char);
    let ends = [".rs", ".md", ".toml", ".txt", ".yml", ".sh", "/"];
    // Absolute paths are the system's.
    !span.starts_with('/')
        && span.chars().all(plain)
        && (span.starts_with(".ci/")
            || ends.iter().any(|end| span.len() > end.len() && span.ends_with(end)))
}

/// Returns what is wrong with a name.
fn fault(name: &str) -> Option<String> {
    let ours = Vocabulary::ours();
    if is_file(name) {
        let ending = format!("/{}", name.trim_start_matches("../"));
        let is_it = |path: &String| {
            let path = format!("/{path}");
            path.ends_with(&ending) || ending.ends_with('/') && path.contains(&ending)
        };
        return (!FILES.iter().any(is_it)).then(|| "there is no such file".to_owned());
    }
    if let Some(start) = name.strip_suffix('…') {
        let last = start.rsplit("::").next().unwrap_or(start);
        return (!ours.has_start(last)).then(|| "no name in the code begins like that".to_owned());
    }
    ours.fault(&name.split("::").collect::<Vec<_>>())
}

#[test]
fn names_are_told_from_words() {
    assert_eq!(
        names("Builder::new().workers(n).stack_size"),
        ["Builder::new", "workers", "stack_size"]
    );
    assert_eq!(names("task::{self, JoinHandle, Id}"), ["task::JoinHandle", "task::Id"]);
    assert_eq!(names("len / workers + 1"), [""; 0]);
    assert_eq!(names("workers"), ["workers"]);
    assert_eq!(names("'static + T, 0_u64, giveway-yield"), [""; 0]);
    assert_eq!(names("select!"), ["select"]);
    assert_eq!(names("a_test_…"), ["a_test_…"]);
    assert_eq!(names("sched/idle.rs"), ["sched/idle.rs"]);
}

#[test]
fn stale_names_are_noticed() {
    let stale = |span| names(span).iter().any(|name| fault(name).is_some());
    // In two parts, so that the code does not have these names after all.
    assert!(stale(concat!("no_such", "_function")));
    assert!(stale("Builder::no_workers"));
    assert!(stale("Handle::no_metrics"));
    assert!(stale("sched/no_such_file.rs"));
    assert!(stale(concat!("no_such", "_test_…")));
    assert!(stale("giveway::no_such_item"));
    assert!(!stale("Builder::workers"));
    assert!(!stale("giveway::task::JoinHandle::abort"));
    assert!(!stale("xtask/src/docs/names.rs"));
    assert!(!stale("std::no::matter"));
}
