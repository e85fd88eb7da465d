//! Regressions of our own rows, under criterion. Compares this tree with the one measured before, not with peers: for
//! those, `cargo run --release -p giveway-benches`.

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
