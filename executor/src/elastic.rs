//! Pacing of background jobs: a share of the cores that shrinks when they keep foreground tasks
//! waiting for one.
//!
//! [`yield_now_if_busy`](crate::yield_now_if_busy) and
//! [`spawn_background`](crate::spawn_background) are enough for most background work: a job leaves
//! its core to a task that waits for it, within microseconds. They do not help with what all cores
//! share (caches, memory bandwidth, a disk), nor while a job is between two yield points. A job
//! that is paced is held back before it runs:
//!
//! ```
//! use giveway::elastic::Pacer;
//!
//! # fn compress(_: u32) {}
//! giveway::block_on(async {
//!     let job = giveway::spawn_background(async {
//!         let pacer = Pacer::new();
//!         for block in 0..1_000 {
//!             compress(block); // some tens of microseconds
//!             pacer.pace().await; // gives way as well
//!         }
//!     });
//!     job.await.unwrap();
//! });
//! ```
//!
//! CPU time flows into a bucket at `limit × workers`, and jobs take it from there in
//! [slices](Pacer::with_slice). Ten times a second a controller looks at how long paced jobs kept
//! foreground tasks waiting for a worker, in the last 2.5 seconds:
//!
//! - If they kept more than a hundredth of them for longer than a
//!   [target](Settings::target_latency), the controller lowers the limit.
//! - Otherwise, if a job waits for a slice, it raises the limit, half as fast.
//! - Otherwise the limit goes back to its [baseline](Settings::baseline).
//!
//! What foreground tasks wait for one another, or for another process, does not count. A runtime
//! has one bucket, so that many jobs together are held to the same limit as one.
//! [`Builder::elastic`](crate::Builder::elastic) has its settings.
//!
//! All of this happens when a pacer calls, or by a timer while one waits. A runtime without paced
//! jobs pays nothing.

pub use giveway_yield::elastic::{Pace, Pacer, Settings, SettingsError};

use crate::metrics::upper_bound;
use crate::runtime::Shared;
use giveway_io::driver::{self, Alarm, on_behalf};
use giveway_yield::host::{Admission, Machine};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;

/// The settings of a runtime's pacing, and its admission once a job has been paced there.
pub(crate) struct Elastic {
    settings: Settings,
    admission: OnceLock<Arc<Admission>>,
}

impl Elastic {
    /// Creates it with settings that were checked.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, admission: OnceLock::new() }
    }

    /// Returns the admission of the runtime. The first call makes it.
    pub(crate) fn admission(&self, shared: &Arc<Shared>) -> Arc<Admission> {
        let start = || {
            // The reference to the runtime is weak: pacers hold the admission, and may outlive the
            // runtime.
            shared.meter.paced.start(shared.workers());
            let host = Host {
                shared: Arc::downgrade(shared),
                cores: shared.workers(),
                alarm: Default::default(),
            };
            Admission::new(self.settings, host)
        };
        // Other threads wait while one makes it.
        on_behalf(|| self.admission.get_or_init(start).clone())
    }
}

/// What the admission of a runtime knows of the runtime.
struct Host {
    shared: Weak<Shared>,
    cores: usize,
    /// The alarm that is set, if one is. Written by the thread that finds that there is something
    /// to wait for.
    alarm: Mutex<Option<Alarm>>,
}

impl Machine for Host {
    fn now(&self) -> u64 {
        driver::now()
    }

    fn cores(&self) -> usize {
        self.cores
    }

    fn latencies(&self, bucket: &mut dyn FnMut(u64, u64)) {
        let Some(shared) = self.shared.upgrade() else { return };
        let counts = shared.meter.paced.counts();
        for (number, count) in counts.into_iter().enumerate() {
            let last = number + 1 == counts.len();
            bucket(if last { u64::MAX } else { upper_bound(number) }, count);
        }
    }

    fn on_behalf(&self, f: &mut (dyn FnMut() + Send)) {
        // `f` may upgrade the weak reference too. The last count of the runtime is dropped here,
        // with the user's hooks and wakers, and not by the proxy.
        let _shared = self.shared.upgrade();
        driver::on_behalf(f);
    }

    fn set_alarm(&self, at: u64, waker: &Waker) -> bool {
        // Dropped last, without the lock: this may be the last count of the runtime, and the end of
        // its reactor wakes every alarm that is set.
        let shared = self.shared.upgrade();
        // The lock is held over all of it. An alarm that is in the reactor before it is in its
        // place may go off in between, and set the next one. Then the first would be put into the
        // place of the next, which would be stopped with it. No foreign code runs under the lock:
        // the waker is that of the admission, which is alive.
        on_behalf(|| {
            let mut set = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
            *set = shared.as_ref().and_then(|shared| shared.reactor.wake_at(at, waker));
            set.is_some()
        })
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;
    use crate::Builder;
    use std::thread;

    #[test]
    fn an_alarm_that_went_off_before_its_setter_was_done_does_not_take_the_next_one_with_it() {
        let runtime = Builder::new().workers(1).build().expect("a runtime starts");
        let shared = &runtime.handle().shared;
        let host = Host { shared: Arc::downgrade(shared), cores: 1, alarm: Default::default() };
        let later = host.now() + 3_600_000_000_000;
        let mut set = host.alarm.lock().unwrap();
        thread::scope(|scope| {
            let setter = scope.spawn(|| host.set_alarm(later, Waker::noop()));
            // Long enough for the other thread to come as far as it can.
            (0..10_000).for_each(|_| thread::yield_now());
            let in_reactor = shared.reactor.is_waited_for();
            *set = shared.reactor.wake_at(later, Waker::noop());
            drop(set);
            assert!(setter.join().unwrap());
            assert!(
                !in_reactor,
                "it might have gone off, and set the next one, and then stopped that"
            );
        });
        assert!(shared.reactor.is_waited_for(), "the one that was set last is there");
        drop(host);
        assert!(!shared.reactor.is_waited_for());
    }
}
