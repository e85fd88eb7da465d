//! A machine with a clock that tests move, and an executor of one core on it.

use super::admission::{Admission, Machine};
use super::{Pacer, Settings};
use crate::host::{Host, Paced, Signs, Ticket, paced_poll_begins, with_host};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// The clock, the alarm and the latencies of a machine.
#[derive(Default)]
pub(super) struct Board {
    pub(super) now: AtomicU64,
    pub(super) cores: AtomicUsize,
    /// How many tasks were kept waiting for less than a millisecond, and how many for longer.
    pub(super) latencies: [AtomicU64; 2],
    pub(super) alarm: Mutex<Option<(u64, Waker)>>,
    pub(super) ended: AtomicBool,
}

pub(super) struct Fake(pub(super) Arc<Board>);

impl Machine for Fake {
    fn now(&self) -> u64 {
        self.0.now.load(SeqCst)
    }

    fn cores(&self) -> usize {
        self.0.cores.load(SeqCst)
    }

    fn latencies(&self, bucket: &mut dyn FnMut(u64, u64)) {
        bucket(MS, self.0.latencies[0].load(SeqCst));
        bucket(u64::MAX, self.0.latencies[1].load(SeqCst));
    }

    fn set_alarm(&self, at: u64, alarm: &Waker) -> bool {
        let mut set = self.0.alarm.lock().unwrap();
        if self.0.ended.load(SeqCst) {
            return false;
        }
        *set = Some((at, alarm.clone()));
        true
    }
}

impl Board {
    pub(super) fn new(cores: usize) -> Arc<Self> {
        let board =
            Self { now: AtomicU64::new(SECOND), cores: AtomicUsize::new(cores), ..Self::default() };
        Arc::new(board)
    }

    pub(super) fn admission(self: &Arc<Self>, settings: Settings) -> Arc<Admission> {
        Admission::new(settings, Fake(self.clone()))
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(SeqCst)
    }

    pub(super) fn pass(&self, nanoseconds: u64) {
        self.now.fetch_add(nanoseconds, SeqCst);
    }

    /// Returns when the alarm goes off.
    pub(super) fn alarm_at(&self) -> Option<u64> {
        self.alarm.lock().unwrap().as_ref().map(|(at, _)| *at)
    }

    /// Moves the clock to the alarm, and sets it off. Returns false if none is set.
    pub(super) fn wait(&self) -> bool {
        let Some((at, alarm)) = self.alarm.lock().unwrap().take() else { return false };
        self.now.fetch_max(at, SeqCst);
        alarm.wake();
        true
    }

    /// Ends the executor: the alarm goes off for the last time.
    pub(super) fn end(&self) {
        let mut set = self.alarm.lock().unwrap();
        self.ended.store(true, SeqCst);
        let alarm = set.take();
        drop(set);
        if let Some((_, alarm)) = alarm {
            alarm.wake();
        }
    }
}

static IDLE: AtomicIsize = AtomicIsize::new(1);
static EMPTY: AtomicUsize = AtomicUsize::new(0);
static NEVER: AtomicBool = AtomicBool::new(false);
static NO_COUNT: AtomicU32 = AtomicU32::new(0);

/// An executor of one core.
pub(super) struct Executor {
    pub(super) board: Arc<Board>,
    pub(super) admission: Arc<Admission>,
    /// When the poll began, or when the clock was last looked at in it.
    began: Cell<u64>,
    /// How often the clock was looked at.
    pub(super) looks: Cell<u64>,
}

impl Host for Executor {
    fn signs(&self) -> Signs<'_> {
        Signs { idle: &IDLE, asked: &NEVER, queued: [&EMPTY, &EMPTY], countdown: &NO_COUNT }
    }
    fn work_waits(&self) -> bool {
        false
    }
    fn give_way(&self) -> Option<Ticket> {
        None
    }
    fn take_back(&self, _ticket: Ticket) -> bool {
        false
    }
    fn paced(&self) -> Option<Paced> {
        self.looks.set(self.looks.get() + 1);
        let now = self.board.now();
        let spent = now - self.began.replace(now);
        Some(Paced { admission: self.admission.clone(), now, spent })
    }
}

/// Whether a task was woken.
#[derive(Default)]
pub(super) struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Woken {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

type Job<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Executor {
    pub(super) fn new(cores: usize, settings: Settings) -> Self {
        let board = Board::new(cores);
        let admission = board.admission(settings);
        Self { board, admission, began: Cell::new(0), looks: Cell::new(0) }
    }

    pub(super) fn now(&self) -> u64 {
        self.board.now()
    }

    /// Works for `nanoseconds`.
    pub(super) fn work(&self, nanoseconds: u64) {
        self.board.pass(nanoseconds);
    }

    /// Polls `task` once.
    pub(super) fn poll(
        &self,
        task: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
        waker: &Waker,
    ) -> Poll<()> {
        self.began.set(self.now());
        with_host(self, || {
            paced_poll_begins();
            task.poll(&mut Context::from_waker(waker))
        })
    }

    /// Runs jobs in turns until all are done, or nothing can move them. Returns whether they are
    /// done. The clock goes on when a job works, and goes on to the alarm when all of them wait.
    pub(super) fn run(&self, jobs: Vec<Job<'_>>) -> bool {
        let mut jobs: Vec<_> = jobs.into_iter().map(|job| (job, Arc::<Woken>::default())).collect();
        jobs.iter().for_each(|(_, woken)| woken.clone().wake());
        while !jobs.is_empty() {
            let mut moved = false;
            jobs.retain_mut(|(job, woken)| {
                let is_woken = woken.take();
                moved |= is_woken;
                !is_woken || self.poll(job.as_mut(), &Waker::from(woken.clone())).is_pending()
            });
            if !moved && !self.board.wait() {
                return false;
            }
        }
        true
    }

    /// Takes all that is in the bucket, with the pacer that it returns. The next slice has to be
    /// waited for.
    pub(super) fn exhaust(&self) -> Pacer {
        let pacer = Pacer::new();
        loop {
            let mut call = Box::pin(pacer.pace());
            if self.poll(call.as_mut(), Waker::noop()).is_pending() {
                break;
            }
            drop(call);
            self.began.set(self.now());
            // All of the slice at once, by a clock that stands still.
            pacer.use_up();
        }
        pacer
    }
}
