//! What the attributes use of `giveway`, and nothing else: the cases are about what the compiler says.

pub use giveway_macros::{main, test};

pub mod entry {
    use std::future::Future;

    pub struct Entry;

    pub fn main() -> Entry {
        Entry
    }

    pub fn test(_: &'static str) -> Entry {
        Entry
    }

    impl Entry {
        pub fn workers(self, _: usize) -> Self {
            self
        }

        pub fn detect_deadlock(self, _: bool) -> Self {
            self
        }

        pub fn tokio(self, _: bool) -> Self {
            self
        }

        pub fn timeout_in_ms(self, _: u64) -> Self {
            self
        }

        pub fn run<F: Future>(self, _: impl FnOnce() -> F) -> F::Output {
            unimplemented!()
        }
    }
}
