//! The code on the pages is compiled and run: `tests/src/pages.rs` includes them as doc tests.

use super::prose::Markdown;
use crate::workspace::{files_ending, read};

const INCLUDES: &str = "tests/src/pages.rs";

/// Returns the pages and blocks that are not compiled.
pub(crate) fn check() -> Vec<String> {
    let includes = read(INCLUDES);
    let mut complaints = Vec::new();
    for page in files_ending(".md") {
        let included = includes.contains(&format!("include_str!(\"../../{page}\")"));
        if (page == "README.md" || page.starts_with("docs/")) && !included {
            complaints.push(format!("{INCLUDES}: `{page}` is not included"));
        }
        for (line, language, _) in Markdown::parse(&read(page)).blocks {
            let is_rust = language.split([',', ' ']).any(|word| word == "rust");
            let fault = match &*language {
                "" => "a block without a language counts as Rust; a drawing is `text`",
                _ if is_rust && !included => {
                    "this is not compiled; include the page in tests/src/pages.rs"
                }
                _ if is_rust && language.contains("ignore") => {
                    "`ignore` is not compiled; `no_run` is"
                }
                _ => continue,
            };
            complaints.push(format!("{page}:{line}: {fault}"));
        }
    }
    complaints
}
