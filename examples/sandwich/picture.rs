//! The picture. Each request is a dot: x is when it was due, y how long it took. Below, an area
//! shows how much background work was done at that time. The five acts stand side by side, on one
//! scale.

use crate::kitchen::{Act, JOB};
use crate::options::Options;
use crate::outcome::{Outcome, short};
use crate::seconds;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

const WIDTH: f64 = 1_400.0;
const HEIGHT: f64 = 640.0;
/// The left edge of both panels.
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
/// The vertical extent of the upper panel, and after it that of the lower one.
const LATENCY: Span = Span { top: 128.0, bottom: 452.0 };
const WORK: Span = Span { top: 500.0, bottom: 586.0 };

/// The y coordinate of the last line of text.
const FOOT: f64 = HEIGHT - 14.0;

/// At most how many requests of each act are drawn at even distances. The slowest request between
/// two of them is drawn too.
const DOTS: usize = 500;
/// The number of stretches of an act for which the line shows the p99.
const STRETCHES: usize = 50;

struct Span {
    top: f64,
    bottom: f64,
}

impl Span {
    /// Returns the y coordinate of a fraction of the way from the bottom to the top.
    fn at(&self, part: f64) -> f64 {
        self.bottom - part.clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}

fn colour(act: Act) -> &'static str {
    match act {
        Act::Nothing => "#6b7280",
        Act::NeverYields => "#c0262d",
        Act::YieldNow => "#c77700",
        Act::YieldNowIfBusy => "#12813f",
        Act::SpawnBackground => "#1d4ed8",
    }
}

/// Draws the acts, and writes the picture to a file.
pub(crate) fn draw(file: &Path, outcomes: &[Outcome], options: &Options) -> io::Result<()> {
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    std::fs::write(file, svg(outcomes, options)).map_err(told)
}

fn svg(outcomes: &[Outcome], options: &Options) -> String {
    let mut picture = Picture { text: String::new(), decades: Decades::of(outcomes) };
    picture.head(options);
    picture.scales(options.most_cpus());
    let width = (RIGHT - LEFT) / outcomes.len() as f64;
    for (index, outcome) in outcomes.iter().enumerate() {
        let left = LEFT + width * index as f64;
        picture.act(index, outcome, options, Panel { left, width, time: options.time });
    }
    picture.text += "</svg>\n";
    picture.text
}

/// The part of the picture that belongs to one act.
#[derive(Clone, Copy)]
struct Panel {
    left: f64,
    width: f64,
    time: Duration,
}

impl Panel {
    fn x(self, time: Duration) -> f64 {
        self.left + self.width * (seconds(time) / seconds(self.time)).min(1.0)
    }
}

/// The scale of the latencies, in powers of ten of a microsecond.
struct Decades {
    low: i32,
    high: i32,
}

impl Decades {
    fn of(outcomes: &[Outcome]) -> Self {
        let power = |time: Duration| (time.as_nanos().max(1) as f64 / 1e3).log10();
        let low = outcomes
            .iter()
            .map(|outcome| power(outcome.percentile(0.0)))
            .fold(9.0, f64::min)
            .floor() as i32;
        let high = outcomes
            .iter()
            .map(|outcome| power(outcome.percentile(1.0)))
            .fold(0.0, f64::max)
            .ceil() as i32;
        Self { low, high: high.max(low + 1) }
    }

    /// Returns the y coordinate of a latency.
    fn y(&self, took: Duration) -> f64 {
        let power = (took.as_nanos().max(1) as f64 / 1e3).log10();
        LATENCY.at((power - f64::from(self.low)) / f64::from(self.high - self.low))
    }
}

struct Picture {
    text: String,
    decades: Decades,
}

