//! Outsiders: threads of no runtime. They wake the wakers that they are given, at once or late,
//! once or several times, and run closures.

use crate::random::Random;
use crate::world::lock;
use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

/// The number of outsiders.
const THREADS: usize = 2;

/// How many wakers each outsider keeps, to wake them when no task waits for them any more.
const KEPT: usize = 256;

enum Errand {
    /// Wake `waker` `times` times, and perhaps again later.
    Wake {
        waker: Waker,
        times: usize,
    },
    Run(Box<dyn FnOnce() + Send>),
    /// Drop all kept wakers, and confirm it through the sender.
    Forget(Sender<()>),
    Stop,
}

/// A handle to the outsiders: a sender to each, and their threads.
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
        // The outsiders run until `stop`, so the send succeeds.
        let _there = self.0[random.index(THREADS)].send(errand);
    }

    /// Has one outsider wake `waker` a few times, and perhaps again after its task is gone.
    pub(crate) fn wake(&self, random: &mut Random, waker: Waker) {
        let times = random.small(4);
        self.send(random, Errand::Wake { waker, times });
    }

    /// Has one outsider run `errand`.
    pub(crate) fn run(&self, random: &mut Random, errand: impl FnOnce() + Send + 'static) {
        self.send(random, Errand::Run(Box::new(errand)));
    }

    /// Has all outsiders drop the wakers that they keep. Returns when they have.
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
                // Wakes one that was kept earlier: its task may be done, its runtime may be closing
                // or gone.
                if !kept.is_empty() && random.once_in(2) {
                    let late = random.index(kept.len());
                    if random.once_in(2) {
                        kept[late].wake_by_ref()
                    } else {
                        kept.swap_remove(late).wake()
                    }
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
