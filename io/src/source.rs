//! One registered file descriptor: what is known of its readiness, and who waits for it.
//!
//! The poller reports edges: once, when a direction becomes ready. So readiness is kept here until an operation finds out
//! that it is over. A direction is one word: a bit that says ready, and above it a tick that every event advances. Who
//! finds the descriptor not ready after all clears the bit only if the tick is still the one it saw: an event that came
//! in between is not wiped out. The tick has 61 bits, and the word is compared whole (tokio 6133, PR 6134 and 8331 are
//! about a tick that was cut short; each direction has its own, tokio PR 8221).
//!
//! Of a new descriptor nothing is known. An operation takes it for ready, and finds out: that is one system call, where
//! waiting for the first report would be two. A caller that waits for readiness itself waits for a report, and the first one
//! comes by itself: a registration is answered with an event for what is ready at that time.
//!
//! An operation that moved less than it could has usually moved all that there was, and need not be followed by one that
//! finds nothing. Not so once an event has told of something beyond the data: an end, an error, an urgent byte.

use crate::proxy::on_behalf;
use crate::reactor::wake_all;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Reading or writing. Accepting and receiving read; connecting and sending write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What a direction looked like at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

const READY: u64 = 1;
/// Nobody will report anything any more: the direction is always ready, for an error.
const CLOSED: u64 = 2;
/// There is, or was, more than data: what is moved in part may be followed by it, without an event of its own.
const MORE: u64 = 4;
const TICK: u64 = 8;

impl Seen {
    /// Whether an operation is worth a try.
    pub(crate) fn is_ready(self) -> bool {
        self.0 & READY != 0
    }

    /// Whether it is ready because an event said so, and not because nothing is known of it yet.
    pub(crate) fn is_reported(self) -> bool {
        self.is_ready() && self.0 >= TICK
    }
}

#[derive(Debug, Default)]
struct Half {
    state: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// Everybody who waits, each once. Taken as a whole by every event: who still wants something comes again. So nobody's
/// place can be lost to another (smol PR 170), and a future that is dropped leaves a waker that is woken once in vain.
///
/// On a descriptor where nothing ever happens such wakers would pile up. So when there are many the older half is woken:
/// those who still wait come again, and the others are gone. If it comes to that again within a second, they are many.
#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Waker>,
    // How many are many, and since when.
    many: Option<(usize, Instant)>,
}

/// More wakers than this are taken for remains.
const MANY: usize = 64;

impl Waiting {
    /// Adds somebody. Returns whom to wake, for want of room.
    fn add(&mut self, waker: &mut Option<Waker>) -> Vec<Waker> {
        let Some(waker) = waker.take_if(|waker| !self.wakers.iter().any(|known| known.will_wake(waker))) else {
            return Vec::new();
        };
        let evicted =
            if self.wakers.len() >= self.many.map_or(MANY, |(many, _)| many) { self.evict() } else { Vec::new() };
        // Almost always it is one task.
        if self.wakers.is_empty() {
            self.wakers.reserve_exact(1);
        }
        self.wakers.push(waker);
        evicted
    }

    #[cold]
    fn evict(&mut self) -> Vec<Waker> {
        let (len, now) = (self.wakers.len(), Instant::now());
        let soon = self.many.is_some_and(|(_, since)| now - since < Duration::from_secs(1));
        self.many = Some((if soon { 2 * len } else { len }, now));
        if soon { Vec::new() } else { self.wakers.drain(..len / 2).collect() }
    }
}

/// A registered file descriptor.
#[derive(Debug)]
pub(crate) struct Source {
    halves: [Half; 2],
}

impl Source {
    /// Ready in both directions for operations, and reported in none.
    pub(crate) fn new() -> Self {
        let half = || Half { state: AtomicU64::new(READY), waiting: Mutex::default() };
        Self { halves: [half(), half()] }
    }

    fn half(&self, direction: Direction) -> &Half {
        &self.halves[direction as usize]
    }

    pub(crate) fn look(&self, direction: Direction) -> Seen {
        // Ordering: acquire, partner of the RMW in `set_ready`. The kernel orders what we then read from the descriptor.
        Seen(self.half(direction).state.load(Acquire))
    }

