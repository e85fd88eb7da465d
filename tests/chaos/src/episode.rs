//! An episode: the life of one runtime, from its start to the checks after its end.

use crate::actor::{Actor, Started, with_ticket};
use crate::failure::{Told, ensure, fail};
use crate::ledger::Fate;
use crate::options::Options;
use crate::outsiders::Outsiders;
use crate::random::Random;
use crate::roll_call::{RollCall, threads_of};
use crate::world::{PAST_RUNS, PAST_TASKS, World};
use giveway::{Builder, PanicPolicy, Runtime, block_in_place};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// How a runtime ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Drop,
    Timeout,
    Background,
    OnThread,
    InOwnTask,
    InOwnPinned,
    InOwnJob,
    InOwnDestructor,
    InParentTask,
    OnOutsider,
}

const ENDINGS: [Ending; 10] = [
    Ending::Drop,
    Ending::Timeout,
    Ending::Background,
    Ending::OnThread,
    Ending::InOwnTask,
    Ending::InOwnPinned,
    Ending::InOwnJob,
    Ending::InOwnDestructor,
    Ending::InParentTask,
    Ending::OnOutsider,
];

/// Runs one episode after another until `end`.
pub(crate) fn run_until(
    end: Instant,
    thread: usize,
    options: &Options,
    outsiders: &Outsiders,
    roll_call: &RollCall,
) {
    let mut number = 0;
    while Instant::now() < end {
        match options.episode {
            Some((only, _)) if only != thread => break,
            Some((_, only)) => number = only,
            None => {}
        }
        let random = Random::of(&[options.seed, thread as u64, number]);
        let world = World::new(format!("{thread}.{number}"), None, outsiders.clone());
        run(&world, random, options.workers);
        drop(world);
        number += 1;
        roll_call.answer(outsiders);
    }
    roll_call.leave();
}

/// Runs an episode inside of the runtime `parent`.
pub(crate) fn run_inside(parent: Arc<World>, name: String, random: Random) {
    let outsiders = parent.outsiders.clone();
    run(&World::new(name, Some(parent), outsiders), random, 4);
}

fn run(world: &Arc<World>, mut random: Random, most_workers: usize) {
    let hooks = Arc::new(AtomicI64::new(0));
    let runtime = match builder(world, &mut random, most_workers, &hooks).build() {
        Ok(runtime) => runtime,
        Err(error) => fail(&format!("the runtime of {} does not start: {error}", world.name())),
    };
    world.set_handle(runtime.handle().clone());
    let ending = random.pick(&ENDINGS);
    let abrupt = random.once_in(2);
    let mut actors = start_actors(world, &runtime, &mut random);
    let own = Actor::new(world, 0, random.child());
    let own_acts = random.below(if world.depth == 0 { 40 } else { 4 });
    if abrupt {
        world.expect_the_end();
        // Waits for a random number of ticks, and ends the runtime whatever the actors do then.
        let ticks = random.below(if world.depth == 0 { 4_000 } else { 40 });
        world.enter("waits for the middle");
        wait_until(|| {
            world.ticks() > ticks || actors.iter().all(|actor| actor.handle.is_finished())
        });
        if random.once_in(2) {
            actors.truncate(actors.len() / 2);
        }
    } else {
        world.enter("waits for its actors");
        // This thread performs acts as well, in the future of `block_on`.
        runtime.block_on(own.play(own_acts));
        for actor in actors.drain(..) {
            runtime.block_on(actor.join());
        }
        world.enter("waits for tasks without a handle");
        wait_until(|| world.ledger.balances());
    }
    world.close();
    world.enter("ends");
    end(world, runtime, ending, &mut random, abrupt);
    // The handles of these actors have outlived the runtime.
    for actor in actors {
        if random.once_in(2) {
            block_in_place(|| futures::executor::block_on(actor.join()));
        }
    }
    check(world, ending, abrupt, &hooks);
}

fn builder(
    world: &Arc<World>,
    random: &mut Random,
    most_workers: usize,
    hooks: &Arc<AtomicI64>,
) -> Builder {
    let workers = random.pick(&[1, 1, 2, 2, 2, 3, 4, 8]).min(most_workers);
    let (starts, stops) = (hooks.clone(), hooks.clone());
    let mut builder = Builder::new()
        .workers(workers)
        .thread_name(format!("w{}", world.number))
        .max_spare_workers(random.pick(&[0, 1, workers, workers, 8]))
        .preempt_background(!random.once_in(6))
        .max_blocking_threads(random.pick(&[1, 2, 4, 32]))
        .blocking_keep_alive(Duration::from_millis(random.pick(&[1, 20, 500])))
        .on_thread_start(move || _ = starts.fetch_add(1, SeqCst))
        .on_thread_stop(move || _ = stops.fetch_sub(1, SeqCst))
        // Discards reports: polls are long on purpose.
        .on_long_poll(|_| ());
    if random.once_in(3) {
        builder =
            builder.wide_look_interval(random.pick(&[Duration::ZERO, Duration::from_secs(3_600)]));
    }
    if random.once_in(3) {
        builder = builder.yield_patience(Duration::from_micros(random.pick(&[0, 50, 5_000])));
    }
    if random.once_in(3) {
        let (number, world) = (random.next(), Arc::downgrade(world));
        builder = builder.on_task_panic(move |_| -> PanicPolicy {
            match number % 4 {
                0 => std::panic::resume_unwind(Box::new(Told(number))),
                // Shuts down only in an abrupt episode: in others every actor is awaited.
                1 => world.upgrade().map_or(PanicPolicy::Continue, |world| world.after_a_panic()),
                _ => PanicPolicy::Continue,
            }
        });
    }
    builder
}

