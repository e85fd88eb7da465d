//! No stale names: what comments, messages and pages name in backticks exists.
//!
//! A name is looked at if it looks like code: a word by itself; among others one with an underscore, in capitals or
//! CamelCase, a path, a call, a macro; a file. It has to be a word of the code outside of comments; of `Type::member` the type has to have the member. What is
//! other people's, and not in our code either, stands in `foreign_names.txt`.
//!
//! Not looked at: plain words in an expression, blocks of code (the compiler's), releases of the changelog that are out.

use crate::source::{Kind, is_identifier, pieces};
use crate::vocabulary::Vocabulary;
use crate::{commands, markdown, workspace};
use std::collections::{BTreeMap, BTreeSet};

const FOREIGN: &str = "tests/documents/foreign_names.txt";

/// A text in which names may stand, and the line where it begins.
#[derive(Debug)]
pub(crate) struct Prose {
    pub(crate) path: &'static str,
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Everything that is written for people: pages, comments, and messages in strings.
pub(crate) fn prose() -> Vec<Prose> {
    let mut found = Vec::new();
    for path in workspace::files_ending(".md") {
        let mut text = workspace::read(path);
        if path == "CHANGELOG.md" {
            text.truncate(end_of_unreleased(&text));
        }
        found.push(Prose { path, line: 1, text });
    }
    for path in workspace::files_ending(".rs") {
        for piece in pieces(&workspace::read(path)) {
            // The checks' own strings are what they are tried on.
            let trial = piece.kind == Kind::String && path.starts_with("tests/documents/");
            if piece.kind != Kind::Code && !trial {
                // A string that goes on in the next line leaves out its break and what comes before the rest.
                let text = piece.text.replace("\\\n", " \n");
                found.push(Prose { path, line: piece.line, text });
            }
        }
    }
    found
}

/// What has been released may name what is gone since.
fn end_of_unreleased(changelog: &str) -> usize {
    let mut releases = changelog.match_indices("\n## ").map(|(at, _)| at);
    let first = releases.next();
    let is_open = first.is_some_and(|at| changelog[at..].starts_with("\n## Unreleased"));
    if is_open { releases.next().unwrap_or(changelog.len()) } else { first.unwrap_or(changelog.len()) }
}

/// A name as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// `a::b::c`.
    Path(String),
    /// `stale_names_…`: something begins like this.
    Start(String),
    /// `sched/idle.rs`, `docs/`.
    File(String),
}

/// The names in a code span that look like code.
fn names(span: &str) -> Vec<Name> {
    if let Some(file) = file(span) {
        return vec![Name::File(file.to_owned())];
    }
    if commands::is_command(span) || span.contains("://") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let chars: Vec<char> = span.chars().collect();
    let is_word = |char: &char| char.is_alphanumeric() || *char == '_';
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == '"' {
            // A string names nothing.
            at += 1 + chars[at + 1..].iter().take_while(|char| **char != '"').count() + 1;
            continue;
        }
        if !is_word(&chars[at]) {
            at += 1;
            continue;
        }
        let lifetime = at > 0 && chars[at - 1] == '\'';
        // A path: words with `::` between them.
        let mut path = String::new();
        loop {
            let word: String = chars[at..].iter().take_while(|char| is_word(char)).collect();
            at += word.chars().count();
            path.push_str(&word);
            if chars[at..].starts_with(&[':', ':']) && chars.get(at + 2).is_some_and(is_word) {
                path.push_str("::");
                at += 2;
            } else {
                break;
            }
        }
        if chars[at..].starts_with(&[':', ':', '{']) {
            let inner: String = chars[at + 3..].iter().take_while(|char| **char != '}').collect();
            at += 3 + inner.chars().count();
            let items = inner.split(',').map(str::trim).filter(|item| is_identifier(item) && *item != "self");
            found.extend(items.map(|item| Name::Path(format!("{path}::{item}"))));
            continue;
        }
        let next = chars.get(at);
        let applied = next == Some(&'(') || next == Some(&'!') && chars.get(at + 1) != Some(&'=');
        let words_fine = path.split("::").all(is_identifier);
        if lifetime || !words_fine {
            continue;
        }
        if path.ends_with('_') || next == Some(&'…') && path.contains('_') {
            found.push(Name::Start(path));
        } else if applied || looks_like_code(&path) || path == span && path.len() > 2 {
            found.push(Name::Path(path));
        }
    }
    found
}

/// With an underscore inside, CamelCase or CAPITALS, or a path. One letter is a parameter.
fn looks_like_code(path: &str) -> bool {
    let inside = path.trim_matches('_');
    path.contains("::") || inside.len() > 1 && (inside.contains('_') || inside.starts_with(char::is_uppercase))
}

