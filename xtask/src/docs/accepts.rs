//! A server that ends when it is out of descriptors does not come back when there are some again.
//! Every server that is shown treats errors of `accept` as a tested loop does, to the letter.

use super::prose::{Markdown, PROSE};
use crate::workspace::{files_ending, read};

/// The file whose test runs the loop.
const TESTED: &str = "tests/integration/io_accept.rs";

/// Returns the pages, comments and examples whose loop ends at an error.
pub(crate) fn check() -> Vec<String> {
    let tested = flat(&read(TESTED));
    let begin = tested.find("// The client left before").expect("the loop is there");
    let length = tested[begin..].find(".await; }").expect("the loop pauses");
    let answer = &tested[begin..begin + length];
    let is_shown = |path: &str| !path.starts_with("tests/") && !path.starts_with("benches/");
    let pages =
        PROSE.iter().flat_map(|prose| blocks(&prose.markdown).map(|code| (prose.path, code)));
    let examples = files_ending(".rs")
        .filter(|path| path.starts_with("examples/"))
        .map(|path| (path, read(path)));
    let shown = pages.chain(examples).filter(|(path, _)| is_shown(path));
    let ends = |code: &str| accepts_in_a_loop(code) && !flat(code).contains(answer);
    let found = shown.filter(|(_, code)| ends(code));
    found
        .map(|(path, _)| format!("{path}: a loop around `accept` that is not that of {TESTED}"))
        .collect()
}

fn blocks(markdown: &Markdown) -> impl Iterator<Item = String> {
    markdown.blocks.iter().map(|(_, _, code)| code.clone())
}

fn accepts_in_a_loop(code: &str) -> bool {
    let start = code.find("loop {").or_else(|| code.find("while let "));
    start.is_some_and(|at| code[at..].contains(".accept().await") || code.contains(".incoming()"))
}

/// Returns a text with one space between any two words.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_loop_around_accept_is_told_from_one_call() {
    assert!(accepts_in_a_loop("loop {\n    let (stream, _) = listener.accept().await?;\n}"));
    assert!(!accepts_in_a_loop("let (stream, _) = listener.accept().await?;"));
}
