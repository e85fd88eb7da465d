//! A seeded stepper: virtual workers, lowered threads and a monitor take random steps over the real
//! queues, the real idle set and the real interrupts, by a virtual clock.
//!
//! One step is one call of a scheduling function. So any calls of the others may fall between two
//! calls of one worker: between a push and its announcement, between a count-out and the second
//! look, between a yield point and the push of the task that gives way. The invariants are checked
//! after every step. A failure prints its seed, and the seed replays it.

mod books;
mod lowered;
mod monitor;
mod weather;

use super::*;
use books::{Books, Place};
use lowered::{Lowered, SITES};
use weather::Weather;

/// A virtual task. What it does in a poll is drawn as it runs.
struct Task {
    id: u64,
    background: bool,
    /// Where it was spawned.
    site: usize,
    /// Whether it changed places when it was polled last.
    swapped: bool,
}

/// What a virtual worker is about to do.
enum State {
    /// Begin to look for the next task.
    Choose,
    /// Look for it.
    Find(Finder),
    /// Tell the idle set of the find.
    Found(Box<Task>, Source),
    /// Announce what was queued quietly.
    BeforePoll(Box<Task>, Source),
    /// In a poll.
    Polling(Box<Task>),
    /// In a poll, in a stretch that reaches no yield point for as long as it likes.
    Stretch(Box<Task>),
    /// Announce what the running task pushed.
    Announce(Box<Task>, Push),
    /// The poll has returned; the task gives way.
    GiveWay(Box<Task>, Way),
    /// Be counted out.
    Sleep,
    /// Look again, or park.
    Asleep(Ticket),
    /// Asleep until there is a token.
    Parked(Ticket),
    /// On a spare core that is not in use.
    Retired,
}

/// A push that is still to be announced.
#[derive(Clone, Copy)]
enum Push {
    Foreground,
    Yielded,
}

struct Worker {
    core: Local<Box<Task>>,
    state: State,
    token: bool,
    /// Whether its core is a spare one, and is wanted back.
    recalled: bool,
    /// Whether the monitor knows that its poll does not return.
    holds: bool,
}

struct Stepper {
    scheduler: Scheduler<Box<Task>>,
    workers: Vec<Worker>,
    rng: fastrand::Rng,
    books: Books,
    /// The task in each core's slot, or the last one that was there.
    slots: Vec<u64>,
    spawned: u64,
    now: u64,
    /// What threads without a core have pushed and not announced yet.
    outside_owes: Vec<Push>,
    lowered: Lowered,
    weather: Weather,
    /// How many of `workers` are on cores that are not spare.
    cores: usize,
    resumed: usize,
    interrupted: usize,
    retired: usize,
    rested: usize,
    /// Polls that the monitor knew not to return, and that have returned since it looked.
    returned: usize,
}

impl Stepper {
    fn new(cores: usize, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        // In steps. Long enough that most requests have to come by interrupt.
        let settings = Settings {
            wide_look_interval: if rng.bool() { u64::MAX } else { 10_000 },
            yield_patience: (rng.u8(..4) == 0).then_some(1_000),
            spares: if rng.u8(..4) == 0 { 0 } else { rng.usize(1..=cores) },
            ..Settings::default()
        };
        let (scheduler, locals) = Scheduler::new(cores, settings);
        let worker = |core: Local<_>| {
            let state = if core.index() < cores { State::Choose } else { State::Retired };
            Worker { core, state, token: false, recalled: false, holds: false }
        };
        Self {
            scheduler,
            workers: locals.into_iter().map(worker).collect(),
            rng,
            books: Books::default(),
            slots: vec![0; cores + settings.spares],
            spawned: 0,
            now: 0,
            outside_owes: Vec::new(),
            lowered: Lowered::new(cores),
            weather: Weather::CALM,
            cores,
            resumed: 0,
            interrupted: 0,
            retired: 0,
            rested: 0,
            returned: 0,
        }
    }