fn start_actors(world: &Arc<World>, runtime: &Runtime, random: &mut Random) -> Vec<Started> {
    let mut director = Actor::new(world, 1, random.child());
    let (most, acts) = if world.depth == 0 { (15, 300) } else { (3, 12) };
    let count = 1 + random.small(most);
    (0..count)
        .map(|number| {
            let acts = 1 + random.below(acts);
            let actor = Actor::new(world, 2 + number as u64, random.child());
            let (ticket, expected) = director.ticket(Fate::Finishes);
            let task = with_ticket(ticket, actor.play(acts));
            let handle = if random.once_in(4) {
                runtime.spawn_background(task)
            } else {
                runtime.spawn(task)
            };
            Started { handle, expected }
        })
        .collect()
}

/// Waits until `happened`. On a worker of an outer runtime it blocks in place, so that another
/// thread can run that worker's tasks. The watch notices if it never happens.
fn wait_until(happened: impl Fn() -> bool) {
    block_in_place(|| {
        let mut pause = Duration::from_micros(20);
        while !happened() {
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    });
}

fn end(world: &Arc<World>, runtime: Runtime, ending: Ending, random: &mut Random, abrupt: bool) {
    let handle = runtime.handle().clone();
    match ending {
        Ending::Drop => block_in_place(|| drop(runtime)),
        Ending::Timeout => {
            let time = if abrupt {
                Duration::from_micros(random.below(3_000))
            } else {
                Duration::from_secs(3_600)
            };
            let report = block_in_place(|| runtime.shutdown_timeout(time));
            ensure!(
                abrupt || report.is_clean(),
                "{} had nothing to do, and does not end: {report}",
                world.name()
            );
        }
        Ending::Background => runtime.shutdown_background(),
        Ending::OnThread => {
            let thread = thread::spawn(move || drop(runtime));
            wait_until(|| thread.is_finished());
        }
        Ending::InOwnTask => drop(handle.spawn(async move { drop(runtime) })),
        Ending::InOwnPinned => drop(handle.spawn_pinned(move || async move { drop(runtime) })),
        Ending::InOwnJob => drop(handle.spawn_blocking(move || drop(runtime))),
        Ending::InOwnDestructor => {
            let holds = handle.spawn(async move {
                let _runtime = runtime;
                pending::<()>().await;
            });
            holds.abort();
        }
        Ending::InParentTask => match &world.parent {
            // In place, so that the parent's other tasks go on: the drop may wait for one of them.
            Some(parent) => {
                drop(parent.handle().spawn(async move { block_in_place(|| drop(runtime)) }))
            }
            None => block_in_place(|| drop(runtime)),
        },
        // Without waiting: what the shutdown would wait for may wait for that outsider.
        Ending::OnOutsider => world.outsiders.run(random, move || runtime.shutdown_background()),
    }
}

/// Waits until the runtime is gone, and checks that nothing of it is left.
fn check(world: &Arc<World>, ending: Ending, abrupt: bool, hooks: &AtomicI64) {
    world.enter("waits for its last task");
    wait_until(|| world.ledger.balances());
    world.enter("waits for its threads");
    // The hooks must balance too: a thread that has just started has no name yet, so `threads_of`
    // does not count it.
    wait_until(|| threads_of(world.number) == 0 && hooks.load(SeqCst) == 0);
    world.enter("is gone");
    let metrics = world.handle().metrics();
    let how = format!(
        "{}, {ending:?}, {}",
        world.name(),
        if abrupt { "in the middle" } else { "at rest" }
    );
    ensure!(
        world.ledger.balances(),
        "{how}: a task came to life after the end: {}",
        world.ledger.describe()
    );
    ensure!(metrics.monitor_rescues == 0, "{how}: wake-ups were lost\n{metrics}");
    let late = futures::executor::block_on(world.handle().spawn(async {}));
    ensure!(late.is_err_and(|error| error.is_cancelled()), "{how}: a task ran after the end");
    PAST_RUNS.fetch_add(metrics.polls(), SeqCst);
    PAST_TASKS.fetch_add(world.ledger.started(), SeqCst);
}
