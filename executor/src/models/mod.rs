//! Models of the protocols that cross threads: every interleaving under loom, many real ones
//! otherwise.
//!
//! `RUSTFLAGS="--cfg giveway_loom" cargo test --release -p giveway --lib models` runs them under
//! loom. The code under test is the runtime's own (idle set, parker, gate). The queues, which loom
//! cannot see into, are stubs. They are as weak as possible, so that every order between a push and
//! a look comes from the protocol. Each model says which mutation turns it red.

mod handoff;
mod pinned;
mod queues;
mod rest;

use crate::monitor::{Aside, Monitor};
use crate::parker::{Elsewhere, Parker};
use crate::runtime::{Gate, Phase};
use crate::sched::{IdleSet, Interrupts, Queued, Ticket, YieldQueue, Yielded};
use crate::sync::{AtomicBool, AtomicUsize, model, thread};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

/// A queue whose operations order nothing.
struct StubQueue(AtomicUsize);

impl StubQueue {
    fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn push(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    fn take(&self) -> bool {
        let mut len = self.0.load(Relaxed);
        while len > 0 {
            match self.0.compare_exchange(len, len - 1, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => len = now,
            }
        }
        false
    }
}

/// Puts a worker to sleep as `Worker::sleep` does: `look_again` says whether work waits. The worker
/// is counted as a searcher when this returns.
fn sleep(
    idle: &IdleSet,
    parker: &Parker,
    worker: usize,
    searching: bool,
    look_again: impl FnOnce(&Ticket) -> bool,
) {
    let ticket = idle.enter(worker, searching);
    if let Err(ticket) = idle.settle(ticket, look_again) {
        parker.park();
        ticket.woken();
    }
}

struct Runtime {
    queue: StubQueue,
    // The real queue: its ring is a lock and a length, both of which loom sees.
    yielded: YieldQueue<usize>,
    idle: IdleSet,
    interrupts: Interrupts,
    parkers: Vec<Parker>,
}

impl Runtime {
    fn new(workers: usize) -> Arc<Self> {
        let parkers = (0..workers).map(|_| Parker::new()).collect();
        Arc::new(Self {
            queue: StubQueue::new(),
            yielded: YieldQueue::new(),
            idle: IdleSet::new(workers, 0),
            interrupts: Interrupts::new(workers, || 0),
            parkers,
        })
    }

    /// Pushes and announces as `Scheduler::announce` does, with every worker awake.
    fn push_and_interrupt(&self) {
        self.queue.push();
        assert_eq!(self.idle.announce(|| self.interrupts.raise_some()), None);
    }

    /// Puts a worker to sleep, unless it sees work when it looks again.
    fn sleep(&self, worker: usize, searching: bool, look_again: impl FnOnce(&Ticket) -> bool) {
        sleep(&self.idle, &self.parkers[worker], worker, searching, look_again);
    }

    fn arm_and_look(&self, core: usize) -> bool {
        // Arms a core, and looks for work behind the fence of that.
        self.interrupts.arm(core);
        !self.queue.is_empty()
    }

    /// Looks as `Scheduler::queued` does, at one queue.
    fn queued(&self) -> Queued {
        if self.queue.is_empty() { Queued::Nothing } else { Queued::Foreground }
    }

    fn push_and_announce(&self) {
        self.queue.push();
        if let Some(worker) = self.idle.announce(|| ()) {
            self.parkers[worker].unpark();
        }
    }

