//! A test: a runtime of its own, and a thread that watches over it.
//!
//! A hang has several forms:
//!
//! - The future waits. Then it is woken, and ends with a panic.
//! - The runtime does not come to its end. Then `shutdown_timeout` says what is stuck.
//! - The future, or a destructor, is in a call that does not return. Only the end of the process
//!   ends such a test, and that happens when its time is over twice.

use crate::metrics::Dump;
use crate::runtime::{Builder, Handle, Runtime};
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After this time a test that has no timeout says what it is doing. The pauses after that double.
const SAY_AFTER: Duration = Duration::from_secs(60);

/// The runtime of a test gets at least this long to end, even if less is left of the test's
/// timeout. A test that only the end of the process can end gets at least twice as long after its
/// timeout.
const GRACE: Duration = Duration::from_secs(3);

/// A test to run: its name and its settings.
#[derive(Debug)]
pub struct Test {
    name: &'static str,
    builder: Builder,
    timeout: Option<Duration>,
}

/// Returns a test with the default settings.
pub fn test(name: &'static str) -> Test {
    Test { name, builder: Builder::new().workers(2), timeout: None }
}

impl Test {
    /// Sets the number of workers.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { builder: self.builder.workers(workers), ..self }
    }

    /// Sets whether the test fails as soon as nothing can wake it.
    #[must_use]
    pub fn detect_deadlock(self, detect: bool) -> Self {
        Self { builder: self.builder.detect_deadlock(detect), ..self }
    }

    /// Sets whether a tokio runtime runs beside it.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn tokio(self, on: bool) -> Self {
        Self { builder: self.builder.tokio(on), ..self }
    }

    /// Does not compile, and says why.
    #[cfg(not(feature = "tokio"))]
    #[must_use]
    pub fn tokio<On: super::FeatureTokio>(self, _on: On) -> Self {
        self
    }

    /// Makes the test fail if it has not ended by then.
    #[must_use]
    pub fn timeout_in_ms(self, milliseconds: u64) -> Self {
        Self { timeout: Some(Duration::from_millis(milliseconds)), ..self }
    }

    /// Runs the test.
    ///
    /// # Panics
    ///
    /// Panics if the test panics, if it or its runtime does not end in time, or if the runtime
    /// cannot be started.
    #[track_caller]
    pub fn run<F: Future>(self, test: impl FnOnce() -> F) -> F::Output {
        let Self { name, builder, timeout } = self;
        let runtime = match builder.build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("the runtime of `giveway::test` could not be started: {error}"),
        };
        // Declared before `running`, and so dropped after it: it watches over the end of the
        // runtime too.
        let watch = Watch::start(name, timeout, runtime.handle());
        let mut running = Running { runtime: Some(runtime), watch: &watch };
        let outcome = running.runtime().block_on(async {
            let handle = Handle::current();
            watch.until_expired(test()).await.ok_or_else(|| handle.dump())
        });
        match outcome {
            Ok(output) => {
                running.end(|report| {
                    panic!("the test `{name}` is over, and its runtime is not: {report}")
                });
                output
            }
            Err(dump) => {
                running.give_up();
                panic!("{}", watch.watched.text("its future waits", &dump));
            }
        }
    }
}

/// The runtime of a test. It is shut down in time, also if the test panics.
struct Running<'a> {
    runtime: Option<Runtime>,
    watch: &'a Watch,
}

impl Running<'_> {
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken at the end")
    }

    /// Shuts the runtime down, and waits for that. If the test has a timeout, waits for at most
    /// what is left of it, or [`GRACE`] if that is longer, and calls `stuck` if anything is stuck
    /// then.
    fn end(&mut self, stuck: impl FnOnce(&dyn Display)) {
        let (Some(runtime), watched) = (self.runtime.take(), &self.watch.watched) else { return };
        watched.set_place(Place::End);
        let Some(timeout) = watched.timeout else { return drop(runtime) };
        let left = timeout.saturating_sub(watched.began.elapsed());
        let report = runtime.shutdown_timeout(left.max(GRACE));
        if !report.is_clean() {
            stuck(&report);
        }
    }

    fn give_up(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Running<'_> {
    /// Shuts the runtime down after the test has panicked. A second panic would abort the process
    /// and hide the first, so this one only writes what is stuck.
    fn drop(&mut self) {
        let name = self.watch.watched.name;
        self.end(|report| {
            tell(&format!("the test `{name}` has failed, and its runtime is not over: {report}"))
        });
    }
}

