//! Futures and values that tests put into tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Runs a closure when it is dropped.
#[derive(Debug)]
pub struct OnDrop<F: FnOnce()>(Option<F>);

/// Returns a value that runs `f` when it is dropped.
pub fn on_drop<F: FnOnce()>(f: F) -> OnDrop<F> {
    OnDrop(Some(f))
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().expect("dropped once")();
    }
}

/// Waits for ever, and owns `value`. Keep the task's handle: nothing else refers to the task.
pub async fn hold<T>(value: T) {
    let _value = value;
    std::future::pending::<()>().await;
}

/// The wakers of the tasks that wait in a [`Parked`].
#[derive(Debug, Clone, Default)]
pub struct Wakers(Arc<Mutex<Vec<Waker>>>);

impl Wakers {
    /// Returns how many wakers have been stored.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns whether no waker has been stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a clone of each waker.
    pub fn all(&self) -> Vec<Waker> {
        self.0.lock().unwrap().clone()
    }

    /// Removes and returns all wakers.
    pub fn take(&self) -> Vec<Waker> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Wakes all of them by reference, without holding the lock.
    pub fn wake_all(&self) {
        self.all().iter().for_each(Waker::wake_by_ref);
    }

    /// Returns a future that stores its waker here at its first poll, then waits for ever. It owns
    /// `value`.
    pub fn park<T>(&self, value: T) -> Parked<T> {
        Parked { wakers: self.clone(), left: false, _value: value }
    }
}

/// A future that waits for ever: from [`Wakers::park`].
#[derive(Debug)]
pub struct Parked<T> {
    wakers: Wakers,
    left: bool,
    _value: T,
}

impl<T> Unpin for Parked<T> {}

impl<T> Future for Parked<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.left, true) {
            self.wakers.0.lock().unwrap().push(cx.waker().clone());
        }
        Poll::Pending
    }
}