/// A span that is a file of the repository, or a folder with a slash at its end.
fn file(span: &str) -> Option<&str> {
    let plain = |char: char| char.is_ascii_alphanumeric() || "._-/".contains(char);
    let ends = [".rs", ".md", ".toml", ".txt", ".yml", ".sh", "/"];
    // Absolute ones are the system's.
    let ours = !span.starts_with('/')
        && span.chars().all(plain)
        && ends.iter().any(|end| span.len() > end.len() && span.ends_with(end));
    (ours || span.starts_with(".ci/")).then_some(span)
}

/// What is wrong with a name, if anything is.
fn fault(name: &Name) -> Option<String> {
    let ours = Vocabulary::ours();
    match name {
        Name::Path(path) => ours.fault(&path.split("::").collect::<Vec<_>>()),
        Name::Start(start) => {
            let last = start.rsplit("::").next().unwrap_or(start);
            (!ours.has_start(last)).then(|| "no name in the code begins like that".into())
        }
        Name::File(file) => {
            let ending = format!("/{}", file.trim_start_matches("../"));
            let is_it = |path: &String| {
                format!("/{path}").ends_with(&ending) || ending.ends_with('/') && format!("/{path}").contains(&ending)
            };
            (!workspace::files().iter().any(is_it)).then(|| "there is no such file".into())
        }
    }
}

fn written(name: &Name) -> &str {
    match name {
        Name::Path(name) | Name::Start(name) | Name::File(name) => name,
    }
}

/// All names that no code has, with where they stand and what is wrong with them.
fn unknown() -> BTreeMap<String, Vec<String>> {
    let mut unknown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Prose { path, line, text } in prose() {
        for (offset, span) in markdown::code_spans(&text) {
            for name in names(&span) {
                if let Some(fault) = fault(&name) {
                    let complaint = format!("{path}:{}: `{}`: {fault}", line + offset - 1, written(&name));
                    unknown.entry(written(&name).to_owned()).or_default().push(complaint);
                }
            }
        }
    }
    unknown
}

#[test]
fn every_name_in_a_comment_or_page_exists() {
    let foreign = workspace::read(FOREIGN);
    let foreign: BTreeSet<_> = foreign.lines().collect();
    let complaints: Vec<_> =
        unknown().into_iter().filter(|(name, _)| !foreign.contains(&**name)).flat_map(|(_, places)| places).collect();
    crate::expect_none(
        &complaints,
        &format!(
            "If the thing was renamed, write its new name; if it is gone, the sentence is about nothing. Only what is not \
             ours (a system call, another project's function) goes into {FOREIGN}, in its place in the order."
        ),
    );
}

#[test]
fn every_foreign_name_is_still_needed_and_in_order() {
    let foreign = workspace::read(FOREIGN);
    let foreign: Vec<_> = foreign.lines().collect();
    let unknown = unknown();
    let stray: Vec<_> = foreign
        .iter()
        .filter(|name| !unknown.contains_key(**name))
        .map(|name| format!("{FOREIGN}: `{name}` is named nowhere, or is in the code by now"))
        .collect();
    crate::expect_none(&stray, "Delete these lines.");
    let mut sorted = foreign.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(sorted == foreign, "{FOREIGN} is not in order, or has a name twice; `LC_ALL=C sort -u` mends it");
}

#[test]
fn names_are_told_from_words() {
    let paths = |span| names(span).iter().map(|name| written(name).to_owned()).collect::<Vec<_>>();
    assert_eq!(paths("Builder::new().workers(n).stack_size"), ["Builder::new", "workers", "stack_size"]);
    assert_eq!(paths("task::{self, JoinHandle, Id}"), ["task::JoinHandle", "task::Id"]);
    assert_eq!(paths("len / workers + 1"), [""; 0]);
    assert_eq!(paths("workers"), ["workers"]);
    assert_eq!(paths("'static + T, 0_u64, giveway-yield"), [""; 0]);
    assert_eq!(paths("select!"), ["select"]);
    assert_eq!(names("a_test_…"), [Name::Start("a_test_".into())]);
    assert_eq!(names("sched/idle.rs"), [Name::File("sched/idle.rs".into())]);
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
    assert!(!stale("tests/documents/names.rs"));
    assert!(!stale("std::no::matter"));
}

#[test]
fn only_what_is_unreleased_is_checked() {
    let changelog = "# Changelog\n\n## Unreleased\n\nnew\n\n## 0.1.0\n\nold\n";
    assert_eq!(&changelog[..end_of_unreleased(changelog)], "# Changelog\n\n## Unreleased\n\nnew\n");
    assert_eq!(end_of_unreleased("# Changelog\n\n## 0.1.0\n"), 12);
}
