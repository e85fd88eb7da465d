//! What the attributes of `giveway-macros` call. Not for anybody else: it changes as they do.

mod main_function;
mod test;

pub use main_function::{Main, main};
pub use test::{Test, test};
