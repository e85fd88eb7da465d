//! Has a row of the table become slower? Under criterion, compares this tree with the one that was
//! measured before. Not with peers: for those, `cargo run --release -p giveway-benches`.
//!
//! Not isolated: what `rows.rs` says, and what else the machine does.

use criterion::{Criterion, criterion_group, criterion_main};
use giveway_benches::peers::{Giveway, Peer};
use giveway_benches::rows::{self, ROWS};

fn all_rows(c: &mut Criterion) {
    const WORKERS: usize = 2;
    Giveway::start(WORKERS);
    for (index, row) in ROWS.iter().enumerate() {
        let busy = rows::wants_busy(index).then(|| rows::keep_busy::<Giveway>(WORKERS));
        c.bench_function(row.name, |b| b.iter(|| rows::run::<Giveway>(index)));
        if let Some(busy) = busy {
            busy.end();
        }
    }
}

criterion_group!(benches, all_rows);
criterion_main!(benches);
