//! Models of the hand-off of a core: every interleaving under loom, many real ones otherwise. See
//! `crate::models`.

use super::sleep;
use crate::handoff::{Lease, Recall};
use crate::lowered::Service;
use crate::parker::Parker;
use crate::runtime::{Gate, Phase};
use crate::sched::{IdleSet, Ticket};
use crate::sync::{AtomicUsize, model, thread};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A core, and what says which thread holds it.
struct Core {
    lease: Lease,
    recall: Recall,
    gate: Gate,
    idle: IdleSet,
    parker: Parker,
    home: Parker,
    /// Relaxed, so that only the protocol makes each holder see what the one before did.
    private: AtomicUsize,
    /// What has come to its end: the core's holder, and the poll that was there when the core was
    /// lent.
    core_ended: AtomicUsize,
    poll_ended: AtomicUsize,
}

impl Core {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lease: Lease::new(),
            recall: Recall::new(),
            gate: Gate::new(1, 0),
            idle: IdleSet::new(1, 0),
            parker: Parker::new(),
            home: Parker::new(),
            private: AtomicUsize::new(0),
            core_ended: AtomicUsize::new(0),
            poll_ended: AtomicUsize::new(0),
        })
    }

    /// Does what a holder does with the core.
    fn touch(&self) -> usize {
        let before = self.private.load(Relaxed);
        self.private.store(before + 1, Relaxed);
        before
    }

    /// Leaves the gate. The last thread to leave finds no other inside.
    fn leave(&self) -> bool {
        let last = self.gate.leave();
        if last {
            assert_eq!(
                (self.core_ended.load(Relaxed), self.poll_ended.load(Relaxed)),
                (1, 1),
                "somebody is inside"
            );
        }
        last
    }
}

/// A blocking call returns while two takers come for its core. One of the three gets the core, and
/// finds it as it was left. The thread that leaves last knows that it is the last, even if it is a
/// taker that got nothing.
///
/// Red if the loan is published with less than a release, if two can take one loan, and if a taker
/// counts itself in after it has taken the core.
#[test]
fn loan_against_return() {
    model(|| {
        let core = Core::new();
        let taker = |core: Arc<Core>| {
            move || {
                let Some(loan) = core.lease.on_loan() else { return false };
                core.gate.join();
                if core.lease.take(loan) {
                    assert_eq!(core.touch(), 1, "it is as it was left");
                    core.core_ended.store(1, Relaxed);
                }
                // For the core, or for the taker itself, if it got nothing.
                core.leave()
            }
        };
        let takers = [thread::spawn(taker(core.clone())), thread::spawn(taker(core.clone()))];
        core.touch();
        let loan = core.lease.lend();
        if core.lease.take(loan) {
            assert_eq!(core.touch(), 1, "nobody has touched it");
            core.core_ended.store(1, Relaxed);
        }
        core.poll_ended.store(1, Relaxed);
        // For the core, or for the poll that went on without one.
        let mut lasts = usize::from(core.leave());
        lasts += takers.into_iter().map(|taker| usize::from(taker.join().unwrap())).sum::<usize>();
        assert!(lasts > 0, "somebody is the last");
        assert_eq!(core.private.load(Relaxed), 2, "one of them had it");
    });
}

/// A home thread wants its core back while the stand-in goes to sleep with it.
///
/// Red (deadlock) if the stand-in does not look at the recall after it was counted out, or if the
/// home thread does not look whether the core is idle.
#[test]
fn recall_against_sleep() {
    model(|| {
        let core = Core::new();
        let stand_in = thread::spawn({
            let core = core.clone();
            move || {
                core.parker.bind();
                core.touch();
                loop {
                    if core.recall.is_wanted() && core.recall.give() {
                        core.home.unpark();
                        return;
                    }
                    sleep(&core.idle, &core.parker, 0, false, |_| core.recall.is_wanted());
                    core.idle.abandon_search();
                }
            }
        });
        core.home.bind();
        core.recall.want();
        while !core.recall.take_given() {
            if core.idle.remove(0) {
                core.parker.unpark();
            }
            core.home.park();
        }
        assert_eq!(core.touch(), 1, "it is as it was left");
        stand_in.join().unwrap();
    });
}

/// A home thread waits for its core while the runtime closes: one of the two holds the core, and
/// comes to the core's end.
///
/// Red if the home thread gives up without asking whether the core was given.
#[test]
fn recall_against_shutdown() {
    model(|| {
        let core = Core::new();
        core.recall.want();
        let stand_in = thread::spawn({
            let core = core.clone();
            move || {
                if core.gate.phase() == Phase::Open && core.recall.is_wanted() && core.recall.give()
                {
                    core.home.unpark();
                    return false;
                }
                true
            }
        });
        assert!(core.gate.close());
        let has_it = loop {
            if core.recall.take_given() {
                break true;
            }
            if core.recall.give_up() {
                break false;
            }
        };
        assert_ne!(stand_in.join().unwrap(), has_it, "exactly one holds it");
    });
}

/// A worker, a spare core, and what is queued.
struct Spare {
    lease: Lease,
    idle: IdleSet,
    parker: Parker,
    /// The queue of the spare core, the global queue, and how many cores are in use. All accesses
    /// are relaxed, so that the order comes from the protocol alone.
    own: AtomicUsize,
    injector: AtomicUsize,
    in_use: AtomicUsize,
}

impl Spare {
    fn new(in_use: usize) -> Arc<Self> {
        Arc::new(Self {
            lease: Lease::new(),
            idle: IdleSet::new(1, 1),
            parker: Parker::new(),
            own: AtomicUsize::new(0),
            injector: AtomicUsize::new(0),
            in_use: AtomicUsize::new(in_use),
        })
    }

