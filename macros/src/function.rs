//! The function under the attribute, taken apart as far as the macros need it. The compiler has
//! parsed it before: it is a whole item, and only the seams have to be found.

use crate::error::{Error, flatten};
use crate::expand::Kind;
use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// `#[attributes] visibility async fn name() -> output { body }`.
pub(crate) struct Function {
    pub(crate) attributes: Vec<TokenTree>,
    pub(crate) visibility: Vec<TokenTree>,
    pub(crate) async_keyword: TokenTree,
    pub(crate) fn_keyword: TokenTree,
    pub(crate) name: Ident,
    pub(crate) arguments: Group,
    /// All that is between the arguments and the body, with the arrow.
    pub(crate) output: Vec<TokenTree>,
    pub(crate) body: Group,
}

/// Why an item cannot be used, and what to put in its place, so that one mistake does not cause
/// further errors.
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) instead: TokenStream,
}

impl Function {
    /// Takes an item apart, or says why it cannot be used.
    pub(crate) fn parse(kind: Kind, item: TokenStream) -> Result<Self, Refused> {
        let tokens = flatten(item.clone());
        let refuse = |error| Refused { error, instead: item.clone() };
        let kind = kind.name();
        let (attributes, rest) = tokens.split_at(attributes_len(&tokens));
        let (visibility, rest) = rest.split_at(visibility_len(rest));
        // In front of `fn` there are words, and the name of an ABI.
        let is_qualifier =
            |token: &&TokenTree| matches!(token, TokenTree::Ident(_) | TokenTree::Literal(_));
        let Some(fn_at) =
            rest.iter().take_while(is_qualifier).position(|token| is_ident(token, "fn"))
        else {
            let place = &rest[..rest.len().min(1)];
            return Err(refuse(Error::over(
                place,
                format!("`giveway::{kind}` is for an async function"),
            )));
        };
        let (qualifiers, signature) = rest.split_at(fn_at);
        let [fn_keyword, TokenTree::Ident(name), after_name @ ..] = signature else {
            return Err(refuse(Error::over(signature, "expected a function with a name")));
        };
        let Some(async_keyword) = qualifiers.iter().find(|token| is_ident(token, "async")) else {
            let message =
                format!("`giveway::{kind}` is for an async function: write `async fn {name}`");
            return Err(refuse(Error::at(fn_keyword.span(), message)));
        };
        let Some((TokenTree::Group(body), before_body)) = after_name.split_last() else {
            return Err(refuse(Error::over(signature, "the function has no body")));
        };

        // From here on the item is an async function, which the compiler does not accept as a
        // `main` or a test. So what takes its place is a plain function with the async one inside.
        let refuse = |error| {
            let inside = [qualifiers, signature].concat().into_iter().collect();
            let mut instead =
                TokenStream::from_iter([fn_keyword.clone(), TokenTree::from(name.clone())]);
            instead.extend([
                TokenTree::from(Group::new(Delimiter::Parenthesis, TokenStream::new())),
                TokenTree::from(Group::new(Delimiter::Brace, inside)),
            ]);
            let mut tokens = crate::error::lex("#[allow(unused)]");
            tokens.extend(visibility.iter().cloned());
            tokens.extend(instead);
            Refused { error, instead: tokens }
        };
        if let Some(other) = qualifiers.iter().find(|token| !is_ident(token, "async")) {
            return Err(refuse(Error::at(
                other.span(),
                format!("a function of `giveway::{kind}` cannot be `{other}`"),
            )));
        }
        let (arguments, output) = match before_body {
            [TokenTree::Group(arguments), output @ ..]
                if arguments.delimiter() == Delimiter::Parenthesis =>
            {
                (arguments, output)
            }
            _ => {
                let end = before_body.iter().position(|token| matches!(token, TokenTree::Group(_)));
                let place = &before_body[..end.unwrap_or(before_body.len())];
                let message = format!(
                    "a function of `giveway::{kind}` cannot be generic: nobody could say for \
                     which type"
                );
                return Err(refuse(Error::over(place, message)));
            }
        };
        if !arguments.stream().is_empty() {
            let message = format!("a function of `giveway::{kind}` takes no arguments");
            return Err(refuse(Error::at(arguments.span(), message)));
        }
        Ok(Self {
            attributes: attributes.to_vec(),
            visibility: visibility.to_vec(),
            async_keyword: async_keyword.clone(),
            fn_keyword: fn_keyword.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
            output: output.to_vec(),
            body: body.clone(),
        })
    }

    /// Returns whether the function is marked as a test already.
    pub(crate) fn is_test(&self) -> bool {
        self.attributes.iter().any(|token| match token {
            TokenTree::Group(attribute) => {
                let path: String =
                    flatten(attribute.stream()).iter().map(ToString::to_string).collect();
                path == "test" || path.ends_with("prelude::v1::test")
            }
            _ => false,
        })
    }
}

/// Returns how many tokens the attributes at the front take.
fn attributes_len(tokens: &[TokenTree]) -> usize {
    let is_hash =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '#');
    2 * tokens.chunks_exact(2).take_while(|pair| is_hash(&pair[0])).count()
}

/// Returns how many tokens the visibility takes: `pub`, or `pub(crate)`.
fn visibility_len(tokens: &[TokenTree]) -> usize {
    match tokens {
        [public, TokenTree::Group(_), ..] if is_ident(public, "pub") => 2,
        [public, ..] if is_ident(public, "pub") => 1,
        _ => 0,
    }
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == name)
}
