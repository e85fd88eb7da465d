//! The yield point of a polite background loop: gives way only when somebody waits.

use crate::host::{self, Ticket};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How often a yield point stays pending in one and the same poll of its task.
///
/// A `FuturesUnordered` polls a child that woke itself a second time before it returns, and each one around it twice
/// that. An executor that is nested in a task never returns: there the yield point gives up after this many tries.
const TRIES: u32 = 64;

/// Gives way if every worker is busy and work waits; otherwise is ready at once.
///
/// The task then runs again when nothing else can: it goes behind everything that is not itself background work. See
/// the executor's documentation for the exact rule; `giveway::yield_now_if_busy` has Giveway's.
///
/// Inside `join!`, `select!` or a `FuturesUnordered` the *task* gives way, with all that is in it.
///
/// # Not guaranteed
///
/// That it ever gives way: under an executor that is no [host](crate::host), and outside of any, it is ready at once. So it
/// is, after many polls, in an executor nested inside a task that polls it in a loop and never lets the task return.
///
/// # Cancel safety
///
/// Dropping the future before it is ready leaves no trace but one spurious wake-up: a task that does not wait at a
/// yield point any more when its poll returns does not give way.
///
/// # Examples
///
/// ```
/// async fn compact(segments: Vec<Vec<u8>>) -> Vec<u8> {
///     let mut compacted = Vec::new();
///     for segment in segments {
///         compacted.extend(segment);
///         giveway_yield::yield_now_if_busy().await; // foreground work goes first
///     }
///     compacted
/// }
///
/// assert_eq!(futures::executor::block_on(compact(vec![vec![1], vec![2]])), [1, 2]);
/// ```
#[inline]
pub fn yield_now_if_busy() -> YieldNowIfBusy {
    YieldNowIfBusy { waiting: None }
}

/// Whether [`yield_now_if_busy`] would give way: the same look, for loops that cannot await. Under an executor that is no
/// [host](crate::host) it is false.
///
/// # Not guaranteed
///
/// That the answer is the same a moment later.
///
/// # Examples
///
/// ```
/// /// Goes on until it is done or wanted elsewhere. Returns how many bytes are left.
/// fn scrub(mut bytes: &mut [u8]) -> usize {
///     while !bytes.is_empty() && !giveway_yield::should_yield() {
///         let (chunk, rest) = bytes.split_at_mut(bytes.len().min(4096));
///         chunk.fill(0);
///         bytes = rest;
///     }
///     bytes.len()
/// }
///
/// assert_eq!(scrub(&mut [1; 10_000]), 0);
/// ```
#[inline]
#[must_use]
pub fn should_yield() -> bool {
    host::work_waits()
}

/// The future of `yield_now_if_busy`.
///
/// Polled after it was ready, it is a yield point once more.
///
/// # Examples
///
/// See [`yield_now_if_busy`].
#[derive(Debug)]
#[must_use = "a yield point does nothing unless it is awaited"]
pub struct YieldNowIfBusy {
    // One word has to be written to make it, and read to drop it: `None` is a ticket of zero.
    waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    ticket: Ticket,
    tries: u32,
}

impl Future for YieldNowIfBusy {
    type Output = ();

    // Inlined into the caller's loop. What it costs there when a worker is idle: a thread-local read, a load, a compare.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting.is_none() && host::need_not_ask() {
            return Poll::Ready(());
        }
        self.poll_slowly(cx)
    }
}

impl YieldNowIfBusy {
    #[cold]
    fn poll_slowly(&mut self, cx: &Context<'_>) -> Poll<()> {
        if let Some(waiting) = self.waiting {
            return self.poll_again(waiting, cx);
        }
        match host::ask() {
            None => Poll::Ready(()),
            Some(ticket) => self.wait(Waiting { ticket, tries: 1 }, cx),
        }
    }

    fn wait(&mut self, waiting: Waiting, cx: &Context<'_>) -> Poll<()> {
        self.waiting = Some(waiting);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_again(&mut self, Waiting { ticket, tries }: Waiting, cx: &Context<'_>) -> Poll<()> {
        self.waiting = None;
        // Polled again before its task has returned, it asks again: the task is still to give way.
        let not_left_yet = host::take_back(ticket);
        if not_left_yet
            && tries < TRIES
            && let Some(ticket) = host::give_way()
        {
            return self.wait(Waiting { ticket, tries: tries + 1 }, cx);
        }
        Poll::Ready(())
    }
}

impl Drop for YieldNowIfBusy {
    #[inline]
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting {
            host::take_back(waiting.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Host, Signs, with_host};
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize};
    use std::task::Waker;

