//! What the controller has to keep to.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The limits that paced work is held between, and what makes the limit move.
///
/// A runtime has one of these: however many pacers it has, their sum is bounded. A limit is a share
/// of all cores: with eight, 0.25 is two CPU seconds a second.
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
    /// By how much the limit rises in a second.
    pub(super) delta: f64,
}

impl Settings {
    /// Creates the defaults: a target of 1 ms, limits of 5 % to 75 % of all cores, a baseline of
    /// 25 %, and a delta of 1 % a second.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_yield::elastic::Settings;
    ///
    /// assert_eq!(Settings::new(), Settings::default());
    /// ```
    pub const fn new() -> Self {
        Self {
            target: Duration::from_millis(1),
            minimum: 0.05,
            maximum: 0.75,
            baseline: 0.25,
            delta: 0.01,
        }
    }

    /// Sets how long paced work may keep foreground tasks waiting for a worker.
    ///
    /// A hundredth of these tasks may wait for longer; while paced work keeps more of them waiting
    /// for longer, the limit falls. The default is 1 ms. It has to be more than zero.
    ///
    /// The time that foreground tasks wait for other reasons, behind one another or for another
    /// process, does not count.
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

    /// Sets the share that paced work always gets, whatever it does to other tasks.
    ///
    /// The default is 0.05. It has to be more than zero, since paced work might wait for ever
    /// otherwise.
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

    /// Sets the share that paced work never gets more than. The default is 0.75. It may be at most
    /// one.
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

    /// Sets where the limit starts, and where it goes back to while no job waits for more.
    ///
    /// The default is 0.25. It has to be between the minimum and the maximum.
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

    /// Sets by how much the limit rises in a second, while paced work waits and keeps foreground
    /// tasks waiting for no longer than the target.
    ///
    /// The limit falls twice as fast, and goes back to the baseline half as fast. The default is
    /// 0.01; zero keeps the limit where it is.
    ///
    /// CockroachDB's delta is a tenth of that. There the limit is all that stands between elastic
    /// work and queries, and a limit that moves fast overshoots. Here a paced job also gives way at
    /// every call.
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

    /// Creates settings with a limit that does not move: paced work gets `share`, whichever tasks
    /// wait.
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

    /// Checks that the settings make sense. An executor calls it before it uses them.
    ///
    /// # Errors
    ///
    /// If a share is not a number, or `0 < minimum <= baseline <= maximum <= 1` does not hold. If
    /// the target is zero, or the delta is negative or not a finite number.
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
        // What is not a number is in no range, and is refused.
        let in_order = minimum <= baseline && baseline <= maximum;
        let problem = if !(f64::MIN_POSITIVE..).contains(&minimum) {
            format!(
                "the minimum is {minimum}; paced work needs a share above zero, or it would wait \
                 for ever"
            )
        } else if !(..=1.0).contains(&maximum) {
            format!("the maximum is {maximum}; there is no more than 1, which is every CPU")
        } else if minimum > maximum {
            format!(
                "the minimum is {minimum}, and the maximum {maximum}; the minimum must not \
                 exceed the maximum"
            )
        } else if !in_order {
            format!(
                "the baseline is {baseline}; it belongs between the minimum, {minimum}, and the \
                 maximum, {maximum}"
            )
        } else if !(0.0..=f64::MAX).contains(&delta) {
            format!("the delta is {delta} a second; it is a share, zero or more")
        } else if target.is_zero() {
            "the target latency is zero; every task waits a moment, so the limit would only fall"
                .into()
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

/// What is wrong with [`Settings`]. See [`Settings::check`] for an example.
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
