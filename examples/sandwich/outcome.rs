//! The results of an act, and their reports: a table, a sentence, JSON.

use crate::customers::Request;
use crate::kitchen::{Act, CHUNK};
use crate::options::Options;
use crate::seconds;
use std::fmt::Write;
use std::time::Duration;

/// The results of one act.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) act: Act,
    /// The requests, in the order in which they were due.
    pub(crate) requests: Vec<Request>,
    /// How long the requests took, the shortest first.
    sorted: Vec<Duration>,
    /// Background work in CPUs, averaged over the act.
    pub(crate) background: f64,
    /// Background work from one measurement to the next: when the interval ended, and how many CPUs
    /// of work were done in it.
    pub(crate) background_over_time: Vec<(Duration, f64)>,
    /// How many CPUs the process used, including the threads that send the requests.
    pub(crate) cpus: f64,
}

impl Outcome {
    /// Evaluates an act. `work` lists when how much background work had been done; `elapsed` is the
    /// time until the last answer.
    pub(crate) fn of(
        act: Act,
        requests: Vec<Request>,
        work: &[(Duration, Duration)],
        cpu_time: Duration,
        elapsed: Duration,
    ) -> Self {
        let mut sorted: Vec<_> = requests.iter().map(|request| request.took).collect();
        sorted.sort_unstable();
        let rate = |pair: &[(Duration, Duration)]| {
            let ((from, before), (to, after)) = (pair[0], pair[pair.len() - 1]);
            (to, seconds(after - before) / seconds(to - from).max(1e-9))
        };
        Self {
            act,
            requests,
            sorted,
            background: if work.len() > 1 { rate(work).1 } else { 0.0 },
            background_over_time: work.windows(2).map(rate).collect(),
            cpus: seconds(cpu_time) / seconds(elapsed).max(1e-9),
        }
    }

    /// Returns the latency that the fraction `part` of the requests did not exceed.
    pub(crate) fn percentile(&self, part: f64) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
    }
}

/// The latency columns: the name in the table, the key in the JSON, and the fraction of all
/// requests.
const PARTS: [(&str, &str, f64); 4] = [
    ("p50", "p50_us", 0.5),
    ("p99", "p99_us", 0.99),
    ("p99.9", "p999_us", 0.999),
    ("max", "max_us", 1.0),
];

pub(crate) fn table(outcomes: &[Outcome], options: &Options, real_time: bool) -> String {
    let mut text = format!(
        "{} requests a second over loopback TCP, {} µs of work each; {} background jobs; {} \
         workers; {} s an act\n",
        options.rate,
        CHUNK.as_micros(),
        options.background,
        options.workers,
        seconds(options.time),
    );
    if !real_time {
        text += "(the system refuses real-time priority to the customers' threads; the workers \
                 run at a lower one instead)\n";
    }
    let head = PARTS.map(|(name, ..)| format!("{name:>9}")).concat();
    let _ = write!(text, "\n{:<30}{head}  {:>17}  {:>10}", "", "background work", "CPU used");
    for outcome in outcomes {
        let cells =
            PARTS.map(|(_, _, part)| format!("{:>9}", short(outcome.percentile(part)))).concat();
        let background = match outcome.act {
            Act::Nothing => "–".to_owned(),
            _ => format!("{:.2} of {} CPUs", outcome.background, options.most_cpus()),
        };
        let cpu = outcome.cpus / options.cpus as f64 * 1e2;
        let _ = write!(text, "\n{:<30}{cells}  {background:>17}  {cpu:>8.0} %", outcome.act.name());
    }
    text + "\n"
}

/// Notes what part of the machine other processes used, if that was more than 5 %: it affects the
/// figures.
pub(crate) fn others(part: Option<f64>) -> String {
    match part {
        Some(part) if part > 0.05 => {
            format!("\n(other processes used {:.0} % of the machine meanwhile)\n", part * 1e2)
        }
        _ => String::new(),
    }
}

/// Summarizes the results in a sentence.
pub(crate) fn moral(outcomes: &[Outcome]) -> String {
    let p99 = |wanted| {
        outcomes.iter().find(|outcome| outcome.act == wanted).map(|it| it.percentile(0.99))
    };
    let (Some(idle), Some(never), Some(now), Some(if_busy), Some(background), Some(last)) = (
        p99(Act::Nothing),
        p99(Act::NeverYields),
        p99(Act::YieldNow),
        p99(Act::YieldNowIfBusy),
        p99(Act::SpawnBackground),
        outcomes.iter().find(|outcome| outcome.act == Act::YieldNowIfBusy),
    ) else {
        return String::new();
    };
    let explanation = if if_busy < idle {
        "\n(Beside nothing it takes longer because idle CPUs sleep: to wake one takes longer than \
         for a job on a busy one to give way.)"
    } else {
        ""
    };
    format!(
        "With yield_now_if_busy the background did {:.2} CPUs' worth of work and 99 of 100 \
         requests were answered within {}: beside nothing at all it was {}, beside yield_now {}, \
         beside jobs that never yield {}, and beside the same by spawn_background {}.{explanation}",
        last.background,
        short(if_busy),
        short(idle),
        short(now),
        short(never),
        short(background),
    )
}

/// Writes a time with about three digits.
pub(crate) fn short(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1e3;
    match micros {
        ..9.95 => format!("{micros:.1} µs"),
        ..999.5 => format!("{micros:.0} µs"),
        ..9_950.0 => format!("{:.1} ms", micros / 1e3),
        ..999_500.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

pub(crate) fn json(outcomes: &[Outcome], options: &Options) -> String {
    let acts: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            let parts = PARTS.map(|(_, key, part)| {
                format!("\"{key}\": {:.1}", outcome.percentile(part).as_nanos() as f64 / 1e3)
            });
            format!(
                "    {{\"act\": \"{}\", \"requests\": {}, {}, \"background_cpus\": {:.3}, \
                 \"cpus_used\": {:.3}}}",
                outcome.act.name(),
                outcome.requests.len(),
                parts.join(", "),
                outcome.background,
                outcome.cpus,
            )
        })
        .collect();
    format!(
        "{{\n  \"secs\": {}, \"rate\": {}, \"background\": {}, \"workers\": {},\n  \"acts\": \
         [\n{}\n  ]\n}}",
        seconds(options.time),
        options.rate,
        options.background,
        options.workers,
        acts.join(",\n"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of the five acts, each with one request that took the given number of
    /// microseconds.
    fn outcomes(times: [u64; 5]) -> Vec<Outcome> {
        let outcome = |(act, time)| {
            let request = Request { due: Duration::ZERO, took: Duration::from_micros(time) };
            Outcome::of(act, vec![request], &[], Duration::ZERO, Duration::from_secs(1))
        };
        Act::ALL.into_iter().zip(times).map(outcome).collect()
    }

    #[test]
    fn requests_that_are_slower_beside_nothing_are_explained() {
        assert!(
            moral(&outcomes([200, 9_000, 4_000, 150, 160])).contains("to wake one takes longer")
        );
        assert!(
            !moral(&outcomes([100, 9_000, 4_000, 150, 160])).contains("to wake one takes longer")
        );
    }
}
