//! `#[giveway::main]` and `#[giveway::test]`, as they are meant to be used. What the compiler says about other uses is tested
//! in `macros/`.

use giveway::Handle;
use giveway::task::JoinHandle;
use giveway_tests::{Alive, Log, hold, in_child, panic_of, watch};
use std::cell::RefCell;
use std::process::{ExitCode, Termination};
use std::sync::Arc;

/// The runtime's own number of workers, as a task of it sees it.
async fn workers() -> usize {
    giveway::spawn(async { Handle::current().workers() }).await.unwrap()
}

#[giveway::main]
async fn by_default() -> usize {
    workers().await
}

#[test]
fn main_runs_on_the_default_runtime_which_the_environment_sets() {
    let name = "attributes::main_runs_on_the_default_runtime_which_the_environment_sets";
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

/// Not even a name of the attribute's own is taken.
#[giveway::test]
async fn runtime() {
    assert_eq!(workers().await, 2);
}

#[test]
fn main_with_workers_leaves_nothing_behind() {
    thread_local!(static ALIVE: Alive = Alive::default());
    thread_local!(static TASK: RefCell<Option<JoinHandle<()>>> = RefCell::default());

    #[giveway::main(workers = 2)]
    async fn run() {
        let alive = ALIVE.with(Clone::clone);
        TASK.set(Some(giveway::spawn(hold(alive))));
    }

    let _watch = watch();
    run();
    assert_eq!(ALIVE.with(Arc::strong_count), 1, "the task was dropped when its runtime was");
}

#[test]
fn main_inside_of_a_task_works() {
    let _watch = watch();
    let workers = giveway::block_on(async { giveway::spawn(async { by_default() }).await.unwrap() });
    assert_eq!(workers, by_default());
}

#[test]
fn values_of_all_kinds_come_through() {
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
    #[giveway::main(workers = 1)]
    async fn main() {
        giveway::spawn(async { panic!("in the task") }).await.unwrap()
    }

    let _watch = watch();
    assert!(panic_of(main).contains("in the task"));
}

/// Functions that `macro_rules!` makes come in invisible groups.
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

/// A test is a plain function, and can be called as one.
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
                assert!(futures::executor::block_on(runtime.spawn(async {})).unwrap_err().is_cancelled());
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
    // What the test harness does with the value.
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

/// What is on the stack of the future is dropped before its runtime ends, and may use it.
#[test]
fn the_runtime_outlives_the_future() {
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
