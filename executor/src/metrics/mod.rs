//! Looking inside: what a runtime has counted and timed, and what its tasks are doing.
//!
//! [`Handle::metrics`](crate::Handle::metrics) returns the [`Metrics`] since the runtime was
//! started. Two of them can be [subtracted](Metrics::since). [`Handle::dump`](crate::Handle::dump)
//! lists what the tasks are doing at the moment.
//!
//! # What it costs
//!
//! Counters and histograms are kept for each core, eight kilobytes a core. What is counted is
//! exact.
//!
//! What is timed is sampled, since the cost is in the clock. One task in eight is timed, on
//! average. If tasks become runnable so fast that a core would time one more often than every 50
//! µs, it is down to one in 1,024. So a figure that is timed says how many samples it has, and the
//! samples are spread over time more evenly than over tasks.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! let runtime = giveway::Runtime::new()?;
//! let mut last = runtime.metrics();
//! # let mut rounds = 2;
//! # let mut some_time = move || { rounds -= 1; rounds > 0 };
//! while some_time() {
//!     let now = runtime.metrics();
//!     let lately = now.since(&last);
//!     if lately.foreground_latency.p99() > Duration::from_millis(5) {
//!         eprintln!("tasks wait for a worker:\n{lately}");
//!     }
//!     last = now;
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod dump;
mod histogram;
mod meter;
mod paced;
mod sample;
mod snapshot;

pub use dump::{Dump, TaskDump, TaskState};
pub use histogram::Histogram;
pub use snapshot::{Metrics, WorkerMetrics};

pub(crate) use histogram::{BUCKETS, upper_bound};
pub(crate) use meter::{Meter, Tally};
pub(crate) use paced::{Paced, Where};
pub(crate) use sample::{NUMBER_BITS, Sampler};
