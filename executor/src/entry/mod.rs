//! What the attributes of `giveway-macros` call. Not for other callers: it changes as the
//! attributes do.

mod main_function;
mod test;

pub use main_function::{Main, main};
pub use test::{Test, test};