    fn new_task(&mut self, place: Place) -> Box<Task> {
        self.spawned += 1;
        assert!(self.books.insert(self.spawned, place).is_none());
        let background = self.rng.u32(..100) < self.weather.background;
        Box::new(Task {
            id: self.spawned,
            background,
            site: self.rng.usize(..SITES),
            swapped: false,
        })
    }

    fn unpark(&mut self, worker: Option<usize>) {
        if let Some(worker) = worker {
            assert!(!self.workers[worker].core.is_searching(), "woke a worker that was awake");
            self.workers[worker].token = true;
        }
    }

    fn announce(&mut self, push: Push) {
        let woken = match push {
            Push::Foreground => self.scheduler.announce(),
            Push::Yielded => self.scheduler.announce_yielded(),
        };
        self.unpark(woken);
    }

    /// Makes one step of a thread that is no worker: a push, an announcement, or a look of the
    /// monitor.
    fn step_outside(&mut self) {
        if !self.outside_owes.is_empty() && self.rng.bool() {
            let push = self.outside_owes.swap_remove(self.rng.usize(..self.outside_owes.len()));
            self.announce(push);
        } else if self.weather.push_one_in > 0 && self.rng.u32(..self.weather.push_one_in) == 0 {
            let task = self.new_task(Place::Queued { waiting: true });
            let push = self.push_from_outside(task);
            self.outside_owes.push(push);
        } else if self.rng.bool() {
            self.step_monitor();
        }
    }

    /// Makes a task runnable from a thread without a core. The books have it in the injector.
    /// Returns what the thread owes.
    fn push_from_outside(&mut self, task: Box<Task>) -> Push {
        if task.background && self.scheduler.defers_background() {
            self.books.insert(task.id, Place::Yielded);
            self.scheduler.push_to_yield_queue(Yielded::Task(task), 0, || self.now);
            Push::Yielded
        } else {
            self.scheduler.injector.push(task);
            Push::Foreground
        }
    }

