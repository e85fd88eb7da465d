//! The hook that is called for each task that is spawned.

use futures::executor::block_on;
use giveway::task::{self, Class, Id, JoinSet};
use giveway::{Builder, Runtime, TaskMeta};
use giveway_tests::{Gate, Log, drain, isolated, occupy, recv, watch, worker_counts};
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};

/// What the hook was told, and where.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    id: Id,
    name: Option<String>,
    class: Class,
    line: u32,
    /// The thread, and the task that it was in.
    by: (ThreadId, Option<Id>),
}

fn here() -> (ThreadId, Option<Id>) {
    (thread::current().id(), task::try_id())
}

fn with_hook(workers: usize, hook: impl Fn(&TaskMeta<'_>) + Send + Sync + 'static) -> Runtime {
    Builder::new().workers(workers).on_task_spawn(hook).build().unwrap()
}

/// Returns a runtime and the calls of its hook.
fn recorded(workers: usize) -> (Runtime, mpsc::Receiver<Call>) {
    let (sent, calls) = mpsc::channel();
    let hook = move |meta: &TaskMeta<'_>| {
        assert_eq!(meta.spawned_at().file(), file!());
        let (id, class, line) = (meta.id(), meta.class(), meta.spawned_at().line());
        sent.send(Call { id, name: meta.name().map(str::to_owned), class, line, by: here() })
            .unwrap();
    };
    (with_hook(workers, hook), calls)
}

#[test]
fn it_is_told_once_of_each_task_by_the_thread_that_spawns() {
    use Class::{Background, Foreground};
    for workers in worker_counts() {
        let _watch = watch();
        let (runtime, calls) = recorded(workers);
        let handle = runtime.handle();
        let expect = |id, name: Option<&str>, class, line| {
            let name = name.map(str::to_owned);
            assert_eq!(recv(&calls), Call { id, name, class, line, by: here() });
        };
        let task = runtime.spawn(async {});
        expect(task.id(), None, Foreground, line!() - 1);
        let task = runtime.spawn_background(async {});
        expect(task.id(), None, Background, line!() - 1);
        let task = task::Builder::new().name("baker").spawn_on(async {}, handle);
        expect(task.id(), Some("baker"), Foreground, line!() - 1);
        let task = runtime.spawn_pinned(|| async {});
        expect(task.id(), None, Foreground, line!() - 1);
        let pinned = task::Builder::new().name("window").class(Background);
        let task = pinned.spawn_pinned_on(|| async {}, handle);
        expect(task.id(), Some("window"), Background, line!() - 1);
        for preemptible in [true, false] {
            let builder = task::Builder::new().preemptible(preemptible);
            let task = builder.spawn_on(async {}, handle);
            let class = if preemptible { Background } else { Foreground };
            expect(task.id(), None, class, line!() - 2);
        }
        let guard = runtime.enter();
        let mut set = JoinSet::new();
        let task = set.spawn(async {});
        expect(task.id(), None, Foreground, line!() - 1);
        let task = giveway::spawn(async {});
        expect(task.id(), None, Foreground, line!() - 1);
        drop(guard);
        drop(runtime);
        assert!(drain(&calls).is_empty());
    }
}

/// On a worker, and on a lowered thread.
#[test]
fn in_a_task_it_is_called_by_that_task() {
    for workers in worker_counts() {
        let _watch = watch();
        let (runtime, calls) = recorded(workers);
        for (preemptible, class) in [(false, Class::Foreground), (true, Class::Background)] {
            let task = task::Builder::new().preemptible(preemptible).spawn_on(
                async {
                    let child = giveway::spawn(async {});
                    (child.id(), line!() - 1, here())
                },
                runtime.handle(),
            );
            assert_eq!(recv(&calls).id, task.id());
            let (id, line, by) = runtime.block_on(task).unwrap();
            assert_eq!(recv(&calls), Call { id, name: None, class, line, by });
        }
    }
}

#[test]
fn blocking_jobs_and_the_future_of_block_on_are_no_tasks() {
    let _watch = watch();
    let (runtime, calls) = recorded(2);
    let job = async { giveway::spawn_blocking(|| 1).await.unwrap() };
    assert_eq!(runtime.block_on(job), 1);
    drop(runtime);
    assert!(drain(&calls).is_empty());
}

#[test]
fn the_task_is_not_polled_before_it_returns() {
    for workers in worker_counts() {
        let _watch = watch();
        let log = Log::default();
        let (of_hook, gate) = (log.clone(), Gate::new());
        let returns = gate.clone();
        let runtime = with_hook(workers, move |meta| {
            if meta.name() == Some("late") {
                returns.wait();
                of_hook.add("the hook returns");
            }
        });
        let early = thread::scope(|scope| {
            for pinned in [false, true] {
                let (handle, log) = (runtime.handle(), log.clone());
                scope.spawn(move || {
                    let late = task::Builder::new().name("late");
                    let task = if pinned {
                        late.spawn_pinned_on(move || async move { log.add("polled") }, handle)
                    } else {
                        late.spawn_on(async move { log.add("polled") }, handle)
                    };
                    block_on(task).unwrap();
                });
            }
            // Every worker goes round meanwhile.
            let rounds: Vec<_> = (0..100).map(|_| runtime.spawn(giveway::yield_now())).collect();
            rounds.into_iter().for_each(|round| block_on(round).unwrap());
            let early = log.all();
            gate.open();
            early
        });
        assert!(early.is_empty(), "{early:?}");
        let events = log.all();
        assert_eq!(events.iter().filter(|event| *event == "polled").count(), 2);
        assert_eq!(events[0], "the hook returns");
    }
}

