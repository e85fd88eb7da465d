//! `#[giveway::main]` and `#[giveway::test]` in their intended uses. What the compiler says about
//! other uses is tested in `macros/`.

use giveway::Handle;
use giveway::task::JoinHandle;
use giveway_tests::{Alive, Log, hold, in_child, panic_of, watch};
use std::cell::RefCell;
use std::process::{ExitCode, Termination};
use std::sync::Arc;

/// Returns the number of workers of the current runtime, as one of its tasks sees it.
async fn workers() -> usize {
    giveway::spawn(async { Handle::current().workers() }).await.unwrap()
}

#[giveway::main]
async fn by_default() -> usize {
    workers().await
}

/// Starts the default runtime. No `main` that runs in this process later takes its place. Other
/// tests run at the same time and rely on it: with the runtime of a `main` in its place, their
/// tasks would be cancelled when that `main` returns.
fn keep_the_default_runtime() {
    giveway::block_on(async {});
}

#[test]
fn main_has_as_many_workers_as_the_environment_says() {
    let name = "attributes::main_has_as_many_workers_as_the_environment_says";
    let child = in_child(name, &[("GIVEWAY_WORKERS", "3")], || {
        assert_eq!(by_default(), 3);
        assert_eq!(giveway::block_on(workers()), 3);
    });
    if let Some(child) = child {
        child.assert_success();
    }
}

#[test]
fn main_with_workers_has_a_runtime_of_its_own() {
    keep_the_default_runtime();
    #[giveway::main(workers = 3)]
    async fn three() -> usize {
        workers().await
    }

    #[giveway::main(worker_threads = 0x5_usize, flavor = "multi_thread")]
    async fn five() -> usize {
        workers().await
    }

    #[giveway::main(flavor = "current_thread")]
    async fn one() -> usize {
        workers().await
    }

    #[giveway::main(flavor = "multi_thread")]
    async fn default() -> usize {
        workers().await
    }

    assert_eq!((three(), five(), one(), default()), (3, 5, 1, by_default()));
}

/// The code that the attribute adds has no name that could clash: a test may be called `runtime`.
#[giveway::test]
async fn runtime() {
    assert_eq!(workers().await, 2);
}

thread_local!(static ALIVE: Alive = Alive::default());

/// Spawns a task that waits for ever and a blocking job, and drops both handles. A handle keeps
/// neither.
fn leave_behind() {
    let (alive, flushed) = ALIVE.with(|alive| (alive.clone(), alive.clone()));
    drop(giveway::spawn(hold(alive)));
    drop(giveway::spawn_blocking(move || drop(flushed)));
}

#[giveway::main]
async fn plain() {
    leave_behind();
}

#[giveway::main(workers = 2)]
async fn with_workers() {
    leave_behind();
}

/// What a `main` spawns belongs to its runtime, with options or without. That runtime is shut down
/// before the function returns: the task is dropped, and the job runs.
#[test]
fn main_leaves_nothing_behind() {
    keep_the_default_runtime();
    let _watch = watch();
    for run in [plain, with_workers, plain] {
        run();
        assert_eq!(ALIVE.with(Arc::strong_count), 1, "the task was dropped, and the job has run");
    }
}

#[test]
fn main_that_panics_leaves_nothing_behind() {
    keep_the_default_runtime();
    #[giveway::main]
    async fn panics() {
        leave_behind();
        panic!("no bread");
    }

    let _watch = watch();
    assert_eq!(panic_of(panics), "no bread");
    assert_eq!(ALIVE.with(Arc::strong_count), 1);
}

/// Runs `f` on a thread that is in no runtime.
fn from_a_plain_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(f).join().unwrap()
}

/// Returns the number of workers of the runtime that serves the calling plain thread. Its task, its
/// job and its `block_on` have to agree on that, and its timer has to end.
fn default_workers() -> usize {
    let in_task = giveway::spawn(async { Handle::current().workers() });
    let in_job = giveway::spawn_blocking(|| Handle::current().workers());
    giveway::block_on(async {
        giveway::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(
            (in_task.await.unwrap(), in_job.await.unwrap()),
            [Handle::current().workers(); 2].into()
        );
        Handle::current().workers()
    })
}

