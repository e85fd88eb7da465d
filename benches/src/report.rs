//! The table: the figures of each peer, the ratio of Giveway's to the others', and whether the goal
//! is reached. Then the list of losses.

use crate::work::percentile;
use std::fmt;
use std::fmt::Write as _;
use std::process::Command;

/// The figures of one peer, over all rounds.
#[derive(Debug, Clone, Copy)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The 10th percentile.
    pub low: f64,
    /// The 90th percentile.
    pub high: f64,
    /// Voluntary context switches of the process in a thousand operations, for lines where they
    /// mean something.
    pub switches: Option<f64>,
}

impl Summary {
    /// Makes it of one sample a round.
    pub fn of(mut samples: Vec<f64>) -> Self {
        let [low, median, high] = [0.1, 0.5, 0.9].map(|part| percentile(&mut samples, part));
        Self { median, low, high, switches: None }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}–{})", short(self.median), short(self.low), short(self.high))?;
        match self.switches {
            Some(switches) => write!(f, ", {} sw", short(switches)),
            None => Ok(()),
        }
    }
}

/// Formats a value with about three digits.
fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// What Giveway's figure has to be.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// Nothing was promised.
    None,
    /// At most this multiple of the best peer's figure.
    Ratio(f64),
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("–"),
            Self::Ratio(ratio) => write!(f, "{ratio:.2} ×"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

/// A line of the table, with the peers in the order of [`HEAD`].
#[derive(Debug, Clone)]
pub struct Line {
    /// What was measured, and in which unit.
    pub name: String,
    /// The figures of each peer.
    pub peers: [Summary; 3],
    /// What Giveway's figure has to be.
    pub goal: Goal,
}

/// The columns.
pub const HEAD: &str =
    "| | giveway | tokio | smol | ratio to the best other | goal |\n|---|---|---|---|---|---|";

impl Line {
    /// Returns the ratio of Giveway's figure to the best of the others', or the inverse where more
    /// is better: above one Giveway loses.
    fn ratio(&self) -> f64 {
        let [ours, others @ ..] = self.peers.map(|peer| peer.median);
        match self.goal {
            Goal::AtLeast(_) => others.into_iter().fold(0.0, f64::max) / ours,
            _ => ours / others.into_iter().fold(f64::MAX, f64::min),
        }
    }

    fn is_reached(&self) -> bool {
        let ours = self.peers[0].median;
        match self.goal {
            Goal::None => true,
            Goal::Ratio(ratio) => self.ratio() <= ratio,
            Goal::AtMost(most) => ours <= most,
            Goal::AtLeast(least) => ours >= least,
        }
    }

    /// Returns the text of a loss: a missed goal, a ratio above one, more context switches than a
    /// peer.
    fn loss(&self) -> Option<String> {
        let mut losses = Vec::new();
        if !self.is_reached() {
            losses.push(format!("misses its goal ({})", self.goal));
        }
        if self.ratio() > 1.0 {
            losses.push(format!("{:.2} of the best other", self.ratio()));
        }
        let [ours, others @ ..] = self.peers.map(|peer| peer.switches);
        let fewest = others.into_iter().flatten().fold(f64::MAX, f64::min);
        if let Some(ours) = ours.filter(|&ours| ours > fewest) {
            losses.push(format!(
                "{} context switches in 1,000 operations where another has {}",
                short(ours),
                short(fewest)
            ));
        }
        (!losses.is_empty()).then(|| format!("{}: {}", self.name, losses.join("; ")))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, tokio, smol] = &self.peers;
        let missed = if self.is_reached() { "" } else { " ✗" };
        write!(
            f,
            "| {} | {ours} | {tokio} | {smol} | {:.2} | {}{missed} |",
            self.name,
            self.ratio(),
            self.goal
        )
    }
}

/// Returns the list of losses, or says that there are none.
pub fn losses(lines: &[Line]) -> String {
    let losses: Vec<_> =
        lines.iter().filter_map(Line::loss).map(|loss| format!("- {loss}\n")).collect();
    let text = if losses.is_empty() { "- none in this run\n".to_owned() } else { losses.concat() };
    format!("Losses, in this run:\n\n{text}")
}

/// Returns the machine, the compiler, the commit and the command of this run, as a list.
pub fn provenance() -> String {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let unknown = || "unknown".to_owned();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let changed = said("git", &["status", "--porcelain", "--untracked-files=no"])
        .map_or("", |_| ", with changes");
    let mut text = String::new();
    let _ = writeln!(
        text,
        "- machine: {}, {cpus} CPUs, {}",
        cpu.unwrap_or_else(unknown),
        said("uname", &["-srm"]).unwrap_or_else(unknown)
    );
    let _ = writeln!(text, "- compiler: {}", said("rustc", &["--version"]).unwrap_or_else(unknown));
    let _ = writeln!(
        text,
        "- commit: {}{changed}",
        said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(unknown)
    );
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut command = vec!["cargo run --release -p giveway-benches"];
    if !arguments.is_empty() {
        command.push("--");
        command.extend(arguments.iter().map(String::as_str));
    }
    let _ = writeln!(text, "- command: `{}`", command.join(" "));
    text
}

const BEGIN: &str =
    "<!-- made by `cargo run --release -p giveway-benches -- --into`, from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Puts the report into a page, between the page's two marks.
///
/// # Errors
///
/// If the page cannot be read or written, or has no marks.
pub fn put_into(page: &str, report: &str) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{page}: {error}");
    let text = std::fs::read_to_string(page).map_err(told)?;
    let parts =
        text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or(format!("{page} has no place for the table: two lines {BEGIN}{END}"))?;
    std::fs::write(page, format!("{before}{BEGIN}\n{report}\n{END}{after}")).map_err(told)
}
