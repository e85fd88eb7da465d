//! Threads of the lowest priority: what they poll, and the proxy that takes locks on their behalf.

mod poll;
mod proxy;

pub(crate) use poll::poll;
#[cfg(test)]
pub(crate) use proxy::Service;
pub(crate) use proxy::{Proxy, run};
