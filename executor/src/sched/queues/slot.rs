//! The slot: room for one task, the last one woken by the task that runs, to be run next while its
//! data is still in the cache.
//!
//! One owner fills and empties it. Thieves may empty it, and do so only when the owner is stuck in
//! a poll, or when the runtime closes. The thread that swaps the pointer out owns the task: that is
//! the whole protocol, and `slot_against_thief` models it.

use crate::sync::AtomicPtr;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// An owned value that is one non-null pointer.
///
/// # Safety
///
/// `from_pointer(into_pointer(x))` must give back `x`, on whichever thread it is called.
pub(crate) unsafe trait PointerSized: Send {
    /// Turns the value into a pointer, and gives up its ownership.
    fn into_pointer(self) -> NonNull<()>;

    /// Turns the pointer back into the value, and takes its ownership.
    ///
    /// # Safety
    ///
    /// The caller must pass a `pointer` that came from `into_pointer` of this type, and pass it
    /// only once.
    unsafe fn from_pointer(pointer: NonNull<()>) -> Self;
}

/// The slot of one core.
pub(crate) struct Slot<T: PointerSized> {
    /// Null when empty. Filled by the core's owner only, emptied by any thread.
    task: AtomicPtr<()>,
    owns: PhantomData<T>,
}

impl<T: PointerSized> Slot<T> {
    pub(crate) fn new() -> Self {
        Self { task: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Puts a task in and returns the one that it displaced. Only the owner of the core may call
    /// this.
    #[inline]
    pub(crate) fn put(&self, task: T) -> Option<T> {
        let new = task.into_pointer().as_ptr();
        // Ordering: relaxed is enough to find the slot empty, because only this thread fills it.
        if self.task.load(Relaxed).is_null() {
            // Ordering: release, partner of the acquire in `take`: a thief sees the task as the
            // owner left it.
            self.task.store(new, Release);
            return None;
        }
        // Ordering: the release half publishes the new task to `take`. The owner does not need the
        // acquire half, because it put the old task there itself; but that costs nothing, and keeps
        // one rule for all that take.
        let old = self.task.swap(new, AcqRel);
        // SAFETY: `old` came from `into_pointer` in an earlier `put`. It is passed only once: the
        // swap took it out of the slot, and no other thread can get it from there any more.
        NonNull::new(old).map(|old| unsafe { T::from_pointer(old) })
    }

    /// Takes the task out, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        // Ordering: relaxed: a hint that saves the swap on an empty slot. No thread relies on
        // seeing a task that was put a moment ago: the owner sees its own, and a thief comes only
        // when the monitor has seen one.
        if self.task.load(Relaxed).is_null() {
            return None;
        }
        // Ordering: acquire, partner of both releases in `put`: the task is seen as the owner left
        // it.
        let old = self.task.swap(ptr::null_mut(), Acquire);
        // SAFETY: `old` came from `into_pointer` in `put`. It is passed only once: the swap left
        // null in the slot, so no other thread can get the same pointer.
        NonNull::new(old).map(|old| unsafe { T::from_pointer(old) })
    }

    /// Returns whether the slot is empty. A glance that may be out of date.
    pub(crate) fn is_empty_relaxed(&self) -> bool {
        self.task.load(Relaxed).is_null()
    }
}

impl<T: PointerSized> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What the tests keep in a slot.
#[cfg(test)]
// SAFETY: `into_pointer` leaks the box, and `from_pointer` makes the same box again from its
// pointer. It may do so on any thread, because the value is `Send`.
unsafe impl<V: Send> PointerSized for Box<V> {
    fn into_pointer(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }

    unsafe fn from_pointer(pointer: NonNull<()>) -> Self {
        // SAFETY: the pointer came from the box that `into_pointer` leaked, and the caller passes
        // it only once, so the new box is the only owner.
        unsafe { Box::from_raw(pointer.cast().as_ptr()) }
    }
}
