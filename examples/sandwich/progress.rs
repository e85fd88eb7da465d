//! A progress bar on the terminal while the acts run. Without a terminal, one line after each act.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Steps of the bar in an act.
const STEPS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Progress {
    acts: usize,
    over: usize,
    time: Duration,
    bar: ProgressBar,
}

impl Progress {
    /// A bar for `acts` acts that take `time` each.
    pub(crate) fn new(acts: usize, time: Duration) -> Self {
        let bar = ProgressBar::new(acts as u64 * STEPS);
        let style = ProgressStyle::with_template("[{bar:40}] {msg}").expect("a template");
        bar.set_style(style.progress_chars("##."));
        Self { acts, over: 0, time, bar }
    }

    /// Draws the bar for a running act.
    pub(crate) fn show(&mut self, act: &str, elapsed: Duration) {
        let part = (elapsed.as_secs_f64() / self.time.as_secs_f64()).min(1.0);
        let late = if elapsed > self.time { ", waiting for its answers" } else { "" };
        self.bar.set_message(format!("act {} of {}: {act}{late}", self.over + 1, self.acts));
        self.bar.set_position(self.over as u64 * STEPS + (part * STEPS as f64) as u64);
    }

    pub(crate) fn act_over(&mut self, act: &str) {
        self.over += 1;
        if self.bar.is_hidden() {
            eprintln!("act {} of {}: {act}: done", self.over, self.acts);
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