    /// An operation moved less than it could, after it had seen the descriptor ready.
    #[inline]
    pub(crate) fn drained(&self, direction: Direction, seen: Seen) {
        if seen.0 & MORE == 0 {
            self.clear(direction, seen);
        }
    }

    /// An operation found the descriptor not ready, after it had seen it so.
    pub(crate) fn clear(&self, direction: Direction, seen: Seen) {
        if seen.0 & CLOSED != 0 {
            return;
        }
        // Ordering: relaxed on failure: an event came in between, and the caller looks again.
        let _newer = self.half(direction).state.compare_exchange(seen.0, seen.0 & !READY, AcqRel, Relaxed);
    }

    /// An event: the direction is ready, and there is `more` than data. Adds those who wait for it to `woken`.
    pub(crate) fn set_ready(&self, direction: Direction, more: bool, woken: &mut Vec<Waker>) {
        self.set(direction, if more { READY | MORE } else { READY }, woken);
    }

    /// There will be no more events: from now on it is always ready. Adds those who wait to `woken`.
    pub(crate) fn close(&self, woken: &mut Vec<Waker>) {
        self.set(Direction::Read, READY | CLOSED, woken);
        self.set(Direction::Write, READY | CLOSED, woken);
    }

    fn set(&self, direction: Direction, bits: u64, woken: &mut Vec<Waker>) {
        let half = self.half(direction);
        // Ordering: AcqRel, partner of `look`. It comes before the lock is taken: see `wait_until`.
        let _before = half.state.fetch_update(AcqRel, Relaxed, |state| Some((state | bits) + TICK));
        let mut waiting = lock(&half.waiting);
        waiting.many = None;
        woken.append(&mut waiting.wakers);
    }

