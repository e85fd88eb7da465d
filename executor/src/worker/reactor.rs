//! When a worker looks at the reactor between two polls, and what it does with what is ready there.

use super::Worker;
use crate::sched::INJECTOR_TICK;
use giveway_io::driver::{Turn, Wait, wake_all};
use std::task::Waker;

impl Worker {
    /// Looks at the reactor if a look may find something, and wakes what is ready or due. Returns
    /// whether anything was.
    pub(super) fn poll_io(&self) -> bool {
        self.shared.reactor.wants_turn() && self.take_turn()
    }

    /// Looks at the reactor every few polls, unless another thread has looked just now.
    ///
    /// The number of polls follows the clock: a worker with short polls comes by every few
    /// microseconds, and one with long polls would leave the reactor alone for a second. At first
    /// it is one.
    #[inline]
    pub(super) fn look_beyond_now_and_then(&self) {
        let left = self.polls_to_look.get();
        if left > 1 {
            self.polls_to_look.set(left - 1);
        } else {
            self.look_beyond();
        }
    }

    /// Looks at the reactor if no thread has for a while, and chooses the number of polls until the
    /// next look.
    #[cold]
    fn look_beyond(&self) {
        let (reactor, interval) =
            (&self.shared.reactor, self.core().poll_state().look_timer.reactor_interval());
        let now = self.shared.now();
        let busy_for =
            self.counting_since.replace(Some(now)).map_or(0, |since| now.saturating_sub(since));
        let mut polls = self.polls_a_look.get();
        self.core().learn_queue(now, busy_for / u64::from(polls));
        let mut alone = 0;
        if reactor.has_anything_for(self.index()) {
            self.pass_door(busy_for / u64::from(polls));
            alone = now.saturating_sub(reactor.looked_at());
            if alone >= interval {
                self.take_turn();
            }
        }
        // The aim is some hundred microseconds between two looks, because a look costs half of one.
        // The number of polls grows below 10 intervals (100 µs by default), and shrinks from 33 on.
        match alone.max(busy_for) / interval.max(1) {
            ..10 => polls = (polls * 2).min(INJECTOR_TICK),
            late @ 33.. => polls = (u64::from(polls) * 20 / late).max(1) as u32,
            _ => {}
        }
        self.polls_a_look.set(polls);
        self.polls_to_look.set(polls);
    }

    /// Takes a turn at the reactor without waiting, and wakes what is ready or due. Returns whether
    /// anything was. Unlike `poll_io` it does not ask first whether a look may find something.
    pub(crate) fn take_turn(&self) -> bool {
        let mut ready = self.ready.take();
        // An error here is a fault of the runtime's own. The next turn that waits reports it.
        let looked = self.shared.reactor.turn(Wait::Not, &mut ready);
        self.back_at_door(looked.is_ok_and(|turn| turn == Turn::Taken));
        self.wake_ready(ready)
    }

    /// Wakes everything in `ready`, and keeps the empty list for the next turn.
    pub(super) fn wake_ready(&self, mut ready: Vec<Waker>) -> bool {
        let any = !ready.is_empty();
        // A waker is foreign code, so nothing of the worker's is borrowed while it runs. It may not
        // lend the core either: the caller may be a yield point, whose task goes on with its core
        // after this.
        self.lending(false, || wake_all(&mut ready));
        self.ready.replace(ready);
        any
    }
}
