//! What a worker runs next: the order of the contract, as a state machine.
//!
//! A [`Finder`] is where one worker is in its search for the next task. Each call of
//! [`Scheduler::step`] makes one step of the order and says what the caller does about it. The
//! steps that need a thread, a clock or a file descriptor (a look at the reactor, a pause, a sleep)
//! are left to the caller, so the workers, their end (`worker/end.rs`) and the stepper all follow
//! this file.
//!
//! The order, by its names in `docs/architecture.md`:
//!
//! ```text
//! Own ──▶ Injector ──▶ Reactor ──▶ Pinned ──▶ Resume ──▶ Steal ──▶ Resume ──▶ Sleep
//!  1,2        3            4          2           6        5         6           7
//!
//! Steal: four rounds, or one if a pause between them does not pay. Each looks at the other cores,
//! the injector and the reactor. Pinned: one that has given way lets the steps before it go first.
//! ```
//!
//! The yield queue (6) comes before the search (5): it gives nothing while anything else is queued,
//! so that costs a search nothing. It comes once more after the search, which may have been refused.
//!
//! If a look at the reactor wakes anything, steps 1 to 3 are made once more, and then the order goes
//! on where it was: so each search ends, however much there is at the reactor for others.

use super::{Entry, Local, PointerSized, SEARCH_ROUNDS, Scheduler, Source};

/// What a worker does next.
#[must_use = "a step that is dropped loses a task or a wake-up"]
pub(crate) enum Step<T> {
    /// Asks for the next step.
    GoOn,
    /// Ends its search, if it searches (`Scheduler::end_search`), and runs this task.
    Run(T, Source),
    /// Unparks the worker, if one is named. Then it runs the task as for `Run`; or, if the entry is
    /// a thread in `block_on`, wakes that and asks for the next step.
    Yielded(Entry<T>, Source, Option<usize>),
    /// Gives the threads that push to the injector a moment to push more.
    Gather,
    /// Looks at the reactor, if a look may find something. If anything was woken, tells the finder
    /// ([`Finder::woke`]).
    Look,
    /// Stays awake for a moment, because work that comes now needs no system call to be noticed.
    Linger,
    /// Sleeps until it is woken.
    Sleep,
}

/// Where a worker is in its search for the next task.
#[derive(Debug)]
pub(crate) struct Finder {
    stage: Stage,
    /// Where the order goes on after steps 1 to 3, if a look at the reactor has woken something and
    /// they are made once more.
    after_look: Option<Stage>,
    /// Whether tasks are looked for to be dropped, because the runtime closes.
    closing: bool,
}

/// The next step.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Own,
    Gather,
    Injector,
    Reactor,
    Pinned,
    /// Step 6. `searched_all`: after the search.
    Resume {
        searched_all: bool,
    },
    /// The second half of step 6, after the worker has stopped to search, if it did. `was_last`:
    /// no worker searched any more then.
    Resuming {
        searched_all: bool,
        searched: bool,
        was_last: bool,
    },
    StartSearch,
    Steal(Rounds),
    SearchReactor(Rounds),
    Linger(Rounds),
    /// While the runtime closes: what other cores have, slots included, and the yield queue.
    Elsewhere,
    Sleep,
}

/// The rounds of a search.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    first: usize,
    this: usize,
}

impl Finder {
    /// Begins a search for the next task.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Own, after_look: None, closing: false }
    }

    /// Begins a search for a task to drop, while the runtime closes. It finds what can be reached
    /// from this core, and asks for no look at the reactor and no pause.
    pub(crate) fn closing() -> Self {
        Self { stage: Stage::Own, after_look: None, closing: true }
    }

    /// Makes steps 1 to 3 once more, because the look at the reactor has woken something.
    pub(crate) fn woke(&mut self) {
        self.after_look = Some(std::mem::replace(&mut self.stage, Stage::Own));
    }

    /// Notes that a task was found. If that was after a pause, the pause has paid.
    #[inline(always)]
    fn found<T>(&self, core: &Local<T>) {
        if let Some(Stage::Linger(rounds)) = self.after_look {
            rounds.pay(core);
        }
    }

    /// Returns whether the worker is in the middle of step 6, in which it may have stopped to
    /// search and not looked yet.
    #[cfg(all(test, not(giveway_loom)))]
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self.stage, Stage::Resume { .. } | Stage::Resuming { .. })
    }

    /// Returns whether the search of the other cores is still to come.
    #[cfg(all(test, not(giveway_loom)))]
    pub(super) fn is_before_search(&self) -> bool {
        use Stage::{Gather, Injector, Own, Pinned, Reactor, StartSearch};
        self.after_look.is_none_or(|stage| matches!(stage, Pinned))
            && matches!(self.stage, Own | Gather | Injector | Reactor | Pinned | StartSearch)
    }
}

impl Rounds {
    /// Begins the rounds of a search.
    ///
    /// Without a pause between them several rounds are as good as one: the last, which looks at
    /// slots too.
    fn begin<T>(core: &Local<T>) -> Self {
        let first = if core.linger().pays() { 0 } else { SEARCH_ROUNDS - 1 };
        Self { first, this: first }
    }

    /// Notes that work came in a round that was made after a pause.
    fn pay<T>(self, core: &Local<T>) {
        if self.this > self.first {
            core.linger().paid();
        }
    }
}

impl<T: PointerSized> Scheduler<T> {
    /// Makes one step. `now` tells the time in nanoseconds, and is called if something waits in the
    /// injector or may be overdue.
    #[inline(always)]
    pub(crate) fn step(
        &self,
        core: &Local<T>,
        finder: &mut Finder,
        now: impl Fn() -> u64,
    ) -> Step<T> {
        if matches!(finder.stage, Stage::Own) {
            // Most tasks are found here, so this is a part of the worker's loop.
            self.step_own(core, finder, now)
        } else {
            self.step_beyond(core, finder)
        }
    }

