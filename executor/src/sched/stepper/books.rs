//! Where every virtual task is, by the books of the test: it must be in exactly one place (I1, I2,
//! S1).

use std::collections::HashMap;

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Slot(usize),
    /// In a deque or the injector. If not `waiting`, it has given way, and no other has to give way
    /// to it.
    Queued {
        waiting: bool,
    },
    Yielded,
    Running(usize),
    /// In the queue of the lowered threads.
    Lowered,
    /// Polled by a lowered thread.
    RunningLowered(usize),
}

/// Where every task is.
#[derive(Default)]
pub(super) struct Books {
    places: HashMap<u64, Place>,
    /// How many are in a deque or the injector and wait.
    pub(super) waiting: usize,
    /// How many are in a deque or the injector and have given way.
    pub(super) gave_way: usize,
    /// How many are in the yield queue.
    pub(super) yielded: usize,
}

impl Books {
    fn count(&mut self, place: Place) -> Option<&mut usize> {
        match place {
            Place::Queued { waiting: true } => Some(&mut self.waiting),
            Place::Queued { waiting: false } => Some(&mut self.gave_way),
            Place::Yielded => Some(&mut self.yielded),
            Place::Slot(_) | Place::Running(_) | Place::Lowered | Place::RunningLowered(_) => None,
        }
    }

    pub(super) fn place(&self, id: u64) -> Option<Place> {
        self.places.get(&id).copied()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Place> {
        let before = self.places.remove(&id)?;
        self.count(before).into_iter().for_each(|count| *count -= 1);
        Some(before)
    }

    pub(super) fn insert(&mut self, id: u64, place: Place) -> Option<Place> {
        let before = self.remove(id);
        self.count(place).into_iter().for_each(|count| *count += 1);
        self.places.insert(id, place);
        before
    }

    /// Moves a task from one place to another. It must have been where the books say.
    pub(super) fn moves(&mut self, id: u64, from: impl FnOnce(Place) -> bool, to: Place) {
        let before = self.insert(id, to);
        assert!(before.is_some_and(from), "task {id} is in two places: {before:?}, and now {to:?}");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
