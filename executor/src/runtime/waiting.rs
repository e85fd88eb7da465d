//! Reports what a drop of the runtime waits for, while it waits.

use super::report::Rounded;
use super::shared::CREWS;
use super::{Phase, Shared, ShutdownReport};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a drop waits before its first report. The pause before each further report is twice the
/// one before, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause between two reports.
const LONGEST: Duration = Duration::from_secs(600);

/// The most tasks and jobs that one report names.
const MOST: usize = 10;

/// Waits until every worker, every blocking thread and every poll without a core has ended. Reports
/// what it waits for, after pauses that grow.
pub(super) fn until_ended(shared: &Arc<Shared>) {
    let (began, mut pause) = (Instant::now(), FIRST);
    loop {
        let deadline = Some(Instant::now() + pause);
        let workers = shared.gate.wait_ended(deadline);
        let pools = shared.pools().map(|pool| pool.wait_ended(deadline));
        let tokio = shared.tokio.wait_ended(deadline);
        if workers.is_empty() && pools == [true; CREWS] && tokio {
            return;
        }
        let left = shared.pools().map(|pool| pool.left());
        let mut report = ShutdownReport::new(shared, &workers, left, began);
        if !tokio && shared.gate.phase() == Phase::Terminated {
            report.add_tokio(shared);
        }
        say(&report, began.elapsed(), pause == FIRST);
        pause = (2 * pause).min(LONGEST);
    }
}

/// Writes a report to standard error itself: in a test, what `eprintln!` writes would be kept until
/// the test has ended.
fn say(report: &ShutdownReport, waited: Duration, first: bool) {
    let (going_on, waiting): (Vec<_>, Vec<_>) =
        report.stuck_tasks().iter().partition(|task| task.has_started());
    let mut text = String::new();
    for task in going_on.iter().take(MOST) {
        let _ = writeln!(text, "giveway: dropping the runtime waits for {task}");
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "giveway",
            id = %task.id(),
            name = task.name(),
            spawned_at = %task.spawned_at(),
            worker = task.worker(),
            is_blocking_job = task.is_blocking_job(),
            waited_ms = waited.as_millis() as u64,
            "dropping the runtime waits for a task: {task}"
        );
    }
    let count =
        |count: usize, of: &str| format!("{count} {of}{}", if count == 1 { "" } else { "s" });
    let mut others = Vec::new();
    if going_on.len() > MOST {
        others.push(count(going_on.len() - MOST, "other task or job"));
    }
    if !waiting.is_empty() {
        others.push(format!("{} in the queue", count(waiting.len(), "blocking job")));
    }
    let of_tokio = report.threads_of_tokio();
    if of_tokio > 0 {
        others.push(format!("{} of tokio, in a poll or a blocking job", count(of_tokio, "thread")));
    }
    let ours = report.stuck_threads() - of_tokio;
    if going_on.is_empty() && (ours > 0 || of_tokio == 0) {
        others.push(format!("{} in no task, but in a hook perhaps", count(ours, "thread")));
    }
    if !others.is_empty() {
        let others = others.join(" and ");
        let _ = writeln!(
            text,
            "giveway: dropping the runtime waits for {others}, after {}",
            Rounded(waited)
        );
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "giveway", waited_ms = waited.as_millis() as u64, "dropping the runtime waits for {others}");
    }
    if first {
        text.push_str(
            "giveway: a task is dropped when its poll returns, a blocking job runs to its \
             end; `Runtime::shutdown_timeout` does not wait for ever\n",
        );
    }
    // If that fails, there is no other place for the report.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