    /// Takes what is overdue, or what is queued on this core.
    #[inline(always)]
    fn step_own(&self, core: &Local<T>, finder: &mut Finder, now: impl Fn() -> u64) -> Step<T> {
        if !finder.closing
            && let Some(overdue) = self.take_overdue(core, &now)
        {
            return Step::Yielded(overdue, Source::Overdue, None);
        }
        match self.next_local(core, now) {
            Some((task, source)) => {
                finder.found(core);
                Step::Run(task, source)
            }
            None => {
                finder.stage = Stage::Gather;
                Step::GoOn
            }
        }
    }

    #[inline(never)]
    fn step_beyond(&self, core: &Local<T>, finder: &mut Finder) -> Step<T> {
        let (next, step) = match finder.stage {
            Stage::Own => unreachable!("a step of its own"),
            Stage::Gather => {
                let gathers = core.take_poor_visit() && self.yielded.is_empty() && !finder.closing;
                (Stage::Injector, if gathers { Step::Gather } else { Step::GoOn })
            }
            Stage::Injector => {
                let found = self.take_injected(core);
                if found.is_some() {
                    finder.found(core);
                }
                let next = if finder.closing { Stage::Pinned } else { Stage::Reactor };
                (finder.after_look.take().unwrap_or(next), run(found))
            }
            Stage::Reactor => (Stage::Pinned, Step::Look),
            Stage::Pinned => {
                let searches = Stage::Resume { searched_all: false };
                let next = if finder.closing { Stage::Elsewhere } else { searches };
                match self.next_before_pinned(core) {
                    Some((task, source)) => (next, Step::Run(task, source)),
                    None => (next, Step::GoOn),
                }
            }
            Stage::Resume { searched_all } => (self.begin_resume(core, searched_all), Step::GoOn),
            Stage::Resuming { searched_all, searched, was_last } => {
                self.step_resume(core, searched_all, searched, was_last)
            }
            Stage::StartSearch => {
                core.set_searching(core.is_searching() || self.idle.try_start_search());
                let next = if core.is_searching() {
                    Stage::Steal(Rounds::begin(core))
                } else {
                    // Enough others search.
                    Stage::Resume { searched_all: true }
                };
                (next, Step::GoOn)
            }
            Stage::Steal(rounds) => {
                let found =
                    self.steal(core, rounds.this, false).or_else(|| self.take_injected(core));
                if found.is_some() {
                    rounds.pay(core);
                }
                (Stage::SearchReactor(rounds), run(found))
            }
            Stage::SearchReactor(rounds) => (Stage::Linger(rounds), Step::Look),
            Stage::Linger(rounds) => {
                let next = if rounds.this + 1 < SEARCH_ROUNDS {
                    Stage::Steal(Rounds { this: rounds.this + 1, ..rounds })
                } else {
                    Stage::Resume { searched_all: true }
                };
                // While something can be resumed, waiting for something better is of no use.
                let lingers = self.yielded.is_empty() && core.linger().pays();
                (next, if lingers { Step::Linger } else { Step::GoOn })
            }
            Stage::Elsewhere => {
                let stolen = self.steal(core, SEARCH_ROUNDS - 1, true);
                (Stage::Sleep, run(stolen.or_else(|| self.take_global())))
            }
            Stage::Sleep => (Stage::Sleep, Step::Sleep),
        };
        finder.stage = next;
        step
    }

    /// Makes the first half of step 6, R1 of `yielding/yielding.md`. Returns the next stage.
    fn begin_resume(&self, core: &Local<T>, searched_all: bool) -> Stage {
        if !self.may_resume(core) {
            return after_resume(searched_all);
        }
        // R1. The search ends before the look. A push that sees a searcher interrupts no core, so a
        // searcher that has looked already would run on beside it (race "the resuming searcher").
        let searched = core.set_searching(false);
        let was_last = searched && self.idle.stop_search();
        Stage::Resuming { searched_all, searched, was_last }
    }

    /// Makes the second half of step 6, R2 to R4.
    fn step_resume(
        &self,
        core: &Local<T>,
        searched_all: bool,
        searched: bool,
        was_last: bool,
    ) -> (Stage, Step<T>) {
        // R2 and R3. Arms the core, and looks whether work waits.
        let Some(entry) = self.resume(core) else {
            if searched {
                // Work waits: search again. If this is refused, others search, and find it.
                core.set_searching(self.idle.try_start_search());
            }
            return (after_resume(searched_all), Step::GoOn);
        };
        // R4. No worker searches any more. If one is idle and more is queued, it takes the place of
        // this one.
        let woken = if was_last { self.idle.wake_for_more(|| self.queued()) } else { None };
        (Stage::Resume { searched_all }, Step::Yielded(entry, Source::Yielded, woken))
    }

    /// Ends the search of a worker that has found work. Returns `None` if it does not search.
    /// Otherwise the caller unparks the worker that is named, if one is.
    #[inline]
    pub(crate) fn end_search(&self, core: &Local<T>) -> Option<Option<usize>> {
        core.set_searching(false).then(|| self.found_work())
    }
}

fn run<T>(found: Option<T>) -> Step<T> {
    found.map_or(Step::GoOn, |task| Step::Run(task, Source::Queue))
}

fn after_resume(searched_all: bool) -> Stage {
    if searched_all { Stage::Sleep } else { Stage::StartSearch }
}
