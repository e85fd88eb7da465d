//! What the attributes of `giveway-macros` call. Not for other callers: it changes as the
//! attributes do.

mod main_function;
mod test;

/// What no type implements: without the feature `tokio` the option `tokio` is an error.
#[cfg(not(feature = "tokio"))]
#[diagnostic::on_unimplemented(
    message = "the option `tokio` needs the feature `tokio` of the crate `giveway`",
    label = "turn the feature on in Cargo.toml"
)]
pub trait FeatureTokio {}

pub use main_function::{Main, main};
pub use test::{Test, test};
