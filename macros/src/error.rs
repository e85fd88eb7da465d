//! What is wrong, and where.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

/// An error at a place in the user's code.
pub(crate) struct Error {
    message: String,
    // A place that is several tokens long has a first and a last one: joining two spans is not stable.
    first: Span,
    last: Span,
}

impl Error {
    pub(crate) fn at(place: Span, message: impl Into<String>) -> Self {
        Self { message: message.into(), first: place, last: place }
    }

    /// At all of these; at the attribute if there are none.
    pub(crate) fn over(place: &[TokenTree], message: impl Into<String>) -> Self {
        let attribute = Span::call_site();
        let first = place.first().map_or(attribute, TokenTree::span);
        let last = place.last().map_or(attribute, TokenTree::span);
        Self { message: message.into(), first, last }
    }

    /// An item that makes the compiler report it.
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

/// Tokens of our own. They are found where the attribute stands, and so are mistakes in them.
pub(crate) fn lex(text: &str) -> TokenStream {
    text.parse().expect("what the macro writes is made of tokens")
}

/// The same tokens, to be found elsewhere.
pub(crate) fn respanned(tokens: TokenStream, span: Span) -> TokenStream {
    let place = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    tokens.into_iter().map(place).collect()
}

/// The tokens of a stream, and those within the invisible groups that `macro_rules!` puts around what it was given.
pub(crate) fn flatten(tokens: TokenStream) -> Vec<TokenTree> {
    let open = |token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => flatten(group.stream()),
        token => vec![token],
    };
    tokens.into_iter().flat_map(open).collect()
}
