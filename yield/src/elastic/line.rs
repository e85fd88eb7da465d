//! Who waits for a slice: first come, first served. Plain data.
//!
//! Whoever is served keeps its place until it comes to take the slice, or leaves without: so nothing is lost between
//! the two, and nobody behind it has to wait for it.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Line<W> {
    // By number. Those below `serving` were served and have not come yet; the others wait.
    places: BTreeMap<u64, Place<W>>,
    next: u64,
    serving: u64,
}

#[derive(Debug)]
struct Place<W> {
    slice: u64,
    // Whom to tell. None once it was served.
    waker: Option<W>,
}

/// What somebody who left the line had there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left<W> {
    /// It waited.
    Waiting(W),
    /// It was served, and takes this slice with it.
    Served(u64),
}

impl<W> Line<W> {
    pub(super) fn new() -> Self {
        Self { places: BTreeMap::new(), next: 0, serving: 0 }
    }

    /// Goes to the end of the line.
    pub(super) fn join(&mut self, slice: u64, waker: W) -> u64 {
        let number = self.next;
        self.next += 1;
        self.places.insert(number, Place { slice, waker: Some(waker) });
        number
    }

    /// The slice that is next to be served.
    pub(super) fn first(&self) -> Option<u64> {
        self.places.range(self.serving..).next().map(|(_, place)| place.slice)
    }

    /// Serves the first who waits. Whom to tell.
    pub(super) fn serve(&mut self) -> Option<W> {
        let (&number, place) = self.places.range_mut(self.serving..).next()?;
        self.serving = number + 1;
        place.waker.take()
    }

    /// Has somebody else told, if it still waits; the one who was to be told before. Otherwise gives the waker back.
    pub(super) fn tell(&mut self, number: u64, waker: W) -> Result<W, W> {
        match self.places.get_mut(&number).and_then(|place| place.waker.as_mut()) {
            Some(old) => Ok(std::mem::replace(old, waker)),
            None => Err(waker),
        }
    }

    /// Leaves the line: to take its slice, or without.
    pub(super) fn leave(&mut self, number: u64) -> Option<Left<W>> {
        let place = self.places.remove(&number)?;
        Some(place.waker.map_or(Left::Served(place.slice), Left::Waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut line = Line::new();
        let numbers: Vec<_> = (0..3).map(|n| line.join(10 + n, n)).collect();
        for n in 0..3 {
            assert_eq!(line.first(), Some(10 + n));
            assert_eq!(line.serve(), Some(n));
        }
        assert_eq!((line.first(), line.serve()), (None, None));
        // In whichever order they come for it.
        for n in [2, 0, 1] {
            assert_eq!(line.leave(numbers[n]), Some(Left::Served(10 + n as u64)));
        }
        assert!(line.places.is_empty());
    }

    #[test]
    fn who_leaves_is_not_served_and_the_next_is() {
        let mut line = Line::new();
        let numbers: Vec<_> = (0..4).map(|n| line.join(1, n)).collect();
        assert_eq!(line.leave(numbers[0]), Some(Left::Waiting(0)));
        assert_eq!(line.serve(), Some(1));
        assert_eq!(line.leave(numbers[2]), Some(Left::Waiting(2)));
        assert_eq!(line.serve(), Some(3));
        assert_eq!(line.leave(numbers[0]), None, "it has left");
    }

    #[test]
    fn who_was_served_and_has_not_come_does_not_hold_up_the_others() {
        let mut line = Line::new();
        let first = line.join(1, "first");
        assert_eq!(line.serve(), Some("first"));
        assert_eq!(line.first(), None, "nobody waits");
        line.join(2, "second");
        assert_eq!(line.serve(), Some("second"));
        assert_eq!(line.leave(first), Some(Left::Served(1)));
    }

    #[test]
    fn the_last_waker_is_told_unless_it_was_served() {
        let mut line = Line::new();
        let number = line.join(1, "old");
        assert_eq!(line.tell(number, "new"), Ok("old"));
        assert_eq!(line.serve(), Some("new"));
        assert_eq!(line.tell(number, "late"), Err("late"));
    }
}
