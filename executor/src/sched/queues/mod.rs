//! The queues beside the deques: the slot of each core, the injector and the yield queue.

mod injector;
mod ring;
mod slot;
mod yield_queue;

pub(crate) use injector::Injector;
pub(super) use ring::Ring;
pub(crate) use slot::{PointerSized, Slot};
pub(crate) use yield_queue::{Entry, YieldQueue, Yielded};
