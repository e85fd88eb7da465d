//! What the controller is to keep to.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Between which limits paced work is held, and what makes them move. One for a whole runtime: however many pacers it
/// has, their sum is bounded.
///
/// A limit is a share of all cores: with eight, 0.25 is two CPU seconds a second.
///
/// # Examples
///
/// ```
/// use giveway_yield::elastic::Settings;
/// use std::time::Duration;
///
/// let careful = Settings::new().maximum(0.5).target_latency(Duration::from_micros(500));
/// assert!(careful.check().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "settings do nothing until an executor is given them"]
pub struct Settings {
    pub(super) target: Duration,
    pub(super) minimum: f64,
    pub(super) maximum: f64,
    pub(super) baseline: f64,
    // By how much the limit rises, in a second.
    pub(super) delta: f64,
}

impl Settings {
    /// The defaults: a target of 1 ms, limits of 5 % to 75 % of all cores, a baseline of 25 %, and a delta of 1 % a second.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// assert_eq!(Settings::new(), Settings::default());
    /// ```
    pub const fn new() -> Self {
        Self { target: Duration::from_millis(1), minimum: 0.05, maximum: 0.75, baseline: 0.25, delta: 0.01 }
    }

    /// How long paced work may keep foreground tasks waiting for a worker: all but the hundredth part of them, which may wait for
    /// longer. While it keeps more of them for longer the limit falls. By default 1 ms; more than zero.
    ///
    /// What they wait for other reasons, behind one another or for another process, does not count.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    /// use std::time::Duration;
    ///
    /// let patient = Settings::new().target_latency(Duration::from_millis(5));
    /// assert!(Settings::new().target_latency(Duration::ZERO).check().is_err());
    /// ```
    pub const fn target_latency(mut self, target: Duration) -> Self {
        self.target = target;
        self
    }

    /// What paced work always gets, whatever it does to others. By default 0.05; more than zero, since otherwise it might
    /// wait for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// assert!(Settings::new().minimum(0.01).check().is_ok());
    /// assert!(Settings::new().minimum(0.0).check().is_err());
    /// ```
    pub const fn minimum(mut self, share: f64) -> Self {
        self.minimum = share;
        self
    }

    /// What paced work never gets more than. By default 0.75; at most one.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// assert!(Settings::new().maximum(1.0).check().is_ok());
    /// assert!(Settings::new().maximum(1.5).check().is_err());
    /// ```
    pub const fn maximum(mut self, share: f64) -> Self {
        self.maximum = share;
        self
    }

    /// Where the limit starts, and where it goes back to while no job waits for more. By default 0.25; between the minimum
    /// and the maximum.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// assert!(Settings::new().baseline(0.5).check().is_ok());
    /// assert!(Settings::new().baseline(0.01).check().is_err(), "that is below the minimum");
    /// ```
    pub const fn baseline(mut self, share: f64) -> Self {
        self.baseline = share;
        self
    }

    /// By how much the limit rises in a second while paced work waits, and keeps nobody waiting. It falls twice as fast, and
    /// goes back to the baseline half as fast. By default 0.01; zero keeps it where it is.
    ///
    /// CockroachDB's is a tenth of that. There the limit is all that stands between elastic work and queries, and a limit
    /// that moves fast overshoots; here a paced job gives way at every call besides.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// let lively = Settings::new().delta_per_second(0.05);
    /// assert!(Settings::new().delta_per_second(f64::NAN).check().is_err());
    /// ```
    pub const fn delta_per_second(mut self, delta: f64) -> Self {
        self.delta = delta;
        self
    }

    /// A limit that does not move: so much and no more, whoever waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// assert!(Settings::fixed(0.5).check().is_ok());
    /// ```
    pub const fn fixed(share: f64) -> Self {
        Self { minimum: share, maximum: share, baseline: share, ..Self::new() }
    }

    /// Whether they make sense. Executors ask before they use them.
    ///
    /// # Errors
    ///
    /// If a share is not a number, or they are not in order: more than zero, minimum, baseline, maximum, one. If the target
    /// is zero, or the delta negative or no number.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// let error = Settings::new().minimum(-1.0).check().unwrap_err();
    /// assert!(error.to_string().contains("minimum"));
    /// ```
    pub fn check(&self) -> Result<(), SettingsError> {
        let Self { target, minimum, maximum, baseline, delta } = *self;
        // What is no number is in no range, and refused.
        let in_order = minimum <= baseline && baseline <= maximum;
        let problem = if !(f64::MIN_POSITIVE..).contains(&minimum) {
            format!("the minimum is {minimum}; paced work needs a share above zero, or it would wait for ever")
        } else if !(..=1.0).contains(&maximum) {
            format!("the maximum is {maximum}; there is no more than 1, which is every core")
        } else if minimum > maximum {
            format!("the minimum is {minimum}, and the maximum {maximum}; it belongs the other way round")
        } else if !in_order {
            format!("the baseline is {baseline}; it belongs between the minimum, {minimum}, and the maximum, {maximum}")
        } else if !(0.0..=f64::MAX).contains(&delta) {
            format!("the delta is {delta} a second; it is a share, zero or more")
        } else if target.is_zero() {
            "the target latency is zero; every task waits a moment, so the limit would only fall".into()
        } else {
            return Ok(());
        };
        Err(SettingsError(problem))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

/// Why [`Settings`] make no sense. See [`Settings::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "elastic settings: {}", self.0)
    }
}

impl Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_and_the_edges_are_accepted() {
        for settings in [
            Settings::new(),
            Settings::fixed(1.0),
            Settings::fixed(f64::MIN_POSITIVE),
            Settings::new().delta_per_second(0.0),
            Settings::new().minimum(0.25).baseline(0.25),
            Settings::new().maximum(0.25).baseline(0.25),
        ] {
            assert_eq!(settings.check(), Ok(()), "{settings:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (settings, named) in [
            (Settings::new().minimum(0.0), "minimum"),
            (Settings::new().minimum(-0.1), "minimum"),
            (Settings::new().minimum(f64::NAN), "minimum"),
            (Settings::new().maximum(1.01), "maximum"),
            (Settings::new().maximum(f64::INFINITY), "maximum"),
            (Settings::new().maximum(f64::NAN), "maximum"),
            (Settings::new().baseline(0.01), "baseline"),
            (Settings::new().baseline(0.9), "baseline"),
            (Settings::new().baseline(f64::NAN), "baseline"),
            (Settings::new().minimum(0.8), "minimum"),
            (Settings::new().minimum(0.9).maximum(0.1), "minimum"),
            (Settings::new().minimum(0.3), "baseline"),
            (Settings::new().delta_per_second(-0.1), "delta"),
            (Settings::new().delta_per_second(f64::NAN), "delta"),
            (Settings::new().delta_per_second(f64::INFINITY), "delta"),
            (Settings::new().target_latency(Duration::ZERO), "target"),
        ] {
            let error = settings.check().expect_err("it makes no sense").to_string();
            assert!(error.contains(&format!("the {named}")), "{settings:?}: {error}");
        }
    }
}
