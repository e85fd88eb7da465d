//! The benchmarks: every runtime behind one trait, every workload written once against it.
//!
//! `cargo run --release -p giveway-benches` prints the table of micro workloads; `--bin give_way` the cost of a yield
//! point and the latency of foreground wake-ups and requests beside background work; `cargo bench` watches for regressions.

pub mod background;
pub mod cost;
pub mod crew;
pub mod peers;
pub mod requests;
pub mod rows;
pub mod wake;
pub mod work;
