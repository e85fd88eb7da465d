//! A per-task operation budget that any async library can spend, under any executor.
//!
//! An executor that takes part gives each poll of a task a number of *operations* ([`OPERATIONS`]).
//! Every resource that makes progress spends one. When none are left, the resource wakes its task
//! and returns `Pending` although it could go on: the task goes to the back of the queue, and
//! another task gets its turn. So a task whose socket always has data cannot starve the others.
//!
//! Outside of such an executor the budget is unconstrained: every function here is one thread-local
//! read.
//!
//! | you write | use |
//! |---|---|
//! | a resource: a socket, a channel | [`poll_proceed`] |
//! | an `async fn` with a loop that may never wait | [`consume`] |
//! | code over a future or stream that knows nothing of budgets | [`cooperative`] |
//! | a scheduler inside a task | [`has_remaining`] |
//! | a deadline that must be seen although the budget is spent | [`unconstrained`] |
//! | an executor | [`with_budget`], [`with_interrupt`] |
//!
//! The budget cannot stop code that never polls anything that spends. It is a count of operations
//! and not a clock. [`with_interrupt`] lets an executor put a clock beside it, but that too is seen
//! only at the next operation.
//!
//! # For a library author
//!
//! ## A resource of your own
//!
//! Ask before the operation, and say when it made progress. An operation that made none is given
//! back:
//!
//! ```
//! use std::collections::VecDeque;
//! use std::task::{ready, Context, Poll};
//!
//! struct Inbox(VecDeque<u32>);
//!
//! impl Inbox {
//!     fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
//!         let spent = ready!(giveway_budget::poll_proceed(cx));
//!         match self.0.pop_front() {
//!             Some(letter) => {
//!                 spent.made_progress();
//!                 Poll::Ready(letter)
//!             }
//!             // Dropping `spent` refunds the operation. (A real inbox stores the waker here.)
//!             None => Poll::Pending,
//!         }
//!     }
//! }
//!
//! let mut cx = Context::from_waker(std::task::Waker::noop());
//! let mut inbox = Inbox([1, 2, 3].into());
//! giveway_budget::with_budget(2, || {
//!     assert_eq!(inbox.poll_take(&mut cx), Poll::Ready(1));
//!     assert_eq!(inbox.poll_take(&mut cx), Poll::Ready(2));
//!     assert_eq!(inbox.poll_take(&mut cx), Poll::Pending, "two operations, and they are spent");
//! });
//! assert_eq!(inbox.poll_take(&mut cx), Poll::Ready(3), "outside an executor nothing is constrained");
//! ```
//!
//! Spend at one layer, the lowest. A resource that holds a [`Restore`] while it polls another
//! resource that spends as well needs two operations to do anything. And if the inner resource is
//! refused for lack of an operation, the outer one refunds its own on the way out.
//!
//! ## Futures and streams that spend nothing
//!
//! [`cooperative`] spends for them: one operation for a future that finishes, and one for each item
//! of a stream. Streams need the feature `futures-core`:
//!
#![cfg_attr(feature = "futures-core", doc = "```")]
#![cfg_attr(not(feature = "futures-core"), doc = "```ignore")]
//! use futures::stream::{self, StreamExt};
//! use giveway_budget::{OPERATIONS, cooperative, with_budget};
//! use std::pin::pin;
//! use std::task::{Context, Waker};
//!
//! // Always ready: this loop alone would never leave its thread.
//! let mut total = 0;
//! let mut sum = pin!(async {
//!     let mut ones = cooperative(stream::repeat(1).take(1000));
//!     while let Some(one) = ones.next().await {
//!         total += one;
//!     }
//! });
//!
//! let mut cx = Context::from_waker(Waker::noop());
//! let mut polls = 1;
//! while with_budget(OPERATIONS, || sum.as_mut().poll(&mut cx)).is_pending() {
//!     polls += 1;
//! }
//! assert_eq!((total, polls), (1000, 8), "128 items a poll");
//! ```
//!
//! ## A scheduler inside a task
//!
//! A join, a select or a stream of futures shares the one budget of its task among all its
//! children. Once that is spent, each child that is still to be polled can only answer `Pending`.
//! To poll ten thousand of them for that, again and again, costs the square of their number. Ask
//! [`has_remaining`], stop, and keep the place:
//!
//! ```
//! use giveway_budget::{OPERATIONS, consume, has_remaining, with_budget};
//! use std::cell::Cell;
//! use std::collections::VecDeque;
//! use std::future::Future;
//! use std::pin::{Pin, pin};
//! use std::task::{Context, Poll, Waker};
//!
//! struct All<'a>(VecDeque<Pin<Box<dyn Future<Output = ()> + 'a>>>);
//!
//! impl Future for All<'_> {
//!     type Output = ();
//!
//!     fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
//!         for _ in 0..self.0.len() {
//!             if !has_remaining() {
//!                 // The children not polled yet are in front, and come first next time.
//!                 cx.waker().wake_by_ref();
//!                 return Poll::Pending;
//!             }
//!             let mut child = self.0.pop_front().expect("the loop runs once for each");
//!             if child.as_mut().poll(cx).is_pending() {
//!                 self.0.push_back(child);
//!             }
//!         }
//!         if self.0.is_empty() { Poll::Ready(()) } else { Poll::Pending }
//!     }
//! }
//!
//! let child_polls = Cell::new(0);
//! let child = || async {
//!     child_polls.set(child_polls.get() + 1);
//!     consume().await;
//! };
//! let mut all = pin!(All((0..10_000).map(|_| Box::pin(child()) as _).collect()));
//! let mut cx = Context::from_waker(Waker::noop());
//! while with_budget(OPERATIONS, || all.as_mut().poll(&mut cx)).is_pending() {}
//! assert_eq!(child_polls.get(), 10_000, "none was polled in vain");
//! ```
//!
//! # For an executor author
//!
//! [`with_budget`] goes around each poll, [`with_interrupt`] around the thread's loop. The second
//! is optional: its flag lets another thread ask the task that runs here to give way at its next
//! operation, because a more urgent task waits or because the poll has gone on for too long.
//!
//! ```
//! use giveway_budget::{OPERATIONS, consume, with_budget, with_interrupt};
//! use std::collections::VecDeque;
//! use std::future::Future;
//! use std::pin::Pin;
//! use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
//! use std::task::{Context, Waker};
//!
//! type Task = Pin<Box<dyn Future<Output = ()>>>;
//!
//! /// `give_way` is shared with the threads that may interrupt this one.
//! fn run(mut queue: VecDeque<Task>, give_way: &AtomicBool) {
//!     let mut cx = Context::from_waker(Waker::noop());
//!     with_interrupt(give_way, || {
//!         while let Some(mut task) = queue.pop_front() {
//!             // A request is meant for the poll that goes on. A flag that stays raised would
//!             // stop every later task.
//!             give_way.store(false, Relaxed);
//!             if with_budget(OPERATIONS, || task.as_mut().poll(&mut cx)).is_pending() {
//!                 queue.push_back(task); // A real executor waits for the task's waker.
//!             }
//!         }
//!     });
//! }
//!
//! let long = async {
//!     for _ in 0..1000 {
//!         consume().await;
//!     }
//! };
//! run([Box::pin(long) as Task, Box::pin(async {})].into(), &AtomicBool::new(true));
//! ```
//!
//! A task that hands over to another without going through the queue should hand over the rest of
//! its budget too. Otherwise two such tasks can pass the thread to and fro for ever. Read
//! [`remaining`] before `with_budget` returns.

#![deny(unsafe_code)]

mod cell;
mod consume;
mod cooperative;
mod interrupt;
mod unconstrained;

pub use cell::{
    OPERATIONS, Restore, exhaust, has_remaining, poll_proceed, remaining, with_budget,
    without_budget,
};
pub use consume::{Consume, consume};
pub use cooperative::{Cooperative, cooperative};
pub use interrupt::with_interrupt;
pub use unconstrained::{Unconstrained, unconstrained};

#[cfg(test)]
mod counting {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Wake, Waker};

    /// Counts how often its waker is woken.
    #[derive(Default)]
    pub(crate) struct Wakes(AtomicUsize);

    impl Wakes {
        pub(crate) fn new() -> (Arc<Self>, Waker) {
            let wakes = Arc::new(Self::default());
            (Arc::clone(&wakes), Waker::from(wakes))
        }

        pub(crate) fn count(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
}
