//! The pages as doc tests: their Rust code is compiled and run. `cargo xtask docs` fails if a
//! page is missing here.

#[doc = include_str!("../../README.md")]
mod readme {}

#[doc = include_str!("../../axum/README.md")]
mod readme_of_axum {}

#[doc = include_str!("../../budget/README.md")]
mod readme_of_the_budget {}

#[doc = include_str!("../../yield/README.md")]
mod readme_of_yield_points {}

#[doc = include_str!("../../docs/architecture.md")]
mod architecture {}

#[doc = include_str!("../../docs/benchmarks.md")]
mod benchmarks {}

#[doc = include_str!("../../docs/blocking.md")]
mod blocking {}

#[doc = include_str!("../../docs/budget.md")]
mod budget {}

#[doc = include_str!("../../docs/elastic.md")]
mod elastic {}

#[doc = include_str!("../../docs/io.md")]
mod io {}

#[doc = include_str!("../../docs/looking_inside.md")]
mod looking_inside {}

#[doc = include_str!("../../docs/orderings.md")]
mod orderings {}

#[doc = include_str!("../../docs/yielding.md")]
mod yielding {}

#[doc = include_str!("../../docs/README.md")]
mod book {}

#[doc = include_str!("../../docs/background_jobs.md")]
mod background_jobs {}

#[doc = include_str!("../../docs/glossary.md")]
mod glossary {}

#[doc = include_str!("../../docs/polite_libraries.md")]
mod polite_libraries {}

#[doc = include_str!("../../docs/porting.md")]
mod porting {}

#[doc = include_str!("../../docs/quick_start.md")]
mod quick_start {}

#[doc = include_str!("../../docs/tokio.md")]
mod tokio {}

#[doc = include_str!("../../docs/tuning.md")]
mod tuning {}

#[doc = include_str!("../../docs/what_for.md")]
mod what_for {}
