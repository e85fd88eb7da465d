//! The members of the chat, and how a line is sent to all of them.

use futures::channel::mpsc;
use giveway::time::Duration;
use std::collections::{HashMap, hash_map::Entry};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many lines may wait in a member's queue.
const QUEUE: usize = 256;

/// One queue per member, by name. All queues share one copy of each line.
type Members = HashMap<String, mpsc::Sender<Arc<str>>>;

pub(crate) struct Room {
    members: Mutex<Members>,
    pub(crate) idle: Duration,
}

impl Room {
    pub(crate) fn new(idle: Duration) -> Arc<Self> {
        Arc::new(Self { members: Mutex::default(), idle })
    }

    /// Locks the members. A blocking mutex suffices: it is never held across an await.
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member, unless the name is empty or taken.
    pub(crate) fn join(self: &Arc<Self>, name: String) -> Option<(Seat, mpsc::Receiver<Arc<str>>)> {
        let (sender, lines) = mpsc::channel(QUEUE);
        match self.members().entry(name.clone()) {
            Entry::Vacant(seat) if !name.is_empty() => seat.insert(sender),
            _ => return None,
        };
        self.say(&format!("* {name} has joined"));
        Some((Seat { room: Arc::clone(self), name, why: "is gone" }, lines))
    }

    /// Puts a line into the queue of each member, without waiting. Closes a queue that is full: its
    /// member is disconnected when its task reaches the end of the queue, and keeps its name until
    /// then.
    pub(crate) fn say(&self, line: &str) {
        let line: Arc<str> = format!("{line}\n").into();
        for member in self.members().values_mut() {
            if member.try_send(Arc::clone(&line)).is_err() {
                member.close_channel();
            }
        }
    }
}

/// A member's place in the room. Its destructor removes the member, so that this also happens if
/// the task is aborted.
pub(crate) struct Seat {
    room: Arc<Room>,
    name: String,
    pub(crate) why: &'static str,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.members().remove(&self.name);
        self.room.say(&format!("* {} {}", self.name, self.why));
    }
}
