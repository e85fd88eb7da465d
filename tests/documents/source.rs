//! Rust source, taken apart into code, comments and strings.

/// A piece of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    /// Its first line, from 1.
    pub(crate) line: usize,
    /// Without the marks around it.
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Code,
    /// Line comments that follow each other are one, so that a sentence can be read across its lines.
    Comment,
    String,
}

/// Takes a file apart. Character literals are dropped: they name nothing.
pub(crate) fn pieces(source: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut code = String::new();
    let (mut at, mut line, mut code_line) = (0, 1, 1);
    while at < source.len() {
        let rest = &source[at..];
        let before = code.chars().next_back();
        let Some((kind, length, text)) = special(rest, before) else {
            let char = rest.chars().next().expect("the rest is not empty");
            code.push(char);
            at += char.len_utf8();
            line += usize::from(char == '\n');
            continue;
        };
        if !code.is_empty() {
            pieces.push(Piece { kind: Kind::Code, line: code_line, text: std::mem::take(&mut code) });
        }
        if let Some(kind) = kind {
            add(&mut pieces, Piece { kind, line, text: text.to_owned() });
        }
        line += rest[..length].matches('\n').count();
        at += length;
        code_line = line;
    }
    pieces.push(Piece { kind: Kind::Code, line: code_line, text: code });
    pieces
}

/// Adds a piece, or joins it to a comment that ends in the line before.
fn add(pieces: &mut Vec<Piece>, piece: Piece) {
    if let [.., comment, between] = &mut pieces[..]
        && (comment.kind, piece.kind) == (Kind::Comment, Kind::Comment)
        && between.text.trim().is_empty()
        && comment.line + comment.text.matches('\n').count() + 1 == piece.line
    {
        comment.text.push('\n');
        comment.text.push_str(&piece.text);
        pieces.pop();
        return;
    }
    pieces.push(piece);
}

/// What is not code at the start of `rest`: its kind (`None` for a character), its length, and the text in it.
fn special(rest: &str, before: Option<char>) -> Option<(Option<Kind>, usize, &str)> {
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        let text = rest[2..end].trim_start_matches(['/', '!']);
        return Some((Some(Kind::Comment), end, text.strip_prefix(' ').unwrap_or(text)));
    }
    if rest.starts_with("/*") {
        let end = end_of_block(rest);
        return Some((Some(Kind::Comment), end, rest[2..end].trim_end_matches("*/")));
    }
    if rest.starts_with('"') {
        let end = end_of_quoted(rest, '"');
        return Some((Some(Kind::String), end, &rest[1..end - 1]));
    }
    // Prefixes of strings begin a word.
    if !before.is_some_and(|char| char.is_alphanumeric() || char == '_') {
        let prefix = rest.len() - rest.trim_start_matches(['r', 'b', 'c']).len();
        let hashes = rest[prefix..].len() - rest[prefix..].trim_start_matches('#').len();
        let open = prefix + hashes;
        if (1..=2).contains(&prefix) && rest[..prefix].contains('r') && rest[open..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = open + 1;
            let length = rest[body..].find(&close).expect("a raw string ends");
            return Some((Some(Kind::String), body + length + close.len(), &rest[body..body + length]));
        }
    }
    if let Some(quoted) = rest.strip_prefix('\'') {
        let mut chars = quoted.chars();
        let is_char = match chars.next()? {
            '\\' => true,
            // Otherwise it is a lifetime.
            _ => chars.next() == Some('\''),
        };
        return is_char.then(|| (None, end_of_quoted(rest, '\''), ""));
    }
    None
}

fn end_of_block(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The end of what begins with a quote, behind the quote that ends it.
fn end_of_quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if char == '\\' {
            escaped = true;
        } else if char == quote {
            return at + 1;
        }
    }
    panic!("a quote is not closed: {}", rest.lines().next().unwrap_or_default());
}

/// The words and marks of code: words whole, everything else a character each.
pub(crate) fn tokens(code: &str) -> Vec<&str> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length =
            if is_word(first) { rest.find(|char| !is_word(char)).unwrap_or(rest.len()) } else { first.len_utf8() };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Whether this could be the name of something.
pub(crate) fn is_identifier(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && chars.all(|char| char.is_alphanumeric() || char == '_')
}

#[test]
fn comments_and_strings_are_not_code() {
    let source = "/// One\n/// two.\nfn a<'a>() { b(\"c // d\", 'e', '\\'', r#\"f\"g\"#) } // h\n/* i /* j */ */ k\n";
    let of = |kind| {
        pieces(source).into_iter().filter(|piece| piece.kind == kind).map(|piece| piece.text).collect::<Vec<_>>()
    };
    assert_eq!(of(Kind::Comment), ["One\ntwo.", "h\n i /* j */ "]);
    assert_eq!(of(Kind::String), ["c // d", "f\"g"]);
    let code = of(Kind::Code).concat();
    assert_eq!(tokens(&code).into_iter().filter(|token| is_identifier(token)).collect::<String>(), "fnaabk");
}

#[test]
fn a_comment_is_found_at_its_line() {
    let found = pieces("a\n\n// b\nc\n");
    assert_eq!(found[1], Piece { kind: Kind::Comment, line: 3, text: "b".into() });
}
