//! A seeded stepper: virtual workers take random steps over the real queues and the real idle set.
//!
//! One step is one call of a scheduling function, so that between any two calls of one worker any calls of the others
//! may fall: between a push and its announcement, between a count-out and the second look. After every step the
//! invariants are checked. A failure prints its seed, and the seed replays it.

use super::*;
use std::collections::HashMap;

/// A virtual task. How many more times it will be polled is drawn when it runs.
struct Task {
    id: u64,
}

/// What a virtual worker is about to do.
enum State {
    /// Choose a task, steps 1 to 3.
    Choose,
    /// Announce what was put into the deque quietly, then poll.
    BeforePoll(Box<Task>),
    /// In a poll.
    Polling(Box<Task>),
    /// Announce what the running task pushed.
    Announce(Box<Task>),
    /// Tell the idle set of the find, then poll.
    Found(Box<Task>),
    /// Look at the others.
    Search { round: usize },
    /// Be counted out.
    CountOut,
    /// Look again, or park.
    CountedOut(CountedOut),
    /// Asleep until there is a token.
    Parked,
}

struct Worker {
    core: Local<Box<Task>>,
    state: State,
    searching: bool,
    token: bool,
}

/// Where a task is, as the test keeps the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Queued,
    Running(usize),
}

struct Stepper {
    scheduler: Scheduler<Box<Task>>,
    workers: Vec<Worker>,
    rng: fastrand::Rng,
    books: HashMap<u64, Place>,
    spawned: u64,
    // Threads without a core that have pushed and not announced yet.
    outside_owes: usize,
    weather: Weather,
}

/// How busy it is for a while: races need storms as well as lulls in which the workers get to sleep.
#[derive(Clone, Copy)]
struct Weather {
    /// One step outside in so many is a push; zero for none.
    push_one_in: u32,
    /// Of a hundred steps in a poll, so many spawn, yield and end. The rest go on polling.
    spawn: u32,
    yields: u32,
    end: u32,
}

impl Weather {
    const CALM: Self = Self { push_one_in: 0, spawn: 0, yields: 0, end: 50 };

    fn draw(rng: &mut fastrand::Rng) -> Self {
        let mut pick = |from: [u32; 4]| from[rng.usize(..4)];
        Self {
            push_one_in: pick([0, 2, 10, 100]),
            spawn: pick([0, 3, 10, 30]),
            yields: pick([0, 3, 20, 40]),
            end: pick([1, 5, 20, 30]),
        }
    }
}

impl Stepper {
    fn new(cores: usize, seed: u64) -> Self {
        let (scheduler, locals) = Scheduler::new(cores, Settings::default());
        let awake = |core| Worker { core, state: State::Choose, searching: false, token: false };
        Self {
            scheduler,
            workers: locals.into_iter().map(awake).collect(),
            rng: fastrand::Rng::with_seed(seed),
            books: HashMap::new(),
            spawned: 0,
            outside_owes: 0,
            weather: Weather::CALM,
        }
    }

    fn new_task(&mut self) -> Box<Task> {
        self.spawned += 1;
        assert!(self.books.insert(self.spawned, Place::Queued).is_none());
        Box::new(Task { id: self.spawned })
    }

    /// A task changes places; it must have been where the books say (I1, I2, S1).
    fn moves(&mut self, task: &Task, from: Place, to: Place) {
        assert_eq!(self.books.insert(task.id, to), Some(from), "task {} is in two places", task.id);
    }

    fn unpark(&mut self, worker: Option<usize>) {
        if let Some(worker) = worker {
            assert!(!self.workers[worker].searching, "woke a worker that was awake");
            self.workers[worker].token = true;
        }
    }

    /// One step of a thread that is no worker.
    fn step_outside(&mut self) {
        if self.outside_owes > 0 && self.rng.bool() {
            self.outside_owes -= 1;
            let woken = self.scheduler.announce();
            self.unpark(woken);
        } else if self.weather.push_one_in > 0 && self.rng.u32(..self.weather.push_one_in) == 0 {
            let task = self.new_task();
            self.scheduler.injector.push(task);
            self.outside_owes += 1;
        }
    }

