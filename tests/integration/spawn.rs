//! Spawning and joining.

use futures::task::SpawnExt;
use giveway::Handle;
use giveway::task::{Builder, JoinHandle, try_id};
use giveway_tests::{
    Gate, Wakers, drain, eventually, on_drop, panic_of, recv, runtime, watch, with_runtimes,
};
use std::collections::HashSet;
use std::future::Future;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;

#[test]
fn a_task_hands_its_output_to_its_handle() {
    with_runtimes(|runtime| {
        assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
        let large = runtime.spawn(async { [7_u64; 1_000] });
        assert_eq!(runtime.block_on(large).unwrap().iter().sum::<u64>(), 7_000);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let nested = runtime.spawn(async {
            giveway::spawn(async { giveway::spawn(async { "deep" }).await }).await
        });
        assert_eq!(runtime.block_on(nested).unwrap().unwrap().unwrap(), "deep");
    });
}

#[test]
fn a_task_runs_though_its_handle_is_dropped() {
    with_runtimes(|runtime| {
        let (ran, runs) = mpsc::channel();
        for i in 0..100 {
            let ran = ran.clone();
            drop(runtime.spawn(async move {
                giveway::yield_now().await;
                ran.send(i).unwrap();
            }));
        }
        drop(ran);
        let mut runs = drain(&runs);
        runs.sort_unstable();
        assert_eq!(runs, (0..100).collect::<Vec<_>>());
    });
}

/// A handle that was ready is used up: another poll panics, `abort` and the drop do nothing.
#[test]
fn a_handle_may_be_awaited_by_reference_and_not_again_once_ready() {
    with_runtimes(|runtime| {
        let mut task = runtime.spawn(async { "ready" });
        assert_eq!(runtime.block_on(&mut task).unwrap(), "ready");
        assert!(task.is_finished());
        let again = panic_of(|| runtime.block_on(&mut task));
        assert!(again.contains("polled after it was ready"), "{again}");
        task.abort();
        drop(task);
    });
}

/// The task is in its poll until the gate opens, so the first questions come before its end.
#[test]
fn a_handle_tells_its_id_name_and_whether_it_is_done() {
    with_runtimes(|runtime| {
        let gate = Gate::new();
        let go = gate.clone();
        let future = async move {
            go.wait();
            try_id()
        };
        let mut task = Builder::new().name("baker").spawn_on(future, runtime.handle());
        let id = task.id();
        let text = format!("{task:?}");
        assert!(
            text.contains(&format!("{id:?}"))
                && text.contains("\"baker\"")
                && text.contains("false"),
            "{text}"
        );
        assert_eq!(format!("{id:?}"), format!("Id({id})"));
        assert!(!task.is_finished());
        gate.open();
        assert_eq!(runtime.block_on(&mut task).unwrap(), Some(id), "the task knows its number");
        assert_eq!(task.id(), id);
        assert!(
            format!("{task:?}").contains("true"),
            "its name is gone by now, but it can be printed: {task:?}"
        );
        assert_eq!(try_id(), None, "no task runs here");
        assert_eq!(runtime.block_on(async { try_id() }), None, "`block_on` runs no task");
    });
}

#[test]
fn ids_are_unique_wherever_tasks_are_spawned() {
    with_runtimes(|runtime| {
        let inside = runtime
            .spawn(async { (0..200).map(|_| giveway::spawn(async {}).id()).collect::<Vec<_>>() });
        let mut ids = runtime.block_on(inside).unwrap();
        let threads = [(); 2].map(|()| {
            let handle = runtime.handle().clone();
            thread::spawn(move || (0..200).map(|_| handle.spawn(async {}).id()).collect::<Vec<_>>())
        });
        threads.into_iter().for_each(|thread| ids.extend(thread.join().unwrap()));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 600);
    });
}

/// The first poll of the handle leaves a waker that does nothing. The second one, by a task,
/// replaces it: only the last waker is called.
#[test]
fn a_handle_may_be_polled_by_one_waker_and_then_by_another() {
    with_runtimes(|runtime| {
        let gate = Gate::new();
        let go = gate.clone();
        let mut task = runtime.spawn(async move {
            go.wait();
            1
        });
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(std::pin::Pin::new(&mut task).poll(&mut cx), Poll::Pending));
        gate.open();
        let task = runtime.spawn(task);
        assert_eq!(
            runtime.block_on(task).unwrap().unwrap(),
            1,
            "the last waker is the one that is woken"
        );
    });
}

/// Returns the worker count of the runtime that the calling task runs on, which tells the runtimes
/// of a test apart.
async fn here() -> usize {
    Handle::current().workers()
}

