//! How busy it is for a while: races need storms, and also lulls in which the workers get to sleep.

/// What virtual threads and tasks do, and how often.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    /// One step outside in this many is a push; zero for none.
    pub(super) push_one_in: u32,
    /// Of a hundred steps in a poll, this many spawn.
    pub(super) spawn: u32,
    /// This many yield.
    pub(super) yields: u32,
    /// This many come to a yield point or, in a background task, to an operation.
    pub(super) yield_points: u32,
    /// This many begin a stretch that reaches neither.
    pub(super) stretches: u32,
    /// This many end the poll and its task. The rest go on polling.
    pub(super) end: u32,
    /// Of a hundred new tasks, this many are of the background.
    pub(super) background: u32,
}

impl Weather {
    pub(super) const CALM: Self = Self {
        push_one_in: 0,
        spawn: 0,
        yields: 0,
        yield_points: 10,
        stretches: 0,
        end: 40,
        background: 0,
    };

    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        let mut pick = |from: [u32; 4]| from[rng.usize(..4)];
        Self {
            push_one_in: pick([0, 2, 10, 100]),
            spawn: pick([0, 3, 10, 30]),
            yields: pick([0, 3, 10, 20]),
            yield_points: pick([0, 3, 10, 20]),
            stretches: pick([0, 1, 5, 20]),
            end: pick([1, 5, 20, 30]),
            background: pick([0, 20, 50, 100]),
        }
    }
}