    /// One step of a worker. False if it is asleep.
    fn step(&mut self, index: usize) -> bool {
        let state = std::mem::replace(&mut self.workers[index].state, State::Choose);
        let next = match state {
            State::Choose => match self.scheduler.next(&self.workers[index].core) {
                Some((task, _)) => self.took(index, task),
                None if self.workers[index].searching => State::Search { round: 0 },
                None if self.scheduler.idle.try_start_search() => {
                    self.workers[index].searching = true;
                    State::Search { round: 0 }
                }
                None => State::CountOut,
            },
            State::Search { round } => {
                let core = &self.workers[index].core;
                let found = self.scheduler.steal(core, round, false).or_else(|| self.scheduler.take_injected(core));
                match found {
                    Some(task) => self.took(index, task),
                    None if round + 1 == SEARCH_ROUNDS => State::CountOut,
                    None => State::Search { round: round + 1 },
                }
            }
            State::Found(task) => {
                self.workers[index].searching = false;
                let woken = self.scheduler.found_work();
                self.unpark(woken);
                State::BeforePoll(task)
            }
            State::BeforePoll(task) => {
                let woken = self.scheduler.before_poll(&self.workers[index].core);
                self.unpark(woken);
                State::Polling(task)
            }
            State::Polling(task) => self.step_poll(index, task),
            State::Announce(task) => {
                let woken = self.scheduler.announce();
                self.unpark(woken);
                State::Polling(task)
            }
            State::CountOut => {
                let worker = &mut self.workers[index];
                let searching = std::mem::replace(&mut worker.searching, false);
                State::CountedOut(self.scheduler.idle.count_out(index, searching))
            }
            State::CountedOut(CountedOut::Park) => State::Parked,
            State::CountedOut(CountedOut::LookAgain) => {
                if self.scheduler.anything_queued() && self.scheduler.idle.remove(index) {
                    self.workers[index].searching = true;
                    State::Choose
                } else {
                    State::Parked
                }
            }
            State::Parked => {
                let worker = &mut self.workers[index];
                if !std::mem::replace(&mut worker.token, false) {
                    worker.state = State::Parked;
                    return false;
                }
                worker.searching = true;
                State::Choose
            }
        };
        self.workers[index].state = next;
        true
    }

    fn took(&mut self, index: usize, task: Box<Task>) -> State {
        self.moves(&task, Place::Queued, Place::Running(index));
        if self.workers[index].searching { State::Found(task) } else { State::BeforePoll(task) }
    }

    /// What a running task may do: spawn, yield, end, or go on.
    fn step_poll(&mut self, index: usize, task: Box<Task>) -> State {
        let Weather { spawn, yields, end, .. } = self.weather;
        let dice = self.rng.u32(..100);
        if dice < spawn {
            let child = self.new_task();
            match self.scheduler.push_woken(&self.workers[index].core, child) {
                Announce::Owed => State::Announce(task),
                Announce::NotNeeded => State::Polling(task),
            }
        } else if dice < spawn + yields {
            self.moves(&task, Place::Running(index), Place::Queued);
            self.scheduler.push_yielded(&self.workers[index].core, task);
            State::Choose
        } else if dice < spawn + yields + end {
            assert_eq!(self.books.remove(&task.id), Some(Place::Running(index)));
            State::Choose
        } else {
            State::Polling(task)
        }
    }

    fn check(&self) {
        let counts = self.scheduler.idle.counts();
        // I6.
        assert!(counts.searching() <= self.workers.len(), "{counts:?}");
        let mut about_to = self.outside_owes > 0;
        for worker in &self.workers {
            assert!(worker.core.deque().len() <= DEQUE_CAPACITY, "the deque holds more than it may");
            about_to |= match worker.state {
                // Between two polls it has yet to announce what it put into its own deque.
                State::Choose | State::BeforePoll(_) => worker.core.unannounced() != Quiet::Nothing,
                State::Found(_) | State::Announce(_) | State::CountedOut(CountedOut::LookAgain) => true,
                _ => worker.token,
            };
        }
        // I5: while work is queued and a worker is idle, somebody searches or is about to.
        let stranded = counts.idle() > 0 && counts.searching() == 0 && self.scheduler.anything_queued();
        assert!(!stranded || about_to, "work is queued, a worker is idle, and nobody searches: {counts:?}");
    }

    /// S2 and L3: left to themselves, the workers finish everything and go to sleep.
    fn run_out(&mut self) {
        self.weather = Weather::CALM;
        while self.outside_owes > 0 {
            self.step_outside();
        }
        let mut asleep = 0;
        for turn in 0.. {
            assert!(turn < 100_000_000, "the workers do not come to rest");
            asleep = if self.step(turn % self.workers.len()) { 0 } else { asleep + 1 };
            if asleep == self.workers.len() {
                break;
            }
        }
        assert_eq!(self.books.len(), 0, "tasks were left in a queue with every worker asleep");
    }
}

fn run(cores: usize, seed: u64, steps: usize) {
    struct Seed(usize, u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("replay with run({}, {}, ..)", self.0, self.1);
            }
        }
    }
    let _seed = Seed(cores, seed);
    let mut stepper = Stepper::new(cores, seed);
    for _ in 0..steps {
        if stepper.rng.u32(..100 * cores as u32) == 0 {
            stepper.weather = Weather::draw(&mut stepper.rng);
        }
        let who = stepper.rng.usize(..cores + 1);
        if who < cores {
            stepper.step(who);
        } else {
            stepper.step_outside();
        }
        stepper.check();
    }
    stepper.run_out();
}

#[test]
fn invariants_hold_after_every_step() {
    // Few workers make the narrow races likely, many the wide ones.
    let seeds = if cfg!(debug_assertions) { 1 } else { 20 };
    for (cores, runs) in [(1, 4), (2, 20), (3, 20), (8, 6), (64, 2)] {
        for seed in 0..runs * seeds {
            run(cores, seed, 20_000);
        }
    }
}
