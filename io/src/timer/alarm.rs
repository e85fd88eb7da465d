//! A timer that wakes a waker without a task that polls it.

use super::deferred;
use crate::reactor::Reactor;
use crate::timer::{Shard, Timer, instant_of};
use std::task::Waker;

/// A timer of a reactor that needs no task. Dropping it stops it, if it has not gone off.
///
/// See [`Reactor::wake_at`] for an example.
#[derive(Debug)]
#[must_use = "the alarm is stopped when it is dropped"]
pub struct Alarm {
    shard: &'static Shard,
    serial: u64,
}

impl Reactor {
    /// Wakes `waker` at this time by the reactor's clock, or when the reactor is closed, if that
    /// comes first. Returns `None` if the reactor was closed before, and in the child of a fork if
    /// it was made before the fork.
    ///
    /// # Examples
    ///
    /// ```
    /// use giveway_io::driver::{Reactor, Wait, now};
    /// use std::task::Waker;
    ///
    /// let reactor = Reactor::new(1)?;
    /// let alarm = reactor.wake_at(now(), Waker::noop());
    /// let mut woken = Vec::new();
    /// reactor.turn(Wait::Not, &mut woken)?;
    /// assert_eq!(woken.len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wake_at(&self, at: u64, waker: &Waker) -> Option<Alarm> {
        self.check_here().ok()?;
        let (shard, serial) = (self.shard(usize::MAX), deferred::next_serial());
        let timer = Timer { serial, deadline: instant_of(at) };
        shard.insert(timer, waker).then_some(Alarm { shard, serial })
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !self.shard.in_forked_child() {
            self.shard.remove(self.serial, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::{Wait, wake_all};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn turn(reactor: &Reactor) {
        let mut woken = Vec::new();
        reactor.turn(Wait::Not, &mut woken).expect("a turn");
        wake_all(&mut woken);
    }

    #[test]
    fn an_alarm_goes_off_once_unless_it_is_dropped_or_the_reactor_is_closed_before() {
        let reactor = Reactor::new(1).expect("a reactor starts");
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let due = reactor.wake_at(reactor.now(), &waker);
        drop(reactor.wake_at(reactor.now(), &waker));
        let later = reactor.wake_at(u64::MAX, &waker);
        assert!(due.is_some() && later.is_some());
        turn(&reactor);
        turn(&reactor);
        assert_eq!(count.0.load(SeqCst), 1);
        reactor.close();
        assert_eq!(count.0.load(SeqCst), 2, "the one that had not gone off");
        assert!(reactor.wake_at(0, &waker).is_none());
        assert_eq!(Arc::strong_count(&count), 2, "nothing is kept");
    }
}
