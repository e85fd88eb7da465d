//! How a core moves from a thread that blocks to another thread, and back. The protocol is in
//! `hand_off.md` beside this file; the steps of the thread that blocks are in `worker/away.rs`.

mod call_sites;
mod lease;
mod place;

pub use place::block_in_place;

pub(crate) use call_sites::{CALLS, CallSite, Expect, LONG_CALL, POLLS};
pub(crate) use lease::{Lease, Loan, Recall};
pub(crate) use place::on_any_thread;
