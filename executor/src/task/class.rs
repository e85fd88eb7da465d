//! Foreground and background: which tasks wait for which.

use super::JoinHandle;
use crate::runtime::context;
use std::future::Future;
use std::panic::Location;

/// Whether a task runs as soon as a worker is free for it, or waits until nothing else can run.
///
/// # Examples
///
/// ```
/// use giveway::task::{self, Class};
///
/// giveway::block_on(async {
///     let child = giveway::spawn_background(async {
///         giveway::spawn(async { task::class() }).await.unwrap()
///     });
///     assert_eq!(child.await.unwrap(), Class::Background, "inherited");
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Class {
    /// Runs as soon as there is a worker for it. [`spawn`](super::spawn) makes such a task, unless
    /// a background task calls it.
    #[default]
    Foreground,
    /// Runs when nothing else can. [`spawn_background`] makes such a task.
    Background,
}

/// Spawns a future as a background task of the current runtime: it runs on whatever the foreground
/// leaves over.
///
/// Every time the task becomes runnable while no worker is idle, it goes into the yield queue.
/// Workers take from that queue only when nothing else is runnable anywhere. The task goes there
/// too when its [budget](crate::budget) is spent. And when foreground work becomes runnable while
/// the task runs, its next operation on any resource that spends the budget is cut short as if the
/// budget were spent.
///
/// So code without yield points gets out of the way all the same, as long as it now and then awaits
/// something that spends the budget, or really has to wait. A channel of another crate that always
/// has something does neither: wrap it in [`budget::cooperative`](crate::budget::cooperative). A
/// long computation should call [`yield_now_if_busy`](crate::yield_now_if_busy). If it cannot, the
/// kernel preempts it: once a poll has not returned in time, tasks from the same place are polled
/// on threads of the lowest priority
/// ([`Builder::preempt_background`](crate::Builder::preempt_background)).
///
/// What the task spawns onto its own runtime is a background task too, unless a
/// [`Builder`](super::Builder::class) says otherwise. In all other respects the task is like one of
/// [`spawn`](super::spawn).
///
/// # Not guaranteed
///
/// That the task runs at all, on a machine whose foreground never leaves a worker free:
/// [`Builder::yield_patience`](crate::Builder::yield_patience) sets a limit. Nor any order among
/// background tasks.
///
/// # Panics
///
/// Panics where [`spawn`](super::spawn) does.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
/// use giveway::budget::cooperative;
/// use std::pin::pin;
///
/// # let blocks = futures::stream::iter([vec![1_u8], vec![2]]);
/// giveway::block_on(async {
///     let checksum = giveway::spawn_background(async {
///         let mut blocks = pin!(cooperative(blocks)); // a stream that does not know the budget
///         let mut sum = 0_u32;
///         while let Some(block) = blocks.next().await {
///             sum = block.iter().fold(sum, |sum, &byte| sum.wrapping_add(byte.into()));
///         }
///         sum
///     });
///     assert_eq!(checksum.await.unwrap(), 3);
/// });
/// ```
#[inline]
#[track_caller]
pub fn spawn_background<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    super::spawning::spawn(None, Some(Class::Background), Location::caller(), future)
}

/// Returns the class of the task that runs on this thread, or the foreground if none does. See
/// [`Class`] for an example.
pub fn class() -> Class {
    context::current_class()
}
