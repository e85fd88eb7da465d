//! The options in the parentheses of the attribute: `name = value`, separated by commas.

use crate::error::{Error, flatten, lex, respanned};
use crate::expand::Kind;
use proc_macro::{Ident, Span, TokenStream, TokenTree};

/// The options that the user gave.
pub(crate) struct Options {
    /// The number of workers, as it was written.
    pub(crate) workers: Option<TokenTree>,
    /// How long a test may take, in milliseconds.
    pub(crate) timeout: Option<u64>,
    /// `true` or `false`, as it was written.
    pub(crate) detect_deadlock: Option<TokenTree>,
    /// `true` or `false`, as it was written. `true` at the place of the name if that stands alone.
    pub(crate) tokio: Option<TokenTree>,
    /// The path of the crate `giveway`.
    pub(crate) giveway: TokenStream,
}

impl Options {
    /// Reads the options. A wrong option is left out, so that the function is checked all the same.
    pub(crate) fn parse(kind: Kind, tokens: TokenStream) -> (Self, Vec<Error>) {
        let options = Self {
            workers: None,
            timeout: None,
            detect_deadlock: None,
            tokio: None,
            giveway: lex("::giveway"),
        };
        let mut reader = Reader { options, seen: Vec::new(), errors: Vec::new() };
        let tokens = flatten(tokens);
        let mut options = tokens.split(|token| is_punct(token, ',')).peekable();
        while let Some(option) = options.next() {
            // There may be no options at all, and a comma at the end.
            if option.is_empty() && options.peek().is_none() {
                break;
            }
            if let Err(error) = reader.option(kind, option) {
                reader.errors.push(error);
            }
        }
        (reader.options, reader.errors)
    }
}

const EXPECTED: &str = "expected `name = value`, such as `workers = 4`";

/// Reads options one after the other.
struct Reader {
    options: Options,
    /// The options given so far, each by its main name.
    seen: Vec<&'static str>,
    errors: Vec<Error>,
}

impl Reader {
    /// Reads one option.
    fn option(&mut self, kind: Kind, tokens: &[TokenTree]) -> Result<(), Error> {
        if let [TokenTree::Ident(name)] = tokens
            && name.to_string() == "tokio"
        {
            self.first_time("tokio", name)?;
            self.options.tokio = Some(Ident::new("true", name.span()).into());
            return Ok(());
        }
        let [TokenTree::Ident(name), equals, value @ ..] = tokens else {
            return Err(Error::over(tokens, EXPECTED));
        };
        if !is_punct(equals, '=') {
            return Err(Error::over(tokens, EXPECTED));
        }
        // A value that is missing or too long is reported together with its name.
        let place = if value.is_empty() { tokens } else { value };
        match name.to_string().as_str() {
            "workers" | "worker_threads" => {
                self.first_time("workers", name)?;
                let [value] = value else { return Err(Error::over(place, not_a_number(name))) };
                if !is_a_number(value) {
                    return Err(Error::over(place, not_a_number(name)));
                }
                self.options.workers = Some(value.clone());
            }
            "flavor" => {
                self.first_time("flavor", name)?;
                match text(value).as_deref() {
                    Some("multi_thread") => {}
                    Some("current_thread") => {
                        self.first_time("workers", name)?;
                        let one = lex("1").into_iter().next();
                        self.options.workers = one;
                    }
                    _ => {
                        return Err(Error::over(
                            place,
                            "`flavor` is \"multi_thread\", which is the default, or \
                             \"current_thread\", which is `workers = 1`",
                        ));
                    }
                }
            }
            "timeout" if kind == Kind::Test => {
                self.first_time("timeout", name)?;
                let Some(milliseconds) = text(value).as_deref().and_then(milliseconds) else {
                    return Err(Error::over(
                        place,
                        "`timeout` is a time in quotes, such as `timeout = \"30s\"`: a whole \
                         number from 1 with `ms`, `s` or `min`",
                    ));
                };
                self.options.timeout = Some(milliseconds);
            }
            "detect_deadlock" if kind == Kind::Test => {
                self.first_time("detect_deadlock", name)?;
                let Some(value) = true_or_false(value) else {
                    return Err(Error::over(place, "`detect_deadlock` is `true` or `false`"));
                };
                self.options.detect_deadlock = Some(value);
            }
            "tokio" => {
                self.first_time("tokio", name)?;
                let Some(value) = true_or_false(value) else {
                    return Err(Error::over(
                        place,
                        "`tokio` is `true` or `false`; `tokio` alone is `tokio = true`",
                    ));
                };
                self.options.tokio = Some(value);
            }
            "crate" => {
                self.first_time("crate", name)?;
                match text(value).and_then(|text| path(&text, value[0].span())) {
                    Some(path) => self.options.giveway = path,
                    None => {
                        return Err(Error::over(
                            place,
                            "`crate` is a path in quotes, such as `crate = \"giveway\"`",
                        ));
                    }
                }
            }
            unknown => {
                let of_tests =
                    if kind == Kind::Test { "`timeout`, `detect_deadlock`, " } else { "" };
                let kind = kind.name();
                let message = format!(
                    "`giveway::{kind}` has no option `{unknown}`; there are {of_tests}`workers` \
                     (or `worker_threads`), `flavor`, `tokio` and `crate`"
                );
                return Err(Error::at(name.span(), message));
            }
        }
        Ok(())
    }

