//! The benchmarks: every runtime behind one trait, and every workload written once against it.
//!
//! `cargo run --release -p giveway-benches` prints the table of everything that was promised.
//! `--bin give_way` prints more about what giving way costs and gives. The other programs ask one
//! question each. `cargo bench` watches for regressions.

pub mod background;
pub mod cost;
pub mod crew;
pub mod mixed;
pub mod peers;
pub mod report;
pub mod requests;
pub mod rows;
pub mod second_socket;
pub mod usage;
pub mod wake;
pub mod work;
