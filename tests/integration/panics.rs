//! Panics in user code: in polls, in destructors, in hooks. Workers survive them all.

use giveway::{Builder, PanicPolicy, Runtime};
use giveway_tests::{
    Alive, Gate, Wakers, drain, each_runtime, eventually, hold, in_child, isolated, message,
    on_drop, panic_of, recv, watch, with_runtimes,
};
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

/// Panics when it is dropped, with a payload that panics when it is dropped in turn. The number
/// says how often.
struct Bomb(u32, #[expect(dead_code, reason = "counts the bombs that are alive")] Alive);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Bomb(self.0 - 1, Alive::default()));
        }
    }
}

fn bomb(alive: &Alive) -> Bomb {
    Bomb(1, alive.clone())
}

/// Asserts that every worker of the runtime still takes tasks.
#[track_caller]
fn assert_workers_survive(runtime: &Runtime) {
    let workers = runtime.handle().workers();
    let (met, gate) = (Arc::new(AtomicUsize::new(0)), Gate::new());
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (met, gate) = (met.clone(), gate.clone());
            // All of them run at once: each keeps its worker until every worker has one.
            runtime.spawn(async move {
                if met.fetch_add(1, Relaxed) + 1 == workers {
                    gate.open();
                }
                gate.wait();
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("the workers are all there"));
}

#[test]
fn a_panic_in_a_poll_goes_to_the_handle_with_its_payload() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(async { panic!("no {}", "bread") });
        let id = task.id();
        let error = runtime.block_on::<giveway::task::JoinHandle<()>>(task).unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled());
        let text = error.to_string();
        assert!(text.starts_with(&format!("task {id}, spawned at {}:", file!())), "{text}");
        assert!(text.ends_with("panicked with message \"no bread\""), "{text}");
        assert!(format!("{error:?}").contains("no bread"));
        assert_eq!(message(&*error.into_panic()), "no bread");

        let error = runtime.block_on(runtime.spawn(async { panic_any(17_u8) })).unwrap_err();
        assert!(error.to_string().ends_with(", panicked"), "{error}");
        assert_eq!(error.try_into_panic().unwrap().downcast_ref::<u8>(), Some(&17));

        let error = runtime.block_on(runtime.spawn(async { panic!("as io") })).unwrap_err();
        let error = std::io::Error::from(error);
        assert!(error.to_string().contains("as io"));
        assert_workers_survive(runtime);
    });
}

#[test]
fn asking_a_cancelled_error_for_its_panic_panics() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(hold(()));
        task.abort();
        let error = runtime.block_on(task).unwrap_err();
        assert!(panic_of(|| error.into_panic()).contains("was aborted, and has no panic"));
    });
}

#[test]
fn a_panic_after_waiting_and_in_a_detached_task_is_contained() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        let held = alive.clone();
        let task = runtime.spawn(async move {
            let _held = held;
            giveway::yield_now().await;
            panic!("after waiting");
        });
        assert!(runtime.block_on::<giveway::task::JoinHandle<()>>(task).unwrap_err().is_panic());
        let held = alive.clone();
        runtime.spawn(async move {
            let _held = held;
            panic!("detached");
        });
        eventually(|| Arc::strong_count(&alive) == 1);
        assert_workers_survive(runtime);
    });
}

/// Covers each moment at which a future's destructor may panic, and what the handle reports then.
#[test]
fn a_panic_in_the_futures_destructor_is_contained() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        // After it was ready: the output is lost, and the panic is reported.
        let (held, output) = (bomb(&alive), alive.clone());
        let ready = runtime.spawn(std::future::poll_fn(move |_| {
            let _part_of_the_future = &held;
            std::task::Poll::Ready(output.clone())
        }));
        assert!(runtime.block_on(ready).unwrap_err().is_panic());
        // When it was aborted.
        let wakers = Wakers::default();
        let aborted = runtime.spawn(wakers.park(bomb(&alive)));
        eventually(|| wakers.len() == 1);
        aborted.abort();
        assert!(runtime.block_on(aborted).unwrap_err().is_panic());
        // While another panic unwinds: the handle has that one, which is the cause.
        let held = bomb(&alive);
        let twice = runtime.spawn(std::future::poll_fn(move |_| -> std::task::Poll<()> {
            let _part_of_the_future = &held;
            panic!("first");
        }));
        assert_eq!(message(&*runtime.block_on(twice).unwrap_err().into_panic()), "first");
        assert_eq!(Arc::strong_count(&alive), 1, "nothing leaks");
        assert_workers_survive(runtime);
    });
}

