//! Why a task has no output.

use super::{Id, Payload};
use std::any::Any;
use std::fmt;

/// The task did not finish: it panicked, or it was cancelled.
///
/// Cancelled means aborted, or dropped by the shutdown of its runtime.
///
/// # Examples
///
/// ```
/// giveway::block_on(async {
///     let error = giveway::spawn(async { panic!("no bread") }).await.unwrap_err();
///     assert!(error.is_panic());
///     assert!(error.to_string().contains("no bread"));
/// });
/// ```
pub struct JoinError {
    id: Id,
    payload: Option<SyncPayload>,
}

/// A panic payload that may be shared between threads, because nobody gets a reference to it except as one of two
/// types that may be shared.
struct SyncPayload(Payload);

// SAFETY: by `&SyncPayload` one can only reach a `&str` or a `&String`, both `Sync`; asking a value for its type
// does not touch the value. Everything else needs ownership, for which `Send` is enough.
unsafe impl Sync for SyncPayload {}

impl SyncPayload {
    fn message(&self) -> Option<&str> {
        let any: &(dyn Any + Send) = &*self.0;
        any.downcast_ref::<&'static str>().copied().or_else(|| any.downcast_ref::<String>().map(String::as_str))
    }
}

impl JoinError {
    pub(crate) fn cancelled(id: Id) -> Self {
        Self { id, payload: None }
    }

    pub(crate) fn panic(id: Id, payload: Payload) -> Self {
        Self { id, payload: Some(SyncPayload(payload)) }
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
        self.payload.is_none()
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
        self.payload.is_some()
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
            Err(error) => panic!("task {} was cancelled and has no panic; ask `is_panic` first", error.id),
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
        match self.payload {
            Some(payload) => Ok(payload.0),
            None => Err(self),
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
        self.id
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.payload.as_ref().map(SyncPayload::message) {
            None => write!(f, "task {} was cancelled", self.id),
            Some(None) => write!(f, "task {} panicked", self.id),
            Some(Some(message)) => write!(f, "task {} panicked with message {message:?}", self.id),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.payload.as_ref().map(SyncPayload::message) {
            None => write!(f, "JoinError::Cancelled({:?})", self.id),
            Some(message) => write!(f, "JoinError::Panic({:?}, {:?})", self.id, message.unwrap_or("...")),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}
