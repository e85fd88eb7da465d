//! Yield points for async code: places where a task lets others run.
//!
//! - [`yield_now`] gives way once, whether anybody waits or not.
//! - [`yield_now_if_busy`] gives way only when somebody does: the yield point of a polite background loop. It costs
//!   about as much as the `if` that it is, so it can stand in the loop's body.
//! - [`should_yield`] is the same question for code that cannot await.
//! - [`elastic::Pacer`] is for jobs that should not even start on a piece of work while others suffer from the last.
//!
//! A library may use all of them wherever it happens to run. Whether somebody waits is known only to the executor; one
//! that takes part answers through the small interface in [`host`]. Under any other, and in no executor at all,
//! `yield_now_if_busy` is ready at once and `should_yield` is false: a library loses nothing there, and its users gain
//! nothing. One that has to be polite under every executor calls `yield_now` now and then as well.
//!
//! # For a library author
//!
//! ```
//! /// Sums a table that may be large. Under an executor that takes part it does not hold up whoever shares the thread.
//! async fn total(rows: &[u64]) -> u64 {
//!     let mut total = 0;
//!     for chunk in rows.chunks(256) {
//!         total += chunk.iter().sum::<u64>();
//!         giveway_yield::yield_now_if_busy().await;
//!     }
//!     total
//! }
//!
//! assert_eq!(futures::executor::block_on(total(&[1; 1000])), 1000);
//! ```
//!
//! Put it where nothing is held that others may want: between two batches, after a lock is released. How long a
//! foreground task waits is how long it takes from one yield point to the next, so some tens of microseconds between
//! two of them is a good measure.

#![deny(unsafe_code)]

pub mod elastic;
pub mod host;
mod if_busy;
mod now;

pub use if_busy::{YieldNowIfBusy, should_yield, yield_now_if_busy};
pub use now::{YieldNow, yield_now};
