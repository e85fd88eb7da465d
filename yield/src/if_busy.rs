//! The yield point of a polite background loop. It gives way only when work waits.

use crate::host::{self, Ticket};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The most times that one yield point is pending within a single poll of its task.
///
/// A `FuturesUnordered` polls a child that woke itself a second time before it returns, and each
/// further one around it doubles that. An executor that is nested in a task never lets the task
/// return: there the yield point gives up after this many tries.
const TRIES: u32 = 64;

/// Gives way if every worker is busy and work waits; otherwise is ready at once.
///
/// A task that gave way runs again when nothing else is runnable: it goes behind everything that is
/// not itself background work. The executor's documentation has the exact rule; Giveway's is at
/// `giveway::yield_now_if_busy`.
///
/// Inside `join!`, `select!` or a `FuturesUnordered` the *task* gives way, with everything in it.
///
/// # Not guaranteed
///
/// That it ever gives way. Under an executor that is not a [host](crate::host), and outside of any,
/// it is ready at once. In an executor nested inside a task, which polls it in a loop and never
/// lets the task return, it is ready after many polls.
///
/// # Cancel safety
///
/// Dropping the future before it is ready has no effect beyond one spurious wake-up of the task. A
/// task gives way only if it still waits at a yield point when its poll returns.
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

/// Returns whether [`yield_now_if_busy`] would give way, for loops that cannot await.
///
/// It looks at the same things. Under an executor that is not a [host](crate::host) it returns
/// false.
///
/// # Not guaranteed
///
/// That the answer is the same a moment later.
///
/// # Examples
///
/// ```
/// /// Clears bytes until all are cleared or other work waits. Returns how many bytes are left.
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

/// The future that [`yield_now_if_busy`] returns.
///
/// A future that is polled after it was ready starts over as a new yield point. See
/// [`yield_now_if_busy`] for an example.
#[derive(Debug)]
#[must_use = "a yield point does nothing unless it is awaited"]
pub struct YieldNowIfBusy {
    /// Set while the yield point is pending.
    ///
    /// Only one word is written to create the future, and read to drop it, because `None` is a
    /// ticket of zero.
    waiting: Option<Waiting>,
}

/// The host's ticket, and how often the yield point was pending in the current poll of its task.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    ticket: Ticket,
    tries: u32,
}

impl Future for YieldNowIfBusy {
    type Output = ();

    // Inlined into the caller's loop. While a worker is idle it costs a thread-local read, a load
    // and a compare.
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
        let ticket = waiting.ticket;
        self.waiting = Some(waiting);
        host::wake(ticket, cx.waker());
        Poll::Pending
    }

    fn poll_again(&mut self, Waiting { ticket, tries }: Waiting, cx: &Context<'_>) -> Poll<()> {
        self.waiting = None;
        // True if the poll in which the ticket was issued still goes on. The task has not given way
        // yet, so the yield point asks again.
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

    /// A host where work always waits. `notes` is the number of yield points that want the current
    /// poll to give way.
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
            assert!(
                turn.as_mut().poll(&mut cx).is_pending(),
                "polled again before the task has returned"
            );
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
            assert_eq!(
                host.notes.get(),
                0,
                "it has given way already, and owes nothing to a later poll"
            );
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
