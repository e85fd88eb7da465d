//! Under "Not guaranteed" stands what is not guaranteed, and nothing else.

use crate::source::{self, Kind};
use crate::workspace;

/// What such a paragraph, or item of a list, begins with: the rest of "It is not guaranteed …".
const BEGINNINGS: [&str; 5] = ["That ", "Which ", "When ", "Fairness ", "Nor "];

/// The paragraphs and items of lists under the heading, if a comment has it.
fn not_guaranteed(comment: &str) -> Vec<String> {
    let under = comment.lines().skip_while(|line| !is_heading(line)).skip(1);
    let section = under.take_while(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let paragraphs = section.split("\n\n").flat_map(|paragraph| paragraph.split("\n- "));
    paragraphs.map(|text| text.trim().trim_start_matches("- ").to_owned()).filter(|text| !text.is_empty()).collect()
}

fn is_heading(line: &str) -> bool {
    line.starts_with('#') && line.to_lowercase().contains("not guaranteed")
}

#[test]
fn under_not_guaranteed_stands_what_is_not() {
    let mut complaints = Vec::new();
    for path in workspace::files_ending(".rs").filter(|path| !path.starts_with("tests/")) {
        for comment in source::pieces(&workspace::read(path)).iter().filter(|piece| piece.kind == Kind::Comment) {
            let wrong = |text: &String| !BEGINNINGS.iter().any(|beginning| text.starts_with(beginning));
            let texts = not_guaranteed(&comment.text).into_iter().filter(wrong);
            complaints.extend(texts.map(|text| format!("{path}:{}: {text}", comment.line)));
        }
    }
    crate::expect_none(
        &complaints,
        &format!("Begin each with one of {BEGINNINGS:?}, so that it reads as what is not guaranteed."),
    );
}

#[test]
fn items_are_found_under_their_heading() {
    let comment = "Line.\n\n# Not guaranteed\n\n- That a\n  or b.\n- C is.\n\n# Panics\n\nNever.";
    assert_eq!(not_guaranteed(comment), ["That a\n  or b.", "C is."]);
    assert!(not_guaranteed("# Panics\n\nNever.").is_empty());
}
