//! The benchmarks: every runtime behind one trait, every workload written once against it.
//!
//! `cargo run --release -p giveway-benches` prints the table; `cargo bench` watches for regressions.

pub mod peers;
pub mod rows;
