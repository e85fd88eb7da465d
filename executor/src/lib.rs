//! An async runtime for servers that do background work beside latency-sensitive work.
//!
//! # Quick start
//!
//! ```
//! giveway::block_on(async {
//!     let answer = giveway::spawn(async { 6 * 7 });
//!     assert_eq!(answer.await.unwrap(), 42);
//! });
//! ```
//!
//! [`block_on`] runs a future on this thread, on a runtime that it starts if there is none.
//! [`spawn`] starts a task beside it. Names and behaviour follow tokio where the thing is the same:
//! a [`JoinHandle`](task::JoinHandle) detaches on drop, `abort` cancels, and awaiting it gives a
//! `Result`.
//!
//! For settings use a [`Builder`]. For several runtimes hold each [`Runtime`]. To spawn from
//! threads that are not the runtime's own, clone a [`Handle`].
//!
//! # Background work
//!
//! A loop that may wait for all other work says so between two pieces of its own:
//!
//! ```
//! # fn work_on(_: u32) {}
//! giveway::block_on(async {
//!     let job = giveway::spawn(async {
//!         for piece in 0..1_000 {
//!             work_on(piece);
//!             giveway::yield_now_if_busy().await;
//!         }
//!     });
//!     job.await.unwrap();
//! });
//! ```
//!
//! [`yield_now_if_busy`] costs a nanosecond when no other task waits. When one does, it gives way
//! until nothing else is runnable. Code without yield points goes to [`spawn_background`]. Both
//! use every CPU that the foreground leaves idle.
//!
//! # Work that blocks, futures that do not move
//!
//! [`spawn_blocking`] runs a function on a thread of its own. [`block_in_place`] runs one in the
//! middle of a task, while another thread takes over its worker. [`spawn_pinned`] runs a future
//! that is not `Send`. A task that holds up the others without any of these is
//! [reported](Builder::on_long_poll), and tasks that wait for each other are
//! [found](Builder::detect_deadlock), if asked for.
//!
//! # Looking inside
//!
//! [`Handle::metrics`] says how long tasks wait for a worker and what the workers do.
//! [`Handle::dump`] says what every task is doing. See [`metrics`].
//!
//! # Features
//!
//! - `macros`, on by default: `#[giveway::main]` and `#[giveway::test]`.
//! - `tokio-io`: streams have the traits of `tokio::io` too, see [`net`].
//! - `tokio`: a tokio runtime beside this one, for libraries that need one ([`Builder`]'s `tokio`).
//! - `hyper`: streams have the traits of `hyper::rt` too; an executor and a timer for hyper, in
//!   `giveway::hyper`.
//! - `hyper-client`: a connector for the pooled client of `hyper-util`, in `giveway::hyper`.
//! - `quinn`: sockets, timers and tasks for quinn's QUIC, in `giveway::quinn`.
//! - `tracing`: reports of long polls as events.
//! - `stack-samples`: those reports say where in the program the poll was ([`Builder`]'s
//!   `sample_stacks`; Linux).
//!
//! # How it works
//!
//! Each worker has a queue of its own and a slot for the task woken last. A worker that has nothing
//! queued steals half of another's queue. If nothing is queued anywhere it takes a task that has
//! given way, and if there is none it sleeps. `docs/architecture.md` in the repository draws it;
//! every protocol has a page beside its code.

mod blocking;
pub mod elastic;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod entry;
pub mod fs;
mod handoff;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "hyper-client")]
mod hyper_client;
pub mod io;
mod lowered;
pub mod metrics;
mod monitor;
mod os;
mod parker;
#[cfg(feature = "quinn")]
pub mod quinn;
mod runtime;
mod sched;
mod stopwatch;
mod sync;
pub mod task;
mod worker;

#[cfg(test)]
mod models;

pub use blocking::spawn_blocking;
pub use giveway_budget as budget;
pub use giveway_io::{net, time};
#[cfg(feature = "macros")]
pub use giveway_macros::{main, test};
pub use handoff::block_in_place;
pub use monitor::{ExpectedWake, LongPoll};
pub use runtime::{
    Builder, EnterGuard, Handle, MAX_WORKERS, PanicPolicy, Runtime, ShutdownReport, StuckTask,
    TaskMeta, TaskPanic, block_on, should_yield, yield_now_if_busy,
};
pub use task::{spawn, spawn_background, spawn_pinned, yield_now};
