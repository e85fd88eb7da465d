//! Locks that are taken on behalf of a thread which the OS may stop at any moment.
//!
//! An executor may run threads of the lowest priority. Such a thread has a CPU only while no other
//! thread wants one. If the kernel stops it while it holds a lock, every thread that needs the lock
//! waits until a CPU is left over: a priority inversion. So a thread of low priority takes no lock
//! that others share. It hands the code that would to a [`Proxy`], which has a thread of normal
//! priority call it, and waits for the result.
//!
//! On all other threads [`on_behalf`] is a plain call behind one load of a thread-local.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls functions on a thread of normal priority.
///
/// See [`on_behalf`] for an example.
pub trait Proxy {
    /// Calls `f` once, and returns after that. `f` does not panic.
    ///
    /// See [`on_behalf`] for an example.
    fn call(&self, f: &mut (dyn FnMut() + Send));
}

thread_local! {
    /// The proxy of this thread. Not really `'static`: `with_proxy` borrows it for as long as it is
    /// here. Constant and without a destructor: reading it is one load, and works while the thread
    /// ends.
    static PROXY: Cell<Option<&'static dyn Proxy>> = const { Cell::new(None) };
}

/// Runs `f` on this thread, with `proxy` taking the locks on its behalf. Restores the previous
/// proxy afterwards, also if `f` panics.
///
/// See [`on_behalf`] for an example.
pub fn with_proxy<R>(proxy: &dyn Proxy, f: impl FnOnce() -> R) -> R {
    struct PutBack(Option<&'static dyn Proxy>);
    impl Drop for PutBack {
        fn drop(&mut self) {
            PROXY.set(self.0);
        }
    }
    // SAFETY: only the lifetime changes, so no copy of the reference may be used after the borrow
    // ends. It is stored in `PROXY` alone, which only this thread and this module read. `by_proxy`
    // copies it into a frame that ends before this one. The guard takes it out of `PROXY` before
    // this function returns, also by a panic.
    let proxy = unsafe { std::mem::transmute::<&dyn Proxy, &'static dyn Proxy>(proxy) };
    let _put_back = PutBack(PROXY.replace(Some(proxy)));
    f()
}

/// Calls `f`: on this thread, or on the thread of its [proxy](with_proxy) if it has one.
///
/// For code that takes a lock. `f` must not run code of others (wakers are cloned and dropped by
/// the caller), nor rely on the thread-locals of its caller.
///
/// # Panics
///
/// If `f` panics.
///
/// # Examples
///
/// ```
/// use giveway_io::driver::{Proxy, on_behalf, with_proxy};
/// use std::thread;
///
/// struct Another;
///
/// impl Proxy for Another {
///     fn call(&self, f: &mut (dyn FnMut() + Send)) {
///         thread::scope(|threads| threads.spawn(f).join().unwrap());
///     }
/// }
///
/// let here = thread::current().id();
/// assert_eq!(on_behalf(|| thread::current().id()), here);
/// assert_ne!(with_proxy(&Another, || on_behalf(|| thread::current().id())), here);
/// ```
#[inline]
pub fn on_behalf<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    match PROXY.get() {
        None => f(),
        Some(proxy) => by_proxy(proxy, f),
    }
}

/// Has `proxy` call `f`. A panic of `f` is caught there and goes on here.
#[cold]
fn by_proxy<R: Send>(proxy: &dyn Proxy, f: impl FnOnce() -> R + Send) -> R {
    let (mut f, mut result) = (Some(f), None);
    proxy.call(&mut || {
        if let Some(f) = f.take() {
            result = Some(catch_unwind(AssertUnwindSafe(f)));
        }
    });
    match result.expect("a proxy calls what it is given") {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    struct Another;

    impl Proxy for Another {
        fn call(&self, f: &mut (dyn FnMut() + Send)) {
            thread::scope(|threads| threads.spawn(f).join().expect("it does not panic"));
        }
    }

    #[test]
    fn a_panic_comes_back_to_the_caller_and_proxies_nest() {
        let here = thread::current().id();
        let elsewhere = || on_behalf(|| thread::current().id()) != here;
        let panicked = catch_unwind(|| with_proxy(&Another, || on_behalf(|| panic!("on purpose"))));
        let payload = panicked.expect_err("it panics");
        assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
        assert!(!elsewhere(), "what was there before is back");
        with_proxy(&Another, || {
            assert!(with_proxy(&Another, elsewhere) && elsewhere());
            // The thread of the proxy has no proxy.
            assert!(on_behalf(|| on_behalf(|| thread::current().id()) == thread::current().id()));
        });
    }
}