/// The thread that watches over a test, which ends when this is dropped.
struct Watch {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

/// What the watching thread and the test share.
struct Watched {
    name: &'static str,
    timeout: Option<Duration>,
    say_after: Duration,
    tell: fn(&str),
    began: Instant,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    ended: bool,
    expired: bool,
    place: Place,
    /// The waker of the test's future, from its last poll.
    waker: Option<Waker>,
}

/// What the thread of a test is doing.
#[derive(Default, Clone, Copy)]
enum Place {
    #[default]
    Waits,
    Polls,
    End,
}

impl Watch {
    fn start(name: &'static str, timeout: Option<Duration>, handle: &Handle) -> Self {
        Self::over(Watched::new(name, timeout, SAY_AFTER, tell), handle)
    }

    fn over(watched: Watched, handle: &Handle) -> Self {
        let watched = Arc::new(watched);
        let (watching, handle) = (watched.clone(), handle.clone());
        let thread = thread::Builder::new()
            .name("giveway-test".into())
            .spawn(move || watching.watch(&handle));
        // Without a thread the test is not watched, but it runs.
        Self { watched, thread: thread.ok() }
    }

    /// Returns the output of the future, or `None` if its time is over before.
    async fn until_expired<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.watched.begin_poll(cx.waker());
            let polled = future.as_mut().poll(cx);
            let expired = self.watched.set_place(Place::Waits);
            match polled {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if expired => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watched.lock().ended = true;
        self.watched.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Watched {
    fn new(
        name: &'static str,
        timeout: Option<Duration>,
        say_after: Duration,
        tell: fn(&str),
    ) -> Self {
        let began = Instant::now();
        Self {
            name,
            timeout,
            say_after,
            tell,
            began,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_poll(&self, waker: &Waker) {
        // A waker is user code: it is cloned and dropped outside of the lock.
        let waker = waker.clone();
        let mut state = self.lock();
        state.place = Place::Polls;
        let old = state.waker.replace(waker);
        drop(state);
        drop(old);
    }

    /// Notes where the test's thread is. Returns whether the test's time is over.
    fn set_place(&self, place: Place) -> bool {
        let mut state = self.lock();
        state.place = place;
        state.expired
    }

    /// Waits for the end of the test, for at most `time`. Returns whether it has come.
    fn wait(&self, time: Duration) -> bool {
        let (state, _) = self
            .ended
            .wait_timeout_while(self.lock(), time, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        state.ended
    }

    fn watch(&self, handle: &Handle) {
        let Some(timeout) = self.timeout else { return self.say_now_and_then(handle) };
        if self.wait(timeout) {
            return;
        }
        let mut state = self.lock();
        state.expired = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        // The test's thread does the rest, unless it is stuck. It may only lack a CPU, so it gets
        // time before the process is aborted.
        if !self.wait(timeout.max(2 * GRACE)) {
            tell(&format!(
                "{}\nIt cannot be failed alone: the process ends here.",
                self.text(self.place(), &handle.dump())
            ));
            std::process::abort();
        }
    }

    fn say_now_and_then(&self, handle: &Handle) {
        let mut pause = self.say_after;
        while !self.wait(pause) {
            (self.tell)(&self.text(self.place(), &handle.dump()));
            pause = pause.saturating_mul(2);
        }
    }

    fn place(&self) -> &'static str {
        match self.lock().place {
            Place::Waits => "its future waits",
            Place::Polls => "its future is in a poll that has not returned",
            Place::End => "its runtime is being shut down",
        }
    }

    fn text(&self, place: &str, dump: &Dump) -> String {
        let (name, seconds) = (self.name, self.began.elapsed().as_secs_f32());
        format!(
            "the test `{name}` has not ended after {seconds:.1} s: {place}. What its tasks are \
             doing: {dump}"
        )
    }
}

/// Writes to standard error itself: what `eprintln!` writes is kept until a test has ended.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(format!("giveway: {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was told of the one test that is watched here.
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_test_without_a_timeout_says_what_it_does_now_and_then() {
        let runtime = Builder::new().workers(1).build().unwrap();
        let tell = |text: &str| TOLD.lock().unwrap().push(text.to_owned());
        let watch = Watch::over(
            Watched::new("snail", None, Duration::from_millis(1), tell),
            runtime.handle(),
        );
        let told = |what: &str| TOLD.lock().unwrap().iter().any(|text| text.contains(what));
        // The test goes on, however long it takes.
        let output = runtime.block_on(watch.until_expired(poll_fn(|_| {
            while !told("`snail` has not ended") {
                thread::yield_now();
            }
            Poll::Ready(5)
        })));
        assert_eq!(output, Some(5));
        assert!(told("in a poll that has not returned"));
        drop(watch);
        let count = TOLD.lock().unwrap().len();
        thread::sleep(Duration::from_millis(5));
        assert_eq!(TOLD.lock().unwrap().len(), count, "when it has ended nothing is said any more");
    }
}
