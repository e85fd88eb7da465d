//! Pacing of background jobs: a share of the cores that shrinks when they keep foreground tasks waiting.
//!
//! [`yield_now_if_busy`](crate::yield_now_if_busy) is enough for most background work: it leaves the core to whoever waits
//! for it, within microseconds. What it cannot leave to them is all that cores share: caches, memory bandwidth, a disk; nor
//! does it help while a job is between two yield points. A job that is paced is held back before it runs:
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
//! CPU time flows into a bucket at `limit × cores`, and jobs take it from there in [slices](Pacer::with_slice). Ten times a
//! second a controller looks at how long paced jobs kept foreground tasks waiting for a core, in the last 2.5 seconds. If they
//! kept more than a hundredth of them for longer than a [target](Settings::target_latency) it lowers the limit; otherwise it
//! raises it, half as fast, if a job waits for a slice; otherwise the limit goes back to its [baseline](Settings::baseline).
//! What foreground tasks wait for one another, or for another process, does not count. There is one bucket for an executor,
//! so that many jobs together are held to the same limit as one.
//!
//! All that happens when a pacer calls, or by a timer while one waits: an executor without paced jobs pays nothing. Under
//! an executor that does not pace, [`pace`](Pacer::pace) is always ready at once. For one that will, [`host`](crate::host) has
//! what it needs: [`Host::paced`](crate::host::Host::paced), [`Admission`](crate::host::Admission) and
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
