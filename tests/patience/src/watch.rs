//! Watches over waits that have no limit of their own: `block_on`, the drop of a runtime, a
//! thread's join.

use crate::{Patience, threads};
use std::fmt;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Report = Box<dyn Fn() -> String + Send>;

/// Aborts the process with a report if it hangs before this value is dropped.
///
/// A thread cannot end another thread's test, so the whole process has to end. By then nothing else
/// goes on in it.
#[must_use = "the watch ends when this is dropped"]
pub struct Watch {
    reports: Arc<Mutex<Vec<Report>>>,
    _alive: Sender<()>,
}

/// Watches over the rest of the scope.
pub fn watch() -> Watch {
    let (alive, watched) = mpsc::channel::<()>();
    let reports = Arc::<Mutex<Vec<Report>>>::default();
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let to_print = reports.clone();
    thread::spawn(move || {
        let ended = Patience::new().keep_trying(|pause| match watched.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => None,
            _ => Some(()),
        });
        if ended.is_none() {
            give_up(&test, &to_print);
        }
    });
    Watch { reports, _alive: alive }
}

impl Watch {
    /// Adds `report` to what is printed if the process hangs.
    pub fn report(&self, report: impl Fn() -> String + Send + 'static) {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(report));
    }
}

fn give_up(test: &str, reports: &Mutex<Vec<Report>>) -> ! {
    // Not `eprintln!`: the test harness would capture the text, and the abort would lose it.
    let print = |text: &str| _ = writeln!(std::io::stderr(), "{text}");
    print(&format!(
        "{test}: the process does nothing any more, or turns in circles: something hangs. Its \
         threads:"
    ));
    print(&threads());
    for report in reports.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        print(&report());
    }
    std::process::abort();
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
