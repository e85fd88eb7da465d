//! Yield points for async code: places where a task lets other tasks run.
//!
//! - [`yield_now`] gives way once, whether other work waits or not.
//! - [`yield_now_if_busy`] gives way only when work waits. It is the yield point of a polite
//!   background loop. It costs about as much as an `if`, so it can stand in the body of the loop.
//! - [`should_yield`] asks the same question in code that cannot await.
//! - [`elastic::Pacer`] is for jobs that should not even start a piece of work while other tasks
//!   suffer from the last one.
//!
//! A library may use all of them under any executor. Only the executor knows whether work waits. An
//! executor that takes part answers through the small interface in [`host`]. Under any other
//! executor, and outside of any, `yield_now_if_busy` is ready at once and `should_yield` returns
//! false: the library loses nothing there, and its users gain nothing. A library that has to be
//! polite under every executor calls `yield_now` from time to time as well.
//!
//! # For a library author
//!
//! ```
//! /// Sums a table that may be large. Under an executor that takes part, other tasks on the thread
//! /// do not have to wait for the whole sum.
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
//! Put a yield point where the task holds nothing that other tasks may want: between two batches,
//! or after a lock is released. A foreground task may have to wait for as long as the code runs
//! from one yield point to the next, so some tens of microseconds between two of them is a good
//! measure.

#![deny(unsafe_code)]

pub mod elastic;
pub mod host;
mod if_busy;
mod now;

pub use if_busy::{YieldNowIfBusy, should_yield, yield_now_if_busy};
pub use now::{YieldNow, yield_now};
