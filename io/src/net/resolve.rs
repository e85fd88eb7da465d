//! Looking up names, which the system can only do by blocking.
//!
//! Look-ups have a few threads of their own, for the whole process. So a user's jobs that fill the
//! blocking threads of a runtime delay no connection, and a slow name server delays no job. A
//! thread is started when there is something to look up, and ends when there is nothing more. A
//! runtime that is dropped does not wait for these threads: an answer that no task waits for is
//! dropped.

use super::addr::Addrs;
use crate::current;
use crate::fork::{self, PerProcess, Process};
use crate::proxy::on_behalf;
use crate::reactor::{Reactor, wake_all};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The most look-ups that run at once. The others wait in line, because a slow name server must not
/// fill the machine with threads.
const THREADS: usize = 8;

/// A name to be looked up.
#[derive(Debug)]
pub(crate) enum Name {
    /// As `host:port`.
    Whole(String),
    /// As host and port.
    Parts(String, u16),
}

impl Name {
    fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Whole(name) => name.to_socket_addrs().map(Iterator::collect),
            Self::Parts(host, port) => {
                (host.as_str(), *port).to_socket_addrs().map(Iterator::collect)
            }
        }
    }
}

/// Looks up a name on another thread. Starts at once, whether the future is polled or not.
pub(crate) fn look_up(name: Name) -> LookUp {
    let awaited = current::with(|reactor, _| Awaited::new(reactor)).ok();
    let look_up = LookUp::new(awaited);
    submit(Job { name, slot: look_up.slot.clone() });
    look_up
}

/// Tells the reactor that something will wake one of its tasks, for the check for deadlocks.
#[derive(Debug)]
struct Awaited(Arc<Reactor>);

impl Awaited {
    fn new(reactor: &Arc<Reactor>) -> Self {
        // Ordering: relaxed. A worker that goes to sleep after this takes a lock which the thread
        // that checks for deadlocks takes next, and so that thread sees the count.
        reactor.look_ups.fetch_add(1, Relaxed);
        Self(reactor.clone())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        // Ordering: release, partner of the acquire in `is_waited_for`. A thread that sees the
        // count go down also sees the wake-up before it; with relaxed it might see neither a
        // look-up nor a task that can run.
        self.0.look_ups.fetch_sub(1, Release);
    }
}

/// The future of [`look_up`]. If it is dropped before a thread comes to the name, the name is not
/// looked up.
#[derive(Debug)]
pub struct LookUp {
    slot: Arc<Mutex<Slot>>,
    /// The process whose threads answer.
    process: Process,
}

/// What a look-up and its job share. The thread of the job writes the answer, the future takes it.
#[derive(Debug, Default)]
struct Slot {
    answer: Option<io::Result<Vec<SocketAddr>>>,
    /// Set with the answer, and not cleared when the answer is taken.
    answered: bool,
    /// The waker of the last poll. Foreign code, so it is cloned, dropped and woken without the
    /// lock.
    waker: Option<Waker>,
    /// Set until there is an answer, or the future is dropped.
    awaited: Option<Awaited>,
}

impl LookUp {
    fn new(awaited: Option<Awaited>) -> Self {
        let slot = Slot { awaited, ..Slot::default() };
        Self { slot: Arc::new(Mutex::new(slot)), process: Process::current() }
    }
}

impl Future for LookUp {
    type Output = io::Result<Addrs>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.process.in_forked_child() {
            return Poll::Ready(Err(fork::no_threads()));
        }
        // The waker is cloned before the lock is taken, and the old one is dropped after it is
        // released: both run the user's code.
        let mut waker = Some(cx.waker().clone());
        let answer = on_behalf(|| {
            let mut slot = lock(&self.slot);
            let answer = slot.answer.take();
            if answer.is_none() {
                std::mem::swap(&mut slot.waker, &mut waker);
            }
            answer
        });
        match answer {
            Some(answer) => Poll::Ready(answer.map(Addrs::many)),
            None => Poll::Pending,
        }
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        // In the child of a fork, the lock may be held by a thread that exists only in the parent.
        if !self.process.in_forked_child() {
            // The waker is dropped here, and not on the thread that comes to the job, because it is
            // the user's code.
            let left = on_behalf(|| {
                let mut slot = lock(&self.slot);
                (slot.waker.take(), slot.awaited.take())
            });
            drop(left);
        }
    }
}

