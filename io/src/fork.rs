//! Noticing a `fork`.
//!
//! A child has the parent's memory and descriptors, but none of its threads. A reactor from before the fork would take
//! sockets and timers, and nobody would ever look at it. Worse, its epoll is the parent's own: whoever registers,
//! deregisters or waits there from the child does so in the parent. So the child counts its forks, a reactor remembers the
//! count it was made under, and everything that would reach the kernel or wait asks first: one load of a line that is
//! hardly ever written.

use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Tells a process from the children that it forks.
///
/// Not from those that are made behind the back of the C library, by the system call itself.
///
/// # Examples
///
/// ```
/// use giveway_io::driver::Birth;
///
/// let birth = Birth::here();
/// assert!(!birth.is_elsewhere());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Birth(u32);

impl Birth {
    /// Remembers this process.
    ///
    /// # Examples
    ///
    /// See [`Birth`].
    pub fn here() -> Self {
        static HANDLER: std::sync::Once = std::sync::Once::new();
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Relaxed);
        }
        // SAFETY: the handler is async-signal-safe: it increments an atomic.
        HANDLER.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
        // Ordering: relaxed. A child begins with one thread, which ran the handler itself.
        Self(FORKS.load(Relaxed))
    }

    /// Whether this process is a fork of the one that was remembered.
    ///
    /// # Examples
    ///
    /// See [`Birth`].
    #[inline]
    pub fn is_elsewhere(self) -> bool {
        FORKS.load(Relaxed) != self.0
    }
}

/// A value that a process does not share with its parent: a child makes its own, and leaves the other alone. What a lock in it
/// guards may be half changed there, and the thread that holds the lock is not.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(AtomicPtr<(Birth, T)>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process, which is made at the first call and never freed.
    pub(crate) fn get(&self) -> &'static T {
        // Ordering: acquire, here and below, partner of the release with which the pointer was stored.
        let mut current = self.0.load(Acquire);
        loop {
            // SAFETY: null, or from a box that was leaked, and to which nobody has a mutable reference.
            match unsafe { current.as_ref() } {
                Some((birth, value)) if !birth.is_elsewhere() => return value,
                _ => {}
            }
            let new = Box::into_raw(Box::new((Birth::here(), T::default())));
            match self.0.compare_exchange(current, new, AcqRel, Acquire) {
                Ok(_) => current = new,
                Err(other) => {
                    // SAFETY: it comes from a box, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    current = other;
                }
            }
        }
    }
}

/// The error of what would need the threads of a runtime from before the fork.
#[cold]
pub(crate) fn no_threads() -> io::Error {
    io::Error::other(
        "the Giveway runtime of this thread was started before a fork, and its threads do not exist in the child; start a \
         new runtime in the child",
    )
}

/// The error of a descriptor from before the fork.
#[cold]
pub(crate) fn no_report() -> io::Error {
    io::Error::other(
        "this descriptor belongs to a Giveway runtime that was started before a fork, and its threads do not exist in the \
         child; make it in the child, or take it along with `into_std` and `from_std`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_child_does_not_touch_a_lock_that_was_held_at_the_fork() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        let held = VALUE.get().lock().unwrap();
        // SAFETY: the child makes a value, and ends without running anything of this process's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let free = VALUE.get().try_lock().is_ok() && std::ptr::eq(VALUE.get(), VALUE.get());
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!free)) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child, and writes to `status`.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child found the parent's lock");
        drop(held);
        assert!(VALUE.get().try_lock().is_ok());
    }
}
