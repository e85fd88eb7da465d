//! Threads that belong to no runtime: they wake what they were given, at once and late, once and often, and run errands.

use crate::random::Random;
use crate::world::lock;
use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

/// How many there are.
const THREADS: usize = 2;

/// How many wakers each keeps, to wake them when nobody waits for it any more.
const KEPT: usize = 256;

enum Errand {
    /// To be woken `times` times, and perhaps again later.
    Wake {
        waker: Waker,
        times: usize,
    },
    Run(Box<dyn FnOnce() + Send>),
    /// To let go of all wakers, and say so.
    Forget(Sender<()>),
    Stop,
}

/// The threads.
#[derive(Clone)]
pub(crate) struct Outsiders(Arc<Vec<Sender<Errand>>>, Arc<Mutex<Vec<thread::JoinHandle<()>>>>);

impl Outsiders {
    pub(crate) fn start(seed: u64) -> Self {
        let start = |number| {
            let (sender, errands) = mpsc::channel();
            let random = Random::of(&[seed, u64::MAX, number as u64]);
            let thread = thread::Builder::new().name(format!("outsider-{number}"));
            (sender, thread.spawn(move || run(&errands, random)).expect("a thread starts"))
        };
        let (senders, threads) = (0..THREADS).map(start).unzip();
        Self(Arc::new(senders), Arc::new(Mutex::new(threads)))
    }

    fn send(&self, random: &mut Random, errand: Errand) {
        // They are there as long as anybody has this.
        let _there = self.0[random.index(THREADS)].send(errand);
    }

    /// Has one of them wake this some times, and perhaps again when it is too late.
    pub(crate) fn wake(&self, random: &mut Random, waker: Waker) {
        let times = random.small(4);
        self.send(random, Errand::Wake { waker, times });
    }

    /// Has one of them run this.
    pub(crate) fn run(&self, random: &mut Random, errand: impl FnOnce() + Send + 'static) {
        self.send(random, Errand::Run(Box::new(errand)));
    }

    /// Has them let go of everything. Returns when they have.
    pub(crate) fn forget(&self) {
        let (forgotten, all) = mpsc::channel();
        for outsider in self.0.iter() {
            let _there = outsider.send(Errand::Forget(forgotten.clone()));
        }
        drop(forgotten);
        all.iter().for_each(drop);
    }

    pub(crate) fn stop(&self) {
        for outsider in self.0.iter() {
            let _there = outsider.send(Errand::Stop);
        }
        for thread in lock(&self.1).drain(..) {
            let _ended = thread.join();
        }
    }
}

impl fmt::Debug for Outsiders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outsiders")
    }
}

fn run(errands: &Receiver<Errand>, mut random: Random) {
    let mut kept: Vec<Waker> = Vec::new();
    for errand in errands {
        match errand {
            Errand::Wake { waker, times } => {
                (0..times).for_each(|_| waker.wake_by_ref());
                if random.once_in(4) {
                    if kept.len() == KEPT {
                        kept.swap_remove(random.index(KEPT));
                    }
                    kept.push(waker);
                } else {
                    waker.wake();
                }
                // One that was left here before: its task may be done, its runtime may be closing, or gone.
                if !kept.is_empty() && random.once_in(2) {
                    let late = random.index(kept.len());
                    if random.once_in(2) { kept[late].wake_by_ref() } else { kept.swap_remove(late).wake() }
                }
            }
            Errand::Run(errand) => errand(),
            Errand::Forget(forgotten) => {
                kept.clear();
                let _waits = forgotten.send(());
            }
            Errand::Stop => return,
        }
    }
}