    /// Makes one step of a worker. Returns false if it is asleep.
    fn step(&mut self, index: usize) -> bool {
        self.now += 1;
        let state = std::mem::replace(&mut self.workers[index].state, State::Choose);
        let core = &self.workers[index].core;
        let next = match state {
            State::Choose if self.workers[index].recalled => {
                match self.scheduler.end_search(core) {
                    None => {
                        self.retire(index);
                        return true;
                    }
                    Some(woken) => {
                        self.unpark(woken);
                        State::Choose
                    }
                }
            }
            State::Choose => State::Find(Finder::new()),
            State::Find(mut finder) => {
                // What touches nothing that is shared takes no step of its own: there is no
                // reactor, and time does not pass in a pause. A look finds something at random.
                let step = loop {
                    match self.scheduler.step(core, &mut finder, || self.now) {
                        Step::Look if self.rng.u8(..8) == 0 => finder.woke(),
                        Step::Gather | Step::Look | Step::Linger => {}
                        step => break step,
                    }
                };
                match step {
                    Step::Run(task, source) => self.took(index, task, source),
                    Step::Yielded(Entry { yielded: Yielded::Task(task), .. }, source, woken) => {
                        let queued = self.books.waiting + self.books.gave_way;
                        assert!(
                            source == Source::Overdue || queued == 0,
                            "something left the yield queue before what was queued"
                        );
                        self.resumed += usize::from(source == Source::Yielded);
                        self.unpark(woken);
                        self.took(index, task, source)
                    }
                    Step::Sleep => State::Sleep,
                    _ => State::Find(finder),
                }
            }
            State::Found(task, source) => {
                let woken = self.scheduler.end_search(core).expect("it searches");
                self.unpark(woken);
                State::BeforePoll(task, source)
            }
            State::BeforePoll(task, source)
                if self.is_lowered(&task) && source != Source::Overdue =>
            {
                let woken = self.scheduler.before_poll(core);
                self.unpark(woken);
                self.books.moves(task.id, |from| from == Place::Running(index), Place::Lowered);
                self.lowered.push(task);
                State::Choose
            }
            State::BeforePoll(mut task, source) => {
                let woken = self.scheduler.before_poll(core);
                let swapped = std::mem::replace(&mut task.swapped, false);
                self.scheduler.begin_poll(core, source, task.background, swapped);
                self.unpark(woken);
                State::Polling(task)
            }
            State::Polling(task) => self.step_poll(index, task),
            State::Stretch(task) if self.rng.u8(..32) > 0 => State::Stretch(task),
            State::Stretch(task) => {
                self.returned +=
                    usize::from(std::mem::replace(&mut self.workers[index].holds, false));
                State::Polling(task)
            }
            State::Announce(task, push) => {
                self.announce(push);
                State::Polling(task)
            }
            State::GiveWay(mut task, way) => {
                let to = if way == Way::Swap {
                    Place::Queued { waiting: false }
                } else {
                    Place::Yielded
                };
                self.books.moves(task.id, |from| from == Place::Running(index), to);
                task.swapped = way == Way::Swap;
                let in_slot = self.slots[index];
                let moves_on = task.swapped && !self.workers[index].core.may_run_slot();
                if moves_on && self.books.place(in_slot) == Some(Place::Slot(index)) {
                    self.books.insert(in_slot, Place::Queued { waiting: true });
                }
                self.scheduler
                    .queue_after_yield(&self.workers[index].core, task, way, 0, || self.now);
                State::Choose
            }
            State::Sleep => {
                let searching = core.set_searching(false);
                State::Asleep(self.scheduler.idle.enter(index, searching))
            }
            State::Asleep(ticket) => {
                let (scheduler, recalled) = (&self.scheduler, self.workers[index].recalled);
                let mut called = None;
                let look_again = |ticket: &Ticket| {
                    let work = ticket.looks_again()
                        && match scheduler.idle.second_look(index, scheduler.queued()) {
                            SecondLook::Leave => true,
                            SecondLook::Park(woken) => {
                                called = woken;
                                false
                            }
                        };
                    work || recalled
                };
                let settled = scheduler.idle.settle(ticket, look_again);
                self.unpark(called);
                match settled {
                    Ok(()) => {
                        self.workers[index].core.set_searching(true);
                        State::Choose
                    }
                    Err(ticket) => State::Parked(ticket),
                }
            }
            State::Parked(ticket) => {
                let worker = &mut self.workers[index];
                if !std::mem::replace(&mut worker.token, false) {
                    worker.state = State::Parked(ticket);
                    return false;
                }
                ticket.woken();
                worker.core.set_searching(true);
                State::Choose
            }
            State::Retired => {
                self.workers[index].state = State::Retired;
                return false;
            }
        };
        self.workers[index].state = next;
        true
    }

    fn took(&mut self, index: usize, task: Box<Task>, source: Source) -> State {
        let queued = |place| match source {
            Source::Yielded | Source::Overdue => place == Place::Yielded,
            Source::Slot => place == Place::Slot(index),
            Source::Queue => matches!(place, Place::Queued { .. } | Place::Slot(_)),
        };
        self.books.moves(task.id, queued, Place::Running(index));
        if self.workers[index].core.is_searching() {
            State::Found(task, source)
        } else {
            State::BeforePoll(task, source)
        }
    }

