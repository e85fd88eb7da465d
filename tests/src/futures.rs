//! Futures and values that tests put into tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Runs a closure when it is dropped.
#[derive(Debug)]
pub struct OnDrop<F: FnOnce()>(Option<F>);

/// Runs `f` when the value is dropped.
pub fn on_drop<F: FnOnce()>(f: F) -> OnDrop<F> {
    OnDrop(Some(f))
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().expect("dropped once")();
    }
}

/// Waits for ever with `value` in its hands. Keep the task's handle: nothing else refers to the task.
pub async fn hold<T>(value: T) {
    let _value = value;
    std::future::pending::<()>().await;
}

/// The wakers of the tasks that wait in a [`Parked`].
#[derive(Debug, Clone, Default)]
pub struct Wakers(Arc<Mutex<Vec<Waker>>>);

impl Wakers {
    /// How many have been left here.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies of all of them.
    pub fn all(&self) -> Vec<Waker> {
        self.0.lock().unwrap().clone()
    }

    /// Takes all of them out.
    pub fn take(&self) -> Vec<Waker> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Wakes them all by reference, without the lock.
    pub fn wake_all(&self) {
        self.all().iter().for_each(Waker::wake_by_ref);
    }

    /// A future that leaves its waker here at its first poll, waits for ever, and drops `value` at its end.
    pub fn park<T>(&self, value: T) -> Parked<T> {
        Parked { wakers: self.clone(), left: false, _value: value }
    }
}

/// See [`Wakers::park`].
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