#[test]
fn the_runtime_of_main_serves_plain_threads_while_it_runs() {
    #[giveway::main(workers = 3)]
    async fn three() -> Handle {
        assert_eq!(from_a_plain_thread(default_workers), 3);
        Handle::current()
    }

    #[giveway::main(workers = 4)]
    async fn four() {
        assert_eq!(from_a_plain_thread(default_workers), 4);
        // A `main` inside of another has a runtime of its own. Plain threads stay with the outer
        // one.
        giveway::block_in_place(|| {
            #[giveway::main(workers = 1)]
            async fn one() -> (usize, usize) {
                (workers().await, from_a_plain_thread(default_workers))
            }
            assert_eq!(one(), (1, 4));
        });
    }

    #[giveway::main]
    async fn as_many_as_there_are() {
        assert_eq!(from_a_plain_thread(default_workers), 2);
    }

    let name = "attributes::the_runtime_of_main_serves_plain_threads_while_it_runs";
    let child = in_child(name, &[("GIVEWAY_WORKERS", "2")], || {
        let _watch = watch();
        let handle = three();
        assert!(futures::executor::block_on(handle.spawn(async {})).unwrap_err().is_cancelled());
        four();
        as_many_as_there_are();
        three();
        // After the last `main`, a plain thread starts a runtime that lives as long as the process.
        // No later `main` takes its place.
        assert_eq!(default_workers(), 2);
        let forever = giveway::spawn(std::future::pending::<()>());
        #[giveway::main(workers = 5)]
        async fn five() -> (usize, usize) {
            (workers().await, from_a_plain_thread(default_workers))
        }
        assert_eq!(five(), (5, 2));
        assert!(!forever.is_finished());
    });
    if let Some(child) = child {
        child.assert_success();
    }
}

/// The runtime of `main` refuses what a plain thread spawns while it ends, as it refuses what a
/// task spawns then. Timers and sockets of plain threads go on.
#[test]
fn what_a_plain_thread_spawns_while_the_runtime_of_main_ends_is_cancelled() {
    use giveway_tests::{Gate, eventually};
    thread_local!(static GATES: (Gate, Gate) = Default::default());

    #[giveway::main(workers = 1)]
    async fn run() -> Handle {
        let (closing, done) = GATES.with(Clone::clone);
        // The job keeps the runtime from its end until `done` opens.
        giveway::spawn_blocking(move || {
            closing.open();
            done.wait();
        });
        Handle::current()
    }

    let name = "attributes::what_a_plain_thread_spawns_while_the_runtime_of_main_ends_is_cancelled";
    giveway_tests::isolated(name, || {
        use futures::task::Spawn;
        let _watch = watch();
        let (closing, done) = GATES.with(Clone::clone);
        let plain = std::thread::spawn(move || {
            closing.wait();
            // `block_on` uses the runtime of `run` until that has been shut down.
            let is_closed = || giveway::block_on(async { Handle::current().status().is_err() });
            eventually(is_closed);
            assert!(
                futures::executor::block_on(giveway::spawn(async {})).unwrap_err().is_cancelled()
            );
            futures::executor::block_on(giveway::time::sleep(std::time::Duration::from_millis(1)));
            giveway::block_on(giveway::time::sleep(std::time::Duration::from_millis(1)));
            done.open();
        });
        run();
        plain.join().unwrap();
        assert_eq!(giveway::block_on(giveway::spawn(async { 5 })).unwrap(), 5);
    });
}

#[test]
fn main_inside_of_a_task_works() {
    keep_the_default_runtime();
    let _watch = watch();
    let workers =
        giveway::block_on(async { giveway::spawn(async { by_default() }).await.unwrap() });
    assert_eq!(workers, by_default());
}

#[test]
fn values_of_all_kinds_come_through() {
    keep_the_default_runtime();
    #[giveway::main]
    async fn fails() -> Result<(), std::num::ParseIntError> {
        "five".parse::<u32>()?;
        Ok(())
    }

    #[giveway::main]
    async fn code() -> ExitCode {
        ExitCode::from(7)
    }

    #[giveway::main(workers = 1)]
    async fn opaque() -> impl Iterator<Item = u32> + Send + 'static {
        giveway::yield_now().await;
        0..3
    }

    #[giveway::main]
    async fn never() -> ! {
        giveway::yield_now().await;
        panic!("it ends like this")
    }

    struct Two<const N: usize>([u8; N]);

    #[giveway::main]
    async fn braces() -> Two<{ 1 + 1 }> {
        Two([1, 2])
    }

    assert!(fails().is_err());
    assert_eq!(code().report(), ExitCode::from(7));
    assert_eq!(opaque().sum::<u32>() + u32::from(braces().0[1]), 5);
    assert_eq!(panic_of(|| never()), "it ends like this");
}

#[test]
fn panics_come_through() {
    keep_the_default_runtime();
    #[giveway::main(workers = 1)]
    async fn main() {
        giveway::spawn(async { panic!("in the task") }).await.unwrap()
    }

    let _watch = watch();
    assert!(panic_of(main).contains("in the task"));
}

