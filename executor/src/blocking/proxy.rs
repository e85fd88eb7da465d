//! The proxy: a thread of normal priority that takes locks on behalf of lowered threads. See `proxy.md`.
//!
//! It is there while there are lowered threads. It runs no code of the user's, so no call waits for another task, and nothing
//! that it does takes long.

use super::crew::Articles;
use crate::os;
use crate::runtime::Shared;
use crate::sync::{AtomicBool, AtomicPtr, thread};
use giveway_io::driver::{Birth, Proxy as Calls, on_behalf, with_proxy};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How long a caller looks whether its call is done before it parks.
#[cfg(not(all(test, giveway_loom)))]
const LOOK_FOR: std::time::Duration = std::time::Duration::from_micros(30);

/// The proxy of a runtime's lowered threads.
#[derive(Default)]
pub(crate) struct Proxy {
    // Taken by threads of normal priority alone: by one that is about to be lowered, and by the proxy itself.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    service: Option<(Arc<Service>, JoinHandle<()>)>,
    // How many threads may call.
    clients: usize,
    // Threads that have ended, or are about to.
    retired: Vec<JoinHandle<()>>,
}

impl Proxy {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more thread is going to call. Starts the proxy if there is none. None if the OS refuses its thread.
    fn join(&self, articles: &Articles) -> Option<Client> {
        let mut state = self.lock();
        if state.service.is_none() {
            let service = Arc::new(Service::new());
            let serving = service.clone();
            let thread = std::thread::Builder::new().name(format!("{}-px", articles.thread_name));
            let handle = thread.spawn(move || while serving.serve() {}).ok()?;
            state.service = Some((service, handle));
        }
        let (service, handle) = state.service.as_ref()?;
        let client = Client { service: service.clone(), thread: handle.thread().clone(), birth: Birth::here() };
        state.clients += 1;
        Some(client)
    }

    /// One fewer will call. Called on the thread of the proxy, which ends if there is none left.
    fn leave(&self) {
        let mut state = self.lock();
        state.clients -= 1;
        if state.clients == 0
            && let Some((service, handle)) = state.service.take()
        {
            // Ordering: relaxed; the same thread reads it.
            service.ended.store(true, Relaxed);
            state.retired.retain(|thread| !thread.is_finished());
            state.retired.push(handle);
        }
    }

    /// The handles of all threads that there were, after the last lowered thread has ended.
    pub(crate) fn take_handles(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.lock().retired)
    }
}

/// Lowers the calling thread, and runs `f` on it with the runtime's proxy taking its locks. If the OS refuses to lower it, or refuses
/// the proxy's thread, it keeps its priority and takes them itself.
pub(super) fn lowered(shared: &Shared, articles: &Articles, f: impl FnOnce()) {
    // While the priority is still the normal one: the proxy's thread inherits it.
    let Some(client) = shared.proxy.join(articles) else { return f() };
    match os::lower() {
        Ok(()) => with_proxy(&client, f),
        Err(error) => {
            shared.lowering_refused(&error);
            f();
        }
    }
    with_proxy(&client, || on_behalf(|| shared.proxy.leave()));
}

/// A thread that may call the proxy.
struct Client {
    service: Arc<Service>,
    thread: std::thread::Thread,
    birth: Birth,
}

#[cfg(not(all(test, giveway_loom)))]
impl Calls for Client {
    fn call(&self, f: &mut (dyn FnMut() + Send)) {
        if self.birth.is_elsewhere() {
            // In the child of a fork there is no proxy, nor a thread that would wait for this one.
            return f();
        }
        self.service.call(f, || self.thread.unpark());
    }
}

#[cfg(all(test, giveway_loom))]
impl Calls for Client {
    fn call(&self, f: &mut (dyn FnMut() + Send)) {
        f();
    }
}

/// What callers and the proxy's thread share.
pub(super) struct Service {
    // Calls that were not taken yet, the last first.
    calls: AtomicPtr<Call>,
    // There are no callers left. Of the proxy's thread.
    ended: AtomicBool,
}

