//! Spawning with more to say.

use super::{AbortHandle, Class, JoinHandle, JoinSet};
use crate::blocking;
use crate::runtime::{Handle, context};
use std::future::Future;
use std::panic::Location;

/// Spawns a task with a name, or with a class other than its parent's.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let task = giveway::task::Builder::new().name("baker").spawn(async { "bread" });
///     assert_eq!(task.await.unwrap(), "bread");
/// });
/// ```
#[derive(Debug, Default)]
#[must_use = "a task builder does nothing until it spawns"]
pub struct Builder {
    name: Option<Box<str>>,
    // Inherited if not given.
    class: Option<Class>,
}

impl Builder {
    /// A builder for a task without a name.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().spawn(async {});
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The name by which reports call the task.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().name(format!("shard {}", 7)).spawn(async {});
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into_boxed_str());
        self
    }

    /// Whether the task belongs to the foreground or to the background. By default it is of its parent's class: that of
    /// the task which spawns it, or the foreground if no task does.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{Builder, Class};
    ///
    /// giveway::spawn_background(async {
    ///     // Somebody waits for this one:
    ///     Builder::new().class(Class::Foreground).spawn(async { println!("done") });
    /// });
    /// ```
    pub fn class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Spawns onto the current runtime, like [`spawn`](super::spawn).
    ///
    /// # Panics
    ///
    /// Where [`spawn`](super::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::task::Builder::new().spawn(async {});
    /// ```
    #[inline]
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        context::spawn(self.name, self.class, Location::caller(), future)
    }

    /// Spawns onto the runtime of `handle`.
    ///
    /// # Panics
    ///
    /// In the child of a `fork`.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = giveway::Builder::new().workers(1).build()?;
    /// let task = giveway::task::Builder::new().name("guest").spawn_on(async { 1 }, runtime.handle());
    /// assert_eq!(runtime.block_on(task).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        context::spawn_on(&handle.shared, self.name, self.class, Location::caller(), future)
    }

    /// Runs a function on a thread where it may block, like [`spawn_blocking`](crate::spawn_blocking). Its name is in the
    /// report of a [shutdown](crate::ShutdownReport) that it holds up.
    ///
    /// # Panics
    ///
    /// Where [`spawn`](super::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{Builder, Class};
    ///
    /// let job = Builder::new().name("index").class(Class::Background).spawn_blocking(|| 1);
    /// assert_eq!(giveway::block_on(job).unwrap(), 1);
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        blocking::spawn(self.name, self.class, Location::caller(), f)
    }

    /// Spawns onto the current runtime and adds the task to a set.
    ///
    /// # Panics
    ///
    /// Where [`spawn`](super::spawn) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway::task::{Builder, JoinSet};
    ///
    /// let mut set = JoinSet::new();
    /// Builder::new().name("baker").spawn_in(async { "bread" }, &mut set);
    /// assert_eq!(set.len(), 1);
    /// ```
    #[track_caller]
    pub fn spawn_in<F>(self, future: F, set: &mut JoinSet<F::Output>) -> AbortHandle
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        set.add(self.spawn(future))
    }
}
