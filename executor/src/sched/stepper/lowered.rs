//! Lowered threads, which the kernel may stop between any two of their steps, and for any length of
//! time.
//!
//! They hold no core: what a poll there wakes or spawns is pushed as from any thread outside, and
//! announced later. Which tasks they get follows from the spawn location, as in
//! `Worker::poll_background`: when a worker has chosen a task of a place that is known to overrun,
//! the task goes to them.

use super::books::Place;
use super::{Push, Stepper, Task};
use std::collections::VecDeque;

/// How many spawn locations there are.
pub(super) const SITES: usize = 3;

/// The threads, their queue, and what is known of the places that tasks come from.
pub(super) struct Lowered {
    queue: VecDeque<Box<Task>>,
    threads: Vec<Thread>,
    /// For each spawn location, whether polls of tasks from there overrun.
    pub(super) long: [bool; SITES],
    pub(super) polls: usize,
}

/// What a lowered thread is about to do.
enum Thread {
    /// Waits for a task.
    Waits,
    Polls(Box<Task>),
    /// Has pushed something, and not announced it yet.
    Owes(Option<Box<Task>>, Push),
}

impl Lowered {
    pub(super) fn new(threads: usize) -> Self {
        let threads = (0..threads).map(|_| Thread::Waits).collect();
        Self { queue: VecDeque::new(), threads, long: [false; SITES], polls: 0 }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns whether a thread has yet to announce what it pushed.
    pub(super) fn owes(&self) -> bool {
        self.threads.iter().any(|thread| matches!(thread, Thread::Owes(..)))
    }

    /// Queues a task that the books have here.
    pub(super) fn push(&mut self, task: Box<Task>) {
        self.queue.push_back(task);
    }
}

impl Stepper {
    /// Returns whether tasks like this one are left to lowered threads.
    pub(super) fn is_lowered(&self, task: &Task) -> bool {
        task.background && self.lowered.long[task.site]
    }

    /// Makes one step of a lowered thread. Returns false if it has nothing to do.
    pub(super) fn step_lowered(&mut self, index: usize) -> bool {
        self.now += 1;
        let thread = std::mem::replace(&mut self.lowered.threads[index], Thread::Waits);
        let next = match thread {
            Thread::Waits => {
                let Some(task) = self.lowered.queue.pop_front() else { return false };
                self.books.moves(
                    task.id,
                    |from| from == Place::Lowered,
                    Place::RunningLowered(index),
                );
                self.lowered.polls += 1;
                Thread::Polls(task)
            }
            Thread::Polls(task) => self.step_lowered_poll(index, task),
            Thread::Owes(task, push) => {
                self.announce(push);
                task.map_or(Thread::Waits, Thread::Polls)
            }
        };
        self.lowered.threads[index] = next;
        true
    }

    fn step_lowered_poll(&mut self, index: usize, task: Box<Task>) -> Thread {
        let weather = self.weather;
        let dice = self.rng.u32(..100);
        if dice < weather.spawn {
            let child = self.new_task(Place::Queued { waiting: true });
            let push = self.push_from_outside(child);
            Thread::Owes(Some(task), push)
        } else if dice < weather.spawn + weather.yields {
            let from = |from| from == Place::RunningLowered(index);
            if self.is_lowered(&task) {
                self.books.moves(task.id, from, Place::Lowered);
                self.lowered.push(task);
                return Thread::Waits;
            }
            // Its place is forgiven by now: the task goes back to the workers.
            self.books.moves(task.id, from, Place::Queued { waiting: true });
            let push = self.push_from_outside(task);
            Thread::Owes(None, push)
        } else if dice < weather.spawn + weather.yields + weather.end {
            assert_eq!(self.books.remove(task.id), Some(Place::RunningLowered(index)));
            Thread::Waits
        } else {
            Thread::Polls(task)
        }
    }
}
