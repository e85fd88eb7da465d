//! What all pacers of one executor share: the controller, the bucket, and the line of pacers that
//! wait for a slice.
//!
//! The admission has no thread. A pacer that comes for a slice advances it. While a pacer waits in
//! line, an alarm of the executor does: at the moment when the next slice is available, and at most
//! one step of the controller after the last time. So no waiting pacer depends on another task
//! being polled.
//!
//! There is one lock, and no foreign code runs under it. Wakers are cloned before it is taken, and
//! woken and dropped after it is released. The executor is asked and told without it.

use super::Settings;
use super::bucket::Bucket;
use super::controller::Sample;
use super::line::{Left, Line};
use super::window::{Counts, STEP, Window};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

/// What an executor provides to its [`Admission`].
///
/// Times are in nanoseconds, by a clock of the executor's own that does not go back. The admission
/// holds no lock when it calls these methods. See [`Admission`] for an example.
pub trait Machine: Send + Sync {
    /// Returns the time by the clock. See [`Admission`] for an example.
    fn now(&self) -> u64;

    /// Returns how many cores run tasks. See [`Admission`] for an example.
    fn cores(&self) -> usize;

    /// Reports for how long paced tasks have kept foreground tasks waiting for a core, since the
    /// start.
    ///
    /// Calls `bucket` for each bucket of a histogram, always the same buckets in the same order,
    /// with the longest time that belongs to the bucket and the number of foreground tasks that
    /// were kept waiting for that long. Tasks that were not kept waiting at all are in the first
    /// bucket. The last bucket has no end: its longest time is [`u64::MAX`].
    ///
    /// The limit falls if these times are too long, so only time counts that a lower limit would
    /// shorten: of the time from when a task became runnable until it was polled, the part of all
    /// cores that polls of paced tasks took meanwhile. If an executor reports the whole wait
    /// instead, any load whose tasks wait for one another holds its paced work to the minimum. See
    /// [`Admission`] for an example.
    fn latencies(&self, bucket: &mut dyn FnMut(u64, u64));

    /// Sets the alarm: wakes `alarm` at this time, once.
    ///
    /// Returns false if `alarm` will never be woken because the executor has ended; then every
    /// waiting pacer is let go. There is one alarm, so the one that was set before may be
    /// forgotten. Several threads may set it at once, in any order, but the one that is set last
    /// must go off. An alarm that has been set must also go off when the executor ends. See
    /// [`Admission`] for an example.
    fn set_alarm(&self, at: u64, alarm: &Waker) -> bool;

    /// Calls `f` once, on this thread or on another, and returns after that. `f` takes the lock of
    /// the admission.
    ///
    /// This is for an executor with threads of low priority: a thread that the OS stops while it
    /// holds the lock keeps all paced tasks waiting. See [`Admission`] for an example.
    fn on_behalf(&self, f: &mut (dyn FnMut() + Send)) {
        f();
    }
}

/// Admits the paced work of one executor.
///
/// The executor's [pacers](super::Pacer) find it through [`Host::paced`](crate::host::Host::paced).
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
    /// Under it no foreign code runs. Taken by [`Admission::locked`], through
    /// [`Machine::on_behalf`].
    state: Mutex<State>,
}

struct State {
    /// The share of all cores, as of the last step.
    limit: f64,
    window: Window,
    bucket: Bucket,
    /// The pacers that wait, and those that were served and have not come for their slice.
    line: Line<Waker>,
    /// When the controller took its last step.
    stepped_at: u64,
    /// Whether a pacer has had to wait since the last step.
    waited: bool,
    /// When the alarm goes off, if it was set and has not gone off.
    alarm: Option<u64>,
    /// Set once the executor has ended: no pacer waits any more.
    closed: bool,
}

impl Admission {
    /// Creates an admission with these settings.
    ///
    /// An executor has one, which holds all of its pacers to one limit together. See [`Admission`]
    /// for an example.
    ///
    /// # Panics
    ///
    /// If the settings [make no sense](Settings::check).
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

