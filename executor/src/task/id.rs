//! Task numbers, and the task whose destructor runs on a thread. The numbers are unique in the
//! process and need no counter that all threads write.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that no other task of this process has or had.
///
/// The order of ids is not the order in which tasks were spawned: each thread takes them from a
/// block of its own.
///
/// # Examples
///
/// ```
/// let (a, b) = (giveway::spawn(async {}), giveway::spawn(async {}));
/// assert_ne!(a.id(), b.id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(NonZeroU64);

/// The number of ids in a block.
const BLOCK: u64 = 1 << 12;

/// The number of the next block. Any thread adds to it when it has used up its own block.
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The last id that this thread gave out. At the last number of a block, or at zero, the thread
    /// takes a new block.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The task whose future or output this thread is dropping, if `dropping` says so.
    static DROPPED: Cell<Option<Id>> = const { Cell::new(None) };
}

/// Runs `f`, which drops the future or the output of this task. On whatever thread that is, their
/// destructors see the task's id.
#[inline]
pub(super) fn dropping<R>(id: Id, f: impl FnOnce() -> R) -> R {
    struct PutBack(Option<Id>);
    impl Drop for PutBack {
        #[inline]
        fn drop(&mut self) {
            DROPPED.set(self.0);
        }
    }
    let _put_back = PutBack(DROPPED.replace(Some(id)));
    f()
}

/// Returns the task whose future or output this thread is dropping, if it is in [`dropping`].
pub(super) fn dropped() -> Option<Id> {
    DROPPED.get()
}

impl Id {
    #[inline]
    pub(crate) fn next() -> Self {
        let mut last = LAST.get();
        if last.is_multiple_of(BLOCK) {
            // Ordering: relaxed. Only uniqueness matters, and the numbers publish nothing.
            last = NEXT_BLOCK.fetch_add(1, Relaxed) * BLOCK;
        }
        LAST.set(last + 1);
        Self(NonZeroU64::MIN.saturating_add(last))
    }

    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_raw(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_across_threads_and_blocks() {
        let threads = [(); 3]
            .map(|()| std::thread::spawn(|| (0..10_000).map(|_| Id::next()).collect::<Vec<_>>()));
        let ids: Vec<Id> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}
