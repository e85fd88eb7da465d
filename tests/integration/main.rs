//! The integration tests: one binary, modules by behaviour.

mod spawn;