    fn push(&self, queue: &AtomicUsize) {
        // A read-modify-write, as all changes of a queue are: loom would let a plain store come
        // before a take that it follows.
        queue.swap(1, Relaxed);
        if let Some(worker) = self.idle.announce(|| ()) {
            assert_eq!(worker, 0);
            self.parker.unpark();
        }
    }

    /// Returns the queues that a worker looks at.
    fn queues(&self) -> impl Iterator<Item = &AtomicUsize> {
        [&self.injector, &self.own].into_iter().take(self.in_use.load(Relaxed))
    }

    /// Runs worker 0 until it has found the task. Under loom a task that is overlooked is reported
    /// as a deadlock.
    fn find(&self) {
        self.parker.bind();
        let mut searching = false;
        while !self.queues().any(|queue| queue.swap(0, Relaxed) == 1) {
            let look_again = |_: &Ticket| self.queues().any(|queue| queue.load(Relaxed) == 1);
            sleep(&self.idle, &self.parker, 0, searching, look_again);
            searching = true;
        }
    }
}

/// The monitor lends a spare core, whose holder queues a task there, while the worker goes to
/// sleep.
///
/// Red (deadlock) if the core comes into use only after it was lent, and if the loan is published
/// with less than a release.
#[test]
fn spare_against_sleep() {
    model(|| {
        let spare = Spare::new(1);
        let holder = thread::spawn({
            let spare = spare.clone();
            move || match spare.lease.on_loan() {
                Some(loan) if spare.lease.take(loan) => spare.push(&spare.own),
                _ => spare.push(&spare.injector),
            }
        });
        let worker = thread::spawn({
            let spare = spare.clone();
            move || spare.find()
        });
        spare.in_use.store(2, Relaxed);
        let _loan = spare.lease.lend();
        holder.join().unwrap();
        worker.join().unwrap();
    });
}

/// A spare core is emptied, and goes out of use, while the worker goes to sleep.
///
/// Red (deadlock) if what is moved to the injector is not announced.
#[test]
fn retirement_against_sleep() {
    model(|| {
        let spare = Spare::new(2);
        spare.own.store(1, Relaxed);
        let worker = thread::spawn({
            let spare = spare.clone();
            move || spare.find()
        });
        if spare.own.swap(0, Relaxed) == 1 {
            spare.push(&spare.injector);
        }
        spare.in_use.store(1, Relaxed);
        worker.join().unwrap();
    });
}

/// A lowered thread comes to poll a task while the only worker leaves a runtime that closes. It
/// polls inside of the gate or not at all, and the thread that leaves last sees what it has
/// registered.
///
/// Red if joining acquires nothing.
#[test]
fn lowered_poll_against_shutdown() {
    model(|| {
        let (gate, registered) = (Arc::new(Gate::new(1, 0)), Arc::new(AtomicUsize::new(0)));
        let lowered = thread::spawn({
            let (gate, registered) = (gate.clone(), registered.clone());
            move || {
                gate.join();
                let polls = gate.phase() == Phase::Open;
                if polls {
                    registered.store(1, Relaxed);
                }
                (polls, gate.leave())
            }
        });
        assert!(gate.close());
        let was_last = gate.leave();
        let seen = registered.load(Relaxed) == 1;
        let (polled, lowered_was_last) = lowered.join().unwrap();
        assert!(was_last || lowered_was_last, "somebody is the last");
        assert!(
            !was_last || !polled || seen,
            "the worker was the last, and a poll is or was inside of which it knows nothing"
        );
    });
}

/// A lowered thread calls its proxy, which may be about to park: the call is answered, and each
/// side sees what the other did before.
///
/// Red if a call is pushed with less than a release, or taken with less than an acquire; if its end
/// is told with less than a release, or seen with less than an acquire; and if the proxy is not
/// woken.
#[test]
fn call_against_sleep_of_the_proxy() {
    model(|| {
        let (service, proxy, made) = start_proxy();
        // On a thread of its own, here and below: in loom a late `unpark` would end a `join`.
        let caller = thread::spawn(move || {
            // Relaxed, so that only the protocol makes them visible.
            let (question, answer) = (AtomicUsize::new(0), AtomicUsize::new(0));
            question.store(10, Relaxed);
            let mut f = || {
                answer.store(question.load(Relaxed) + 1, Relaxed);
                made.store(1, Relaxed);
            };
            service.call(&mut f, || proxy.1.unpark());
            assert_eq!(answer.load(Relaxed), 11);
            // All of this may come before the proxy's `unpark`.
            service.before_unpark();
            proxy.0
        });
        caller.join().unwrap().join().unwrap();
    });
}

/// A token that another thread has left for the user's code is still there after a call in which
/// the thread parks.
///
/// Red if the call leaves none behind.
#[test]
fn call_against_a_token_of_the_users() {
    model(|| {
        let (service, proxy, made) = start_proxy();
        let caller = thread::spawn(move || {
            thread::current().unpark();
            service.call(&mut || made.store(1, Relaxed), || proxy.1.unpark());
            thread::park();
            proxy.0
        });
        caller.join().unwrap().join().unwrap();
    });
}

type ProxyThread = (thread::JoinHandle<()>, thread::Thread);

/// Starts a proxy that serves until a call has set the last of the returned values.
fn start_proxy() -> (Arc<Service>, ProxyThread, Arc<AtomicUsize>) {
    let (service, made) = (Arc::new(Service::new()), Arc::new(AtomicUsize::new(0)));
    let proxy = thread::spawn({
        let (service, made) = (service.clone(), made.clone());
        move || {
            while made.load(Relaxed) == 0 {
                assert!(service.serve(), "it was not told to end");
            }
        }
    });
    let wake = proxy.thread().clone();
    (service, (proxy, wake), made)
}
