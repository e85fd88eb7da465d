//! What the attributes use of `giveway`, and nothing else: the cases are about what the compiler says.

use std::future::Future;
use std::io;

pub use giveway_macros::{main, test};

pub fn block_on<F: Future>(_: F) -> F::Output {
    unimplemented!()
}

pub struct Builder;

impl Builder {
    pub fn new() -> Self {
        Self
    }

    pub fn workers(self, _: usize) -> Self {
        self
    }

    pub fn build(self) -> io::Result<Self> {
        Ok(self)
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }
}