/// The current runtime is that of the innermost `enter`, `block_on` or task around the spawn.
#[test]
fn a_spawn_goes_to_the_current_runtime() {
    let _watch = watch();
    let (three, five) = (runtime(3), runtime(5));
    let run = |task: JoinHandle<usize>| futures::executor::block_on(task).unwrap();

    assert_eq!(run(three.spawn(here())), 3);
    assert_eq!(run(three.handle().clone().spawn(here())), 3);
    assert_eq!(run(Builder::new().spawn_on(here(), five.handle())), 5);
    // From a task, to its own runtime and to another.
    let five_handle = five.handle().clone();
    let both = three.block_on(three.spawn(async move {
        let own = giveway::spawn(here()).await.unwrap();
        let other = five_handle.spawn(here()).await.unwrap();
        let _inside = five_handle.enter();
        (own, other, giveway::spawn(here()))
    }));
    let (own, other, entered) = both.unwrap();
    assert_eq!(
        (own, other, run(entered)),
        (3, 5, 5),
        "a guard counts for more than the worker's own runtime"
    );
    // In `block_on`; and after it no runtime is current.
    assert_eq!(three.block_on(async { giveway::spawn(here()).await }).unwrap(), 3);
    assert!(Handle::try_current().is_none());
    // While a guard of `enter` is alive, and one inside another.
    {
        let _outer = three.enter();
        assert_eq!(run(giveway::spawn(here())), 3);
        {
            let _inner = five.enter();
            assert_eq!(run(giveway::spawn(here())), 5);
            assert_eq!(giveway::block_on(async { giveway::spawn(here()).await }).unwrap(), 5);
        }
        assert_eq!(run(giveway::spawn(here())), 3);
        assert_eq!(Handle::current().workers(), 3);
    }
    assert!(panic_of(Handle::current).contains("no Giveway runtime is current"));
}

#[test]
fn a_block_on_may_stand_within_another_outside_of_workers() {
    let _watch = watch();
    let (three, five) = (runtime(3), runtime(5));
    let counts = three.block_on(async {
        let before = here().await;
        let inner = five.block_on(async { giveway::spawn(here()).await.unwrap() });
        let same = giveway::block_on(async { giveway::spawn(here()).await.unwrap() });
        (before, inner, same, giveway::spawn(here()).await.unwrap())
    });
    assert_eq!(counts, (3, 5, 3, 3));
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let _watch = watch();
    let (three, five) = (runtime(3), runtime(5));
    let outer = three.enter();
    let inner = five.enter();
    drop(outer);
    assert_eq!(Handle::current().workers(), 5, "the inner one still holds");
    drop(inner);
    assert!(Handle::try_current().is_none());
    assert_eq!(five.block_on(async { giveway::spawn(here()).await }).unwrap(), 5);
}

#[test]
fn a_forgotten_guard_holds_until_its_thread_ends_and_does_no_harm() {
    thread::spawn(|| {
        let _watch = watch();
        let runtime = runtime(1);
        std::mem::forget(runtime.enter());
        drop(runtime);
        let task = giveway::spawn(async {});
        assert!(
            futures::executor::block_on(task).unwrap_err().is_cancelled(),
            "it is still entered, and shut down"
        );
    })
    .join()
    .unwrap();
}

#[test]
fn outside_of_any_runtime_the_default_one_serves() {
    let _watch = watch();
    thread::spawn(|| {
        assert!(Handle::try_current().is_none());
        let task = giveway::spawn(async { Handle::try_current().is_some() });
        assert!(giveway::block_on(task).unwrap());
        let threads = [(); 4].map(|()| {
            thread::spawn(|| giveway::block_on(async { giveway::spawn(here()).await.unwrap() }))
        });
        let counts: HashSet<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(counts.len(), 1, "there is one default runtime");
    })
    .join()
    .unwrap();
}

#[test]
fn handles_serve_libraries_that_spawn_through_futures_traits() {
    with_runtimes(|runtime| {
        let (sent, answers) = mpsc::channel();
        SpawnExt::spawn(runtime.handle(), async move { sent.send(try_id().is_some()).unwrap() })
            .unwrap();
        assert!(recv(&answers));
        let spawner: &dyn futures::task::Spawn = runtime.handle();
        let remote = spawner.spawn_with_handle(async { 8 }).unwrap();
        assert_eq!(runtime.block_on(remote), 8);
    });
}

#[test]
fn tasks_are_spawned_from_destructors_and_hooks() {
    let _watch = watch();
    let (sent, answers) = mpsc::channel();
    let from_hook = sent.clone();
    let hook = move || {
        let sent = from_hook.clone();
        giveway::spawn(async move { sent.send("hook").unwrap() });
    };
    let runtime = giveway::Builder::new()
        .workers(2)
        .max_spare_workers(0)
        .on_thread_start(hook)
        .build()
        .unwrap();
    assert_eq!((recv(&answers), recv(&answers)), ("hook", "hook"));
    let wakers = Wakers::default();
    let task = runtime.spawn(wakers.park(on_drop(move || {
        giveway::spawn(async move { sent.send("destructor").unwrap() });
    })));
    eventually(|| wakers.len() == 1);
    task.abort();
    assert_eq!(recv(&answers), "destructor");
    drop(task);
}

/// Spawns that recurse, and a burst of spawns from one task.
#[test]
fn spawns_nest_and_fan_out() {
    fn tree(depth: u32) -> futures::future::BoxFuture<'static, u32> {
        Box::pin(async move {
            if depth == 0 {
                return 1;
            }
            let (left, right) = (giveway::spawn(tree(depth - 1)), giveway::spawn(tree(depth - 1)));
            left.await.unwrap() + right.await.unwrap()
        })
    }
    with_runtimes(|runtime| {
        assert_eq!(runtime.block_on(runtime.spawn(tree(10))).unwrap(), 1 << 10);
        let wide = runtime.spawn(async {
            let tasks: Vec<_> = (0..2_000_u64).map(|i| giveway::spawn(async move { i })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(runtime.block_on(wide).unwrap(), 1_999_000);
    });
}