    /// Whether anybody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.halves.iter().any(|half| !lock(&half.waiting).wakers.is_empty())
    }

    /// Waits until an operation is worth a try.
    #[inline]
    pub(crate) fn poll_ready(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<Seen> {
        self.poll_until(direction, cx, Seen::is_ready)
    }

    /// Waits until the direction is reported as ready, unless it was before and no operation has found otherwise.
    pub(crate) fn poll_reported(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<Seen> {
        self.poll_until(direction, cx, Seen::is_reported)
    }

    #[inline]
    fn poll_until(&self, direction: Direction, cx: &mut Context<'_>, is_met: fn(Seen) -> bool) -> Poll<Seen> {
        let seen = self.look(direction);
        if is_met(seen) { Poll::Ready(seen) } else { self.wait_until(direction, cx, is_met) }
    }

    fn wait_until(&self, direction: Direction, cx: &mut Context<'_>, is_met: fn(Seen) -> bool) -> Poll<Seen> {
        let half = self.half(direction);
        // Cloned, and dropped if it is there already, outside of the lock: that is somebody else's code.
        let mut waker = Some(cx.waker().clone());
        let added = on_behalf(|| {
            let mut waiting = lock(&half.waiting);
            // Once more, under the lock. An event sets the bit first and takes the list second: if its bit is not there yet,
            // it has yet to take the list, with us in it.
            let seen = self.look(direction);
            if is_met(seen) { Err(seen) } else { Ok(waiting.add(&mut waker)) }
        });
        match added {
            Err(seen) => Poll::Ready(seen),
            Ok(mut evicted) => {
                wake_all(&mut evicted);
                Poll::Pending
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No user code runs under it.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Read, Write};

    #[test]
    fn readiness_stays_until_an_operation_finds_it_over() {
        let source = Source::new();
        let seen = source.look(Read);
        assert!(seen.is_ready());
        source.clear(Read, seen);
        assert!(!source.look(Read).is_ready());
        assert!(source.look(Write).is_ready(), "the other direction has its own");
        source.set_ready(Read, false, &mut Vec::new());
        assert!(source.look(Read).is_ready());
    }

    /// Who waits for readiness itself is not told of what nobody has reported.
    #[test]
    fn a_new_source_is_ready_for_operations_and_reported_as_nothing() {
        let source = Source::new();
        let cx = &mut Context::from_waker(Waker::noop());
        for direction in [Read, Write] {
            assert!(source.poll_ready(direction, cx).is_ready());
            assert!(source.poll_reported(direction, cx).is_pending());
        }
        let mut woken = Vec::new();
        source.set_ready(Write, false, &mut woken);
        assert_eq!(woken.len(), 1, "who waits for the report is woken by it");
        assert!(source.poll_reported(Write, cx).is_ready());
        assert!(source.poll_reported(Read, cx).is_pending());
        source.close(&mut woken);
        assert!(source.poll_reported(Read, cx).is_ready(), "the end is told to all");
    }

    /// tokio 6133, PR 6134, PR 8331: a truncated tick let an old look clear newer readiness.
    #[test]
    fn an_old_look_does_not_clear_newer_readiness() {
        let source = Source::new();
        for events in [1_u32, 2, 255, 256, 65_536, 1 << 20] {
            let seen = source.look(Read);
            (0..events).for_each(|_| source.set_ready(Read, false, &mut Vec::new()));
            source.clear(Read, seen);
            assert!(source.look(Read).is_ready(), "after {events} events");
        }
    }

    /// An end that is reported together with the last bytes has no event of its own.
    #[test]
    fn readiness_outlasts_a_short_read_when_an_end_was_reported() {
        let source = Source::new();
        source.drained(Read, source.look(Read));
        assert!(!source.look(Read).is_ready());
        source.set_ready(Read, true, &mut Vec::new());
        source.drained(Read, source.look(Read));
        assert!(source.look(Read).is_ready());
        source.clear(Read, source.look(Read));
        assert!(!source.look(Read).is_ready(), "an operation that would block knows");
    }

    #[test]
    fn a_closed_source_is_ready_for_good() {
        let source = Source::new();
        source.close(&mut Vec::new());
        for direction in [Read, Write] {
            source.clear(direction, source.look(direction));
            assert!(source.look(direction).is_ready());
        }
    }

    /// smol PR 170: with two tasks waiting on one source the wake-up of one was lost.
    #[test]
    fn everybody_who_waits_is_woken_and_each_once() {
        let source = Source::new();
        source.clear(Read, source.look(Read));
        let waker = || std::task::Waker::from(std::sync::Arc::new(Nobody));
        let (first, second) = (waker(), waker());
        for _ in 0..3 {
            for waker in [&first, &second] {
                assert!(source.poll_ready(Read, &mut Context::from_waker(waker)).is_pending());
            }
        }
        let mut woken = Vec::new();
        source.set_ready(Write, false, &mut woken);
        assert!(woken.is_empty(), "they wait to read");
        source.set_ready(Read, false, &mut woken);
        assert_eq!(woken.len(), 2);
        assert!(woken[0].will_wake(&first) && woken[1].will_wake(&second));
    }

    /// A future that is dropped leaves its waker behind; so many of them must not stay for ever.
    #[test]
    fn the_wakers_of_futures_that_are_gone_do_not_pile_up() {
        let source = Source::new();
        source.clear(Read, source.look(Read));
        let gone: Vec<_> = (0..MANY + 1).map(|_| std::sync::Arc::new(Nobody)).collect();
        for task in &gone {
            let waker = Waker::from(task.clone());
            assert!(source.poll_ready(Read, &mut Context::from_waker(&waker)).is_pending());
        }
        let kept = gone.iter().filter(|task| std::sync::Arc::strong_count(task) > 1).count();
        assert_eq!(kept, MANY / 2 + 1, "the older half was woken and let go");
    }

    /// As many as really wait all find room.
    #[test]
    fn many_who_wait_do_not_drive_each_other_out_for_ever() {
        let source = Source::new();
        source.clear(Read, source.look(Read));
        let wakers: Vec<_> = (0..300).map(|_| Waker::from(std::sync::Arc::new(Nobody))).collect();
        for waker in wakers.iter().chain(&wakers) {
            assert!(source.poll_ready(Read, &mut Context::from_waker(waker)).is_pending());
        }
        let mut woken = Vec::new();
        source.set_ready(Read, false, &mut woken);
        assert!(wakers.iter().all(|waker| woken.iter().any(|woken| woken.will_wake(waker))));
    }

    struct Nobody;
    impl std::task::Wake for Nobody {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