    /// Makes one step of a poll: spawns, yields, comes to a yield point, ends, or goes on.
    fn step_poll(&mut self, index: usize, task: Box<Task>) -> State {
        let Weather { spawn, yields, yield_points, stretches, end, .. } = self.weather;
        let dice = self.rng.u32(..100);
        if dice < spawn {
            return self.step_spawn(index, task);
        }
        let core = &self.workers[index].core;
        let (busy, defers) =
            (self.scheduler.idle.nobody_idle(), self.scheduler.defers_background());
        if dice < spawn + yields {
            if task.background && defers {
                return State::GiveWay(task, Way::YieldQueue);
            }
            self.scheduler.requeue(core, Box::new(Task { ..*task }));
            self.books.moves(
                task.id,
                |from| from == Place::Running(index),
                Place::Queued { waiting: true },
            );
            State::Choose
        } else if dice < spawn + yields + yield_points {
            let asked = self.scheduler.interrupts.is_raised(index);
            self.interrupted += usize::from(asked);
            // A worker that is to rest was asked to return: its yield points ask even while one is
            // idle.
            match busy || self.scheduler.idle.rests(index) {
                // A background task without yield points: its next operation is cut short.
                _ if asked && task.background && self.rng.bool() => match defers {
                    true => State::GiveWay(task, Way::YieldQueue),
                    false => State::Polling(task),
                },
                true => match self.scheduler.yield_point(core, &AlwaysAt(self.now)) {
                    // The future is dropped in the same poll.
                    Some(way) if self.rng.u8(..8) == 0 => {
                        core.poll_state().ask(way);
                        core.poll_state().take_back();
                        State::Polling(task)
                    }
                    Some(way) => State::GiveWay(task, way),
                    None => State::Polling(task),
                },
                false => State::Polling(task),
            }
        } else if dice < spawn + yields + yield_points + end {
            assert_eq!(self.books.remove(task.id), Some(Place::Running(index)));
            self.scheduler.has_returned(index);
            State::Choose
        } else if dice < spawn + yields + yield_points + end + stretches {
            State::Stretch(task)
        } else {
            State::Polling(task)
        }
    }

    fn step_spawn(&mut self, index: usize, task: Box<Task>) -> State {
        let child = self.new_task(Place::Slot(index));
        let core = &self.workers[index].core;
        if child.background && self.scheduler.defers_background() {
            self.books.insert(child.id, Place::Yielded);
            self.scheduler.push_to_yield_queue(Yielded::Task(child), 0, || self.now);
            return State::Announce(task, Push::Yielded);
        }
        let last = std::mem::replace(&mut self.slots[index], child.id);
        let displaced = (self.books.place(last) == Some(Place::Slot(index))).then_some(last);
        let foreground = !child.background;
        let announce = self.scheduler.push_woken(core, child);
        assert_eq!(displaced.is_some(), announce == Announce::Owed);
        // As in `Worker::mind_the_slot`. A yield point beside an idle worker calls `hand_over_slot`
        // too.
        if foreground && self.scheduler.idle.nobody_idle() {
            self.scheduler.interrupt_own(core);
        } else if foreground && task.background {
            self.books.insert(self.slots[index], Place::Queued { waiting: true });
            let woken = self.scheduler.hand_over_slot(core);
            self.unpark(woken);
        }
        match displaced {
            Some(displaced) => {
                self.books.insert(displaced, Place::Queued { waiting: true });
                State::Announce(task, Push::Foreground)
            }
            None => State::Polling(task),
        }
    }