impl Picture {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{element}");
    }

    fn head(&mut self, options: &Options) {
        let (Options { rate, background, workers, .. }, job) = (options, JOB.as_millis());
        self.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\" \
             fill=\"#1f2937\">\n<title>How long requests take beside background work, in five \
             acts</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text \
             x=\"{LEFT}\" y=\"32\" font-size=\"20\" font-weight=\"600\">How long a request takes \
             beside background work</text>\n<text x=\"{LEFT}\" y=\"54\" fill=\"#4b5563\">{rate} \
             requests a second over loopback TCP, {background} background jobs of {job} ms each, \
             {workers} workers of one Giveway runtime.</text>\n<text x=\"{LEFT}\" y=\"{FOOT}\" \
             fill=\"#4b5563\">Dots: one of every few requests, and the slowest of them. Line: \
             what 99 of 100 take.</text>"
        ));
    }

    /// Draws the lines and labels of both panels.
    fn scales(&mut self, cpus: usize) {
        for power in self.decades.low..=self.decades.high {
            let took = Duration::from_nanos((10_f64.powi(power) * 1e3) as u64);
            let (y, label) = (self.decades.y(took), round(power));
            self.line(y, &label);
        }
        for (part, label) in [(0.0, "0".to_owned()), (1.0, cpus.to_string())] {
            self.line(WORK.at(part), &label);
        }
        let mut sideways = |middle: f64, text: &str| {
            self.add(format_args!(
                "<text transform=\"translate(20 {middle}) rotate(-90)\" text-anchor=\"middle\" \
                 fill=\"#4b5563\">{text}</text>"
            ));
        };
        sideways((LATENCY.top + LATENCY.bottom) / 2.0, "latency (log scale)");
        sideways((WORK.top + WORK.bottom) / 2.0, "CPUs");
        self.add(format_args!(
            "<text x=\"{LEFT}\" y=\"{}\" fill=\"#4b5563\">Background work done meanwhile, in \
             CPUs</text>\n<text x=\"{RIGHT}\" y=\"{FOOT}\" text-anchor=\"end\" \
             fill=\"#4b5563\">seconds of each act</text>",
            WORK.top - 12.0,
        ));
    }

    fn line(&mut self, y: f64, label: &str) {
        self.add(format_args!(
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#e5e7eb\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\" fill=\"#4b5563\">{label}</text>",
            LEFT - 8.0,
            y + 4.5,
        ));
    }

    fn act(&mut self, index: usize, outcome: &Outcome, options: &Options, panel: Panel) {
        let colour = colour(outcome.act);
        let Panel { left, width, .. } = panel;
        // A tinted background, and the name of the act.
        for span in [&LATENCY, &WORK] {
            self.add(format_args!(
                "<rect x=\"{:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\" \
                 fill-opacity=\"0.05\"/>",
                left + 1.0,
                span.top,
                width - 2.0,
                span.bottom - span.top,
            ));
        }
        let middle = left + width / 2.0;
        self.add(format_args!(
            "<text x=\"{middle:.1}\" y=\"88\" text-anchor=\"middle\" font-size=\"14\" \
             font-weight=\"600\" fill=\"{colour}\">{}. {}</text>\n<text x=\"{middle:.1}\" \
             y=\"110\" text-anchor=\"middle\">p50 {}, p99 {}</text>",
            index + 1,
            outcome.act.name(),
            short(outcome.percentile(0.5)),
            short(outcome.percentile(0.99)),
        ));
        self.dots(outcome, panel, colour);
        self.worst(outcome, panel, colour);
        if outcome.act != Act::Nothing {
            self.work(outcome, options.most_cpus(), panel, colour);
        }
        let secs = seconds(options.time);
        for (part, anchor) in [(0.0, "start"), (1.0, "end")] {
            let (x, inset) = (left + width * part, 4.0 - 8.0 * part);
            self.add(format_args!(
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\" fill=\"#4b5563\">{}</text>",
                x + inset,
                WORK.bottom + 18.0,
                secs * part,
            ));
        }
    }

    /// Draws the requests as one path of points: a circle for each would make the file ten times as
    /// long.
    fn dots(&mut self, outcome: &Outcome, panel: Panel, colour: &str) {
        let mut path = String::new();
        let every = outcome.requests.len().div_ceil(DOTS).max(1);
        for stretch in outcome.requests.chunks(every) {
            // The slowest request of each stretch is drawn, because outliers are what matters.
            let slowest = stretch.iter().max_by_key(|request| request.took);
            for request in [stretch.first(), slowest].into_iter().flatten() {
                let _ = write!(
                    path,
                    "M{:.1} {:.1}h0",
                    panel.x(request.due),
                    self.decades.y(request.took)
                );
            }
        }
        self.add(format_args!(
            "<path d=\"{path}\" stroke=\"{colour}\" stroke-opacity=\"0.4\" stroke-width=\"3\" \
             stroke-linecap=\"round\"/>"
        ));
    }

    /// Draws the line of the p99.
    fn worst(&mut self, outcome: &Outcome, panel: Panel, colour: &str) {
        let mut path = String::new();
        let each = outcome.requests.len().div_ceil(STRETCHES).max(1);
        for stretch in outcome.requests.chunks(each) {
            let mut took: Vec<_> = stretch.iter().map(|request| request.took).collect();
            took.sort_unstable();
            let p99 = took[((took.len() - 1) as f64 * 0.99).round() as usize];
            let y = self.decades.y(p99);
            let (from, to) = (panel.x(stretch[0].due), panel.x(stretch[stretch.len() - 1].due));
            let _ =
                write!(path, "{}{from:.1} {y:.1}H{to:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        self.add(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
        ));
    }

    /// Draws the area of background work.
    fn work(&mut self, outcome: &Outcome, most: usize, panel: Panel, colour: &str) {
        let mut path = format!("M{:.1} {:.1}", panel.left, WORK.bottom);
        let mut end = panel.left;
        for &(until, cpus) in &outcome.background_over_time {
            let to = panel.x(until);
            let _ = write!(path, "L{end:.1} {y:.1}H{to:.1}", y = WORK.at(cpus / most as f64));
            end = to;
        }
        self.add(format_args!(
            "<path d=\"{path}V{:.1}Z\" fill=\"{colour}\" fill-opacity=\"0.45\"/>\n<text \
             x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-weight=\"600\">{:.2}</text>",
            WORK.bottom,
            panel.left + panel.width / 2.0,
            (WORK.top + WORK.bottom) / 2.0 + 5.0,
            outcome.background,
        ));
    }
}

/// Writes a power of ten of a microsecond with its unit.
fn round(power: i32) -> String {
    match power {
        6.. => format!("{} s", 10_i64.pow(power as u32 - 6)),
        3.. => format!("{} ms", 10_i64.pow(power as u32 - 3)),
        0.. => format!("{} µs", 10_i64.pow(power as u32)),
        _ => format!("{} µs", 10_f64.powi(power)),
    }
}
