//! The line of pacers that wait for a slice: first come, first served. Plain data.
//!
//! A place that was served stays in the line until its pacer takes the slice, or leaves without it.
//! So no slice is lost between the two, and no place behind it has to wait for it.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Line<W> {
    /// By number. Those below `serving` were served, and their pacers have not come yet; the others
    /// wait.
    places: BTreeMap<u64, Place<W>>,
    /// The number of the next place.
    next: u64,
    /// Each number below it has been served, or has left.
    serving: u64,
}

#[derive(Debug)]
struct Place<W> {
    /// How long the slice is that is asked for.
    slice: u64,
    /// What to wake when the place is served. `None` once it was served.
    waker: Option<W>,
}

/// What a place had when it left the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left<W> {
    /// It waited, with this waker.
    Waiting(W),
    /// It was served this slice, which leaves with it.
    Served(u64),
}

impl<W> Line<W> {
    pub(super) fn new() -> Self {
        Self { places: BTreeMap::new(), next: 0, serving: 0 }
    }

    /// Adds a place to the end of the line, and returns its number.
    pub(super) fn join(&mut self, slice: u64, waker: W) -> u64 {
        let number = self.next;
        self.next += 1;
        self.places.insert(number, Place { slice, waker: Some(waker) });
        number
    }

    /// Returns the slice that is next to be served.
    pub(super) fn first(&self) -> Option<u64> {
        self.places.range(self.serving..).next().map(|(_, place)| place.slice)
    }

    /// Serves the first place that waits, and returns its waker.
    pub(super) fn serve(&mut self) -> Option<W> {
        let (&number, place) = self.places.range_mut(self.serving..).next()?;
        self.serving = number + 1;
        place.waker.take()
    }

    /// Replaces the waker of a place that still waits, and returns the old one. Otherwise gives
    /// `waker` back as the error.
    pub(super) fn tell(&mut self, number: u64, waker: W) -> Result<W, W> {
        match self.places.get_mut(&number).and_then(|place| place.waker.as_mut()) {
            Some(old) => Ok(std::mem::replace(old, waker)),
            None => Err(waker),
        }
    }

    /// Removes a place, whose pacer takes its slice or leaves without one.
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
        // The pacers may come for their slices in any order.
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
