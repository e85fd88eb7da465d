//! `Handle::enter`: whose `spawn` a guard changes, and for how long.

use futures::channel::oneshot;
use giveway::{Builder, Runtime, spawn, spawn_blocking, yield_now};
use giveway_tests::{Gate, recv, watch};
use std::cell::RefCell;
use std::sync::{OnceLock, mpsc};

fn named(name: &str) -> Runtime {
    Builder::new()
        .workers(1)
        .max_spare_workers(0)
        .thread_name(name)
        .build()
        .expect("a runtime starts")
}

/// Returns the name of the runtime that `spawn` goes to here.
async fn current() -> String {
    let name = || std::thread::current().name().expect("workers have names").to_owned();
    spawn(async move { name() }).await.unwrap().split('-').next().unwrap().to_owned()
}

#[test]
fn a_guard_held_across_an_await_is_for_its_own_task_alone() {
    let _watch = watch();
    let (here, there) = (named("here"), named("there"));
    let handle = there.handle().clone();
    let (go_on, parked) = oneshot::channel();
    let (at_the_await, waits) = mpsc::channel();
    let holder = here.spawn_pinned(move || async move {
        let inside = handle.enter();
        assert_eq!(current().await, "there");
        at_the_await.send(()).unwrap();
        parked.await.unwrap();
        assert_eq!(current().await, "there", "its own guard counts again");
        drop(inside);
        current().await
    });
    waits.recv().unwrap();
    // Other tasks on the same thread, pinned and not.
    assert_eq!(here.block_on(here.spawn(current())).unwrap(), "here");
    assert_eq!(here.block_on(here.spawn_pinned(current)).unwrap(), "here");
    go_on.send(()).unwrap();
    assert_eq!(here.block_on(holder).unwrap(), "here");
}

#[test]
fn two_tasks_of_one_thread_hold_guards_across_awaits() {
    let _watch = watch();
    let (here, one, other) = (named("here"), named("one"), named("other"));
    let tasks = [("one", &one), ("other", &other)].map(|(name, runtime)| {
        let handle = runtime.handle().clone();
        here.spawn_pinned(move || async move {
            for _ in 0..20 {
                let _inside = handle.enter();
                yield_now().await;
                assert_eq!(current().await, name);
            }
            assert_eq!(current().await, "here");
        })
    });
    for task in tasks {
        here.block_on(task).unwrap();
    }
}

#[test]
fn a_guard_that_a_task_forgets_is_over_with_its_poll() {
    let _watch = watch();
    let (here, there) = (named("here"), named("there"));
    let handle = there.handle().clone();
    here.block_on(here.spawn(async move { std::mem::forget(handle.enter()) })).unwrap();
    assert_eq!(here.block_on(here.spawn(current())).unwrap(), "here");
}

#[test]
fn a_guard_that_another_task_drops_leaves_that_one_where_it_is() {
    static THERE: OnceLock<giveway::Handle> = OnceLock::new();
    thread_local! {
        static LEFT: RefCell<Option<giveway::EnterGuard<'static>>> = const { RefCell::new(None) };
    }
    let _watch = watch();
    let (here, there) = (named("here"), named("there"));
    let handle = THERE.get_or_init(|| there.handle().clone());
    here.block_on(here.spawn(async move { LEFT.set(Some(handle.enter())) })).unwrap();
    let dropping = here.spawn(async {
        drop(LEFT.take());
        current().await
    });
    assert_eq!(here.block_on(dropping).unwrap(), "here");
    assert_eq!(here.block_on(here.spawn(current())).unwrap(), "here");
}

#[test]
fn a_blocking_job_is_in_its_own_runtime_before_and_after_it_enters_another() {
    let _watch = watch();
    let (here, there) = (named("here"), named("there"));
    let handle = there.handle().clone();
    let in_task = here.spawn(async move {
        let job = spawn_blocking(move || {
            let inside = handle.enter();
            let entered = spawn(current());
            drop(inside);
            (entered, spawn(current()))
        });
        let (entered, left) = job.await.unwrap();
        (entered.await.unwrap(), left.await.unwrap())
    });
    assert_eq!(here.block_on(in_task).unwrap(), ("there".to_owned(), "here".to_owned()));
}

/// A task that loses its core in a blocking call goes on in the runtime that it has entered, and
/// leaves that runtime when its poll is over.
#[test]
fn a_guard_outlives_the_loss_of_the_core_but_not_the_poll() {
    let _watch = watch();
    let (here, there) = (named("here"), named("there"));
    let (handle, gate) = (there.handle().clone(), Gate::new());
    let opens = gate.clone();
    let blocks = here.spawn_pinned(move || async move {
        let inside = handle.enter();
        // With one worker, the other task runs only if another thread takes over the core.
        giveway::block_in_place(|| gate.wait());
        let entered = spawn(current());
        std::mem::forget(inside);
        entered.await.unwrap()
    });
    here.block_on(here.spawn(async move { opens.open() })).unwrap();
    assert_eq!(here.block_on(blocks).unwrap(), "there");
    assert_eq!(here.block_on(here.spawn_pinned(current)).unwrap(), "here");
}

/// The hooks of a blocking thread run in its runtime, as the destructors of jobs that it drops do.
#[test]
fn a_blocking_thread_is_in_its_runtime_after_a_job() {
    let _watch = watch();
    let (told, tells) = mpsc::channel();
    let is_inside = move || {
        if std::thread::current().name().is_some_and(|name| name.contains("-bl")) {
            told.send(giveway::Handle::try_current().is_some()).unwrap();
        }
    };
    let runtime = giveway::Builder::new()
        .workers(1)
        .max_spare_workers(0)
        .on_thread_stop(is_inside)
        .build()
        .unwrap();
    runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
    drop(runtime);
    assert!(recv(&tells), "the hook ran in no runtime");
}
