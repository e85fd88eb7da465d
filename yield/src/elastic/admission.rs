//! What all pacers of one executor share: the controller, the bucket, and the line before it.
//!
//! It has no thread. Pacers move it along when they come for a slice, and while somebody waits in line an alarm of the
//! executor does: at the moment when the next slice can be had, and at least every step of the controller. So nobody who
//! waits depends on anybody else being polled.
//!
//! One lock, under which no code of others runs: wakers are cloned before it, woken and dropped after it, and the executor is
//! asked and told without it.

use super::Settings;
use super::bucket::Bucket;
use super::controller::Sample;
use super::line::{Left, Line};
use super::window::{Counts, STEP, Window};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

/// What an executor tells its [`Admission`]. Times are nanoseconds by a clock of its own that does not go back.
///
/// No lock is held when they are called. See [`Admission`] for an example.
pub trait Machine: Send + Sync {
    /// What the clock says. See [`Admission`].
    fn now(&self) -> u64;

    /// How many cores run tasks. See [`Admission`].
    fn cores(&self) -> usize;

    /// How long paced tasks have kept foreground tasks waiting for a core, since the start: calls `bucket` for each bucket of a
    /// histogram, always the same ones in the same order, with the longest time that belongs to it and the number of foreground
    /// tasks that were kept for so long, those that were not kept at all in the first. The last has no end: [`u64::MAX`].
    ///
    /// The limit falls if this is too long, so only time counts that would be shorter under a lower limit: of the time from when
    /// a task became runnable until it was polled the part of all cores that polls of paced tasks took meanwhile. An
    /// executor that says how long tasks waited instead has its paced work held to the minimum by any load that waits for itself.
    /// See [`Admission`].
    fn latencies(&self, bucket: &mut dyn FnMut(u64, u64));

    /// Wakes `alarm` at this time, once. There is one alarm: the one that was set before may be forgotten. Several threads may
    /// set it at once, in any order; but the last one that is set must go off. False if it will never be woken, because the
    /// executor has ended; then everybody who waits is let go.
    ///
    /// An alarm that has been set must go off when the executor ends. See [`Admission`].
    fn set_alarm(&self, at: u64, alarm: &Waker) -> bool;

    /// Calls `f` once, on this thread or on another, and returns after that. `f` takes the lock of the admission.
    ///
    /// For an executor with threads of low priority: one that the OS stops while it holds the lock keeps all paced tasks waiting.
    /// See [`Admission`].
    fn on_behalf(&self, f: &mut (dyn FnMut() + Send)) {
        f();
    }
}

/// The admission of one executor. Its [pacers](super::Pacer) find it through [`Host::paced`](crate::host::Host::paced).
///
/// # Examples
///
/// ```
/// use giveway_yield::elastic::Settings;
/// use giveway_yield::host::{Admission, Machine};
/// use std::task::Waker;
///
/// /// A machine of one core where nothing ever happens.
/// struct Still;
///
/// impl Machine for Still {
///     fn now(&self) -> u64 {
///         0
///     }
///     fn cores(&self) -> usize {
///         1
///     }
///     fn latencies(&self, bucket: &mut dyn FnMut(u64, u64)) {
///         bucket(1_000_000, 0); // up to a millisecond
///         bucket(u64::MAX, 0); // longer
///     }
///     fn set_alarm(&self, _at: u64, _alarm: &Waker) -> bool {
///         false
///     }
///     // Only if there are threads of low priority:
///     fn on_behalf(&self, f: &mut (dyn FnMut() + Send)) {
///         f();
///     }
/// }
///
/// let admission = Admission::new(Settings::fixed(0.5), Still);
/// assert_eq!(admission.limit(), 0.5);
/// ```
pub struct Admission {
    machine: Box<dyn Machine>,
    settings: Settings,
    state: Mutex<State>,
}

struct State {
    limit: f64,
    window: Window,
    bucket: Bucket,
    line: Line<Waker>,
    // When the controller took its last step, and whether somebody has had to wait since.
    stepped_at: u64,
    waited: bool,
    // When the alarm goes off, if it was set and has not.
    alarm: Option<u64>,
    // The executor has ended: nobody waits any more.
    closed: bool,
}

impl Admission {
    /// An admission with these settings. One for an executor: it holds its pacers to one limit together.
    ///
    /// # Panics
    ///
    /// If the settings [make no sense](Settings::check).
    ///
    /// # Examples
    ///
    /// See [above](Self).
    #[track_caller]
    pub fn new(settings: Settings, machine: impl Machine + 'static) -> Arc<Self> {
        if let Err(error) = settings.check() {
            panic!("{error}");
        }
        let now = machine.now();
        let mut window = Window::default();
        window.push(now, snapshot(&machine));
        let state = State {
            limit: settings.baseline,
            window,
            bucket: Bucket::new(settings.baseline * cores(&machine), now),
            line: Line::new(),
            stepped_at: now,
            waited: false,
            alarm: None,
            closed: false,
        };
        Arc::new(Self { machine: Box::new(machine), settings, state: Mutex::new(state) })
    }

    /// The share of all cores that paced work is held to, as of the controller's last step.
    ///
    /// # Examples
    ///
    /// See [above](Self).
    pub fn limit(&self) -> f64 {
        self.locked(|| self.lock().limit)
    }

