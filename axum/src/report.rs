//! What became of the connections.

use std::fmt;
use std::time::Duration;

/// What became of the connections of a [`serve`](crate::serve) that has ended.
///
/// Its `Display` is one line for a log.
///
/// # Examples
///
/// ```
/// let report = giveway_axum::Report::default();
/// assert_eq!(
///     report.to_string(),
///     "0 connections accepted; 0 open at the shutdown, 0 cut off after 0ns"
/// );
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many connections were accepted.
    pub accepted: u64,
    /// How often the listener returned an error other than that a client was gone before it was
    /// accepted: no file descriptors, for example.
    pub accept_errors: u64,
    /// How many connections were open when the shutdown began, WebSockets included.
    pub open_at_shutdown: usize,
    /// How many of them were still open when the grace period was over, and were cut off. Zero
    /// without a grace period: then all were waited for.
    pub cut_off: usize,
    /// How long the shutdown took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accepted, accept_errors, open_at_shutdown, cut_off, took } = self;
        write!(f, "{accepted} connections accepted")?;
        if *accept_errors > 0 {
            write!(f, ", {accept_errors} errors of the listener")?;
        }
        write!(f, "; {open_at_shutdown} open at the shutdown, {cut_off} cut off after {took:?}")
    }
}