    fn check(&self) {
        let counts = self.scheduler.idle.counts();
        // I6.
        assert!(counts.searching() <= self.workers.len(), "{counts:?}");
        assert_eq!(self.scheduler.idle.nobody_idle(), counts.idle() == 0);
        self.check_workers_at_work();
        let mut about_to = !self.outside_owes.is_empty() || self.lowered.owes();
        let mut all_poll = true;
        for worker in &self.workers {
            assert!(
                worker.core.deque().len() <= DEQUE_CAPACITY,
                "the deque holds more than it may"
            );
            about_to |= match worker.state {
                // Between two polls: it has yet to announce what it queued.
                State::Choose | State::BeforePoll(..) => {
                    worker.core.unannounced() != Quiet::Nothing
                }
                State::Find(ref finder) => {
                    finder.is_resuming()
                        || finder.is_before_search() && worker.core.unannounced() != Quiet::Nothing
                }
                State::Asleep(ref ticket) => ticket.looks_again() || worker.token,
                State::Found(..) | State::Announce(..) => true,
                _ => worker.token,
            };
            all_poll &=
                matches!(worker.state, State::Polling(_) | State::Stretch(_) | State::Retired);
        }
        // I5: while work is queued and a worker is idle, one searches or is about to. What is
        // queued is taken from the books, without slots: the monitor announces that of a stuck
        // worker, again and again.
        let queued = self.books.waiting + self.books.gave_way > 0;
        // What is in the yield queue is not for workers that rest.
        let queued = queued || self.books.yielded > 0 && self.scheduler.idle.any_serves_idle();
        let stranded = counts.idle() > 0 && counts.searching() == 0 && queued;
        assert!(
            !stranded || about_to,
            "work is queued, a worker is idle, and nobody searches: {counts:?}"
        );
        // The second rule of `yielding.md`: beside work that waits, polite tasks go on only if one
        // of them has been asked.
        let polite = &self.scheduler.interrupts;
        let mut cores = 0..self.workers.len();
        if all_poll && !about_to && cores.clone().any(|core| polite.is_armed(core)) {
            let knows = |core: usize| {
                polite.is_raised(core) || self.workers[core].core.poll_state().is_unanswered()
            };
            assert!(
                self.books.waiting == 0 || cores.any(knows),
                "work waits, and nobody was asked"
            );
        }
    }

    /// S2 and L3: left alone, the workers finish everything and go to sleep.
    fn run_out(&mut self) {
        self.weather = Weather::CALM;
        while !self.outside_owes.is_empty() {
            self.step_outside();
        }
        self.rest(0);
        let mut asleep = 0;
        let (workers, threads) = (self.workers.len(), self.workers.len() + self.lowered.threads());
        for turn in 0.. {
            assert!(turn < 100_000_000, "the workers do not come to rest");
            let who = turn % threads;
            let works =
                if who < workers { self.step(who) } else { self.step_lowered(who - workers) };
            asleep = if works { 0 } else { asleep + 1 };
            if asleep == threads {
                break;
            }
        }
        assert!(self.books.is_empty(), "tasks were left in a queue with every worker asleep");
    }
}

/// Makes a run. Returns how often each event happened without which the run proves little.
fn run(cores: usize, seed: u64, steps: usize) -> [(&'static str, usize); 5] {
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
    let (workers, lowered) = (stepper.workers.len(), stepper.lowered.threads());
    for _ in 0..steps {
        if stepper.rng.u32(..100 * cores as u32) == 0 {
            stepper.weather = Weather::draw(&mut stepper.rng);
        }
        match stepper.rng.usize(..workers + lowered + 1) {
            who if who < workers => _ = stepper.step(who),
            who if who < workers + lowered => _ = stepper.step_lowered(who - workers),
            _ => stepper.step_outside(),
        }
        stepper.check();
    }
    stepper.run_out();
    [
        ("resumed from the yield queue", stepper.resumed),
        ("interrupted", stepper.interrupted),
        ("spare workers retired", stepper.retired),
        ("workers told to rest", stepper.rested),
        ("polls on lowered threads", stepper.lowered.polls),
    ]
}

/// Makes a million steps in a debug build, twenty million in a release build. Whenever something
/// leaves the yield queue, checks that every other queue is empty.
#[test]
fn invariants_hold_after_every_step() {
    // Few workers make the narrow races likely, many the wide ones.
    let seeds = if cfg!(debug_assertions) { 1 } else { 20 };
    let mut totals = [("", 0); 5];
    for (cores, runs) in [(1, 4), (2, 20), (3, 20), (8, 6), (64, 2)] {
        for seed in 0..runs * seeds {
            let counts = run(cores, seed, 20_000);
            totals
                .iter_mut()
                .zip(counts)
                .for_each(|(total, (what, count))| *total = (what, total.1 + count));
        }
    }
    // The test proves something only if these happen.
    assert!(totals.iter().all(|&(_, total)| total > 500), "{totals:?}");
}
