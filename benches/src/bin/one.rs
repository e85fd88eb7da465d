//! Runs one row of the table on one peer, TIMES times, with no other peer in the process. For
//! counting system calls or instructions from outside, as `benches/syscalls` does.
//!
//! ```text
//! one PEER ROW TIMES
//! ```
//!
//! ROW is a part of the row's name.

use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use giveway_benches::rows::{self, ROWS};

fn run<P: Peer>(row: usize, times: usize) {
    P::start(2);
    (0..times).for_each(|_| rows::run::<P>(row));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, row, times] = arguments.as_slice() else {
        return usage("three arguments are wanted");
    };
    let Some(index) = ROWS.iter().position(|known| known.name.contains(row)) else {
        return usage(&format!("no row has {row} in its name"));
    };
    let Ok(times) = times.parse() else { return usage(&format!("{times} is not a number")) };
    match peer.as_str() {
        Giveway::NAME => run::<Giveway>(index, times),
        Tokio::NAME => run::<Tokio>(index, times),
        Smol::NAME => run::<Smol>(index, times),
        _ => usage(&format!("there is no peer {peer}")),
    }
}

fn usage(error: &str) {
    eprintln!("{error}\nusage: one giveway|tokio|smol ROW TIMES");
    std::process::exit(2);
}
