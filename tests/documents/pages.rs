//! The code on the pages is compiled and run: `tests/src/pages.rs` includes them.

use crate::markdown::{self, Line};
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
