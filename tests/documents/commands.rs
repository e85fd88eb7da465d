//! Commands that pages and comments name: the packages, targets, features and tests in them exist.

use crate::markdown::{self, Line};
use crate::names::{Prose, prose};
use crate::vocabulary::Vocabulary;
use crate::workspace::{self, Package};

/// The commands of cargo that work on this workspace.
const ON_US: [&str; 8] = ["run", "test", "bench", "build", "check", "clippy", "doc", "rustdoc"];

/// The options that name a target, with its kind.
const TARGETS: [(&str, &str); 4] =
    [("--bin", "bin"), ("--example", "example"), ("--test", "test"), ("--bench", "bench")];

/// Whether a code span is a command, or options of one.
pub(crate) fn is_command(span: &str) -> bool {
    span.split(' ').any(|word| word == "cargo") || span.starts_with("--")
}

/// What is wrong with a command, or with options of one.
fn faults(command: &str) -> Vec<String> {
    let words: Vec<_> =
        command.split_whitespace().take_while(|word| !["|", "&&", ";", ">", "#"].contains(word)).collect();
    let cargo = words.iter().position(|word| *word == "cargo");
    let verb = cargo.and_then(|at| words[at + 1..].iter().find(|word| !word.starts_with(['+', '-'])));
    if verb.is_some_and(|verb| !ON_US.contains(verb)) {
        return Vec::new();
    }
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let value = |options: &[&str]| {
        let position = words[..end].iter().position(|word| options.contains(word));
        position.and_then(|at| words.get(at + 1)).copied()
    };
    let mut faults = Vec::new();
    let packages: Vec<&Package> = match value(&["-p", "--package"]) {
        None => workspace::packages().iter().collect(),
        Some(name) => workspace::packages().iter().filter(|package| package.name == name).collect(),
    };
    if packages.is_empty() {
        faults.push("there is no such package in the workspace".into());
    }
    for (option, kind) in TARGETS {
        let Some(name) = value(&[option]).filter(|name| !name.starts_with(['<', '-', '…'])) else { continue };
        let wanted = (kind.to_owned(), name.to_owned());
        if !packages.iter().any(|package| package.targets.contains(&wanted)) {
            faults.push(format!("there is no {kind} `{name}`"));
        }
    }
    for feature in value(&["--features", "-F"]).into_iter().flat_map(|list| list.split(',')) {
        let name = feature.rsplit('/').next().unwrap_or(feature);
        if !workspace::packages().iter().any(|package| package.features.contains(name)) {
            faults.push(format!("there is no feature `{name}`"));
        }
    }
    if verb == Some(&"test") {
        for filter in words.iter().filter(|word| word.contains('_') && !word.contains(['-', '=', '/', '"', '…', '.']))
        {
            let part = filter.rsplit("::").next().unwrap_or(filter);
            let is_target = packages.iter().any(|package| package.targets.iter().any(|(_, name)| name == part));
            if !is_target && !Vocabulary::ours().has_part(part) {
                faults.push(format!("no test has `{part}` in its name"));
            }
        }
    }
    for (variable, _) in words.iter().take(cargo.unwrap_or(0)).filter_map(|word| word.split_once('=')) {
        if variable.starts_with("GIVEWAY_") && !Vocabulary::ours().has(variable) {
            faults.push(format!("nothing reads the variable `{variable}`"));
        }
    }
    faults
}

/// The commands in a text, with their lines: code spans, and lines of shell.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<_> = markdown::code_spans(text).into_iter().filter(|(_, span)| is_command(span)).collect();
    let mut continued: Option<(usize, String)> = None;
    for (number, line) in markdown::lines(text) {
        let Line::Code { language: "sh" | "bash" | "console" | "text" | "", line } = line else { continue };
        let (start, before) = continued.take().unwrap_or((number, String::new()));
        let whole = format!("{before}{}", line.trim_start_matches("$ "));
        match whole.strip_suffix('\\') {
            Some(open) => continued = Some((start, open.to_owned())),
            None if whole.split(' ').any(|word| word == "cargo") => found.push((start, whole)),
            None => {}
        }
    }
    found
}

#[test]
fn every_command_names_what_exists() {
    let mut complaints = Vec::new();
    for Prose { path, line, text } in prose() {
        for (offset, command) in commands(&text) {
            let place = line + offset - 1;
            complaints
                .extend(faults(&command).into_iter().map(|fault| format!("{path}:{place}: `{command}`: {fault}")));
        }
    }
    crate::expect_none(&complaints, "Write the command that works.");
}

#[test]
fn commands_that_cannot_work_are_noticed() {
    assert!(faults("cargo run --release -p giveway-benches --bin give_way -- requests").is_empty());
    assert!(faults("cargo install whatever --bin any").is_empty());
    assert!(!faults("cargo run -p giveway-nowhere").is_empty());
    assert!(!faults("cargo run -p giveway-benches --bin no_such").is_empty());
    assert!(!faults("--example no_such").is_empty());
    assert!(!faults("cargo test --features no-such").is_empty());
    assert!(!faults(concat!("cargo test no_such", "_test_at_all")).is_empty());
    assert!(!faults(concat!("GIVEWAY", "_NOTHING=1 cargo test")).is_empty());
    assert_eq!(commands("```sh\ncargo run \\\n  --bin x\n```\n"), [(2, "cargo run   --bin x".to_owned())]);
}