    /// Returns the share of all cores that paced work is held to, as of the controller's last step.
    ///
    /// See [`Admission`] for an example.
    pub fn limit(&self) -> f64 {
        self.locked(|| self.lock().limit)
    }

    /// Returns the time by the clock of the machine.
    pub(super) fn now(&self) -> u64 {
        self.machine.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under the lock, so the state is whole even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f`, which takes the lock, where the executor wants it to be called.
    fn locked<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.machine.on_behalf(&mut || result = f.take().map(|f| f()));
        result.expect("an executor calls what it is given")
    }

    /// Lets the controller take its step, if one is due.
    pub(super) fn advance(self: &Arc<Self>, now: u64) {
        self.change(now, |_| ());
    }

    /// Pays for what was used beyond the last slice, and asks for another. Returns `None` if the
    /// slice is granted at once, otherwise the place in line.
    pub(super) fn ask(
        self: &Arc<Self>,
        now: u64,
        overrun: u64,
        slice: u64,
        waker: &Waker,
    ) -> Option<Waiting> {
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

    /// Takes back `rest` of a slice, which has not been used since `unused_since`.
    pub(super) fn give_back(self: &Arc<Self>, rest: u64, unused_since: u64) {
        self.change(self.now(), |state| state.bucket.give_back(rest, unused_since));
    }

    /// Locks the state, and brings it up to `now`.
    fn step(&self, now: u64) -> MutexGuard<'_, State> {
        // The machine is asked without the lock, so another thread may take the step meanwhile.
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

    /// Changes the state by `f` as of `now`. Then serves every pacer that it can, and sets the
    /// alarm for the others.
    fn change<R: Send>(self: &Arc<Self>, now: u64, f: impl FnOnce(&mut State) -> R + Send) -> R {
        let (result, served, alarm) = self.locked(|| {
            let mut state = self.step(now);
            let result = f(&mut state);
            (result, state.serve(), state.next_alarm(now))
        });
        // Two threads may call `set_alarm` in another order than they chose their times under the
        // lock. The alarm is then late by a step, at most. It goes off in any case, and
        // `wake_by_ref` chooses the next time.
        if let Some(at) = alarm
            && !self.machine.set_alarm(at, &Waker::from(self.clone()))
        {
            self.close();
        }
        wake_all(served);
        result
    }

    /// Lets every waiting pacer go, because the executor has ended.
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
        let sample = Sample {
            p99: self.window.p99(),
            waiting: self.waited,
            elapsed: now.saturating_sub(self.stepped_at),
        };
        // A pacer that waits now waits in the next step too.
        self.waited = self.line.first().is_some();
        self.stepped_at = now;
        self.limit = settings.next_limit(self.limit, sample);
        self.bucket.set_rate(self.limit * cores, now);
    }

    /// Serves pacers from the front of the line, as long as the bucket has something. Returns the
    /// wakers to wake.
    fn serve(&mut self) -> Vec<Waker> {
        let mut served = Vec::new();
        while let Some(slice) = self.line.first()
            && (self.closed || self.bucket.take(slice))
        {
            served.extend(self.line.serve());
        }
        served
    }

    /// Returns when the alarm has to go off, if it has to be set. `None` if no pacer waits, or the
    /// alarm that is set is early enough.
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

/// The alarm: brings the state up to date and serves the line.
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

/// Wakes each waker. A waker is foreign code: one that panics must not keep the others from being
/// woken. The panic hook has reported the panic by then.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // The payload's destructor may panic as well. The payload of that panic is leaked.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
        }
    }
}

/// A place in the line. Dropping it gives the place up, and a slice that it was served goes to the
/// next.
#[derive(Debug)]
pub(super) struct Waiting {
    admission: Arc<Admission>,
    /// What [`Line::join`] returned.
    number: u64,
}

impl Waiting {
    /// Returns ready once the slice is served. From then on the slice is the caller's.
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
        // Either result has a waker in it, which is dropped here, without the lock.
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
            // The next in line may be served sooner now. The alarm that is set is early enough for
            // it.
            Some(Left::Waiting(_waker)) => {}
            // The pacer has taken its slice.
            None => {}
        }
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