/// Makes functions whose tokens reach the attribute in invisible groups.
macro_rules! runs {
    ($(#[$meta:meta])* $vis:vis $name:ident, $workers:expr, $output:ty, $body:block) => {
        $(#[$meta])*
        #[giveway::main(workers = $workers)]
        $vis async fn $name() -> $output $body
    };
    ($item:item) => {
        #[giveway::main(workers = 2)]
        $item
    };
}

runs!(
    /// Documented.
    #[allow(dead_code)]
    pub(crate) by_macro, 4, usize, { workers().await }
);
runs!(
    async fn by_item() -> usize {
        workers().await
    }
);

#[test]
fn functions_made_by_other_macros_work() {
    keep_the_default_runtime();
    assert_eq!((by_macro(), by_item()), (4, 2));
}

mod renamed {
    pub(super) mod inner {
        pub(crate) use giveway as another;
    }

    #[another::main(crate = "inner::another", workers = 2)]
    async fn by_a_path() -> usize {
        super::workers().await
    }

    #[another::test(crate = "crate::attributes::renamed::inner::another")]
    async fn a_test_finds_a_crate_of_another_name() {
        assert_eq!(super::workers().await, 2);
        // On a thread that is in no runtime.
        std::thread::spawn(super::keep_the_default_runtime).join().unwrap();
        let count = inner::another::spawn_blocking(by_a_path).await.unwrap();
        assert_eq!(count, 2);
    }

    use giveway as another;
}

#[giveway::test]
async fn a_test_has_two_workers() {
    assert_eq!(workers().await, 2);
}

#[giveway::test(workers = 5)]
async fn a_test_has_as_many_workers_as_it_asks_for() {
    assert_eq!(workers().await, 5);
}

/// A test is a plain function, and can be called. Each call has a runtime of its own.
mod a_runtime_each {
    use super::*;

    thread_local!(static LEFT: RefCell<Vec<(Handle, Alive, JoinHandle<()>)>> = RefCell::default());

    #[giveway::test]
    async fn a_test_may_leave_tasks_behind() {
        let alive = Alive::default();
        let task = giveway::spawn(hold(alive.clone()));
        LEFT.with_borrow_mut(|left| left.push((Handle::current(), alive, task)));
    }

    #[test]
    fn which_are_dropped_with_its_runtime() {
        let _watch = watch();
        a_test_may_leave_tasks_behind();
        a_test_may_leave_tasks_behind();
        LEFT.with_borrow(|left| {
            for (runtime, alive, _task) in left {
                assert_eq!(Arc::strong_count(alive), 1);
                assert!(
                    futures::executor::block_on(runtime.spawn(async {}))
                        .unwrap_err()
                        .is_cancelled()
                );
            }
            assert_eq!(left.len(), 2);
        });
    }
}

#[giveway::test]
#[should_panic(expected = "no bread")]
async fn a_panic_fails_the_test() {
    giveway::yield_now().await;
    panic!("no bread");
}

#[should_panic(expected = "no butter")]
#[giveway::test]
async fn a_panic_of_a_task_that_is_unwrapped_fails_the_test() {
    giveway::spawn(async { panic!("no butter") }).await.unwrap()
}

#[giveway::test]
#[ignore = "it is here to be ignored: it would fail"]
async fn an_ignored_test_is_not_run() {
    panic!("it was");
}

#[giveway::test]
async fn a_test_may_return_a_result() -> Result<(), Box<dyn std::error::Error>> {
    let answer = giveway::spawn(async { "42".parse::<u32>() }).await??;
    assert_eq!(answer, 42);
    Ok(())
}

#[test]
fn an_error_that_a_test_returns_fails_it() {
    keep_the_default_runtime();
    // Does with the value what the test harness does.
    fn fails(test: fn() -> Result<(), String>) -> bool {
        test().report() != ExitCode::SUCCESS
    }

    #[giveway::main(workers = 1)]
    async fn test() -> Result<(), String> {
        Err("no bread".into())
    }

    assert!(fails(test));
}

#[giveway::test]
#[test]
async fn a_test_that_is_marked_already_is_not_marked_twice() {
    assert_eq!(workers().await, 2);
}

mod imported {
    use giveway::test;

    #[test]
    async fn the_attribute_may_have_the_name_of_stds() {
        assert_eq!(super::workers().await, 2);
    }
}

/// What is on the stack of the future is dropped before the runtime ends, and its destructor may
/// use the runtime.
#[test]
fn the_runtime_outlives_the_future() {
    keep_the_default_runtime();
    #[giveway::main(workers = 1)]
    async fn main() -> Log {
        let log = Log::default();
        struct Spawns(Log);
        impl Drop for Spawns {
            fn drop(&mut self) {
                let log = self.0.clone();
                giveway::block_on(giveway::spawn(async move { log.add("in the task") })).unwrap();
            }
        }
        let _spawns = Spawns(log.clone());
        giveway::yield_now().await;
        log
    }

    let _watch = watch();
    main().assert(&["in the task"]);
}

/// A test that hangs fails, and its message says what the test was doing.
#[giveway::test(timeout = "20 ms")]
#[should_panic(expected = "has not ended after")]
async fn a_test_that_takes_longer_than_its_timeout_fails() {
    std::future::pending::<()>().await;
}

#[giveway::test(timeout = "20ms", workers = 1)]
#[should_panic(expected = "its future waits. What its tasks are doing: 1 task")]
async fn the_failure_says_what_the_tasks_of_the_test_are_doing() {
    let lazybones =
        giveway::task::Builder::new().name("lazybones").spawn(std::future::pending::<()>());
    lazybones.await.unwrap();
}

#[test]
#[expect(unnameable_test_items, reason = "it is called, and not run as a test")]
fn the_failure_names_tasks_and_places() {
    #[giveway::test(timeout = "20ms")]
    async fn hung() {
        let lazybones =
            giveway::task::Builder::new().name("lazybones").spawn(std::future::pending::<()>());
        lazybones.await.unwrap();
    }

    let _watch = watch();
    let message = panic_of(hung);
    for part in ["attributes::hung`", "waiting", "attributes.rs:", "\"lazybones\""] {
        assert!(message.contains(part), "{part:?} is missing: {message}");
    }
}

/// The test passes if the future ends in time, however little time is left then.
#[giveway::test(timeout = "1min")]
async fn a_test_that_ends_in_time_passes() -> Result<(), std::num::ParseIntError> {
    let answer = giveway::spawn_blocking(|| "42".parse::<u32>()).await.unwrap()?;
    assert_eq!((answer, workers().await), (42, 2));
    Ok(())
}

#[giveway::test(timeout = "10min")]
#[should_panic(expected = "no bread")]
async fn a_panic_before_the_timeout_is_the_failure() {
    let _left_behind = giveway::spawn(std::future::pending::<()>());
    panic!("no bread");
}

/// The thread that watches the timeout does not count as one that could wake a task, so the
/// deadlock is found.
#[giveway::test(timeout = "10min", detect_deadlock = true)]
#[should_panic(expected = "deadlock")]
async fn a_test_that_looks_for_deadlocks_fails_at_once() {
    std::future::pending::<()>().await;
}

#[giveway::test(detect_deadlock = false)]
async fn a_test_need_not_look_for_deadlocks() {
    let (send, receive) = futures::channel::oneshot::channel();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        send.send(())
    });
    receive.await.unwrap();
}

