//! Why a task has no output.

use super::{Id, Meta, Payload, describe, panic_message};
use std::any::Any;
use std::fmt;
use std::panic::Location;

/// The error of a task that did not finish: it panicked, or it was cancelled.
///
/// A task is cancelled if it was aborted or if the shutdown of its runtime dropped it. A
/// [blocking](crate::spawn_blocking) job is also cancelled if the OS refused to start a thread for
/// it.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let error = giveway::spawn(async { panic!("no bread") }).await.unwrap_err();
///     assert!(error.is_panic());
///     assert!(error.to_string().contains("no bread"));
///     assert_eq!(
///         format!("{error:?}"),
///         format!("JoinError::Panic({:?}, \"no bread\", ...)", error.id())
///     );
/// });
/// ```
pub struct JoinError(Box<Inner>);

/// The parts of an error. Boxed, so that the result of a task without an output has one word: it is
/// moved three times on its way out.
struct Inner {
    id: Id,
    name: Option<Box<str>>,
    spawned_at: &'static Location<'static>,
    reason: Reason,
}

pub(crate) enum Reason {
    Aborted,
    ShutDown,
    Panicked(Payload),
    /// The OS refused to start a thread for the job, with this error.
    Refused(Box<str>),
}

// SAFETY: all fields but the payload are `Sync`. A payload need not be, but a `&Inner` gives access
// to it only as a `&str` or a `&String`, which are, and asking a value for its type does not touch
// the value. Everything else needs ownership of the payload, for which `Send` is enough.
unsafe impl Sync for Inner {}

impl JoinError {
    #[cold]
    pub(crate) fn new(task: &Meta, reason: Reason) -> Self {
        let (id, name, spawned_at) = (task.id, task.name().map(Box::from), task.location());
        Self(Box::new(Inner { id, name, spawned_at, reason }))
    }

    fn message(&self) -> Option<&str> {
        let Reason::Panicked(payload) = &self.0.reason else { return None };
        panic_message(&**payload)
    }

    /// Returns whether the task was cancelled: aborted, dropped with its runtime, or, for a
    /// blocking job, refused a thread.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(std::future::pending::<()>());
    ///     task.abort();
    ///     assert!(task.await.unwrap_err().is_cancelled());
    /// });
    /// ```
    pub fn is_cancelled(&self) -> bool {
        !self.is_panic()
    }

    /// Returns whether the task panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     assert!(giveway::spawn(async { panic!() }).await.unwrap_err().is_panic());
    /// });
    /// ```
    pub fn is_panic(&self) -> bool {
        matches!(self.0.reason, Reason::Panicked(_))
    }

    /// Returns the payload of the task's panic, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    ///
    /// Panics if the task was cancelled; [`try_into_panic`](Self::try_into_panic) does not.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let error = giveway::spawn(async { panic!("no bread") }).await.unwrap_err();
    ///     assert_eq!(error.into_panic().downcast_ref::<&str>(), Some(&"no bread"));
    /// });
    /// ```
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => panic!("{error}, and has no panic; ask `is_panic` first"),
        }
    }

    /// Returns the payload of the task's panic.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the task was cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let error = giveway::spawn(async { panic!("no bread") }).await.unwrap_err();
    ///     assert!(error.try_into_panic().is_ok());
    /// });
    /// ```
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match *self.0 {
            Inner { reason: Reason::Panicked(payload), .. } => Ok(payload),
            inner => Err(Self(Box::new(inner))),
        }
    }

    /// Returns the number of the task that did not finish.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     let task = giveway::spawn(async { panic!() });
    ///     let id = task.id();
    ///     assert_eq!(task.await.unwrap_err().id(), id);
    /// });
    /// ```
    pub fn id(&self) -> Id {
        self.0.id
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { id, name, spawned_at, reason } = &*self.0;
        describe(f, *id, name.as_deref(), spawned_at)?;
        f.write_str(", ")?;
        match (reason, self.message()) {
            (Reason::Aborted, _) => f.write_str("was aborted"),
            (Reason::ShutDown, _) => f.write_str("was cancelled: its runtime was shut down"),
            (Reason::Refused(why), _) => {
                write!(f, "was not run: no thread could be started for it: {why}")
            }
            (Reason::Panicked(_), None) => f.write_str("panicked"),
            (Reason::Panicked(_), Some(message)) => write!(f, "panicked with message {message:?}"),
        }
    }
}

/// The error in tokio's form. That has no place for the task's name and for where it was spawned:
/// both are in the `Display`.
impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0.id;
        match (&self.0.reason, self.message()) {
            (Reason::Aborted | Reason::ShutDown, _) => write!(f, "JoinError::Cancelled({id:?})"),
            (Reason::Refused(why), _) => write!(f, "JoinError::Cancelled({id:?}, {why:?})"),
            (Reason::Panicked(_), None) => write!(f, "JoinError::Panic({id:?}, ...)"),
            (Reason::Panicked(_), Some(message)) => {
                write!(f, "JoinError::Panic({id:?}, {message:?}, ...)")
            }
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}
