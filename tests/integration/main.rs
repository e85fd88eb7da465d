//! The integration tests: one binary, modules by behaviour.

mod cancel;
mod fork;
mod join_set;
mod lifetime;
mod memory;
mod misuse;
mod panics;
mod shutdown;
mod shutdown_timeout;
mod spawn;
mod spec;
mod teardown;
mod wake;