    /// Notes that an option was given. Fails if it was given before.
    fn first_time(&mut self, option: &'static str, name: &Ident) -> Result<(), Error> {
        if self.seen.contains(&option) {
            let message = match option {
                "workers" => "the number of workers is given twice: by `workers`, \
                              `worker_threads` or `flavor = \"current_thread\"`"
                    .into(),
                _ => format!("`{option}` is given twice"),
            };
            return Err(Error::at(name.span(), message));
        }
        self.seen.push(option);
        Ok(())
    }
}

fn not_a_number(name: &Ident) -> String {
    format!("`{name}` is a whole number from 1, such as `{name} = 4`")
}

/// Returns the value, if it is one of the two words.
fn true_or_false(value: &[TokenTree]) -> Option<TokenTree> {
    match value {
        [TokenTree::Ident(word)] if ["true", "false"].contains(&word.to_string().as_str()) => {
            Some(word.clone().into())
        }
        _ => None,
    }
}

/// Returns whether the token is a literal that fits a `usize` and is at least 1.
fn is_a_number(value: &TokenTree) -> bool {
    let TokenTree::Literal(literal) = value else { return false };
    let text = literal.to_string().replace('_', "");
    let text = text.strip_suffix("usize").unwrap_or(&text);
    let number = match text.get(..2) {
        Some("0x") => usize::from_str_radix(&text[2..], 16),
        Some("0o") => usize::from_str_radix(&text[2..], 8),
        Some("0b") => usize::from_str_radix(&text[2..], 2),
        _ => text.parse(),
    };
    number.is_ok_and(|number| number > 0)
}

/// Parses a number and a unit: `"250ms"`, `"30s"`, `"2min"`, with or without a space in between.
fn milliseconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '_')?);
    let factor = match unit.trim_start() {
        "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        _ => return None,
    };
    let number: u64 = number.replace('_', "").parse().ok()?;
    number.checked_mul(factor).filter(|&milliseconds| milliseconds > 0)
}

/// Returns the text between the quotes of a plain string.
fn text(value: &[TokenTree]) -> Option<String> {
    let [TokenTree::Literal(literal)] = value else { return None };
    let literal = literal.to_string();
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then(|| text.to_owned())
}

/// Returns a path, at the place of the string that it comes from.
fn path(text: &str, place: Span) -> Option<TokenStream> {
    let segments = text.strip_prefix("::").unwrap_or(text);
    let letter = |c: char| c == '_' || c.is_alphabetic();
    let is_name = |name: &str| {
        name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
    };
    // Behind `r#` every word is a name, except these, which the language does not allow there.
    let is_raw_name =
        |name: &str| is_name(name) && !["crate", "self", "super", "Self", "_"].contains(&name);
    let is_path = segments
        .split("::")
        .all(|name| name.strip_prefix("r#").map_or_else(|| is_name(name), is_raw_name));
    is_path.then(|| respanned(lex(text), place))
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}
