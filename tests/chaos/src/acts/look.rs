//! Metrics and dumps of a runtime while the actors act.

use crate::actor::Actor;
use crate::failure::ensure;

/// Takes metrics and a dump of this runtime and of the one around it, from this task, an outsider
/// or a blocking job.
pub(crate) async fn look(actor: &mut Actor) {
    let world = actor.world.clone();
    let look = move || {
        for world in [Some(&world), world.parent.as_ref()].into_iter().flatten() {
            let Some(handle) = world.try_handle() else { continue };
            let (metrics, dump) = (handle.metrics(), handle.dump());
            ensure!(
                metrics.monitor_rescues == 0,
                "wake-ups were lost in {}\n{metrics}",
                world.name()
            );
            ensure!(metrics.hand_offs() <= metrics.polls(), "more hand-offs than polls\n{metrics}");
            ensure!(dump.to_string().contains("task"), "a dump that says nothing");
            ensure!(metrics.to_string().contains("polls"), "figures that say nothing");
        }
    };
    match actor.random.below(3) {
        0 => look(),
        1 => actor.world.outsiders.clone().run(&mut actor.random, look),
        _ => _ = giveway::spawn_blocking(look).await,
    }
}
