//! Random numbers. Each actor has its own sequence, derived from the seed and the actor's number.

/// The generator SplitMix64: small, and different seeds give unrelated sequences.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the sequence that belongs to `numbers`.
    pub(crate) fn of(numbers: &[u64]) -> Self {
        let mut random = Self(0);
        for number in numbers {
            random.0 = random.next() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        random
    }

    /// Derives a new, independent sequence.
    pub(crate) fn child(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`. `n` must not be zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns a number below `n`, for indices and counts. `n` must not be zero.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Returns true with a probability of one in `n`.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the elements of `of`.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Returns a number of at most `most`, mostly a small one: each number of bits is equally
    /// likely.
    pub(crate) fn small(&mut self, most: usize) -> usize {
        let bits = 1 + self.index(most.ilog2() as usize + 1);
        (self.index(1 << bits)).min(most)
    }
}
