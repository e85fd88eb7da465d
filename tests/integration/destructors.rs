//! What the destructor of a future or of an output sees: the id of its task, and whether its thread
//! is panicking.

use giveway::task::{self, Id, JoinHandle, try_id};
use giveway::{Builder, Handle, Runtime};
use giveway_tests::{
    Gate, Wakers, each_runtime, eventually, hold, message, occupy, on_drop, recv, runtime,
    with_runtimes,
};
use std::future::{Future, poll_fn};
use std::panic::panic_any;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Sends the id that its destructor sees.
#[derive(Clone)]
struct TellsId(Sender<Option<Id>>);

impl Drop for TellsId {
    fn drop(&mut self) {
        self.0.send(try_id()).unwrap();
    }
}

fn tells_id() -> (TellsId, Receiver<Option<Id>>) {
    let (sent, ids) = mpsc::channel();
    (TellsId(sent), ids)
}

/// Drops the handle of a task once the task has ended. Returns the task's id.
fn drop_ended<T: Send>(task: JoinHandle<T>) -> Id {
    eventually(|| task.is_finished());
    task.id()
}

#[test]
fn an_output_that_is_dropped_with_its_handle_has_the_id_of_its_task() {
    with_runtimes(|runtime| {
        let (output, ids) = tells_id();
        let id = drop_ended(runtime.spawn(async move { output }));
        assert_eq!((recv(&ids), try_id()), (Some(id), None));

        let (output, ids) = tells_id();
        let id = drop_ended(runtime.spawn_pinned(move || async move { output }));
        assert_eq!(recv(&ids), Some(id));

        let (output, ids) = tells_id();
        let id = drop_ended(runtime.spawn_blocking(move || output));
        assert_eq!(recv(&ids), Some(id));

        // The payload of a panic has the id, too.
        let (payload, ids) = tells_id();
        let id = drop_ended(runtime.spawn(async move { panic_any(payload) }));
        assert_eq!(recv(&ids), Some(id));
    });
}

#[test]
fn an_output_that_another_task_drops_has_the_id_of_its_own() {
    with_runtimes(|runtime| {
        let (output, ids) = tells_id();
        let ended = runtime.spawn(async move { output });
        let id = ended.id();
        eventually(|| ended.is_finished());
        let dropping = runtime.spawn(async move {
            drop(ended);
            task::id()
        });
        let dropper = dropping.id();
        assert_eq!(runtime.block_on(dropping).unwrap(), dropper, "the task is itself again");
        assert_eq!(recv(&ids), Some(id));
    });
}

#[test]
fn the_output_of_a_detached_task_has_the_id_of_its_task() {
    with_runtimes(|runtime| {
        let (gate, (output, ids)) = (Gate::new(), tells_id());
        let go = gate.clone();
        let detached = runtime.spawn(async move {
            go.wait();
            output
        });
        let id = detached.id();
        drop(detached);
        gate.open();
        assert_eq!(recv(&ids), Some(id));

        let (gate, (output, ids)) = (Gate::new(), tells_id());
        let go = gate.clone();
        let detached = runtime.spawn_blocking(move || {
            go.wait();
            output
        });
        let id = detached.id();
        drop(detached);
        gate.open();
        assert_eq!(recv(&ids), Some(id));
    });
}

#[test]
fn a_future_that_is_dropped_by_an_abort_has_the_id_of_its_task() {
    with_runtimes(|runtime| {
        // The task waits.
        let (wakers, (held, ids)) = (Wakers::default(), tells_id());
        let waiting = runtime.spawn(wakers.park(held));
        eventually(|| wakers.len() == 1);
        waiting.abort();
        assert_eq!(recv(&ids), Some(waiting.id()));
        // The task has not begun.
        let (gate, (held, ids)) = (Gate::new(), tells_id());
        let busy = occupy(runtime.handle(), runtime.handle().workers(), &gate);
        let queued = runtime.spawn(hold(held));
        queued.abort();
        gate.open();
        busy.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        assert_eq!(recv(&ids), Some(queued.id()));
        // The task aborts itself.
        let (held, ids) = tells_id();
        let (sent, own) = mpsc::channel::<JoinHandle<()>>();
        let suicidal = runtime.spawn(poll_fn(move |_| {
            let _part_of_the_future = &held;
            recv(&own).abort();
            Poll::Pending
        }));
        let id = suicidal.id();
        sent.send(suicidal).unwrap();
        assert_eq!(recv(&ids), Some(id));
    });
}

#[test]
fn a_future_that_is_dropped_by_a_shutdown_has_the_id_of_its_task() {
    each_runtime(1, |runtime| {
        let wakers = Wakers::default();
        let (waits, waiting) = tells_id();
        let (waits_pinned, pinned) = tells_id();
        let parked = wakers.clone();
        let handles = [
            runtime.spawn(wakers.park(waits)),
            runtime.spawn_pinned(move || parked.park(waits_pinned)),
        ];
        eventually(|| wakers.len() == 2);
        let [waiting_id, pinned_id] = handles.map(|handle| handle.id());
        drop(runtime);
        assert_eq!((recv(&waiting), recv(&pinned)), (Some(waiting_id), Some(pinned_id)));
    });
}

