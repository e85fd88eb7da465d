//! The proxy: a thread of normal priority that takes locks on behalf of lowered threads. The
//! protocol, with the steps named here (C1, P1, …), is in `proxy.md`.
//!
//! The thread exists while there are lowered threads. It runs no code of the user's, so no call
//! waits for another task, and nothing that it does takes long.

use crate::blocking::PoolConfig;
use crate::os;
use crate::runtime::Shared;
use crate::sync::{AtomicBool, AtomicPtr, thread};
use giveway_io::driver::{Process, Proxy as Calls, on_behalf, with_proxy};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How long a caller watches for the end of its call before it parks.
#[cfg(not(all(test, giveway_loom)))]
const LOOK_FOR: std::time::Duration = std::time::Duration::from_micros(30);

thread_local! {
    /// How long this thread has watched for the ends of its calls, in nanoseconds.
    static WATCHED: Cell<u64> = const { Cell::new(0) };
}

/// Returns how much of its CPU time this thread has spent watching for the ends of its calls, in
/// nanoseconds.
pub(crate) fn watched() -> u64 {
    WATCHED.get()
}

/// The proxy of a runtime's lowered threads.
#[derive(Default)]
pub(crate) struct Proxy {
    /// Locked by a thread that is about to be lowered, by the proxy itself, and, when no lowered
    /// thread is left, by the thread that drops the runtime.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    service: Option<(Arc<Service>, JoinHandle<()>)>,
    /// How many threads may call.
    clients: usize,
    /// Handles of threads that have ended, or are about to.
    retired: Vec<JoinHandle<()>>,
}

impl Proxy {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers one more thread that may call, and starts the proxy if there is none. Returns none
    /// if the OS refuses its thread.
    fn join(&self, config: &PoolConfig) -> Option<Client> {
        let mut state = self.lock();
        if state.service.is_none() {
            let service = Arc::new(Service::new());
            let serving = service.clone();
            let thread = std::thread::Builder::new().name(format!("{}-px", config.thread_name));
            let serve = move || {
                // A call holds up a lowered thread, and may hold a lock that a worker wants next.
                os::hurry();
                while serving.serve() {}
            };
            let handle = thread.spawn(serve).ok()?;
            state.service = Some((service, handle));
        }
        let (service, handle) = state.service.as_ref()?;
        let client = Client {
            service: service.clone(),
            thread: handle.thread().clone(),
            process: Process::current(),
        };
        state.clients += 1;
        Some(client)
    }

    /// Takes one caller off. Runs on the thread of the proxy, which ends if no caller is left.
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

    /// Takes the handles of all threads that there were. Called after the last lowered thread has
    /// ended.
    pub(crate) fn take_handles(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.lock().retired)
    }
}

/// Lowers the calling thread, and runs `f` on it while the runtime's proxy takes its locks.
///
/// If the OS refuses to lower the thread, or refuses the proxy's thread, the calling thread keeps
/// its priority and takes the locks itself.
pub(crate) fn run(shared: &Shared, config: &PoolConfig, f: impl FnOnce()) {
    // 1. Join before the priority is lowered: a proxy that is started here inherits it.
    let Some(client) = shared.proxy.join(config) else { return f() };
    // 2. Lower, and run. If the OS refuses, `f` runs without the proxy.
    match os::lower() {
        Ok(()) => with_proxy(&client, f),
        Err(error) => {
            shared.lowering_refused(&error);
            f();
        }
    }
    // 3. Leave by a last call. The proxy counts this thread out on its own thread, so it is there
    //    for the call.
    with_proxy(&client, || on_behalf(|| shared.proxy.leave()));
}

/// A thread that may call the proxy.
struct Client {
    service: Arc<Service>,
    thread: std::thread::Thread,
    process: Process,
}

