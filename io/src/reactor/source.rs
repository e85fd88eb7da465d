//! One registered file descriptor: what is known of its readiness, and which tasks wait for it.
//!
//! The poller reports edges: an event comes once, when a direction becomes ready. So readiness is
//! kept here until an operation finds that it is over. A direction is one word: a bit for ready,
//! five more bits, and above them a tick that every event advances. An operation that finds the
//! descriptor not ready clears the bit only if the word is still the one it saw, so it does not
//! wipe out an event that came in between. The tick has 58 bits, and the word is compared whole
//! (tokio 6133, PR 6134 and 8331 are about a tick that was cut short; each direction has its own,
//! tokio PR 8221).
//!
//! Nothing is known of a new descriptor. An operation takes it for ready and finds out, which is
//! one system call; waiting for the first report would be two. A caller that waits for readiness
//! itself waits for a report. The first report always comes: the kernel answers a registration with
//! an event for what is ready at that time.
//!
//! An operation that moved less than it could has usually moved all that there was, and need not be
//! followed by one that finds nothing. This does not hold once an event has told of something
//! beyond the data: an end, an error, an urgent byte.

use super::interest::{Interest, Ready};
use super::wake_all;
use crate::proxy::on_behalf;
use crate::sys::Report;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The direction of an operation. Accepting and receiving read; connecting and sending write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The state of a direction as an operation saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

/// An operation is worth a try.
const READY: u64 = 1;
/// No more events will come: the direction is always ready, and its operations fail.
const CLOSED: u64 = 2;
/// An event has told of more than data. It may follow a short read or write without an event of its
/// own. Never cleared.
const MORE: u64 = 4;
/// An event has told of the end of this direction. Cleared with `READY`: an operation that would
/// block has refuted it.
const ENDED: u64 = 8;
/// An event has told of an error that is pending. Cleared for a caller that waits for errors and
/// has found none.
const ERROR: u64 = 16;
/// An event has told of an urgent byte. Cleared as `ERROR` is.
const PRIORITY: u64 = 32;
/// What an event adds to the word. Zero ticks: nothing was reported yet.
const TICK: u64 = 64;

impl Seen {
    /// Returns whether an operation is worth a try.
    pub(crate) fn is_ready(self) -> bool {
        self.0 & READY != 0
    }

    /// Returns whether an event has told of one of these bits. It has not if the direction counts as
    /// ready because nothing is known of it yet.
    fn is_reported(self, bits: u64) -> bool {
        self.0 & bits != 0 && self.0 >= TICK
    }
}

/// Returns the bits of the direction of reading that an interest waits for.
#[inline]
fn read_bits(interest: Interest) -> u64 {
    let mut bits = clear_bits(interest);
    if interest.is_priority() {
        bits |= ENDED;
    }
    bits
}

/// Returns the bits of the direction of reading that are over when an operation of this interest
/// would block, without `ENDED`, which goes with `READY`.
#[inline]
fn clear_bits(interest: Interest) -> u64 {
    let mut bits = 0;
    if interest.is_readable() {
        bits |= READY;
    }
    if interest.is_priority() {
        bits |= PRIORITY;
    }
    if interest.is_error() {
        bits |= ERROR;
    }
    bits
}

/// One direction of a source.
#[derive(Debug, Default)]
struct Half {
    /// The bits above and the tick. Written by events and by operations that find it not
    /// ready; read by every operation.
    state: AtomicU64,
    /// The tasks that wait. An event writes `state` before it takes them.
    waiting: Mutex<Waiting>,
}

/// The wakers of all tasks that wait in one direction, each once.
///
/// Every event takes the list as a whole: a task that still wants something comes again. So no task
/// can take the place of another (smol PR 170). A future that is dropped leaves a waker behind,
/// which is woken once without effect.
///
/// On a descriptor where nothing ever happens such wakers would pile up. So when the list reaches a
/// limit, the older half is woken: tasks that still wait come again, and the other wakers are gone.
/// If the limit is reached again within a second, the wakers belong to tasks that wait, and the
/// limit is doubled.
#[derive(Debug, Default)]
struct Waiting {
    /// In the order in which they came.
    wakers: Vec<Waker>,
    /// The limit and when it was set, if that was since the last event. `MANY` otherwise.
    many: Option<(usize, Instant)>,
}

