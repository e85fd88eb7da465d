//! Waiting for what the system does not report.

use crate::time::sleep;
use std::time::Duration;

const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(20);

/// Pauses that double, from `FIRST` up to `LONGEST`.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(FIRST)
    }

    pub(crate) async fn pause(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}
