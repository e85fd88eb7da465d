//! What is written for people: pages, comments, and messages in strings.

use crate::workspace::{files_ending, read};
use proc_macro2::{TokenStream, TokenTree};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::LazyLock;

/// A text in which names may stand.
#[derive(Debug)]
pub(crate) struct Prose {
    pub(crate) path: &'static str,
    /// Where it begins.
    pub(crate) line: usize,
    pub(crate) markdown: Markdown,
}

/// Every Rust file, taken apart.
pub(crate) static RUST: LazyLock<BTreeMap<&'static str, Rust>> =
    LazyLock::new(|| files_ending(".rs").map(|path| (path, Rust::parse(&read(path)))).collect());

/// Every page, comment and string.
pub(crate) static PROSE: LazyLock<Vec<Prose>> = LazyLock::new(|| {
    let mut found = Vec::new();
    let prose = |path, line, text: &str| Prose { path, line, markdown: Markdown::parse(text) };
    for path in files_ending(".md") {
        let mut text = read(path);
        if path == "CHANGELOG.md" {
            text.truncate(end_of_unreleased(&text));
        }
        found.push(prose(path, 1, &text));
    }
    for (path, rust) in &*RUST {
        // The strings of these checks are what the checks are tried on.
        let strings: &[_] = if path.starts_with("xtask/src/docs/") { &[] } else { &rust.strings };
        found.extend(
            rust.comments.iter().chain(strings).map(|(line, text)| prose(path, *line, text)),
        );
    }
    found
});

/// Returns where the part of a changelog ends that may name only what exists.
fn end_of_unreleased(changelog: &str) -> usize {
    let mut releases = changelog.match_indices("\n## ").map(|(at, _)| at);
    let first = releases.next();
    let is_open = first.is_some_and(|at| changelog[at..].starts_with("\n## Unreleased"));
    if is_open {
        releases.next().unwrap_or(changelog.len())
    } else {
        first.unwrap_or(changelog.len())
    }
}

/// A source file, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Rust {
    /// Each comment with its first line, without the marks. Line comments that follow each other
    /// are one.
    pub(crate) comments: Vec<(usize, String)>,
    /// Each string with its line.
    pub(crate) strings: Vec<(usize, String)>,
    /// The identifiers of the code, macros included.
    pub(crate) words: Vec<String>,
}

impl Rust {
    pub(crate) fn parse(source: &str) -> Self {
        let stream =
            TokenStream::from_str(source).unwrap_or_else(|error| panic!("{error}:\n{source}"));
        let mut rust = Self::default();
        let mut end = 0;
        for (range, token) in leaves(stream) {
            rust.add_comments(source, end..range.start);
            let text = &source[range.clone()];
            // A doc comment is an attribute whose tokens all span the comment.
            if text.starts_with("//") || text.starts_with("/*") {
                if range.start >= end {
                    rust.add_comments(source, range.clone());
                }
            } else if let Some(TokenTree::Ident(word)) = token {
                rust.words.push(word.to_string());
            } else if text.contains('"') {
                // A string that goes on in the next line leaves out the break and what precedes the
                // rest.
                rust.strings.push((line_of(source, range.start), text.replace("\\\n", " \n")));
            }
            end = end.max(range.end);
        }
        rust.add_comments(source, end..source.len());
        rust
    }

    /// Adds the comments in a part of the source that has no code.
    fn add_comments(&mut self, source: &str, range: Range<usize>) {
        let Some(part) = source.get(range.clone()).filter(|part| part.contains('/')) else {
            return;
        };
        let first = line_of(source, range.start);
        for (line, text) in (first..).zip(part.lines()) {
            let text = text.trim_start();
            if text.starts_with("//") || text.starts_with("/*") {
                let text = text.trim_start_matches(['/', '!', '*']);
                let text = text.strip_prefix(' ').unwrap_or(text);
                match self.comments.last_mut() {
                    Some((first, before)) if *first + before.matches('\n').count() + 1 == line => {
                        before.push('\n');
                        before.push_str(text);
                    }
                    _ => self.comments.push((line, text.to_owned())),
                }
            }
        }
    }
}

/// Returns the tokens in order, with their places in bytes; without a tree for a bracket.
fn leaves(stream: TokenStream) -> Vec<(Range<usize>, Option<TokenTree>)> {
    let mut found = Vec::new();
    for tree in stream {
        if let TokenTree::Group(group) = tree {
            found.push((group.span_open().byte_range(), None));
            found.extend(leaves(group.stream()));
            found.push((group.span_close().byte_range(), None));
        } else {
            found.push((tree.span().byte_range(), Some(tree)));
        }
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// What Markdown has that these checks read, each with its line.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// Text in backticks.
    pub(crate) spans: Vec<(usize, String)>,
    /// The targets of links, and of what would be one if its target were defined.
    pub(crate) links: Vec<(usize, String)>,
    /// Blocks of code: the language and the text.
    pub(crate) blocks: Vec<(usize, String, String)>,
    pub(crate) headings: Vec<String>,
}

impl Markdown {
    pub(crate) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let (mut heading, mut block): (Option<String>, _) = (None, None);
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = || line_of(text, range.start);
            if let (Some(heading), Event::Code(text) | Event::Text(text)) =
                (heading.as_mut(), &event)
            {
                *heading += &**text;
            }
            match event {
                Event::Code(code) => found.spans.push((line(), code.into_string())),
                Event::Text(code) if block.is_some() => {
                    block = block.map(|(line, language, text): (usize, String, String)| {
                        (line, language, text + &code)
                    });
                }
                Event::Start(Tag::Link { dest_url, .. }) => {
                    found.links.push((line(), dest_url.into_string()))
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => found.headings.extend(heading.take()),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    block = Some((line(), language.into_string(), String::new()));
                }
                Event::End(TagEnd::CodeBlock) => found.blocks.extend(block.take()),
                _ => {}
            }
        }
        found
    }
}

#[test]
fn comments_and_strings_are_not_code() {
    let source = "/// One\n/// two.\n\nfn a<'a>() { b(\"c // d\", 'e', '\\'', r#\"f\"g\"#) } // \
                  h\n\nk!(l);\n";
    let rust = Rust::parse(source);
    let comments = [(1, "One\ntwo.".to_owned()), (4, "h".to_owned())];
    assert_eq!(rust.comments, comments);
    assert_eq!(rust.strings.len(), 2);
    assert_eq!(rust.words.concat(), "fnaabkl");
}

#[test]
fn only_what_is_unreleased_is_checked() {
    let changelog = "# Changelog\n\n## Unreleased\n\nnew\n\n## 0.1.0\n\nold\n";
    assert_eq!(&changelog[..end_of_unreleased(changelog)], "# Changelog\n\n## Unreleased\n\nnew\n");
    assert_eq!(end_of_unreleased("# Changelog\n\n## 0.1.0\n"), 12);
}