/// The first limit: a list that reaches this length may consist of wakers that dropped futures left
/// behind.
const MANY: usize = 64;

impl Waiting {
    /// Takes the waker and adds it, unless the list has it. Returns wakers to wake, if the list has
    /// reached its limit.
    fn add(&mut self, waker: &mut Option<Waker>) -> Vec<Waker> {
        let Some(waker) =
            waker.take_if(|waker| !self.wakers.iter().any(|known| known.will_wake(waker)))
        else {
            return Vec::new();
        };
        let evicted = if self.wakers.len() >= self.many.map_or(MANY, |(many, _)| many) {
            self.evict()
        } else {
            Vec::new()
        };
        // Almost always one task waits, and the first push would reserve room for four.
        if self.wakers.is_empty() {
            self.wakers.reserve_exact(1);
        }
        self.wakers.push(waker);
        evicted
    }

    /// Takes the older half out, or doubles the limit if that was done a moment ago.
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
    /// Makes a source that is ready in both directions for operations, and reported in none.
    pub(crate) fn new() -> Self {
        let half = || Half { state: AtomicU64::new(READY), waiting: Mutex::default() };
        Self { halves: [half(), half()] }
    }

    fn half(&self, direction: Direction) -> &Half {
        &self.halves[direction as usize]
    }

    /// Returns the state of a direction.
    pub(crate) fn look(&self, direction: Direction) -> Seen {
        // Ordering: acquire, partner of the RMW in `set`. What an operation then reads from the
        // descriptor is ordered by the kernel.
        Seen(self.half(direction).state.load(Acquire))
    }

    /// Ends readiness after an operation that saw `seen` and moved less than it could, unless an
    /// event has told of more than data.
    #[inline]
    pub(crate) fn drained(&self, direction: Direction, seen: Seen) {
        if seen.0 & MORE == 0 {
            self.clear(direction, seen);
        }
    }

    /// Ends readiness after an operation that saw `seen` and found the descriptor not ready.
    #[inline]
    pub(crate) fn clear(&self, direction: Direction, seen: Seen) {
        self.clear_bits(direction, seen, READY);
    }

    /// Clears these bits after an operation that saw `seen`, and `ENDED` with `READY`.
    fn clear_bits(&self, direction: Direction, seen: Seen, mut bits: u64) {
        if seen.0 & CLOSED != 0 {
            return;
        }
        if bits & READY != 0 {
            bits |= ENDED;
        }
        // Ordering: relaxed on failure: an event came in between, and the caller looks again.
        let _newer =
            self.half(direction).state.compare_exchange(seen.0, seen.0 & !bits, AcqRel, Relaxed);
    }

    /// Returns the states of the directions that an interest is about, reading first.
    #[inline]
    pub(crate) fn look_at(&self, interest: Interest) -> [Option<Seen>; 2] {
        [
            (clear_bits(interest) != 0).then(|| self.look(Direction::Read)),
            interest.is_writable().then(|| self.look(Direction::Write)),
        ]
    }

    /// Ends the readiness that an interest names, after an operation that would block and saw
    /// `seen`, of [`look_at`](Self::look_at).
    #[cold]
    pub(crate) fn clear_interest(&self, interest: Interest, [read, write]: [Option<Seen>; 2]) {
        if let Some(seen) = read {
            self.clear_bits(Direction::Read, seen, clear_bits(interest));
        }
        if let Some(seen) = write {
            self.clear(Direction::Write, seen);
        }
    }

    /// Marks the direction as ready, for an event that reports this. Adds the wakers of the tasks
    /// that wait for it to `woken`.
    pub(crate) fn set_ready(&self, direction: Direction, report: Report, woken: &mut Vec<Waker>) {
        let Report { ended, error, priority } = report;
        let mut bits = READY;
        for (is, bit) in [(ended, ENDED), (error, ERROR), (priority, PRIORITY)] {
            if is {
                bits |= bit | MORE;
            }
        }
        self.set(direction, bits, woken);
    }

    /// Marks both directions as ready for good: there will be no more events. Adds the wakers of
    /// all tasks that wait to `woken`.
    pub(crate) fn close(&self, woken: &mut Vec<Waker>) {
        self.set(Direction::Read, READY | CLOSED, woken);
        self.set(Direction::Write, READY | CLOSED, woken);
    }

