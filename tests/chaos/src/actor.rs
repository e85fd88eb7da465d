//! An actor: a task that performs one act after another, chosen by its own random numbers.

use crate::acts::{ACTS, TOTAL_WEIGHT};
use crate::ledger::{Expected, Fate, Receipt, Ticket};
use crate::random::Random;
use crate::world::{Doing, World, lock};
use giveway::task::{Builder, Class, JoinHandle};
use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often each act of [`ACTS`] was performed.
pub(crate) static MADE: [AtomicU64; ACTS.len()] = [const { AtomicU64::new(0) }; ACTS.len()];

/// A task that was started, and what its handle is expected to report.
pub(crate) struct Started {
    pub(crate) handle: JoinHandle<Receipt>,
    pub(crate) expected: Expected,
}

impl Started {
    /// Aborts the task.
    pub(crate) fn abort(&mut self) {
        self.expected.aborted = true;
        self.handle.abort();
    }

    /// Waits for the task, and checks its result. Returns false if the task ended because its
    /// runtime did.
    pub(crate) async fn join(self) -> bool {
        let result = self.handle.await;
        self.expected.check(result)
    }
}

/// A task that performs acts.
pub(crate) struct Actor {
    pub(crate) world: Arc<World>,
    pub(crate) random: Random,
    number: u64,
    /// How many tasks the actor has started.
    tasks: u64,
    doing: Arc<Doing>,
}

impl Actor {
    pub(crate) fn new(world: &Arc<World>, number: u64, random: Random) -> Self {
        Self { world: world.clone(), random, number, tasks: 0, doing: world.register(number) }
    }

    /// Performs `acts` acts, or fewer if the runtime closes.
    pub(crate) async fn play(mut self, acts: u64) {
        for _ in 0..acts {
            if self.world.closes() {
                return;
            }
            let index = self.choose();
            *lock(&self.doing) = ACTS[index].name;
            (ACTS[index].make)(&mut self).await;
            MADE[index].fetch_add(1, Relaxed);
            self.world.tick();
        }
        *lock(&self.doing) = "done";
    }

    fn choose(&mut self) -> usize {
        let mut left = self.random.below(TOTAL_WEIGHT);
        let chosen = ACTS.iter().position(|act| {
            let this = left < act.weight;
            left = left.saturating_sub(act.weight);
            this
        });
        chosen.expect("the weights add up")
    }

    /// Makes the ledger's entry for a new task.
    pub(crate) fn ticket(&mut self, fate: Fate) -> (Ticket, Expected) {
        self.tasks += 1;
        let number = self.number << 32 | self.tasks;
        let expected = Expected { world: self.world.clone(), number, fate, aborted: false };
        (Ticket::new(&self.world, number, fate), expected)
    }

    /// Starts a task that ends as `fate` says, in one of the ways to spawn.
    pub(crate) fn start(
        &mut self,
        fate: Fate,
        body: impl Future<Output = ()> + Send + 'static,
    ) -> Started {
        let (ticket, expected) = self.ticket(fate);
        let task = with_ticket(ticket, body);
        let handle = match self.random.below(64) {
            ..8 => giveway::spawn_background(task),
            8..16 => self.world.handle().spawn(task),
            16..24 => self.world.handle().spawn_background(task),
            24..32 => Builder::new().name("named").spawn(task),
            32..40 => Builder::new().class(Class::Foreground).spawn_on(task, self.world.handle()),
            // Rare, because each poll costs a context switch or two.
            40 => Builder::new().preemptible(true).spawn(task),
            41 => {
                Builder::new().preemptible(true).name("named").spawn_on(task, self.world.handle())
            }
            _ => giveway::spawn(task),
        };
        Started { handle, expected }
    }
}

/// Runs `body`, then ends as the ticket says.
pub(crate) async fn with_ticket(ticket: Ticket, body: impl Future<Output = ()>) -> Receipt {
    body.await;
    match ticket.fate() {
        Fate::Finishes | Fate::FinishesWithBomb => ticket.finish(),
        Fate::Panics => ticket.panic(),
        Fate::Held | Fate::HeldWithBomb => {
            let _held = ticket;
            pending().await
        }
    }
}