/// A call, in the frame of its caller.
struct Call {
    f: *mut (dyn FnMut() + Send),
    next: Cell<*mut Call>,
    done: AtomicBool,
    caller: thread::Thread,
}

impl Call {
    /// Looks whether it is done for as long as most calls take. A thread that parks has to be woken as a lowered one, behind
    /// everything else that wants its CPU.
    fn look_for_a_while(&self) {
        // A model would have nothing to switch to: the caller parks at once.
        #[cfg(not(all(test, giveway_loom)))]
        {
            let start = std::time::Instant::now();
            while !self.done.load(Relaxed) && start.elapsed() < LOOK_FOR {
                std::hint::spin_loop();
            }
        }
    }
}

impl Service {
    pub(super) fn new() -> Self {
        Self { calls: AtomicPtr::new(ptr::null_mut()), ended: AtomicBool::new(false) }
    }

    /// Has `f` called by the proxy's thread, and waits until it has returned. `wake` wakes that thread.
    pub(super) fn call<'a>(&self, f: &'a mut (dyn FnMut() + Send + 'a), wake: impl FnOnce()) {
        let f = ptr::from_mut(f);
        // SAFETY: only the lifetime changes, which this frame does not leave before `done`; after that nobody uses it.
        let f = unsafe { std::mem::transmute::<*mut (dyn FnMut() + Send + 'a), *mut (dyn FnMut() + Send)>(f) };
        let call =
            Call { f, next: Cell::new(ptr::null_mut()), done: AtomicBool::new(false), caller: thread::current() };
        self.push(&call);
        self.before_unpark();
        wake();
        call.look_for_a_while();
        let mut parked = false;
        // Ordering: acquire, partner of the release in `serve`: what `f` did, and has returned, we see.
        while !call.done.load(Acquire) {
            thread::park();
            parked = true;
        }
        if parked {
            // Any of these may have taken a token that was for the user's code, which may wait for it next.
            thread::current().unpark();
        }
    }

    /// In a model, lets others that call this run first. An `unpark` orders memory in loom, and is no operation at which it switches
    /// threads: what a store publishes right before it would need no ordering of its own.
    #[inline]
    pub(super) fn before_unpark(&self) {
        #[cfg(all(test, giveway_loom))]
        let _unchanged = self.calls.compare_exchange(ptr::null_mut(), ptr::null_mut(), Relaxed, Relaxed);
    }

    fn push(&self, call: &Call) {
        let mut head = self.calls.load(Relaxed);
        loop {
            call.next.set(head);
            // Ordering: release, partner of the acquire in `serve`: the thread that takes the list sees the call.
            match self.calls.compare_exchange_weak(head, ptr::from_ref(call).cast_mut(), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Waits for calls, and makes those that there are in the order in which they came. False if there will be no more.
    pub(super) fn serve(&self) -> bool {
        // Ordering: acquire, partner of the release in `push`. A swap: each call is taken once.
        let mut list = self.calls.swap(ptr::null_mut(), Acquire);
        if list.is_null() {
            // The token of a caller that has pushed since is there already.
            thread::park();
            return true;
        }
        let mut first = ptr::null_mut::<Call>();
        // SAFETY: a call that was pushed is there until it is done, and nobody else reads or writes its link any more.
        while let Some(call) = unsafe { list.as_ref() } {
            list = call.next.replace(first);
            first = ptr::from_ref(call).cast_mut();
        }
        // SAFETY: as above.
        while let Some(call) = unsafe { first.as_ref() } {
            first = call.next.get();
            // SAFETY: the caller has borrowed it for us alone, and waits.
            let f = unsafe { &mut *call.f };
            f();
            let caller = call.caller.clone();
            // Ordering: release, partner of the acquire in `call`. From here on the call may be gone.
            call.done.store(true, Release);
            self.before_unpark();
            caller.unpark();
        }
        !self.ended.load(Relaxed)
    }
}
