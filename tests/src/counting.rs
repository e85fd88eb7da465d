//! Counters and a log, for tests that assert how often or in which order something happened.

use crate::on_drop;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Counts polls. Each time a task gives way, it is polled once more.
#[derive(Debug, Clone, Default)]
pub struct Polls(Arc<AtomicUsize>);

impl Polls {
    /// Returns the number of polls so far.
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// Awaits `future`, and counts its polls.
    pub async fn of<F: Future>(self, future: F) -> F::Output {
        self.at_most(usize::MAX, future).await
    }

    /// Like [`Self::of`], but panics at more than `limit` polls, so that a livelock fails the test
    /// and does not hang it.
    pub async fn at_most<F: Future>(self, limit: usize, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            assert!(self.0.fetch_add(1, SeqCst) < limit, "polled more than {limit} times");
            future.as_mut().poll(cx)
        })
        .await
    }
}

/// The events of a test, in order.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Adds an event.
    pub fn add(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    /// Returns all events so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Returns whether `event` has happened.
    pub fn has(&self, event: &str) -> bool {
        self.0.lock().unwrap().iter().any(|happened| happened == event)
    }

    /// Fails the test unless exactly these events happened, in this order.
    #[track_caller]
    pub fn assert(&self, events: &[&str]) {
        assert_eq!(self.all(), events);
    }
}

/// A drop counter for each of several tasks.
#[derive(Debug, Clone)]
pub struct Drops(Arc<Vec<AtomicUsize>>);

impl Drops {
    /// Makes counters for `tasks` tasks.
    pub fn of(tasks: usize) -> Self {
        Self(Arc::new((0..tasks).map(|_| AtomicUsize::new(0)).collect()))
    }

    /// Returns a value whose drop is counted for `task`.
    pub fn counter(&self, task: usize) -> impl Send + use<> {
        let drops = self.0.clone();
        on_drop(move || _ = drops[task].fetch_add(1, SeqCst))
    }

    /// Returns whether each counter has counted exactly one drop.
    pub fn all_once(&self) -> bool {
        self.0.iter().all(|count| count.load(SeqCst) == 1)
    }

    /// Fails the test unless each counter has counted exactly one drop.
    #[track_caller]
    pub fn assert_each_once(&self) {
        let counts: Vec<_> = self.0.iter().map(|count| count.load(SeqCst)).collect();
        assert!(counts.iter().all(|&count| count == 1), "drops of each task: {counts:?}");
    }
}
