//! Pacing of background jobs: a share of the cores that shrinks when the jobs keep foreground tasks
//! waiting.
//!
//! [`yield_now_if_busy`](crate::yield_now_if_busy) is enough for most background work: it leaves
//! the core to other tasks within microseconds. It cannot leave to them what all cores share:
//! caches, memory bandwidth, a disk. Nor does it help while a job is between two yield points. A
//! paced job is held back before it runs:
//!
//! ```
//! use giveway_yield::elastic::Pacer;
//!
//! async fn reindex(rows: &[u64]) -> u64 {
//!     let pacer = Pacer::new();
//!     let mut sum = 0;
//!     for chunk in rows.chunks(256) {
//!         sum += chunk.iter().sum::<u64>();
//!         pacer.pace().await; // gives way as well
//!     }
//!     sum
//! }
//!
//! assert_eq!(futures::executor::block_on(reindex(&[1; 1000])), 1000);
//! ```
//!
//! CPU time flows into a bucket at `limit × cores`, and jobs take it from there in
//! [slices](Pacer::with_slice). Ten times a second a controller looks at how long paced jobs kept
//! foreground tasks waiting for a core in the last 2.5 seconds:
//!
//! - If paced jobs kept more than a hundredth of these tasks waiting for longer than a
//!   [target](Settings::target_latency), the controller lowers the limit.
//! - Otherwise, if a job waits for a slice, it raises the limit, half as fast.
//! - Otherwise the limit goes back to its [baseline](Settings::baseline).
//!
//! The time that foreground tasks wait for one another, or for another process, does not count. An
//! executor has one bucket: many jobs together are held to the same limit as one job.
//!
//! All of this happens when a pacer is called, or by a timer while one waits: an executor without
//! paced jobs pays nothing. Under an executor that does not pace, [`pace`](Pacer::pace) is always
//! ready at once. For an executor that paces, [`host`](crate::host) has what it needs:
//! [`Host::paced`](crate::host::Host::paced), [`Admission`](crate::host::Admission) and
//! [`Machine`](crate::host::Machine).

pub(crate) mod admission;
mod bucket;
mod controller;
#[cfg(test)]
mod fake;
mod line;
mod pacer;
mod settings;
mod window;

pub use pacer::{Pace, Pacer};
pub use settings::{Settings, SettingsError};
