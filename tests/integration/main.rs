//! The integration tests: one binary, modules by behaviour.

mod shutdown;
mod spawn;
mod spec;
mod teardown;
