//! Why a task has no output.

use super::{Id, Meta, Payload, describe, panic_message};
use std::any::Any;
use std::fmt;
use std::panic::Location;

/// The task did not finish: it panicked, or it was cancelled.
///
/// Cancelled means aborted, or dropped by the shutdown of its runtime; or, for a
/// [blocking](crate::spawn_blocking) job, that the OS refused a thread to run it on.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let error = giveway::spawn(async { panic!("no bread") }).await.unwrap_err();
///     assert!(error.is_panic());
///     assert!(error.to_string().contains("no bread"));
///     assert_eq!(format!("{error:?}"), format!("JoinError::Panic({:?}, \"no bread\", ...)", error.id()));
/// });
/// ```
pub struct JoinError(Box<Inner>);

/// Boxed: a task without an output then has a result of one word, which is moved three times on its way out.
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
    /// The OS gave no thread to run it on.
    Refused(Box<str>),
}

// SAFETY: a payload need not be `Sync`, but by `&Inner` one can only reach it as a `&str` or a `&String`, which are;
// asking a value for its type does not touch the value. Everything else needs ownership, for which `Send` is enough.
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

    /// Whether the task was aborted, or dropped with its runtime.
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

    /// Whether the task panicked.
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

    /// What the task panicked with, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    ///
    /// If the task was cancelled. See [`try_into_panic`](Self::try_into_panic).
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

    /// What the task panicked with.
    ///
    /// # Errors
    ///
    /// The error itself, if the task was cancelled.
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

    /// The task that did not finish.
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
            (Reason::Refused(why), _) => write!(f, "was not run: no thread could be started for it: {why}"),
            (Reason::Panicked(_), None) => f.write_str("panicked"),
            (Reason::Panicked(_), Some(message)) => write!(f, "panicked with message {message:?}"),
        }
    }
}

/// In tokio's form, which has no place for the name of the task and where it was spawned: those are in the `Display`.
impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0.id;
        match (&self.0.reason, self.message()) {
            (Reason::Aborted | Reason::ShutDown, _) => write!(f, "JoinError::Cancelled({id:?})"),
            (Reason::Refused(why), _) => write!(f, "JoinError::Cancelled({id:?}, {why:?})"),
            (Reason::Panicked(_), None) => write!(f, "JoinError::Panic({id:?}, ...)"),
            (Reason::Panicked(_), Some(message)) => write!(f, "JoinError::Panic({id:?}, {message:?}, ...)"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}