    /// Runs the loop of a worker until it has found one task. Under loom a lost wake-up is reported
    /// as a deadlock.
    fn find_one(&self, worker: usize) {
        let mut searching = self.idle.try_start_search();
        while !self.queue.take() {
            self.sleep(worker, searching, |ticket| ticket.looks_again() && !self.queue.is_empty());
            searching = true;
        }
        if searching && let Some(worker) = self.idle.found_work(|| self.queued(), || ()) {
            self.parkers[worker].unpark();
        }
    }
}

/// One thread pushes while the only worker goes to sleep. The worker gets the task.
///
/// With SeqCst loads alone it did not always (tokio PR 1788).
///
/// Red (deadlock) without the fence in `announce`, without the fence in `enter`, and without
/// the second look.
#[test]
fn sleep_against_wake() {
    model(|| {
        let runtime = Runtime::new(1);
        runtime.parkers[0].bind();
        let pusher = thread::spawn({
            let runtime = runtime.clone();
            move || runtime.push_and_announce()
        });
        runtime.find_one(0);
        pusher.join().unwrap();
        assert!(runtime.queue.is_empty());
    });
}

/// Two workers go to sleep while one thread pushes two tasks. Each worker gets one, in every order
/// of the pushes.
///
/// Red (deadlock) when the last searcher that finds work does not look whether more is queued.
#[test]
fn two_workers_against_two_pushes() {
    bounded_model(|| {
        let runtime = Runtime::new(2);
        let worker = |index: usize| {
            let runtime = runtime.clone();
            move || {
                runtime.parkers[index].bind();
                runtime.find_one(index);
            }
        };
        let workers = [thread::spawn(worker(0)), thread::spawn(worker(1))];
        runtime.push_and_announce();
        runtime.push_and_announce();
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(runtime.queue.is_empty());
    });
}

/// A searcher finds work and stops, while another thread pushes more and sees it searching. One of
/// the two wakes the idle worker.
///
/// Red without the fence in `found_work`, and without its look at the queue.
#[test]
fn last_searcher_against_push() {
    model(|| {
        let runtime = Runtime::new(2);
        // Worker 1 is idle; worker 0 searches and is about to report a find.
        assert!(runtime.idle.try_start_search());
        assert!(!runtime.idle.enter(1, false).looks_again());
        let pusher = thread::spawn({
            let runtime = runtime.clone();
            move || {
                runtime.queue.push();
                runtime.idle.announce(|| ())
            }
        });
        let woken_by_searcher = runtime.idle.found_work(|| runtime.queued(), || ());
        let woken_by_pusher = pusher.join().unwrap();
        assert_eq!(
            woken_by_searcher.xor(woken_by_pusher),
            Some(1),
            "somebody, and only one, wakes worker 1"
        );
    });
}

/// A thread that is no worker wakes a task while the last worker of a closing runtime waits for it.
/// The worker gets the task.
///
/// Red (deadlock) without the fence in `announce` or `enter`, or if the last worker parks
/// without another look.
#[test]
fn shutdown_against_wake() {
    model(|| {
        let runtime = Runtime::new(1);
        runtime.parkers[0].bind();
        let registered = Arc::new(AtomicUsize::new(1));
        // The waker has claimed the task, and has not queued it yet.
        let waker = thread::spawn({
            let runtime = runtime.clone();
            move || runtime.push_and_announce()
        });
        // As in `Worker::drop_tasks`.
        while registered.load(Relaxed) > 0 {
            if runtime.queue.take() {
                registered.store(0, Relaxed);
                continue;
            }
            runtime.sleep(0, false, |_| !runtime.queue.is_empty());
            runtime.idle.abandon_search();
        }
        waker.join().unwrap();
        assert!(runtime.queue.is_empty());
    });
}

/// A spawn from outside that saw the gate open pushes while the last worker terminates. One of the
/// two drops the task.
///
/// Red without the fence in `terminate` or the one in `after_inject`, and without the look of
/// either side.
#[test]
fn shutdown_against_spawn() {
    model(|| {
        let gate = Arc::new(Gate::new(1, 0));
        let queue = Arc::new(StubQueue::new());
        let dropped = Arc::new(AtomicUsize::new(0));
        let spawner = thread::spawn({
            let (gate, queue, dropped) = (gate.clone(), queue.clone(), dropped.clone());
            move || {
                if gate.phase() != Phase::Open {
                    dropped.fetch_add(1, Relaxed);
                    return;
                }
                queue.push();
                gate.after_inject(|| drop_all(&queue, &dropped));
            }
        });
        assert!(gate.close());
        assert!(gate.leave());
        gate.terminate(|| drop_all(&queue, &dropped));
        spawner.join().unwrap();
        assert_eq!(dropped.load(Relaxed), 1, "the task is dropped once");
    });
}

fn drop_all(queue: &StubQueue, dropped: &AtomicUsize) {
    while queue.take() {
        dropped.fetch_add(1, Relaxed);
    }
}

/// Closing wakes every worker, also one that is just going to sleep.
///
/// Red (deadlock) without the worker's look at the gate after it was counted out.
#[test]
fn shutdown_against_sleep() {
    model(|| {
        let runtime = Runtime::new(1);
        runtime.parkers[0].bind();
        let gate = Arc::new(Gate::new(1, 0));
        let closer = thread::spawn({
            let (runtime, gate) = (runtime.clone(), gate.clone());
            move || {
                assert!(gate.close());
                for worker in runtime.idle.wake_all() {
                    runtime.parkers[worker].unpark();
                }
            }
        });
        let mut searching = false;
        while gate.phase() == Phase::Open {
            runtime.sleep(0, searching, |_| gate.phase() != Phase::Open);
            searching = true;
        }
        closer.join().unwrap();
    });
}

/// A worker is taken out of the idle set while the monitor, which saw all workers idle, goes to
/// sleep. The monitor does not sleep on beside a worker that is awake.
///
/// Red (deadlock) without the fence in `rouse` or the one in `Monitor::sleep`, and without the
/// monitor's second look.
#[test]
fn monitor_against_rouse() {
    model(|| {
        let state = Arc::new((IdleSet::new(1, 0), Monitor::new(|| ())));
        let _asleep = state.0.enter(0, false);
        let waker = thread::spawn({
            let state = state.clone();
            move || {
                assert_eq!(state.0.wake_one(), Some(0));
                state.1.rouse();
            }
        });
        let (idle, monitor) = &*state;
        monitor.bind();
        monitor.sleep(None, || idle.counts().idle() == 1);
        waker.join().unwrap();
    });
}

/// A core turns polite while another thread pushes work and no worker is idle. The core sees the
/// work when it looks, or is asked to give way.
///
/// Red without the fence in `Interrupts::arm`, without the one in `announce`, and without the look
/// after arming.
#[test]
fn interrupt_against_yield_point() {
    model(|| {
        let runtime = Runtime::new(1);
        let pusher = thread::spawn({
            let runtime = runtime.clone();
            move || runtime.push_and_interrupt()
        });
        let saw_work = runtime.arm_and_look(0);
        pusher.join().unwrap();
        assert!(
            saw_work || runtime.interrupts.is_raised(0),
            "the next yield point goes on beside queued work"
        );
    });
}

/// Cores 0 and 1 end their polite polls and start something impolite, while a push asks two cores
/// to give way. Core 2 is polite too, and arms again. It is told, or sees the work; and if it is
/// told, it finds the work.
///
/// Red if cores 0 and 1 cannot tell that they were asked, and if core 2 looks before its bit is
/// set.
#[test]
fn interrupt_against_end_of_politeness() {
    bounded_model(|| {
        let runtime = Runtime::new(3);
        (0..3).for_each(|core| runtime.interrupts.arm(core));
        let pusher = thread::spawn({
            let runtime = runtime.clone();
            move || runtime.push_and_interrupt()
        });
        let polite = thread::spawn({
            let runtime = runtime.clone();
            move || {
                let told = runtime.interrupts.is_raised(2);
                let saw_work = runtime.arm_and_look(2);
                assert!(saw_work || !told, "told of work that is not there");
                saw_work
            }
        });
        for core in 0..2 {
            // As in `Scheduler::end_polite`.
            if runtime.interrupts.disarm(core) && !runtime.queue.is_empty() {
                runtime.interrupts.raise_some();
            }
        }
        pusher.join().unwrap();
        let saw_work = polite.join().unwrap();
        assert!(
            saw_work || runtime.interrupts.is_raised(2),
            "the others are impolite, and core 2 was not told"
        );
    });
}

/// The last searcher turns to the yield queue while another thread pushes. It sees the push, or is
/// interrupted.
///
/// Red if it counts as a searcher until after its look, and without the fence of either side.
#[test]
fn resume_against_push() {
    model(|| {
        let runtime = Runtime::new(1);
        assert!(runtime.idle.try_start_search());
        let pusher = thread::spawn({
            let runtime = runtime.clone();
            move || runtime.push_and_interrupt()
        });
        // As in `Scheduler::step`.
        let _last = runtime.idle.stop_search();
        let saw_work = runtime.arm_and_look(0);
        pusher.join().unwrap();
        assert!(
            saw_work || runtime.interrupts.is_raised(0),
            "it resumes beside queued work, and is not told"
        );
    });
}

/// A thread in `block_on` gives way while the last worker goes to sleep. The worker comes for it.
///
/// In tokio, what had yielded was lost when the thread left the runtime (PR 6999).
///
/// Red (deadlock) without the fence in `announce_yielded`, without the one in `enter`, and if
/// the last look leaves out the yield queue.
#[test]
fn yield_against_sleep() {
    model(|| {
        let runtime = Runtime::new(1);
        runtime.parkers[0].bind();
        let yielder = thread::spawn({
            let runtime = runtime.clone();
            move || {
                runtime.yielded.push(Yielded::Task(1), 0);
                if let Some(worker) = runtime.idle.announce_yielded() {
                    runtime.parkers[worker].unpark();
                }
            }
        });
        // As in `Worker::next`, with nothing but the yield queue.
        let mut searching = runtime.idle.try_start_search();
        while runtime.yielded.take().is_none() {
            runtime
                .sleep(0, searching, |ticket| ticket.looks_again() && !runtime.yielded.is_empty());
            searching = true;
        }
        yielder.join().unwrap();
    });
}

/// A worker goes to wait in the reactor, finds the turn taken, waits beside it and parks, while
/// another thread wakes it. It wakes up, wherever it was.
///
/// Red (deadlock) without the fence in `park_elsewhere`, and without the one in `unpark_from`. (The
/// model stays green without the release in `take_token`: loom's fences are stronger than the
/// standard's.)
#[test]
fn park_elsewhere_against_unpark() {
    model(|| {
        let state = Arc::new((Parker::new(), Parker::new()));
        let (parker, reactor) = &*state;
        parker.bind();
        reactor.bind();
        let waker = thread::spawn({
            let state = state.clone();
            move || {
                state.0.unpark_from(|place| {
                    if place == Elsewhere::Second {
                        state.1.unpark();
                    }
                });
            }
        });
        // As in `Worker::wait_in_place`: the turn is taken. The worker blocks beside it, and is
        // called back or finds its token.
        parker.park_elsewhere(Elsewhere::Turn, |_| ());
        parker.park_elsewhere(Elsewhere::Second, |has_token| {
            if !has_token() {
                reactor.park();
            }
        });
        parker.park();
        // Not joined: under loom, an `unpark` that comes late would end a join too early.
        drop(waker);
    });
}

/// A worker is about to wait in its turn at the reactor and is called back, while `third` may take
/// the call. The worker sees its token, or the call is still there when all others have come to
/// their end.
///
/// `third` is given the turn and whether the reactor has a call. The turn is a word, because a
/// thread that only tries a lock of loom's waits for it.
fn call_against_third(third: impl Fn(&AtomicBool, &AtomicBool) + Copy + Send + Sync + 'static) {
    model(move || {
        // Ordering: what stands for the lock of the turn acquires and releases as the lock does.
        // What stands for the kernel is SeqCst, the strongest there is. Swaps, here and in `third`:
        // loom does not say which of two plain stores was the last.
        let state = Arc::new((Parker::new(), AtomicBool::new(false), AtomicBool::new(false)));
        let waker = thread::spawn({
            let state = state.clone();
            move || {
                state.0.unpark_from(|_| {
                    state.2.swap(true, SeqCst);
                });
            }
        });
        let other = thread::spawn({
            let state = state.clone();
            move || third(&state.1, &state.2)
        });
        let (parker, turn, called) = &*state;
        parker.park_elsewhere(Elsewhere::Turn, |has_token| {
            if turn.swap(true, AcqRel) {
                // The worker comes again, or parks in its own place.
                return;
            }
            if !has_token() {
                // The worker waits, with the turn in hand.
                waker.join().unwrap();
                other.join().unwrap();
                assert!(called.load(SeqCst), "it waits for a call that another has taken");
            }
        });
    });
}

/// The third thread looks at the reactor, and takes the call with it.
///
/// Red if the worker looks for its token before it has the turn.
#[test]
fn call_back_against_look() {
    call_against_third(|turn, called| {
        // Ordering: AcqRel as the lock of the turn, SeqCst as the kernel.
        if !turn.swap(true, AcqRel) {
            called.swap(false, SeqCst);
            turn.swap(false, Release);
        }
    });
}

/// The third thread is the second, which waits beside the turn and is handed the call. It passes
/// the call on. (For a call that the first is handed and that is for the second, the names change
/// places.)
///
/// Red if the second drops the call, and if it does so without having held the lock of the turn.
#[test]
fn call_against_second() {
    call_against_third(|turn, called| {
        // Ordering: SeqCst as the kernel, AcqRel as the lock of the turn.
        if called.swap(false, SeqCst) {
            // As `Reactor::pass_on`.
            let must_hear = turn.swap(true, AcqRel);
            if must_hear {
                called.swap(true, SeqCst);
            } else {
                turn.swap(false, Release);
            }
        }
    });
}

/// Runs a model that is too large for every interleaving: under loom, those with at most three
/// preemptions.
fn bounded_model(f: impl Fn() + Send + Sync + 'static) {
    #[cfg(giveway_loom)]
    {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(f);
    }
    #[cfg(not(giveway_loom))]
    model(f);
}

/// A poll ends while the monitor has its thread step aside. In the end the thread has stepped back.
///
/// Red if `Aside::set` publishes before the thread has stepped aside.
#[test]
fn end_of_poll_against_step_aside() {
    #[derive(Default)]
    struct Core {
        aside: Aside,
        // Whether the kernel prefers other threads to the core's.
        steps_aside: AtomicBool,
        is_over: AtomicBool,
    }
    impl Core {
        fn step_back(&self) {
            self.aside.take(|_| self.steps_aside.store(false, Relaxed));
        }
    }
    model(|| {
        let core = Arc::new(Core::default());
        let worker = thread::spawn({
            let core = core.clone();
            move || {
                core.step_back();
                core.is_over.store(true, Relaxed);
            }
        });
        if !core.is_over.load(Relaxed) {
            core.aside.set(|| {
                core.steps_aside.store(true, Relaxed);
                NonZeroU64::new(1)
            });
        }
        worker.join().unwrap();
        // The monitor's next look finds that the poll is over.
        core.step_back();
        assert!(
            !core.steps_aside.load(Relaxed),
            "the thread of a poll that is over steps aside for good"
        );
    });
}
