//! As much of Markdown as the checks need: fences, code spans, links, headings.

use std::collections::BTreeMap;

/// A line of a page, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Text(&'a str),
    /// With what stands behind the backticks.
    FenceStart(&'a str),
    /// A line of a block of code, with the block's language.
    Code {
        language: &'a str,
        line: &'a str,
    },
    FenceEnd,
}

/// The lines of a page, from 1.
pub(crate) fn lines(page: &str) -> impl Iterator<Item = (usize, Line<'_>)> {
    let mut open: Option<(&str, &str)> = None;
    page.lines().enumerate().map(move |(index, line)| {
        let trimmed = line.trim_start();
        let rest = trimmed.trim_start_matches('`');
        let ticks = &trimmed[..trimmed.len() - rest.len()];
        let kind = match open {
            None if ticks.len() >= 3 && !rest.contains('`') => {
                open = Some((ticks, rest.trim()));
                Line::FenceStart(rest.trim())
            }
            None => Line::Text(line),
            Some((fence, _)) if ticks.len() >= fence.len() && rest.trim().is_empty() => {
                open = None;
                Line::FenceEnd
            }
            Some((_, language)) => Line::Code { language, line },
        };
        (index + 1, kind)
    })
}

/// The page with every line of a block replaced by an empty one: the prose, at the same lines.
pub(crate) fn prose(page: &str) -> String {
    let keep = |(_, line)| if let Line::Text(text) = line { text } else { "" };
    lines(page).map(keep).collect::<Vec<_>>().join("\n")
}

/// What stands in backticks in a page's prose, each with its line. A span may go on in the next line, not in the next
/// paragraph.
pub(crate) fn code_spans(page: &str) -> Vec<(usize, String)> {
    let prose = prose(page);
    spans(&prose)
        .into_iter()
        .map(|(start, end)| {
            let text = prose[start..end].trim_matches('`').split_whitespace().collect::<Vec<_>>().join(" ");
            (line_of(&prose, start), text)
        })
        .collect()
}

/// Where code spans start and end, their backticks included.
fn spans(prose: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = prose[at..].find('`').map(|offset| at + offset) {
        let ticks = prose[start..].len() - prose[start..].trim_start_matches('`').len();
        let fence = &prose[start..start + ticks];
        let body = start + ticks;
        let paragraph = prose[body..].find("\n\n").map_or(prose.len(), |offset| body + offset);
        match prose[body..paragraph].find(fence) {
            Some(length) => {
                at = body + length + ticks;
                found.push((start, at));
            }
            None => at = body,
        }
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// A link, to what is written in its parentheses, or else in its brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    /// Where it begins, in bytes.
    pub(crate) start: usize,
    pub(crate) target: String,
    /// It has parentheses, or is a definition, or stands in angle brackets. Otherwise it may be no link at all.
    pub(crate) explicit: bool,
}

/// The links in a page's prose.
pub(crate) fn links(page: &str) -> Vec<Link> {
    let text = blank_blocks(page);
    let spans = spans(&text);
    let in_code = |at: usize| spans.iter().any(|(start, end)| (*start..*end).contains(&at));
    let mut found = Vec::new();
    let mut push = |start, target: &str, explicit| {
        found.push(Link { line: line_of(&text, start), start, target: target.trim().to_owned(), explicit });
    };
    for (start, _) in text.match_indices('[').filter(|(at, _)| !in_code(*at)) {
        let Some(end) = closing(&text[start..], '[', ']').map(|offset| start + offset) else { continue };
        let (label, behind) = (&text[start + 1..end], &text[end + 1..]);
        if behind.starts_with('(') {
            let Some(length) = closing(behind, '(', ')') else { continue };
            // A title may follow the target.
            push(start, behind[1..length].split_whitespace().next().unwrap_or_default(), true);
        } else if let Some(target) = behind.strip_prefix(": ").filter(|_| start == 0 || text[..start].ends_with('\n')) {
            push(start, target.lines().next().unwrap_or_default(), true);
        } else {
            push(start, label, false);
        }
    }
    for (start, _) in text.match_indices('<').filter(|(at, _)| !in_code(*at)) {
        let Some((target, _)) = text[start + 1..].split_once('>') else { continue };
        if target.contains("://") && !target.contains(char::is_whitespace) {
            push(start, target, true);
        }
    }
    found
}

/// The page with blocks of code overwritten by spaces: what is left stands where it stood.
fn blank_blocks(page: &str) -> String {
    let mut kinds = lines(page);
    let blank = |line: &str| {
        let ending = if line.ends_with('\n') { "\n" } else { "" };
        format!("{}{ending}", " ".repeat(line.len() - ending.len()))
    };
    page.split_inclusive('\n')
        .map(|line| match kinds.next() {
            Some((_, Line::Text(_))) => line.to_owned(),
            _ => blank(line),
        })
        .collect()
}

/// Where the bracket closes that `text` begins with, within its paragraph.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    for (at, char) in text[..text.find("\n\n").unwrap_or(text.len())].char_indices() {
        if char == open {
            depth += 1;
        } else if char == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The anchors of a page's headings, as GitHub makes them: one that is there already gets a number.
pub(crate) fn anchors(page: &str) -> Vec<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let headings = lines(page).filter_map(|(_, line)| match line {
        Line::Text(text) => text.trim_start_matches('#').strip_prefix(' ').filter(|_| text.starts_with('#')),
        _ => None,
    });
    headings
        .map(|title| {
            let kept = |char: &char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_');
            let slug: String = title.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
            let before = times.entry(slug.clone()).or_default();
            *before += 1;
            if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
        })
        .collect()
}

#[test]
fn spans_go_on_in_the_next_line_but_not_in_the_next_paragraph() {
    assert_eq!(code_spans("a `b\nc` d\n"), [(1, "b c".to_owned())]);
    assert!(code_spans("a `b\n\nc` d\n").is_empty());
    assert_eq!(code_spans("```\n`x`\n```\n`y`"), [(4, "y".to_owned())]);
    assert_eq!(code_spans("``a ` b``"), [(1, "a ` b".to_owned())]);
}

#[test]
fn links_are_found_outside_of_code() {
    let targets = |page| links(page).into_iter().map(|link| link.target).collect::<Vec<_>>();
    assert_eq!(
        targets("[a](b.md#c) `[x](y)` [`d`](e \"f\")\n\n```\n[n](m)\n```\n<https://g.h>"),
        ["b.md#c", "e", "https://g.h"]
    );
    assert_eq!(targets("[a]: b.md"), ["b.md"]);
}

#[test]
fn headings_make_anchors() {
    assert_eq!(anchors("# A `b_c`, d: e\n## B 2\n## B\n## B\n```\n# no\n```\n"), ["a-b_c-d-e", "b-2", "b", "b-1"]);
}