    /// Sets `bits`, advances the tick and takes the wakers.
    fn set(&self, direction: Direction, bits: u64, woken: &mut Vec<Waker>) {
        let half = self.half(direction);
        // 1. Set the bits before the list is taken: see `wait_until`.
        //
        // Ordering: AcqRel, partner of the load in `look`.
        let _before = half.state.fetch_update(AcqRel, Relaxed, |state| Some((state | bits) + TICK));
        // 2. Take the list. In the other order a task could look at the bits and join the list in
        //    between, and would miss this event.
        let mut waiting = lock(&half.waiting);
        waiting.many = None;
        woken.append(&mut waiting.wakers);
    }

    /// Returns whether a waker is in a list, of a task that waits or of a future that was dropped.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.halves.iter().any(|half| !lock(&half.waiting).wakers.is_empty())
    }

    /// Waits until an operation is worth a try.
    #[inline]
    pub(crate) fn poll_ready(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<Seen> {
        self.poll_until(direction, cx, Seen::is_ready)
    }

    /// Waits until something that the interest names is reported. Returns at once if it was
    /// reported before and no operation has found otherwise.
    pub(crate) fn poll_interest(&self, interest: Interest, cx: &mut Context<'_>) -> Poll<Ready> {
        // The end of the runtime is told to all.
        let bits = read_bits(interest);
        let read = match bits {
            0 => Poll::Pending,
            bits => self.poll_until(Direction::Read, cx, |seen| seen.is_reported(bits | CLOSED)),
        };
        let write = if !interest.is_writable() {
            Poll::Pending
        } else if read.is_ready() {
            // Joins no list, because the caller does not wait.
            Poll::Ready(self.look(Direction::Write))
        } else {
            self.poll_until(Direction::Write, cx, |seen| seen.is_reported(READY | CLOSED))
        };
        // What was seen counts, and not a later look: another task may have cleared it since.
        let mut reported = Ready::EMPTY;
        if let Poll::Ready(seen) = read {
            reported |= Ready::of_reading(
                seen.is_reported(READY),
                seen.is_reported(ENDED),
                seen.is_reported(PRIORITY),
                seen.is_reported(ERROR),
            );
        }
        if let Poll::Ready(seen) = write {
            reported |= Ready::of_writing(seen.is_reported(READY), seen.is_reported(ENDED));
        }
        if read.is_ready() || write.is_ready() {
            Poll::Ready(reported & Ready::asked_by(interest))
        } else {
            Poll::Pending
        }
    }

    #[inline]
    fn poll_until(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        is_met: impl Fn(Seen) -> bool + Sync,
    ) -> Poll<Seen> {
        let seen = self.look(direction);
        if is_met(seen) { Poll::Ready(seen) } else { self.wait_until(direction, cx, is_met) }
    }

    /// Joins the list of tasks that wait, unless the condition is met by now.
    fn wait_until(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        is_met: impl Fn(Seen) -> bool + Sync,
    ) -> Poll<Seen> {
        let half = self.half(direction);
        // 1. Clone the waker outside of the lock. It is dropped outside too if the list has it
        //    already. Both are code of others.
        let mut waker = Some(cx.waker().clone());
        let added = on_behalf(|| {
            let mut waiting = lock(&half.waiting);
            // 2. Look once more, under the lock. An event sets its bits first and takes the list
            //    second. If the bits are not there yet, the event has yet to take the list, and
            //    finds this waker in it.
            let seen = self.look(direction);
            if is_met(seen) { Err(seen) } else { Ok(waiting.add(&mut waker)) }
        });
        match added {
            Err(seen) => Poll::Ready(seen),
            Ok(mut evicted) => {
                // 3. Without the lock: wakers are code of others.
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
        source.set_ready(Read, Report::default(), &mut Vec::new());
        assert!(source.look(Read).is_ready());
    }

    /// A caller that waits for readiness itself is not told of what no event has reported.
    #[test]
    fn a_new_source_is_ready_for_operations_and_reported_as_nothing() {
        let source = Source::new();
        let cx = &mut Context::from_waker(Waker::noop());
        for (direction, interest) in [(Read, Interest::READABLE), (Write, Interest::WRITABLE)] {
            assert!(source.poll_ready(direction, cx).is_ready());
            assert!(source.poll_interest(interest, cx).is_pending());
        }
        let mut woken = Vec::new();
        source.set_ready(Write, Report::default(), &mut woken);
        assert_eq!(woken.len(), 1, "who waits for the report is woken by it");
        assert!(source.poll_interest(Interest::WRITABLE, cx).is_ready());
        assert!(source.poll_interest(Interest::READABLE, cx).is_pending());
        source.close(&mut woken);
        assert!(source.poll_interest(Interest::READABLE, cx).is_ready(), "the end is told to all");
    }

    /// tokio 6133, PR 6134, PR 8331: a truncated tick let an old look clear newer readiness.
    #[test]
    fn an_old_look_does_not_clear_newer_readiness() {
        let source = Source::new();
        for events in [1_u32, 2, 255, 256, 65_536, 1 << 20] {
            let seen = source.look(Read);
            (0..events).for_each(|_| source.set_ready(Read, Report::default(), &mut Vec::new()));
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
        source.set_ready(Read, Report { ended: true, ..Report::default() }, &mut Vec::new());
        source.drained(Read, source.look(Read));
        assert!(source.look(Read).is_ready());
        source.clear(Read, source.look(Read));
        assert!(!source.look(Read).is_ready(), "an operation that would block knows");
    }

    /// A look is what counts, also where it is at several bits.
    #[test]
    fn an_interest_clears_what_it_names_and_nothing_newer() {
        let source = Source::new();
        let cx = &mut Context::from_waker(Waker::noop());
        let urgent = Report { priority: true, error: true, ..Report::default() };
        let interest = Interest::PRIORITY | Interest::ERROR;
        source.set_ready(Read, urgent, &mut Vec::new());
        let seen = source.look_at(interest);
        assert_eq!(source.poll_interest(interest, cx), Poll::Ready(Ready::PRIORITY | Ready::ERROR));
        source.set_ready(Read, urgent, &mut Vec::new());
        source.clear_interest(interest, seen);
        assert!(source.poll_interest(interest, cx).is_ready(), "an event came in between");
        source.clear_interest(interest, source.look_at(interest));
        assert!(source.poll_interest(interest, cx).is_pending());
        let readable = source.poll_interest(Interest::READABLE, cx);
        assert_eq!(readable, Poll::Ready(Ready::READABLE), "nobody has tried to read");
    }

    /// An operation that would block in a direction that has ended shows that it has not.
    #[test]
    fn the_end_of_a_direction_is_forgotten_when_an_operation_refutes_it() {
        let source = Source::new();
        let cx = &mut Context::from_waker(Waker::noop());
        let end = Report { ended: true, ..Report::default() };
        source.set_ready(Write, end, &mut Vec::new());
        let both = Interest::READABLE | Interest::WRITABLE;
        let ended = Ready::WRITABLE | Ready::WRITE_CLOSED;
        assert_eq!(
            source.poll_interest(both, cx),
            Poll::Ready(ended),
            "of reading nothing is known"
        );
        source.clear_interest(both, source.look_at(both));
        assert!(source.poll_interest(both, cx).is_pending());
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
        source.set_ready(Write, Report::default(), &mut woken);
        assert!(woken.is_empty(), "they wait to read");
        source.set_ready(Read, Report::default(), &mut woken);
        assert_eq!(woken.len(), 2);
        assert!(woken[0].will_wake(&first) && woken[1].will_wake(&second));
    }

    /// A future that is dropped leaves its waker behind. A list must not keep such wakers for ever.
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

    /// A list has room for as many tasks as really wait.
    #[test]
    fn many_who_wait_do_not_drive_each_other_out_for_ever() {
        let source = Source::new();
        source.clear(Read, source.look(Read));
        let wakers: Vec<_> = (0..300).map(|_| Waker::from(std::sync::Arc::new(Nobody))).collect();
        for waker in wakers.iter().chain(&wakers) {
            assert!(source.poll_ready(Read, &mut Context::from_waker(waker)).is_pending());
        }
        let mut woken = Vec::new();
        source.set_ready(Read, Report::default(), &mut woken);
        assert!(wakers.iter().all(|waker| woken.iter().any(|woken| woken.will_wake(waker))));
    }

    struct Nobody;
    impl std::task::Wake for Nobody {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
