//! Keeping user code's panics where they belong.
//!
//! async-task aborts the process when a future or an output panics in its destructor, and a panic
//! that escapes into a worker would end the worker's thread. So all user code that the runtime
//! runs, destructors included, runs in [`contain`] or [`drop_contained`]. The waker of a task's
//! awaiter is an exception: async-task clones, wakes and drops it, and the process aborts if that
//! panics.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The payload of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Returns the message of a panic, if its payload is text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Runs user code, and returns the payload if it panics.
///
/// # Unwind safety
///
/// What `f` leaves half-done is either dropped and never run again, or it is the user's own shared
/// state, which has to defend itself, as a mutex does by poisoning.
#[inline]
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

/// The number of payloads that panic in their destructors and are still dropped, one after the
/// other.
const PAYLOADS: usize = 16;

/// Drops a value whose destructor may panic, with a payload whose destructor may panic in turn.
/// After `PAYLOADS` such payloads the next one is leaked.
pub(crate) fn drop_contained<T>(value: T) {
    let Err(mut payload) = contain(|| drop(value)) else { return };
    for _ in 0..PAYLOADS {
        match contain(|| drop(payload)) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    // Each payload panics with the next one, perhaps without end. This one is leaked, and nothing
    // else.
    std::mem::forget(payload);
}

/// A value whose drop does not unwind.
///
/// The panic hook has the message by then, and no handle is left that could take the payload.
pub(crate) struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    #[inline]
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is initialized. `this` is not dropped and not used again, so the value
        // is taken out once.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        // SAFETY: the value is initialized: `into_inner`, which takes it out as well, prevents this
        // drop. It is taken out once, here, and not used again.
        drop_contained(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_destructor_that_panics_with_a_payload_that_panics_is_contained() {
        drop(Contained::new(Bomb(3)));
        drop_contained(Bomb(1));
    }

    #[test]
    fn the_value_comes_out_whole() {
        assert_eq!(Contained::new(vec![1, 2]).into_inner(), [1, 2]);
    }
}
