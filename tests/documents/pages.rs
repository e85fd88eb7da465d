//! The code on the pages is compiled and run: `tests/src/pages.rs` includes them.

use crate::markdown::{self, Line};
use crate::source::{self, Kind};
use crate::workspace;

const INCLUDES: &str = "tests/src/pages.rs";

/// How a page is written there.
fn include(page: &str) -> String {
    format!("include_str!(\"../../{page}\")")
}

/// Whether rustdoc takes a block for Rust.
fn is_rust(language: &str) -> bool {
    language.is_empty() || language.split([',', ' ']).any(|word| word == "rust")
}

#[test]
fn every_page_of_the_book_is_compiled() {
    let includes = workspace::read(INCLUDES);
    let is_of_the_book = |path: &&str| *path == "README.md" || path.starts_with("docs/");
    let missing: Vec<_> = workspace::files_ending(".md")
        .filter(is_of_the_book)
        .filter(|page| !includes.contains(&include(page)))
        .map(|page| format!("{INCLUDES}: `{page}` is not included"))
        .collect();
    crate::expect_none(&missing, "Add a line for each, as for the pages that are there.");
}

#[test]
fn no_block_of_rust_is_left_uncompiled() {
    let includes = workspace::read(INCLUDES);
    let mut complaints = Vec::new();
    for page in workspace::files_ending(".md") {
        let included = includes.contains(&include(page));
        for (line, kind) in markdown::lines(&workspace::read(page)) {
            let Line::FenceStart(language) = kind else { continue };
            if language.is_empty() {
                complaints
                    .push(format!("{page}:{line}: a block without a language counts as Rust; a drawing is `text`"));
            } else if is_rust(language) && !included {
                complaints.push(format!("{page}:{line}: nobody compiles this; include the page in {INCLUDES}"));
            } else if is_rust(language) && language.contains("ignore") {
                complaints.push(format!("{page}:{line}: `ignore` is not compiled; `no_run` is"));
            }
        }
    }
    crate::expect_none(&complaints, "Every block of Rust on a page compiles, and runs unless it says `no_run`.");
}

#[test]
fn the_page_of_benchmarks_has_its_table() {
    let page = workspace::read("docs/benchmarks.md");
    let (_, rest) = page.split_once("from here -->").expect("a mark where it begins");
    let (table, _) = rest.split_once("<!-- to here -->").expect("a mark where it ends");
    let lines = table.lines().filter(|line| line.starts_with("| ")).count();
    assert!(
        lines > 20,
        "{lines} lines; `cargo run --release -p giveway-benches -- --into docs/benchmarks.md` makes them"
    );
}

/// The file whose test runs the loop that pages show.
const ACCEPTS: &str = "tests/integration/io_accept.rs";

/// The blocks of code in a text.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    for (_, line) in markdown::lines(text) {
        match (line, blocks.last_mut()) {
            (Line::FenceStart(_), _) => blocks.push(String::new()),
            (Line::Code { line, .. }, Some(block)) => *block += &format!("{line}\n"),
            _ => {}
        }
    }
    blocks
}

/// With one space between any two words.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A server that ends when it is out of descriptors does not come back when there are some again.
#[test]
fn every_server_that_is_shown_goes_on_after_a_failed_accept() {
    let tested = flat(&workspace::read(ACCEPTS));
    let begin = tested.find("// It was given up").expect("the loop is in there");
    let length = tested[begin..].find(".await; }").expect("it pauses");
    let answer = &tested[begin..begin + length];
    let is_shown = |path: &&str| !path.starts_with("tests/") && !path.starts_with("benches/");
    let mut complaints = Vec::new();
    for path in workspace::files_ending(".md").chain(workspace::files_ending(".rs")).filter(is_shown) {
        let text = workspace::read(path);
        let shown = if path.ends_with(".md") {
            blocks(&text)
        } else {
            let comments = source::pieces(&text).into_iter().filter(|piece| piece.kind == Kind::Comment);
            let program = path.starts_with("examples/").then(|| text.clone());
            comments.flat_map(|comment| blocks(&comment.text)).chain(program).collect()
        };
        let is_server = |code: &&String| {
            let loops = code.find("loop {").or_else(|| code.find("while let "));
            loops.is_some_and(|at| code[at..].contains(".accept().await") || code.contains(".incoming()"))
        };
        let ends = |code: &&String| !flat(code).contains(answer);
        complaints
            .extend(shown.iter().filter(is_server).filter(ends).map(|_| format!("{path}: a loop around `accept`")));
    }
    crate::expect_none(&complaints, &format!("Treat errors as the loop in {ACCEPTS} does, by the letter."));
}