#[test]
fn a_panic_in_a_destructor_at_shutdown_is_contained() {
    each_runtime(1, |runtime| {
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let tasks: Vec<_> = (0..20).map(|_| runtime.spawn(wakers.park(bomb(&alive)))).collect();
        eventually(|| wakers.len() == 20);
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
        tasks.into_iter().for_each(|task| {
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled())
        });
    });
}

/// tokio 4412 and the leak it caused, tokio 3967: a panic while dropping the output.
#[test]
fn a_panic_in_the_outputs_destructor_is_contained_and_leaks_nothing() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        // Detached before it ends: the worker drops the output.
        let (gate, held) = (Gate::new(), alive.clone());
        let go = gate.clone();
        drop(runtime.spawn(async move {
            go.wait();
            bomb(&held)
        }));
        gate.open();
        eventually(|| Arc::strong_count(&alive) == 1);
        // Detached after it ended: the thread that drops the handle drops the output. Whether that
        // or the worker drops it is not known beforehand, so the destructor's panic is contained
        // here too.
        let held = alive.clone();
        let task = runtime.spawn(async move { bomb(&held) });
        eventually(|| task.is_finished());
        drop(task);
        assert_eq!(Arc::strong_count(&alive), 1);
        // Aborted and detached after it ended.
        let held = alive.clone();
        let task = runtime.spawn(async move { bomb(&held) });
        eventually(|| task.is_finished());
        task.abort();
        let abort = task.abort_handle();
        drop(task);
        assert_eq!(Arc::strong_count(&alive), 1, "an abort handle does not keep the output");
        drop(abort);
        assert_workers_survive(runtime);
    });
}

#[test]
fn a_panic_payload_whose_destructor_panics_is_contained() {
    with_runtimes(|runtime| {
        let alive = Alive::default();
        for depth in 1..4 {
            let held = alive.clone();
            // Detached, so that the runtime drops the payload.
            runtime.spawn(async move { panic_any(Bomb(depth, held)) });
        }
        eventually(|| Arc::strong_count(&alive) == 1);
        let held = alive.clone();
        let error =
            runtime.block_on(runtime.spawn(async move { panic_any(Bomb(0, held)) })).unwrap_err();
        assert!(error.is_panic());
        drop(error);
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_workers_survive(runtime);
    });
}

/// tokio 5177: an invalid nested `block_on` left broken state when it unwound. Here such a call is
/// valid, and may unwind too.
#[test]
fn a_nested_block_on_that_panics_leaves_the_worker_intact() {
    with_runtimes(|runtime| {
        let other = giveway_tests::runtime(1);
        let other_handle = other.handle().clone();
        let task = runtime.spawn(async move {
            let messages = [
                panic_of(|| giveway::block_on(async { panic!("first") })),
                panic_of(|| giveway::Handle::current().block_on(async { panic!("second") })),
                panic_of(|| other_handle.block_on(async { panic!("third") })),
            ];
            // The worker's context is as before.
            let id = giveway::task::try_id();
            let child = giveway::spawn(async { giveway::Handle::try_current().is_some() }).await;
            (messages, id, child.unwrap())
        });
        let id = task.id();
        let (messages, id_after, child) = runtime.block_on(task).unwrap();
        assert_eq!(messages, ["first", "second", "third"]);
        assert_eq!(id_after, Some(id));
        assert!(child);
        assert_workers_survive(runtime);
    });
}

fn with_policy(workers: usize, policy: PanicPolicy) -> (Runtime, mpsc::Receiver<String>) {
    let (sent, calls) = mpsc::channel();
    let hook = move |panic: &giveway::TaskPanic<'_>| {
        let text = format!(
            "{:?} {} {}",
            panic.name(),
            panic.spawned_at().file(),
            message(panic.payload())
        );
        sent.send(text).unwrap();
        policy
    };
    (
        Builder::new().workers(workers).max_spare_workers(0).on_task_panic(hook).build().unwrap(),
        calls,
    )
}

