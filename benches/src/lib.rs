//! The benchmarks: every runtime behind one trait, every workload written once against it.
//!
//! `cargo run --release -p giveway-benches` prints the table of micro workloads; `--bin give_way` the cost of a yield
//! point and the latency of foreground wake-ups beside background work; `cargo bench` watches for regressions.

pub mod cost;
pub mod crew;
pub mod peers;
pub mod rows;
pub mod wake;
pub mod work;