#[test]
#[expect(unnameable_test_items, reason = "it is called, and not run as a test")]
fn a_test_whose_runtime_does_not_come_to_its_end_fails() {
    static RELEASE: std::sync::LazyLock<giveway_tests::Gate> =
        std::sync::LazyLock::new(Default::default);

    #[giveway::test(timeout = "1ms")]
    async fn leaves_a_job_behind() {
        let begun = giveway_tests::Gate::new();
        let begins = begun.clone();
        giveway::task::Builder::new().name("glue").spawn_blocking(move || {
            begins.open();
            RELEASE.wait();
        });
        begun.wait();
    }

    let _watch = watch();
    let message = panic_of(leaves_a_job_behind);
    RELEASE.open();
    assert!(
        message.contains("is over, and its runtime is not") && message.contains("\"glue\""),
        "{message}"
    );
}

/// Only the end of the process ends a call that does not return.
#[test]
#[expect(unnameable_test_items, reason = "it is called, and not run as a test")]
fn a_test_that_is_stuck_in_a_call_ends_the_process_and_says_where_it_was() {
    #[giveway::test(timeout = "1ms")]
    async fn stuck() {
        let _task =
            giveway::task::Builder::new().name("bystander").spawn(std::future::pending::<()>());
        loop {
            std::thread::park();
        }
    }

    let name = "attributes::a_test_that_is_stuck_in_a_call_ends_the_process_and_says_where_it_was";
    if let Some(child) = in_child(name, &[], stuck) {
        assert!(!child.status.success());
        for part in [
            "stuck` has not ended",
            "in a poll that has not returned",
            "\"bystander\"",
            "the process ends here",
        ] {
            assert!(child.output.contains(part), "{part:?} is missing: {}", child.output);
        }
    }
}