#[cfg(not(all(test, giveway_loom)))]
impl Calls for Client {
    fn call(&self, f: &mut (dyn FnMut() + Send)) {
        if self.process.in_forked_child() {
            // In the child of a fork there is no proxy, and no other thread that could want the
            // lock.
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

/// What the callers and the proxy's thread share.
pub(crate) struct Service {
    /// The calls that the proxy has not taken yet, the latest first. Callers push, the proxy takes
    /// the whole list.
    calls: AtomicPtr<Call>,
    /// Whether no callers are left. Written and read by the proxy's thread only.
    ended: AtomicBool,
}

/// A call, in the frame of its caller (C1).
struct Call {
    /// What to call. Used by the proxy only, before it sets `done`.
    f: *mut (dyn FnMut() + Send),
    /// The call that was pushed before. Written by the caller until the call is pushed, and by the
    /// proxy once it has taken the list.
    next: Cell<*mut Call>,
    /// Set by the proxy. After that it does not touch the call again.
    done: AtomicBool,
    /// The thread to unpark when the call is done.
    caller: thread::Thread,
}

impl Call {
    /// Watches `done` for as long as most calls take. A thread that parks has to be woken as a
    /// lowered one, behind everything else that wants its CPU.
    fn look_for_a_while(&self) {
        // In a model there would be nothing to switch to: the caller parks at once.
        #[cfg(not(all(test, giveway_loom)))]
        {
            let start = std::time::Instant::now();
            while !self.done.load(Relaxed) && start.elapsed() < LOOK_FOR {
                std::hint::spin_loop();
            }
            // The thread may have had no CPU for some of the time.
            let watched = start.elapsed().min(LOOK_FOR).as_nanos() as u64;
            WATCHED.set(WATCHED.get() + watched);
        }
    }
}

impl Service {
    pub(crate) fn new() -> Self {
        Self { calls: AtomicPtr::new(ptr::null_mut()), ended: AtomicBool::new(false) }
    }

    /// Has `f` called by the proxy's thread, and waits until it has returned. `wake` wakes that
    /// thread.
    pub(crate) fn call<'a>(&self, f: &'a mut (dyn FnMut() + Send + 'a), wake: impl FnOnce()) {
        let f = ptr::from_mut(f);
        // SAFETY: the types differ in the lifetime of the trait object alone, so they have the same
        // layout. The pointer is used only within `'a`: the proxy uses it before it sets `done`,
        // and this frame, for which `'a` lasts, does not end before it has seen `done`.
        let f = unsafe {
            std::mem::transmute::<*mut (dyn FnMut() + Send + 'a), *mut (dyn FnMut() + Send)>(f)
        };
        let call = Call {
            f,
            next: Cell::new(ptr::null_mut()),
            done: AtomicBool::new(false),
            caller: thread::current(),
        };
        // C2, and C3 after it: woken before the push, the proxy could find no call and park.
        self.push(&call);
        self.before_unpark();
        wake();
        // C4.
        call.look_for_a_while();
        let mut parked = false;
        // Ordering: acquire, partner of the release in `serve`: the caller sees what `f` did, and
        // that it has returned.
        while !call.done.load(Acquire) {
            thread::park();
            parked = true;
        }
        if parked {
            // One of these parks may have taken a token that was left for the user's code, which
            // may wait for it next.
            thread::current().unpark();
        }
    }

    /// In a model, lets other threads run before the `unpark` that follows.
    ///
    /// In loom an `unpark` orders memory, but is no point at which threads are switched. Without
    /// this, what a store right before it publishes would need no ordering of its own.
    #[inline]
    pub(crate) fn before_unpark(&self) {
        #[cfg(all(test, giveway_loom))]
        let _unchanged =
            self.calls.compare_exchange(ptr::null_mut(), ptr::null_mut(), Relaxed, Relaxed);
    }

    fn push(&self, call: &Call) {
        let mut head = self.calls.load(Relaxed);
        loop {
            call.next.set(head);
            // Ordering: release, partner of the acquire in `serve`: the proxy that takes the list
            // sees the call.
            match self.calls.compare_exchange_weak(
                head,
                ptr::from_ref(call).cast_mut(),
                Release,
                Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Makes the calls that there are, in the order in which they came, or waits for some. Returns
    /// false if there will be no more.
    pub(crate) fn serve(&self) -> bool {
        // P1. A swap, so that each call is taken once.
        // Ordering: acquire, partner of the release in `push`: the proxy sees the calls, and what
        // their callers did before.
        let mut list = self.calls.swap(ptr::null_mut(), Acquire);
        if list.is_null() {
            // The token of a caller that has pushed since the swap is there already, or wakes this
            // thread.
            thread::park();
            return true;
        }
        // P2. The list has the latest call first: turn it round.
        let mut first = ptr::null_mut::<Call>();
        // SAFETY: a pointer in the list is null or comes from `push`, from a reference to a `Call`,
        // so it is aligned and initialised. The call is there until its `done` is set, which only
        // this thread does, below. There is no exclusive reference to it, and no other thread
        // touches its link: the caller wrote that before the push, and the swap has taken the list
        // for this thread alone.
        while let Some(call) = unsafe { list.as_ref() } {
            list = call.next.replace(first);
            first = ptr::from_ref(call).cast_mut();
        }
        // SAFETY: the pointer is null or one of the references of the loop before, so it is aligned
        // and initialised. The call is there because its `done` is not set yet, and after it is
        // set, below, neither the call nor its link is touched again. There is no exclusive
        // reference to it.
        while let Some(call) = unsafe { first.as_ref() } {
            first = call.next.get();
            // SAFETY: `f` comes from an exclusive reference that the caller has passed to `call`,
            // so it is aligned and initialised. It is valid because the caller waits for `done`,
            // and the only reference in use because the caller does not touch it meanwhile and no
            // other thread has taken the call.
            let f = unsafe { &mut *call.f };
            f();
            // P3. The handle is copied first: once `done` is set, the caller may be gone and the
            // call with it.
            let caller = call.caller.clone();
            // Ordering: release, partner of the acquire in `call`: the caller sees what `f` did.
            call.done.store(true, Release);
            self.before_unpark();
            caller.unpark();
        }
        !self.ended.load(Relaxed)
    }
}
