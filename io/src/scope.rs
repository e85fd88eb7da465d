//! What serves this thread: the reactor and the shard of an executor's worker, and the poll that is
//! under way.
//!
//! It is one [`Scope`], changed only by functions that take a closure: [`enter`], [`lend`] and
//! [`poll_task`](crate::driver::poll_task). Each saves the scope around it and restores it when its
//! closure returns or panics. So scopes nest as the frames of the stack do, and a pointer in a
//! scope never outlives the borrow that it stands for.
//!
//! Before `enter` or `lend` replaces a scope, the timers that its poll has
//! [deferred](crate::timer::deferred) are registered: the code inside may wait for one of them, or for any
//! length of time.
//!
//! A shard has at most one thread that defers timers to it; `Shard::attend` sees to that. A second
//! thread that enters with the same number is served by the shared shard.

use crate::reactor::Reactor;
use crate::timer::Shard;
use crate::timer::deferred;
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::task::Waker;

/// What serves a thread, at one level of nesting.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    /// The reactor of the worker on this thread, and the number of its shard. Not really `'static`:
    /// `enter` borrows the reactor for as long as the scope lasts.
    served: Option<(&'static Arc<Reactor>, usize)>,
    /// Whether this scope attends its shard, so that timers may be deferred.
    attends: bool,
    /// The waker of the task whose poll is the outermost in this scope; null between polls.
    task: *const Waker,
    /// The waker whose timers are deferred: `task`, or null while that task polls another inside of
    /// its own poll.
    own: *const Waker,
    /// The number of the poll, which no other thread has; zero outside of `enter`.
    poll: u64,
}

/// The scope of a thread that nothing serves: the finder finds its reactor.
const OUTSIDE: Scope =
    Scope { served: None, attends: false, task: ptr::null(), own: ptr::null(), poll: 0 };

thread_local! {
    /// The current scope. Constant and without a destructor: reading a field is one load, and works
    /// while the thread ends.
    static SCOPE: Cell<Scope> = const { Cell::new(OUTSIDE) };
}

/// Runs `f` with this reactor serving this thread, and with the timers that `f` makes in the shard
/// with this number. Restores afterwards what was there before, also if `f` panics.
///
/// Calls nest, also inside of a poll: the timers that the poll has made so far are registered
/// first, and it goes on as before afterwards.
///
/// Timers are [deferred](crate::driver::poll_task) on one thread for each shard. If another thread
/// is inside of `enter` with the same number, the timers made here go to a shared shard at once.
///
/// See the [module](crate::driver) for an example.
pub fn enter<R>(reactor: &Arc<Reactor>, shard: usize, f: impl FnOnce() -> R) -> R {
    struct Leave(Scope);
    impl Drop for Leave {
        fn drop(&mut self) {
            // The current scope, and not the one that `enter` has set: a shard that was lent and
            // lost is not this thread's to give up.
            SCOPE.get().cease();
            SCOPE.set(self.0);
            if self.0.served.is_none() {
                deferred::free();
            }
        }
    }
    let outer = SCOPE.get();
    // 1. Register the timers of the poll around this call, while its scope is still the current
    //    one.
    outer.register_deferred();
    // SAFETY: only the lifetime changes, so no copy of the reference may be used after the borrow
    // ends. It is stored in `SCOPE` alone, which only this thread and this module read; copies of
    // it are in frames that end before this one. The guard takes it out of `SCOPE` before this
    // function returns, also by a panic.
    let reactor = unsafe { std::mem::transmute::<&Arc<Reactor>, &'static Arc<Reactor>>(reactor) };
    // 2. Attend the shard before the new serials are taken: they have to be larger than those of
    //    the thread that attended it before.
    let attends = reactor.shard(shard).attend();
    let shard = if attends { shard } else { usize::MAX };
    // 3. Replace the scope. The guard comes first, so that a panic of `f` restores the outer scope.
    let _leave = Leave(outer);
    SCOPE.set(Scope {
        served: Some((reactor, shard)),
        attends,
        poll: deferred::new_serials(),
        ..OUTSIDE
    });
    f()
}

/// Runs `f`, during which another thread may [enter] with the same reactor and shard. The timers of
/// the poll that is under way are registered first, and those made in `f` are the
/// [finder](crate::driver::set_finder)'s.
///
/// `kept` is called after `f`, also if that panics, and returns whether this thread serves the
/// shard again: no other thread has entered, nor will. If so, everything is as before `f`. If not,
/// nothing serves this thread until the innermost `enter` around this call returns, except within a
/// further `enter`.
///
/// # Examples
///
/// ```
/// use giveway::net::UnixStream;
/// use giveway_io::driver::{Reactor, enter, lend};
///
/// let reactor = Reactor::new(1)?;
/// enter(&reactor, 0, || {
///     let _elsewhere = lend(UnixStream::pair, || true)?;
///     assert!(!reactor.has_sources());
///     let here = UnixStream::pair()?;
///     assert!(reactor.has_sources());
///     drop(here);
///
///     // Another thread has taken over.
///     lend(
///         || {
///             std::thread::scope(|threads| {
///                 threads.spawn(|| enter(&reactor, 0, || ())).join().unwrap()
///             })
///         },
///         || false,
///     );
///     let _elsewhere = UnixStream::pair()?;
///     assert!(!reactor.has_sources());
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn lend<R>(f: impl FnOnce() -> R, kept: impl FnOnce() -> bool) -> R {
    struct Back<K: FnOnce() -> bool> {
        scope: Scope,
        kept: Option<K>,
    }
    impl<K: FnOnce() -> bool> Drop for Back<K> {
        #[inline]
        fn drop(&mut self) {
            let kept = self.kept.take().is_some_and(|kept| kept());
            if kept && self.scope.attend_again() {
                SCOPE.set(self.scope);
            }
        }
    }
    let scope = SCOPE.get();
    // 1. Register the timers of the poll, while this thread attends the shard.
    scope.register_deferred();
    // 2. Give the shard up. Before step 1 this would be too soon: the list would come to a shard
    //    that another thread may attend by then, and its serials out of their order.
    scope.cease();
    SCOPE.set(OUTSIDE);
    // 3. Run `f`, then take the shard back if `kept` allows it; also after a panic.
    let back = Back { scope, kept: Some(kept) };
    let result = f();
    drop(back);
    result
}

impl Scope {
    /// Returns the shard of this scope.
    fn shard(&self) -> Option<&'static Shard> {
        self.served.map(|(reactor, shard)| reactor.shard(shard))
    }

    /// Registers what the poll of this scope has deferred, if one is under way. The scope has to be
    /// this thread's current one, and is about to be replaced.
    fn register_deferred(&self) {
        if deferred::any() {
            debug_assert!(!self.task.is_null(), "timers were deferred outside of a poll");
            defer_no_more();
            // SAFETY: the pointer has to be valid for a shared reference during this call. The list
            // is not empty, so the `poll_task` that put `task` here has not returned: it empties
            // the list before it does. Until then it borrows the waker, which is therefore alive,
            // and is changed by nothing.
            deferred::register(unsafe { &*self.task });
        }
    }

    /// Lets another thread attend the shard.
    #[inline]
    fn cease(&self) {
        if self.attends
            && let Some(shard) = self.shard()
        {
            shard.cease();
        }
    }

    /// Takes back what `cease` gave up. Returns false if another thread attends the shard by now.
    #[inline]
    fn attend_again(&self) -> bool {
        !self.attends || self.shard().is_some_and(Shard::attend)
    }
}