    /// What the clock of its machine says.
    pub(super) fn now(&self) -> u64 {
        self.machine.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under it, so it is whole whatever happened.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f`, which takes the lock, as the executor would have it called.
    fn locked<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.machine.on_behalf(&mut || result = f.take().map(|f| f()));
        result.expect("an executor calls what it is given")
    }

    /// Lets the controller take its step, if it is due.
    pub(super) fn advance(self: &Arc<Self>, now: u64) {
        self.change(now, |_| ());
    }

    /// Pays for what was used beyond the last slice, and asks for another. None if it is granted at once.
    pub(super) fn ask(self: &Arc<Self>, now: u64, overrun: u64, slice: u64, waker: &Waker) -> Option<Waiting> {
        let mut waker = Some(waker.clone());
        let number = self.change(now, |state| {
            state.bucket.charge(overrun);
            let granted = state.closed || state.line.first().is_none() && state.bucket.take(slice);
            if granted {
                return None;
            }
            state.waited = true;
            waker.take().map(|waker| state.line.join(slice, waker))
        });
        number.map(|number| Waiting { admission: self.clone(), number })
    }

    /// Takes back what has not been used of a slice since then.
    pub(super) fn give_back(self: &Arc<Self>, rest: u64, unused_since: u64) {
        self.change(self.now(), |state| state.bucket.give_back(rest, unused_since));
    }

    /// The state as of now.
    fn step(&self, now: u64) -> MutexGuard<'_, State> {
        let is_due = self.lock().is_step_due(now);
        let seen = is_due.then(|| (cores(&*self.machine), snapshot(&*self.machine)));
        let mut state = self.lock();
        if let Some((cores, latencies)) = seen
            && state.is_step_due(now)
        {
            state.step(&self.settings, now, cores, latencies);
        }
        state.bucket.fill(now);
        state
    }

    /// Changes the state as of now by `f`. Then serves all that it can, and sees to it that the others are served.
    fn change<R: Send>(self: &Arc<Self>, now: u64, f: impl FnOnce(&mut State) -> R + Send) -> R {
        let (result, served, alarm) = self.locked(|| {
            let mut state = self.step(now);
            let result = f(&mut state);
            (result, state.serve(), state.next_alarm(now))
        });
        // Two threads may set it in another order than they have thought of it. Then it is a step late, at most; and the thread that
        // sets an alarm has it go off, and thinks again.
        if let Some(at) = alarm
            && !self.machine.set_alarm(at, &Waker::from(self.clone()))
        {
            self.close();
        }
        wake_all(served);
        result
    }

    /// The executor has ended: nobody has to wait any more.
    fn close(&self) {
        let served = self.locked(|| {
            let mut state = self.lock();
            state.closed = true;
            state.serve()
        });
        wake_all(served);
    }
}

impl State {
    fn is_step_due(&self, now: u64) -> bool {
        now.saturating_sub(self.stepped_at) >= STEP
    }

    fn step(&mut self, settings: &Settings, now: u64, cores: f64, latencies: Counts) {
        self.window.push(now, latencies);
        let sample =
            Sample { p99: self.window.p99(), waiting: self.waited, elapsed: now.saturating_sub(self.stepped_at) };
        // Who waits now waits in the next step too.
        self.waited = self.line.first().is_some();
        self.stepped_at = now;
        self.limit = settings.next_limit(self.limit, sample);
        self.bucket.set_rate(self.limit * cores, now);
    }

    /// Serves whom it can. Whom to wake.
    fn serve(&mut self) -> Vec<Waker> {
        let mut served = Vec::new();
        while let Some(slice) = self.line.first()
            && (self.closed || self.bucket.take(slice))
        {
            served.extend(self.line.serve());
        }
        served
    }

    /// When the alarm has to go off, if it has to be set.
    fn next_alarm(&mut self, now: u64) -> Option<u64> {
        self.line.first()?;
        let at = now.saturating_add(self.bucket.ready_in().min(STEP));
        if self.alarm.is_some_and(|set| set <= at) {
            return None;
        }
        self.alarm = Some(at);
        Some(at)
    }
}

/// The alarm.
impl Wake for Admission {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.change(self.now(), |state| state.alarm = None);
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("settings", &self.settings)
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}

fn cores(machine: &dyn Machine) -> f64 {
    machine.cores().max(1) as f64
}

fn snapshot(machine: &dyn Machine) -> Counts {
    let mut counts = Counts::new();
    machine.latencies(&mut |longest, count| counts.push((longest, count)));
    counts
}

/// A waker is anybody's code: one that panics must not keep the others from being woken. (What it says has been printed by
/// then.)
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // Its destructor may panic as well; that payload is let go.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
        }
    }
}

/// A place in the line. Dropped, it is given up, and a slice that it was served goes to the next.
#[derive(Debug)]
pub(super) struct Waiting {
    admission: Arc<Admission>,
    number: u64,
}

impl Waiting {
    /// Ready when the slice is there: then it is the caller's.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<()> {
        let (admission, waker) = (&self.admission, waker.clone());
        let told = admission.locked(|| {
            let mut state = admission.lock();
            let told = state.line.tell(self.number, waker);
            if told.is_err() {
                state.line.leave(self.number);
            }
            told
        });
        // Either has a waker that is dropped here, without the lock.
        match told {
            Ok(_not_any_more) => Poll::Pending,
            Err(_unneeded) => Poll::Ready(()),
        }
    }

    pub(super) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = self.admission.locked(|| self.admission.lock().line.leave(self.number));
        match left {
            Some(Left::Served(slice)) => self.admission.give_back(slice, u64::MAX),
            // Whoever is next may be served the sooner: if it is the first now, the alarm is early enough for it.
            Some(Left::Waiting(_waker)) => {}
            // It has taken its slice.
            None => {}
        }
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
