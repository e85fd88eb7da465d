//! Who is in the chat, and how a line gets to all of them.

use futures::channel::mpsc;
use giveway::time::Duration;
use std::collections::{HashMap, hash_map::Entry};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many lines a member may be behind.
const QUEUE: usize = 256;

/// A queue to each member, by name. A line is in all of them, and in memory once.
type Members = HashMap<String, mpsc::Sender<Arc<str>>>;

pub(crate) struct Room {
    members: Mutex<Members>,
    pub(crate) idle: Duration,
}

impl Room {
    pub(crate) fn new(idle: Duration) -> Arc<Self> {
        Arc::new(Self { members: Mutex::default(), idle })
    }

    /// A plain mutex will do: it is never held across an await.
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat, if the name is free.
    pub(crate) fn join(self: &Arc<Self>, name: String) -> Option<(Seat, mpsc::Receiver<Arc<str>>)> {
        let (sender, lines) = mpsc::channel(QUEUE);
        match self.members().entry(name.clone()) {
            Entry::Vacant(seat) if !name.is_empty() => seat.insert(sender),
            _ => return None,
        };
        self.say(&format!("* {name} has joined"));
        Some((Seat { room: Arc::clone(self), name, why: "is gone" }, lines))
    }

    /// Puts a line into everybody's queue, and never waits. A queue that is full is closed: its member is out as soon as
    /// its task sees the end of it, and keeps its name until then.
    pub(crate) fn say(&self, line: &str) {
        let line: Arc<str> = format!("{line}\n").into();
        for member in self.members().values_mut() {
            if member.try_send(Arc::clone(&line)).is_err() {
                member.close_channel();
            }
        }
    }
}

/// A place in the room. Being a destructor, what it does at the end is also done if the task is aborted.
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
