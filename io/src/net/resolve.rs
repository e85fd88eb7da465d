//! Looking up names, which the system can only do by blocking.
//!
//! A runtime lends its blocking threads for it ([`set_blocking`]). Where there is none a few of our own do it, started when
//! there is something to look up and gone when there is not.

use super::addr::Addrs;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// How many look-ups run at once. The others wait in line: a slow name server must not fill the machine with threads.
const THREADS: usize = 8;

/// Runs a function on a thread that may block, or drops it.
pub type Blocking = fn(Box<dyn FnOnce() + Send>);

static BLOCKING: OnceLock<Blocking> = OnceLock::new();

/// Says where to run what blocks. The first call counts.
///
/// # Examples
///
/// ```
/// use giveway::net::UdpSocket;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// static JOBS: AtomicUsize = AtomicUsize::new(0);
/// giveway_io::driver::set_blocking(|job| {
///     JOBS.fetch_add(1, Relaxed);
///     std::thread::spawn(job);
/// });
/// giveway::block_on(UdpSocket::bind("localhost:0"))?;
/// assert_eq!(JOBS.load(Relaxed), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_blocking(blocking: Blocking) {
    let _first = BLOCKING.set(blocking);
}

/// What is to be looked up.
#[derive(Debug)]
pub(crate) enum Name {
    /// `host:port`
    Whole(String),
    /// Host and port.
    Parts(String, u16),
}

impl Name {
    fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Whole(name) => name.to_socket_addrs().map(Iterator::collect),
            Self::Parts(host, port) => (host.as_str(), *port).to_socket_addrs().map(Iterator::collect),
        }
    }
}

/// Looks up a name on another thread. Starts at once, whether it is polled or not.
pub(crate) fn look_up(name: Name) -> LookUp {
    let slot = Arc::new(Mutex::new(Slot::default()));
    let job = Job { name, slot: slot.clone() };
    match BLOCKING.get() {
        Some(blocking) => blocking(Box::new(move || job.run())),
        None => submit(job),
    }
    LookUp(slot)
}

/// The future of [`look_up`]. Dropped before its turn has come, it is not looked up.
#[derive(Debug)]
pub struct LookUp(Arc<Mutex<Slot>>);

#[derive(Debug, Default)]
struct Slot {
    answer: Option<io::Result<Vec<SocketAddr>>>,
    // There was one, whether it was taken or not.
    answered: bool,
    waker: Option<Waker>,
}

impl Future for LookUp {
    type Output = io::Result<Addrs>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer.map(Addrs::many)),
            None => {
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
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
        // Nobody else has the slot: the future is gone.
        if Arc::strong_count(&self.slot) > 1 {
            self.answer(self.name.look_up());
        }
    }

    fn answer(&self, answer: io::Result<Vec<SocketAddr>>) {
        let waker = {
            let mut slot = lock(&self.slot);
            slot.answered = true;
            slot.answer = Some(answer);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Nobody came to it: the runtime was shut down, or the system gave no thread.
        if !lock(&self.slot).answered {
            self.answer(Err(io::Error::other("the name was not looked up: there was no thread to do it")));
        }
    }
}

#[derive(Debug)]
struct Line {
    jobs: VecDeque<Job>,
    threads: usize,
}

static LINE: Mutex<Line> = Mutex::new(Line { jobs: VecDeque::new(), threads: 0 });

fn submit(job: Job) {
    let mut line = lock(&LINE);
    if line.threads == THREADS {
        line.jobs.push_back(job);
        return;
    }
    line.jobs.push_back(job);
    line.threads += 1;
    let Err(error) = std::thread::Builder::new().name("giveway-resolve".into()).spawn(work) else { return };
    line.threads -= 1;
    if line.threads == 0 {
        // No thread to be had, and none that would come to it.
        let refused = std::mem::take(&mut line.jobs);
        drop(line);
        for job in refused {
            job.answer(Err(io::Error::new(error.kind(), format!("no thread to look up a name: {error}"))));
        }
    }
}

fn work() {
    loop {
        let job = {
            let mut line = lock(&LINE);
            let Some(job) = line.jobs.pop_front() else {
                // Under the lock: who adds a job sees that this thread is gone.
                line.threads -= 1;
                return;
            };
            job
        };
        // A waker is the user's code. The thread has others to serve.
        let _panicked = catch_unwind(AssertUnwindSafe(|| job.run()));
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

    #[test]
    fn more_names_than_threads_are_all_looked_up() {
        let names = (0..THREADS * 8).map(|i| look_up(Name::Parts("localhost".into(), i as u16)));
        for (i, addrs) in block_on(join_all(names)).into_iter().enumerate() {
            let addrs: Vec<_> = addrs.expect("localhost is known").collect();
            assert!(!addrs.is_empty());
            assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == i as u16));
        }
        assert!(lock(&LINE).threads <= THREADS);
    }

    #[test]
    fn a_look_up_that_nobody_waits_for_is_not_done() {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let weak = Arc::downgrade(&slot);
        // A name without a port is an error; had it been looked up, somebody would have had to take the answer.
        Job { name: Name::Whole("no port".into()), slot }.run();
        assert!(weak.upgrade().is_none());
    }
}
