//! Keeping user code's panics where they belong.
//!
//! async-task aborts the process when a future or an output panics in its destructor, and a panic that escapes into
//! a worker would kill it. So every piece of user code that the runtime runs, destructors too, runs in here. One is
//! out of our reach: the waker of whoever awaits a task is async-task's to clone, wake and drop, and if that panics the
//! process aborts.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic carries.
pub(crate) type Payload = Box<dyn Any + Send>;

/// What a panic said, if its payload is text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<&'static str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Runs user code and hands back the payload if it panics.
///
/// # Unwind safety
///
/// Whatever `f` leaves half-done is dropped and never run again, or is the user's own shared state, which has to
/// defend itself (that is what lock poisoning is for).
#[inline]
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

/// How many payloads that panic in their own destructor are dropped one after the other.
const PAYLOADS: usize = 16;

/// Drops a value whose destructor may panic, with a payload whose destructor may panic in turn.
pub(crate) fn drop_contained<T>(value: T) {
    let Err(mut payload) = contain(|| drop(value)) else { return };
    for _ in 0..PAYLOADS {
        match contain(|| drop(payload)) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    // Somebody makes bombs out of bombs. This one is leaked, and nothing else.
    std::mem::forget(payload);
}

/// A value that drops without unwinding.
///
/// The panic message has gone to the panic hook by then; there is nobody left to hand the payload to.
pub(crate) struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    #[inline]
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the value is taken out once.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        // SAFETY: in `drop`, and `into_inner` prevents `drop`: the value is taken out once.
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