#[derive(Debug)]
struct Job {
    name: Name,
    slot: Arc<Mutex<Slot>>,
}

impl Job {
    fn run(self) {
        // With a count of one only this job has the slot, because the future was dropped.
        if Arc::strong_count(&self.slot) > 1 {
            self.answer(self.name.look_up());
        }
    }

    fn answer(&self, answer: io::Result<Vec<SocketAddr>>) {
        // 1. Publish the answer. A poll from now on takes it.
        let (waker, awaited) = on_behalf(|| {
            let mut slot = lock(&self.slot);
            slot.answered = true;
            slot.answer = Some(answer);
            (slot.waker.take(), slot.awaited.take())
        });
        // 2. Wake the task. A panic of the waker is caught: this thread has other names to look up.
        wake_all(&mut Vec::from_iter(waker));
        // 3. Only then take the look-up off the reactor's count. In another order a check for
        //    deadlocks might find neither a look-up nor a task that can run.
        drop(awaited);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The job was dropped and no thread has answered it.
        if !lock(&self.slot).answered {
            self.answer(Err(io::Error::other(
                "the name was not looked up: there was no thread to do it",
            )));
        }
    }
}

#[derive(Debug, Default)]
struct Line {
    /// The jobs that no thread has come to yet.
    jobs: VecDeque<Job>,
    /// The number of threads that take jobs, at most `THREADS`.
    threads: usize,
}

// One for each process. A child of a fork does not have its parent's threads, and the parent's jobs
// wake tasks that no thread runs there.
static LINE: PerProcess<Mutex<Line>> = PerProcess::new();

fn submit(job: Job) {
    // On behalf of the caller, because a new thread inherits the priority of the thread that starts
    // it, and looks up names for all.
    if let Err((refused, error)) = on_behalf(|| queue(job)) {
        for job in refused {
            job.answer(Err(io::Error::new(
                error.kind(),
                format!("no thread to look up a name: {error}"),
            )));
        }
    }
}

/// Queues a job, and starts a thread if fewer than `THREADS` run.
///
/// Returns all queued jobs if no thread can be started and none runs that would come to them.
fn queue(job: Job) -> Result<(), (VecDeque<Job>, io::Error)> {
    let mut line = lock(LINE.get());
    line.jobs.push_back(job);
    if line.threads == THREADS {
        return Ok(());
    }
    line.threads += 1;
    let Err(error) = std::thread::Builder::new().name("giveway-resolve".into()).spawn(work) else {
        return Ok(());
    };
    line.threads -= 1;
    if line.threads == 0 { Err((std::mem::take(&mut line.jobs), error)) } else { Ok(()) }
}

