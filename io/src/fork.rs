//! Detection of a `fork`.
//!
//! A child has the parent's memory and descriptors, but none of its threads. A reactor from before
//! the fork would accept sockets and timers that no thread ever serves. Worse, its epoll instance
//! is the parent's own: a registration, deregistration or wait in the child takes effect in the
//! parent. So each child counts its forks, and a reactor remembers the count at which it was made.
//! Everything that would reach the kernel or wait compares the two first: one load of a line that
//! is hardly ever written.

use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// How many forks lie behind this process, as far as the handler has seen them. Written by a child
/// while it has only one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Tells a process from the children that it forks.
///
/// Children that are made without the C library, by the system call itself, are not told apart.
///
/// # Examples
///
/// ```
/// use giveway_io::driver::Process;
///
/// let process = Process::current();
/// assert!(!process.in_forked_child());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Process(u32);

impl Process {
    /// Remembers this process.
    ///
    /// See [`Process`] for an example.
    pub fn current() -> Self {
        static HANDLER: std::sync::Once = std::sync::Once::new();
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Relaxed);
        }
        // SAFETY: the handler must be async-signal-safe, since it runs in the child: it only
        // increments an atomic. It stays valid for as long as the process runs, being a function.
        // The other two handlers are absent.
        HANDLER.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
        // Ordering: relaxed. A child begins with one thread, which ran the handler itself.
        Self(FORKS.load(Relaxed))
    }

    /// Returns whether this process is a fork of the one that was remembered.
    ///
    /// See [`Process`] for an example.
    #[inline]
    pub fn in_forked_child(self) -> bool {
        FORKS.load(Relaxed) != self.0
    }
}

/// A value that a process does not share with its parent: a child makes its own, and leaves the
/// parent's alone. What a lock in the parent's value guards may be half changed in the child, where
/// the thread that holds the lock does not exist.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(AtomicPtr<(Process, T)>);

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process, which is made at the first call and never freed.
    pub(crate) fn get(&self) -> &'static T {
        // Ordering: acquire, here and below, partner of the release half of the compare-and-swap
        // that stored the pointer: the value is seen whole.
        let mut current = self.0.load(Acquire);
        loop {
            // SAFETY: the pointer is null, or comes from `Box::into_raw`, so it is aligned and its
            // value is initialized (which the acquire shows). The box is leaked, so the value lives
            // for ever, and no mutable reference to it exists.
            match unsafe { current.as_ref() } {
                Some((process, value)) if !process.in_forked_child() => return value,
                _ => {}
            }
            let new = Box::into_raw(Box::new((Process::current(), T::default())));
            match self.0.compare_exchange(current, new, AcqRel, Acquire) {
                Ok(_) => current = new,
                Err(other) => {
                    // SAFETY: the pointer comes from `Box::into_raw` above. It was not stored, so
                    // no other thread has it, and it is not used again.
                    drop(unsafe { Box::from_raw(new) });
                    current = other;
                }
            }
        }
    }
}

/// Returns the error of what would need the threads of a runtime from before the fork.
#[cold]
pub(crate) fn no_threads() -> io::Error {
    io::Error::other(
        "the Giveway runtime of this thread was started before a fork, and its threads do not \
         exist in the child; start a new runtime in the child",
    )
}

/// Returns the error of a descriptor from before the fork.
#[cold]
pub(crate) fn no_report() -> io::Error {
    io::Error::other(
        "this descriptor belongs to a Giveway runtime that was started before a fork, and its \
         threads do not exist in the child; make it in the child, or take it along with \
         `into_std` and `from_std`",
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
        // SAFETY: the child makes a value, and ends without running code of the other threads or
        // destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let free = VALUE.get().try_lock().is_ok() && std::ptr::eq(VALUE.get(), VALUE.get());
            // SAFETY: no requirements. Ends the child without running exit handlers.
            unsafe { libc::_exit(i32::from(!free)) };
        }
        let mut status = 0;
        // SAFETY: `status` can be written to. The process waits for its own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child found the parent's lock");
        drop(held);
        assert!(VALUE.get().try_lock().is_ok());
    }
}