#[test]
fn the_panic_hook_is_told_and_may_go_on() {
    for workers in giveway_tests::worker_counts() {
        let _watch = watch();
        let (runtime, calls) = with_policy(workers, PanicPolicy::Continue);
        let future = async { panic!("no bread") };
        let task = giveway::task::Builder::new().name("baker").spawn_on(future, runtime.handle());
        let error = runtime.block_on::<giveway::task::JoinHandle<()>>(task).unwrap_err();
        assert_eq!(
            message(&*error.into_panic()),
            "no bread",
            "the handle has the payload all the same"
        );
        let call = recv(&calls);
        assert!(
            call.contains("baker") && call.contains("panics.rs") && call.contains("no bread"),
            "{call}"
        );
        assert_workers_survive(&runtime);
        drop(runtime);
        assert!(drain(&calls).is_empty(), "one panic, one call");
    }
}

#[test]
fn the_panic_hook_may_ask_for_shutdown() {
    use futures::task::Spawn;
    for workers in giveway_tests::worker_counts() {
        let _watch = watch();
        let (runtime, _calls) = with_policy(workers, PanicPolicy::Shutdown);
        let (alive, wakers) = (Alive::default(), Wakers::default());
        let waiting: Vec<_> = (0..10).map(|_| runtime.spawn(wakers.park(alive.clone()))).collect();
        eventually(|| wakers.len() == 10);
        let panicked = runtime.spawn(async { panic!("the last straw") });
        assert!(
            runtime.block_on::<giveway::task::JoinHandle<()>>(panicked).unwrap_err().is_panic()
        );
        for task in waiting {
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        }
        assert!(runtime.handle().status().is_err());
        assert!(runtime.block_on(runtime.spawn(async {})).unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[cfg(unix)]
#[test]
fn the_panic_hook_may_ask_for_abort() {
    use std::os::unix::process::ExitStatusExt;
    let child = in_child("panics::the_panic_hook_may_ask_for_abort", &[], || {
        let (runtime, _calls) = with_policy(1, PanicPolicy::Abort);
        let _ = runtime.block_on(runtime.spawn(async { panic!("enough") }));
        std::process::exit(3);
    });
    if let Some(child) = child {
        assert_eq!(child.status.signal(), Some(6), "{}", child.output);
        assert!(child.output.contains("enough"), "the message comes out first: {}", child.output);
    }
}

#[test]
fn a_panic_hook_that_panics_counts_as_go_on() {
    for workers in giveway_tests::worker_counts() {
        let _watch = watch();
        let hook = |_: &giveway::TaskPanic<'_>| -> PanicPolicy { panic!("in the hook") };
        let runtime = Builder::new()
            .workers(workers)
            .max_spare_workers(0)
            .on_task_panic(hook)
            .build()
            .unwrap();
        let error = runtime.block_on(runtime.spawn(async { panic!("in the task") })).unwrap_err();
        assert_eq!(message(&*error.into_panic()), "in the task");
        assert_workers_survive(&runtime);
    }
}

/// The payload of a hook's panic may itself panic when it is dropped. That must not reach the
/// worker either.
#[test]
fn a_panic_hook_whose_payload_panics_too_is_contained() {
    isolated("panics::a_panic_hook_whose_payload_panics_too_is_contained", || {
        let _watch = watch();
        let hook =
            |_: &giveway::TaskPanic<'_>| -> PanicPolicy { panic_any(Bomb(2, Alive::default())) };
        let runtime =
            Builder::new().workers(1).max_spare_workers(0).on_task_panic(hook).build().unwrap();
        let error = runtime.block_on(runtime.spawn(async { panic!("in the task") })).unwrap_err();
        assert_eq!(message(&*error.into_panic()), "in the task");
        assert_workers_survive(&runtime);
    });
}

#[test]
fn a_panic_in_block_on_leaves_the_thread_usable() {
    with_runtimes(|runtime| {
        let dropped = Gate::new();
        let signal = dropped.clone();
        let text = panic_of(|| {
            runtime.block_on(async move {
                let _signal = on_drop(move || signal.open());
                giveway::spawn(async {}).await.unwrap();
                panic!("in block_on")
            })
        });
        assert_eq!(text, "in block_on");
        assert!(dropped.is_open());
        assert!(giveway::Handle::try_current().is_none(), "the runtime was left");
        assert_eq!(runtime.block_on(async { giveway::spawn(async { 2 }).await }).unwrap(), 2);
    });
}