/// The only worker is stuck in a poll. So the thread that shuts down drops the waiting future
/// itself.
#[test]
fn a_future_that_is_dropped_by_the_thread_that_shuts_down_has_the_id_of_its_task() {
    let runtime = runtime(1);
    let (gate, wakers, (held, ids)) = (Gate::new(), Wakers::default(), tells_id());
    let waiting = runtime.spawn(wakers.park(held));
    eventually(|| wakers.len() == 1);
    let (begun, stuck) = (Gate::new(), gate.clone());
    let begins = begun.clone();
    runtime.spawn(async move {
        begins.open();
        stuck.wait();
    });
    begun.wait();
    let id = waiting.id();
    assert!(!runtime.shutdown_timeout(Duration::from_millis(1)).is_clean(), "the worker is stuck");
    let dropped_by = recv(&ids);
    gate.open();
    assert_eq!(dropped_by, Some(id));
}

#[test]
fn what_a_runtime_that_is_shut_down_refuses_has_the_id_of_its_own_task() {
    let gone = runtime(1);
    let handle = gone.handle().clone();
    drop(gone);
    with_runtimes(|runtime| {
        type Spawn = fn(&Handle, TellsId) -> Id;
        let spawns: [Spawn; 3] = [
            |handle, held| handle.spawn(hold(held)).id(),
            |handle, held| handle.spawn_pinned(move || hold(held)).id(),
            |handle, held| handle.spawn_blocking(move || drop(held)).id(),
        ];
        for spawn in spawns {
            let (handle, (held, ids)) = (handle.clone(), tells_id());
            let refused = runtime.spawn(async move { (spawn(&handle, held), task::id()) });
            let spawner = refused.id();
            let (id, after) = runtime.block_on(refused).unwrap();
            assert_eq!((recv(&ids), after), (Some(id), spawner));
        }
    });
}

/// Returns a future that panics in its poll. It has a type of its own, so `held` is still whole
/// when the panic leaves the poll, unlike the locals of an async block.
fn panics_holding<T: Send + 'static>(held: T) -> impl Future<Output = ()> + Send {
    poll_fn(move |_| {
        let _part_of_the_future = &held;
        panic!("first")
    })
}

#[test]
fn a_future_is_dropped_while_its_panic_unwinds() {
    with_runtimes(|runtime| {
        let (sent, seen) = mpsc::channel();
        let tells = || {
            let sent = sent.clone();
            on_drop(move || sent.send((thread::panicking(), try_id())).unwrap())
        };
        let panicking = runtime.spawn(panics_holding(tells()));
        let id = panicking.id();
        assert!(runtime.block_on(panicking).unwrap_err().is_panic());
        assert_eq!(recv(&seen), (true, Some(id)));

        let held = tells();
        let pinned = runtime.spawn_pinned(move || panics_holding(held));
        let id = pinned.id();
        assert!(runtime.block_on(pinned).unwrap_err().is_panic());
        assert_eq!(recv(&seen), (true, Some(id)));

        // No longer than that: the value of the next task is dropped while nothing unwinds.
        let held = tells();
        runtime.block_on(runtime.spawn(async move { drop(held) })).unwrap();
        assert!(!recv(&seen).0);
    });
}

/// A guard in a future that panics poisons its mutex, as a guard on the stack of a thread does.
#[test]
fn a_lock_that_a_future_holds_when_it_panics_is_poisoned() {
    static LOCK: Mutex<()> = Mutex::new(());
    with_runtimes(|runtime| {
        LOCK.clear_poison();
        let panicking = runtime.spawn_pinned(|| {
            let guard = LOCK.lock().unwrap();
            poll_fn(move |_| -> Poll<()> {
                let _part_of_the_future = &guard;
                panic!("with a lock")
            })
        });
        assert!(runtime.block_on(panicking).unwrap_err().is_panic());
        assert!(LOCK.is_poisoned());
    });
}

/// In tokio this is a panic while unwinding, which ends the process.
#[test]
fn a_destructor_that_panics_while_its_futures_panic_unwinds_is_contained() {
    for workers in giveway_tests::worker_counts() {
        let (sent, panics) = mpsc::channel();
        let hook = move |panic: &giveway::TaskPanic<'_>| {
            sent.send(message(panic.payload())).unwrap();
            giveway::PanicPolicy::Continue
        };
        let runtime: Runtime = Builder::new()
            .workers(workers)
            .max_spare_workers(0)
            .on_task_panic(hook)
            .build()
            .unwrap();
        for _ in 0..10 {
            let twice = runtime.spawn(panics_holding(on_drop(|| panic!("second"))));
            let error = runtime.block_on(twice).unwrap_err();
            assert_eq!(message(&*error.into_panic()), "first", "the handle has the cause");
            assert_eq!(recv(&panics), "first");
        }
        assert!(!runtime.block_on(runtime.spawn(async { thread::panicking() })).unwrap());
        drop(runtime);
        assert!(giveway_tests::drain(&panics).is_empty(), "one task that panics, one call");
    }
}
