//! A progress bar on the terminal while the acts run. Without a terminal, one line after each act.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

const WIDTH: usize = 40;

#[derive(Debug)]
pub(crate) struct Progress {
    acts: usize,
    over: usize,
    time: Duration,
    terminal: bool,
}

impl Progress {
    /// A bar for `acts` acts that take `time` each.
    pub(crate) fn new(acts: usize, time: Duration) -> Self {
        Self { acts, over: 0, time, terminal: stderr().is_terminal() }
    }

    /// Draws the bar for a running act.
    pub(crate) fn show(&mut self, act: &str, elapsed: Duration) {
        if self.terminal {
            let part = (elapsed.as_secs_f64() / self.time.as_secs_f64()).min(1.0);
            let filled = ((self.over as f64 + part) / self.acts as f64 * WIDTH as f64) as usize;
            let late = if elapsed > self.time { ", waiting for its answers" } else { "" };
            self.line(&format!(
                "[{}{}] act {} of {}: {act}{late}",
                "#".repeat(filled),
                ".".repeat(WIDTH - filled),
                self.over + 1,
                self.acts
            ));
        }
    }

    pub(crate) fn act_over(&mut self, act: &str) {
        self.over += 1;
        if !self.terminal {
            let _ = writeln!(stderr(), "act {} of {}: {act}: done", self.over, self.acts);
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if self.terminal {
            self.line("");
        }
    }

    fn line(&self, text: &str) {
        // The text is cut off at the right edge: a line that wraps could not be erased again.
        // Errors are ignored: a closed terminal is no reason to stop.
        let _ = write!(stderr(), "\r\x1b[2K\x1b[?7l{text}\x1b[?7h");
        let _ = stderr().flush();
    }
}