#[test]
fn a_panic_in_it_is_contained_and_the_task_is_spawned() {
    for workers in worker_counts() {
        let _watch = watch();
        let runtime = with_hook(workers, |_| panic!("in the hook"));
        let task = runtime.spawn(async { giveway::spawn(async { 4 }).await.unwrap() });
        assert_eq!(runtime.block_on(task).unwrap(), 4);
        assert_eq!(runtime.block_on(runtime.spawn_pinned(|| async { 5 })).unwrap(), 5);
    }
}

/// The payload of a hook's panic may itself panic when it is dropped.
#[test]
fn a_panic_whose_payload_panics_too_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the payload");
        }
    }
    isolated("spawn_hook::a_panic_whose_payload_panics_too_is_contained", || {
        let _watch = watch();
        let runtime = with_hook(1, |_| panic_any(Bomb));
        let task = runtime.spawn(async { giveway::spawn(async { 4 }).await.unwrap() });
        assert_eq!(runtime.block_on(task).unwrap(), 4);
    });
}

#[test]
fn it_may_spawn_and_is_told_of_that_task_too() {
    for workers in worker_counts() {
        let _watch = watch();
        let (sent, calls) = mpsc::channel();
        let runtime = with_hook(workers, move |meta| {
            if meta.name() == Some("parent") {
                task::Builder::new().name("child").spawn(async {});
            }
            sent.send(meta.name().map(str::to_owned)).unwrap();
        });
        let parent = runtime.spawn(async {
            task::Builder::new().name("parent").spawn(async {}).await.unwrap();
        });
        runtime.block_on(parent).unwrap();
        drop(runtime);
        let calls = drain(&calls);
        assert_eq!(calls, [None, Some("child".to_owned()), Some("parent".to_owned())]);
    }
}

/// A worker that blocks in the hook loses its core to another thread. The task goes to a queue that
/// this thread may touch.
#[test]
fn a_worker_may_lose_its_core_in_it() {
    for workers in worker_counts() {
        let _watch = watch();
        let (done, others_ran) = mpsc::channel();
        let others_ran = Mutex::new(others_ran);
        let runtime = with_hook(workers, move |meta| {
            if meta.name() == Some("blocks") {
                giveway::block_in_place(|| recv(&others_ran.lock().unwrap()));
            }
        });
        let gate = Gate::new();
        let busy = occupy(runtime.handle(), workers - 1, &gate);
        let task = runtime.spawn(async move {
            // It runs only when another thread has this worker's core.
            giveway::spawn(async move { done.send(()).unwrap() });
            task::Builder::new().name("blocks").spawn(async { 4 }).await.unwrap()
        });
        assert_eq!(block_on(task).unwrap(), 4);
        gate.open();
        busy.into_iter().for_each(|task| block_on(task).unwrap());
    }
}

#[test]
fn after_the_shutdown_it_is_told_of_tasks_that_are_cancelled() {
    let _watch = watch();
    let (runtime, calls) = recorded(2);
    let handle = runtime.handle().clone();
    drop(runtime);
    let tasks = [handle.spawn(async {}), handle.spawn_pinned(|| async {})];
    for task in tasks {
        assert_eq!(recv(&calls).id, task.id());
        assert!(block_on(task).unwrap_err().is_cancelled());
    }
}

/// Also a pinned task, for which a worker waits before it ends.
#[test]
fn it_may_drop_the_runtime() {
    for workers in worker_counts() {
        for (pinned, inside) in [(false, false), (true, false), (false, true), (true, true)] {
            let _watch = watch();
            let owner: Arc<Mutex<Option<Runtime>>> = Arc::default();
            let of_hook = owner.clone();
            let runtime = with_hook(workers, move |meta| {
                if meta.name() == Some("last") {
                    drop(of_hook.lock().unwrap().take());
                }
            });
            let handle = runtime.handle().clone();
            *owner.lock().unwrap() = Some(runtime);
            let of_task = handle.clone();
            let spawn = move || {
                let last = task::Builder::new().name("last");
                if pinned {
                    last.spawn_pinned_on(|| async {}, &of_task)
                } else {
                    last.spawn_on(async {}, &of_task)
                }
            };
            let task = if inside {
                let (sent, tasks) = mpsc::channel();
                handle.spawn(async move { sent.send(spawn()).unwrap() });
                recv(&tasks)
            } else {
                spawn()
            };
            assert!(block_on(task).unwrap_err().is_cancelled());
        }
    }
}

/// Tasks that are spawned while the runtime ends are told of and end, whatever comes first.
#[test]
fn beside_the_end_of_the_runtime_each_spawn_is_told_of() {
    for _ in giveway_tests::rounds(200) {
        let _watch = watch();
        let told = Arc::new(AtomicUsize::new(0));
        let of_hook = told.clone();
        let runtime = with_hook(2, move |_| _ = of_hook.fetch_add(1, Relaxed));
        let handle = runtime.handle().clone();
        thread::scope(|scope| {
            scope.spawn(move || drop(runtime));
            for i in 0..20 {
                let task = if i % 2 == 0 {
                    handle.spawn(async {})
                } else {
                    handle.spawn_pinned(|| async {})
                };
                let ended = block_on(task);
                assert!(ended.is_ok() || ended.unwrap_err().is_cancelled());
            }
        });
        assert_eq!(told.load(Relaxed), 20);
    }
}