fn work() {
    loop {
        let job = {
            let mut line = lock(LINE.get());
            let Some(job) = line.jobs.pop_front() else {
                // Under the lock, so that `queue` sees that this thread is gone before it adds a
                // job.
                line.threads -= 1;
                return;
            };
            job
        };
        job.run();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{RawWaker, RawWakerVTable};

    /// A waker whose code needs the lock of the look-up that it waits for.
    struct Intruder {
        slot: Arc<Mutex<Slot>>,
        /// How often its code ran.
        calls: AtomicUsize,
        /// How often its code found the lock taken.
        locked_out: AtomicUsize,
    }

    impl Intruder {
        const VTABLE: RawWakerVTable = RawWakerVTable::new(
            |this| {
                // SAFETY: `this` is from `Arc::into_raw`, and the count of the waker that is being
                // cloned keeps the value alive for this call. Only shared references to it exist.
                unsafe { &*this.cast::<Self>() }.intrude();
                // SAFETY: `this` is from `Arc::into_raw`, and the count of the waker that is being
                // cloned keeps the value alive. The new count belongs to the `RawWaker` that is
                // returned.
                unsafe { Arc::increment_strong_count(this.cast::<Self>()) };
                RawWaker::new(this, &Self::VTABLE)
            },
            |this| {
                // SAFETY: `this` is from `Arc::into_raw`, and the waker that is consumed gives up
                // its own count, once.
                unsafe { Arc::from_raw(this.cast::<Self>()) }.intrude();
            },
            // SAFETY: `this` is from `Arc::into_raw`, and the count of the waker keeps the value
            // alive for this call. Only shared references to it exist.
            |this| unsafe { &*this.cast::<Self>() }.intrude(),
            |this| {
                // SAFETY: `this` is from `Arc::into_raw`, and the waker that is dropped gives up
                // its own count, once.
                unsafe { Arc::from_raw(this.cast::<Self>()) }.intrude();
            },
        );

        fn intrude(&self) {
            self.calls.fetch_add(1, SeqCst);
            self.locked_out.fetch_add(usize::from(self.slot.try_lock().is_err()), SeqCst);
        }

        fn waker(self: &Arc<Self>) -> Waker {
            let raw = RawWaker::new(Arc::into_raw(self.clone()).cast(), &Self::VTABLE);
            // SAFETY: the functions of `VTABLE` keep the contract of a waker: a clone adds a count
            // of the `Arc`, waking by value and dropping give one up, and waking by reference
            // changes none. They may be called from any thread, because an `Intruder` can be shared
            // between threads.
            unsafe { Waker::from_raw(raw) }
        }
    }

    #[test]
    fn wakers_are_cloned_dropped_and_woken_without_the_lock() {
        let mut look_up = LookUp::new(None);
        let slot = look_up.slot.clone();
        let [first, second] = [(); 2].map(|()| {
            let [calls, locked_out] = [(); 2].map(|()| AtomicUsize::new(0));
            Arc::new(Intruder { slot: slot.clone(), calls, locked_out })
        });
        for intruder in [&first, &first, &second] {
            let waker = intruder.waker();
            assert!(Pin::new(&mut look_up).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        Job { name: Name::Whole("127.0.0.1:7".into()), slot }.run();
        assert!(Pin::new(&mut look_up).poll(&mut Context::from_waker(&second.waker())).is_ready());
        for intruder in [first, second] {
            assert!(intruder.calls.load(SeqCst) >= 3, "cloned, and dropped or woken");
            assert_eq!(
                intruder.locked_out.load(SeqCst),
                0,
                "a waker's code runs under the lock of the look-up"
            );
            assert_eq!(Arc::strong_count(&intruder), 1, "no waker is left behind");
        }
    }

    /// Otherwise the thread that comes to the job would run the destructor of the task.
    #[test]
    fn a_look_up_that_is_dropped_lets_go_of_its_waker() {
        struct Task;
        impl std::task::Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let (mut look_up, task) = (LookUp::new(None), Arc::new(Task));
        let slot = look_up.slot.clone();
        let waker = Waker::from(task.clone());
        assert!(Pin::new(&mut look_up).poll(&mut Context::from_waker(&waker)).is_pending());
        drop((look_up, waker));
        assert_eq!(Arc::strong_count(&task), 1);
        drop(slot);
    }

    #[test]
    fn more_names_than_threads_are_all_looked_up() {
        let names = (0..THREADS * 8).map(|i| look_up(Name::Parts("localhost".into(), i as u16)));
        for (i, addrs) in block_on(join_all(names)).into_iter().enumerate() {
            let addrs: Vec<_> = addrs.expect("localhost is known").collect();
            assert!(!addrs.is_empty());
            assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == i as u16));
        }
        assert!(lock(LINE.get()).threads <= THREADS);
    }

    /// Otherwise a task that waits for an answer would be taken for one that waits for ever.
    #[test]
    fn a_reactor_is_waited_for_until_there_is_an_answer_or_nobody_waits() {
        let reactor = Reactor::new(0).expect("a reactor starts");
        let mut look_ups = [(); 2].map(|()| LookUp::new(Some(Awaited::new(&reactor))));
        assert!(reactor.is_waited_for());
        Job { name: Name::Whole("127.0.0.1:7".into()), slot: look_ups[0].slot.clone() }.run();
        assert!(reactor.is_waited_for());
        let abandoned = std::mem::replace(&mut look_ups[1], LookUp::new(None));
        let slot = abandoned.slot.clone();
        drop(abandoned);
        assert!(!reactor.is_waited_for());
        drop((look_ups, slot));
        assert!(!reactor.is_waited_for());
    }

    #[test]
    fn a_look_up_that_nobody_waits_for_is_not_done() {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let weak = Arc::downgrade(&slot);
        // A name without a port is an error. If it were looked up, the answer would keep the slot.
        Job { name: Name::Whole("no port".into()), slot }.run();
        assert!(weak.upgrade().is_none());
    }
}
