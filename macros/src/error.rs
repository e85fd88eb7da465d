//! Errors of the macros, and the tokens that they are made of.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

/// An error at a place in the user's code.
pub(crate) struct Error {
    message: String,
    /// Where the place begins. A place of several tokens has a first and a last one: joining two
    /// spans is not stable.
    first: Span,
    /// Where the place ends.
    last: Span,
}

impl Error {
    /// Returns an error at one place.
    pub(crate) fn at(place: Span, message: impl Into<String>) -> Self {
        Self { message: message.into(), first: place, last: place }
    }

    /// Returns an error over all of these tokens, or at the attribute if there are none.
    pub(crate) fn over(place: &[TokenTree], message: impl Into<String>) -> Self {
        let attribute = Span::call_site();
        let first = place.first().map_or(attribute, TokenTree::span);
        let last = place.last().map_or(attribute, TokenTree::span);
        Self { message: message.into(), first, last }
    }

    /// Returns an item that makes the compiler report the error.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let mut message = TokenTree::from(Literal::string(&self.message));
        message.set_span(self.last);
        let mut argument = Group::new(Delimiter::Brace, message.into());
        argument.set_span(self.last);
        let mut tokens = respanned(lex("::core::compile_error!"), self.first);
        tokens.extend([TokenTree::from(argument)]);
        tokens
    }
}

/// Makes tokens from the macro's own text. Their place is that of the attribute, and mistakes in
/// them are reported there.
pub(crate) fn lex(text: &str) -> TokenStream {
    text.parse().expect("what the macro writes is made of tokens")
}

/// Returns the same tokens at another place.
pub(crate) fn respanned(tokens: TokenStream, span: Span) -> TokenStream {
    let place = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    tokens.into_iter().map(place).collect()
}

/// Returns the tokens of a stream, with the contents of the invisible groups that `macro_rules!`
/// puts around what it was given.
pub(crate) fn flatten(tokens: TokenStream) -> Vec<TokenTree> {
    let open = |token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => flatten(group.stream()),
        token => vec![token],
    };
    tokens.into_iter().flat_map(open).collect()
}