/// Begins the poll of a task. Returns what was polled around it in this scope, for [`end_poll`].
#[inline]
pub(crate) fn begin_poll(waker: &Waker) -> Outer {
    let scope = SCOPE.get();
    let outer = Outer { task: scope.task, own: scope.own };
    let (task, own) = match scope.task.is_null() {
        true => (ptr::from_ref(waker), ptr::from_ref(waker)),
        // The list is the outer task's, which may be polled on while this one waits.
        false => (scope.task, ptr::null()),
    };
    SCOPE.set(Scope { task, own, poll: scope.poll + u64::from(scope.poll != 0), ..scope });
    outer
}

/// What was polled in this scope when a poll began.
#[derive(Clone, Copy)]
pub(crate) struct Outer {
    task: *const Waker,
    own: *const Waker,
}

impl Outer {
    /// Returns whether nothing was polled: the poll that begins is the outermost, and the list of
    /// deferred timers is its own.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.task.is_null()
    }
}

/// Has timers registered at once, from here to the end of the poll. For a list that is on its way
/// to the shard: the clones of the waker that this takes may run any code.
pub(crate) fn defer_no_more() {
    SCOPE.set(Scope { own: ptr::null(), ..SCOPE.get() });
}

/// Ends a poll. Restores only what [`begin_poll`] has changed, and not the rest of the scope: the
/// thread may have lost its shard meanwhile.
#[inline]
pub(crate) fn end_poll(Outer { task, own }: Outer) {
    SCOPE.set(Scope { task, own, ..SCOPE.get() });
}

/// Returns the number of the poll that is under way; zero if there is none, or the thread is not
/// inside of [`enter`].
#[inline]
pub(crate) fn this_poll() -> u64 {
    let scope = SCOPE.get();
    if scope.task.is_null() { 0 } else { scope.poll }
}

/// Returns the shard that a timer with this waker can be deferred to.
#[inline]
pub(crate) fn defers_to(waker: &Waker) -> Option<&'static Shard> {
    let scope = SCOPE.get();
    if ptr::eq(scope.own, waker) && scope.attends { scope.shard() } else { None }
}

/// Returns the shard that this thread defers to.
pub(crate) fn attended() -> Option<&'static Shard> {
    let scope = SCOPE.get();
    if scope.attends { scope.shard() } else { None }
}

/// Returns the reactor that serves this thread, and the number of its shard, if the thread is
/// inside of [`enter`].
///
/// # Safety
///
/// The reference must not outlive the stack frame that asks for it: [`enter`], which borrows the
/// reactor, is further up.
#[inline]
pub(crate) unsafe fn served<'a>() -> Option<(&'a Arc<Reactor>, usize)> {
    SCOPE.get().served
}

/// Returns whether this thread is inside of [`enter`] with this reactor.
pub(crate) fn drives(reactor: &Reactor) -> bool {
    SCOPE.get().served.is_some_and(|(entered, _)| ptr::eq(&raw const **entered, reactor))
}