    /// A host where work always waits. `notes` is how many yield points want the current poll to give way.
    struct Strict {
        idle: AtomicIsize,
        queued: AtomicUsize,
        asked_for: AtomicBool,
        countdown: AtomicU32,
        poll: Cell<u64>,
        notes: Cell<u32>,
    }

    impl Strict {
        fn new() -> Self {
            Self {
                idle: AtomicIsize::new(0),
                queued: AtomicUsize::new(0),
                asked_for: AtomicBool::new(true),
                countdown: AtomicU32::new(0),
                poll: Cell::new(1),
                notes: Cell::new(0),
            }
        }

        fn next_poll(&self) {
            self.poll.set(self.poll.get() + 1);
            self.notes.set(0);
        }
    }

    impl Host for Strict {
        fn signs(&self) -> Signs<'_> {
            Signs {
                idle: &self.idle,
                asked: &self.asked_for,
                queued: [&self.queued, &self.queued],
                countdown: &self.countdown,
            }
        }
        fn work_waits(&self) -> bool {
            true
        }
        fn give_way(&self) -> Option<Ticket> {
            self.notes.set(self.notes.get() + 1);
            NonZeroU64::new(self.poll.get()).map(Ticket::new)
        }
        fn take_back(&self, ticket: Ticket) -> bool {
            if ticket.get().get() != self.poll.get() {
                return false;
            }
            self.notes.set(self.notes.get() - 1);
            true
        }
    }

    #[test]
    fn pending_until_its_task_has_been_away() {
        let host = Strict::new();
        let mut cx = Context::from_waker(Waker::noop());
        with_host(&host, || {
            let mut turn = pin!(yield_now_if_busy());
            assert!(turn.as_mut().poll(&mut cx).is_pending());
            assert!(turn.as_mut().poll(&mut cx).is_pending(), "polled again before the task has returned");
            assert_eq!(host.notes.get(), 1);
            host.next_poll();
            assert!(turn.as_mut().poll(&mut cx).is_ready());
            assert_eq!(host.notes.get(), 0);
        });
    }

    #[test]
    fn dropped_while_pending_it_takes_its_note_back_and_no_other() {
        let host = Strict::new();
        let mut cx = Context::from_waker(Waker::noop());
        with_host(&host, || {
            let mut first = Box::pin(yield_now_if_busy());
            let mut second = Box::pin(yield_now_if_busy());
            assert!(first.as_mut().poll(&mut cx).is_pending());
            assert!(second.as_mut().poll(&mut cx).is_pending());
            drop(first);
            assert_eq!(host.notes.get(), 1, "the other still waits");
            host.next_poll();
            drop(second);
            assert_eq!(host.notes.get(), 0, "it has given way already, and owes nothing to a later poll");
        });
    }

    #[test]
    fn a_loop_that_never_returns_to_the_executor_is_let_go() {
        let host = Strict::new();
        let mut cx = Context::from_waker(Waker::noop());
        with_host(&host, || {
            let mut turn = pin!(yield_now_if_busy());
            let pending = (0..100).take_while(|_| turn.as_mut().poll(&mut cx).is_pending()).count();
            assert_eq!(pending, TRIES as usize);
            assert_eq!(host.notes.get(), 0, "nothing stays noted");
            assert!(pin!(yield_now_if_busy()).poll(&mut cx).is_pending(), "the next one is obeyed");
        });
    }

    #[test]
    fn ready_as_soon_as_somebody_is_idle() {
        let host = Strict::new();
        let mut cx = Context::from_waker(Waker::noop());
        with_host(&host, || {
            let mut turn = pin!(yield_now_if_busy());
            assert!(turn.as_mut().poll(&mut cx).is_pending());
            host.idle.store(1, std::sync::atomic::Ordering::Relaxed);
            assert!(turn.as_mut().poll(&mut cx).is_ready());
            assert_eq!(host.notes.get(), 0);
            assert!(!should_yield());
        });
    }

    #[test]
    fn outside_any_host_it_is_ready_at_once_wherever_it_was_pending_before() {
        let host = Strict::new();
        let mut cx = Context::from_waker(Waker::noop());
        let mut turn = pin!(yield_now_if_busy());
        assert!(turn.as_mut().poll(&mut cx).is_ready());
        with_host(&host, || assert!(turn.as_mut().poll(&mut cx).is_pending()));
        assert!(turn.as_mut().poll(&mut cx).is_ready());
    }
}
