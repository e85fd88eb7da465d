//! The expansion: from the options and the item to the tokens that the compiler gets.

use crate::error::{Error, lex};
use crate::function::{Function, Refused};
use crate::options::Options;
use proc_macro::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// Which of the two attributes it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Test,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Test => "test",
        }
    }
}

/// Returns the function that replaces the item, or the errors and enough of the item to avoid
/// further errors.
pub(crate) fn expand(kind: Kind, options: TokenStream, item: TokenStream) -> TokenStream {
    let (options, errors) = Options::parse(kind, options);
    let mut tokens: TokenStream = errors.into_iter().map(Error::into_tokens).collect();
    match Function::parse(kind, item) {
        Ok(function) => tokens.extend(wrap(kind, options, function)),
        Err(Refused { error, instead }) => tokens.extend([error.into_tokens(), instead]),
    }
    tokens
}

/// Makes the plain function with the async one inside.
///
/// The inner function is made of the user's own tokens alone, so that every error in it is reported
/// where it was written. It is a function and not a block: the types around it are those that the
/// user wrote, and need not be inferred through the macro's code.
fn wrap(kind: Kind, options: Options, function: Function) -> TokenStream {
    let is_test = function.is_test();
    let Function {
        attributes,
        visibility,
        async_keyword,
        fn_keyword,
        name,
        arguments,
        output,
        body,
    } = function;
    let header: Vec<TokenTree> =
        [fn_keyword, name.clone().into(), arguments.into()].into_iter().chain(output).collect();

    let mut inside = TokenStream::from(async_keyword);
    inside.extend(header.iter().cloned());
    inside.extend([TokenTree::from(body.clone())]);
    inside.extend(run(kind, options, &name.to_string()));
    let mut block = Group::new(Delimiter::Brace, inside);
    block.set_span(body.span());

    let mut tokens = TokenStream::from_iter(attributes);
    if kind == Kind::Test && !is_test {
        // By its full path: `test` alone may be this very attribute.
        tokens.extend(lex("#[::core::prelude::v1::test]"));
    }
    tokens.extend(visibility);
    tokens.extend(header);
    tokens.extend([TokenTree::from(block)]);
    tokens
}

/// Makes the call of the inner function: `::giveway::entry::main().workers(4).run(main)`. The path
/// stands there once, so that a wrong path is one error.
fn run(kind: Kind, options: Options, name: &str) -> TokenStream {
    let Options { workers, timeout, detect_deadlock, tokio, giveway } = options;
    let mut tokens = giveway;
    match kind {
        Kind::Main => tokens.extend(lex("::entry::main()")),
        Kind::Test => {
            // The name that the test harness shows, with the crate in front.
            let shown = name.strip_prefix("r#").unwrap_or(name);
            tokens.extend(lex(&format!(
                "::entry::test(::core::concat!(::core::module_path!(), \"::{shown}\"))"
            )));
        }
    }
    let mut set = |option: &str, value: Option<TokenTree>| {
        if let Some(value) = value {
            tokens.extend(lex(&format!(".{option}")));
            tokens.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, value.into()))]);
        }
    };
    set("workers", workers);
    set("detect_deadlock", detect_deadlock);
    set("tokio", tokio);
    set("timeout_in_ms", timeout.map(|milliseconds| Literal::u64_suffixed(milliseconds).into()));
    tokens.extend(lex(&format!(".run({name})")));
    tokens
}
