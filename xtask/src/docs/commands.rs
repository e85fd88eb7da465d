//! Commands that pages and comments name: the packages, targets, features and tests in them exist.

use super::prose::{Markdown, PROSE, Prose};
use super::vocabulary::Vocabulary;
use crate::workspace::packages;
use cargo_metadata::Package;

/// The commands of cargo that work on this workspace.
const ON_US: [&str; 8] = ["run", "test", "bench", "build", "check", "clippy", "doc", "rustdoc"];

/// Returns the commands that cannot work.
pub(crate) fn check() -> Vec<String> {
    let mut complaints = Vec::new();
    for Prose { path, line, markdown } in &*PROSE {
        for (offset, command) in commands(markdown) {
            let place = line + offset - 1;
            let faults = faults(&command).into_iter();
            complaints.extend(faults.map(|fault| format!("{path}:{place}: `{command}`: {fault}")));
        }
    }
    complaints
}

/// Whether a code span is a command, or options of one.
pub(crate) fn is_command(span: &str) -> bool {
    span.split(' ').any(|word| word == "cargo") || span.starts_with("--")
}

/// Returns the commands in a text, with their lines: code spans, and lines of shell.
fn commands(markdown: &Markdown) -> Vec<(usize, String)> {
    let mut commands: Vec<_> =
        markdown.spans.iter().filter(|(_, span)| is_command(span)).cloned().collect();
    for (line, language, block) in &markdown.blocks {
        if !["sh", "bash", "console", "text"].contains(&&**language) {
            continue;
        }
        let joined = block.replace("\\\n", "");
        let lines = joined.lines().map(|line| line.trim_start_matches("$ "));
        commands.extend(
            lines
                .filter(|text| text.split(' ').any(|word| word == "cargo"))
                .map(|text| (*line, text.to_owned())),
        );
    }
    commands
}

/// Returns what is wrong with a command, or with options of one.
fn faults(command: &str) -> Vec<String> {
    let words: Vec<_> = command
        .split_whitespace()
        .take_while(|word| !["|", "&&", ";", ">", "#"].contains(word))
        .collect();
    let cargo = words.iter().position(|word| *word == "cargo");
    let verb =
        cargo.and_then(|at| words[at + 1..].iter().find(|word| !word.starts_with(['+', '-'])));
    if verb.is_some_and(|verb| !ON_US.contains(verb)) {
        return Vec::new();
    }
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let value = |options: &[&str]| {
        let position = words[..end].iter().position(|word| options.contains(word));
        position.and_then(|at| words.get(at + 1)).copied()
    };
    let wanted = value(&["-p", "--package"]);
    let packages: Vec<&Package> =
        packages().iter().filter(|one| wanted.is_none_or(|name| *one.name == name)).collect();
    let mut faults = Vec::new();
    if packages.is_empty() {
        faults.push("there is no such package in the workspace".to_owned());
    }
    let targets = || packages.iter().flat_map(|package| &package.targets);
    for kind in ["bin", "example", "test", "bench"] {
        let named =
            value(&[&format!("--{kind}")]).filter(|name| !name.starts_with(['<', '-', '…']));
        if let Some(name) = named
            && !targets().any(|target| target.is_kind(kind.into()) && target.name == name)
        {
            faults.push(format!("there is no {kind} `{name}`"));
        }
    }
    for feature in value(&["--features", "-F"]).into_iter().flat_map(|list| list.split(',')) {
        let name = feature.rsplit('/').next().unwrap_or(feature);
        if !crate::workspace::packages().iter().any(|package| package.features.contains_key(name)) {
            faults.push(format!("there is no feature `{name}`"));
        }
    }
    if verb == Some(&"test") {
        let is_filter =
            |word: &&&str| word.contains('_') && !word.contains(['-', '=', '/', '"', '…', '.']);
        for part in
            words.iter().filter(is_filter).map(|word| word.rsplit("::").next().unwrap_or(word))
        {
            if !targets().any(|target| target.name == part) && !Vocabulary::ours().has_part(part) {
                faults.push(format!("no test has `{part}` in its name"));
            }
        }
    }
    for (variable, _) in
        words.iter().take(cargo.unwrap_or(0)).filter_map(|word| word.split_once('='))
    {
        if variable.starts_with("GIVEWAY_") && !Vocabulary::ours().has(variable) {
            faults.push(format!("nothing reads the variable `{variable}`"));
        }
    }
    faults
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
    let page = Markdown::parse("```sh\ncargo run \\\n  --bin x\n```\n");
    assert_eq!(commands(&page), [(1, "cargo run   --bin x".to_owned())]);
}
