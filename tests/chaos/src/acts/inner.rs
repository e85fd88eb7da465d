//! Runtimes inside of a runtime.

use crate::actor::Actor;
use crate::episode;
use crate::failure::ensure;

/// The greatest depth at which a runtime is started inside of others.
const DEEPEST: u32 = 2;

/// Runs an episode with a runtime of its own: in a poll, in `block_in_place`, in a blocking job, or
/// on a new thread.
pub(crate) async fn inner(actor: &mut Actor) {
    if actor.world.depth >= DEEPEST {
        return;
    }
    let (parent, random) = (actor.world.clone(), actor.random.child());
    let number = actor.random.below(1_000_000);
    let name = format!("{}/{number}", parent.name());
    let run = move || episode::run_inside(parent, name, random);
    match actor.random.below(4) {
        0 => run(),
        1 => giveway::block_in_place(run),
        2 => {
            let result = giveway::spawn_blocking(run).await;
            ensure!(result.is_ok() || actor.world.closes(), "an episode in a job: {result:?}");
        }
        _ => {
            let thread = std::thread::spawn(run);
            let joined = giveway::spawn_blocking(move || thread.join().is_ok()).await;
            ensure!(
                matches!(joined, Ok(true)) || actor.world.closes(),
                "an episode on a thread: {joined:?}"
            );
        }
    }
}
