//! In the child of a fork the runtime's threads do not exist. The child gets a clear error, and
//! never hangs.

#![cfg(unix)]

use futures::FutureExt;
use giveway::elastic::{Pacer, Settings};
use giveway_tests::{WaitingFor, Wakers, eventually, in_child, isolated, panic_of, runtime};

/// Forks, runs `body` in the child, and returns the child's exit code. A child that hangs is
/// killed.
///
/// Call this in a process of its own only, in which every other thread comes to rest.
pub(crate) fn in_fork(body: impl FnOnce()) -> i32 {
    // A thread that has just started may be in the middle of making something that exists once for
    // the process, and that the child needs too.
    eventually(others_rest);
    // SAFETY: `fork` takes no arguments. If the process has several threads, the child must not
    // need a lock that another thread held: all others wait, and hold no lock that it will want.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: `_exit` takes a number only. It ends the child here, and runs nothing that
        // belongs to its parent.
        unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 1 }) };
    }
    assert!(pid > 0, "fork failed");
    let mut status = 0;
    let waiting = WaitingFor::child(pid.cast_unsigned());
    let ended = waiting.patience().keep_trying(|_| {
        // SAFETY: `waitpid` writes to `status`, which is valid and exclusive during the call. `pid`
        // is a child of this process, and has not been waited for.
        let waited = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if waited == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        (waited != 0).then_some(waited)
    });
    if ended.is_none() {
        // SAFETY: `kill` takes numbers only. The child has not been waited for, so its number still
        // belongs to it.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    assert_eq!(ended, Some(pid), "the child hangs");
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Returns whether every other thread of this process sleeps in the kernel, as far as the system
/// tells.
pub(super) fn others_rest() -> bool {
    let own = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return true };
    let others = threads
        .filter_map(Result::ok)
        .filter(|thread| own.file_name() != Some(&*thread.file_name()));
    // The state of a thread is behind its name. A thread that has ended meanwhile is at rest, too.
    others.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).all(
        |stat| {
            let (_, state) = stat.rsplit_once(')').expect("a name in parentheses");
            state.starts_with(" S")
        },
    )
}

const CLEAR: &str = "was started before a fork, and its threads do not exist in the child";

#[track_caller]
pub(crate) fn assert_clear(message: &str) {
    assert!(message.contains(CLEAR), "{message}");
    assert!(message.contains("start a new runtime in the child"), "the remedy is named: {message}");
}

#[test]
fn spawning_in_a_forked_child_panics_clearly() {
    isolated("fork::spawning_in_a_forked_child_panics_clearly", || {
        let runtime = runtime(2);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let code = in_fork(|| {
            assert_clear(&panic_of(|| runtime.spawn(async {})));
            assert_clear(&panic_of(|| runtime.handle().spawn(async {})));
            let _inside = runtime.enter();
            assert_clear(&panic_of(|| giveway::spawn(async {})));
        });
        assert_eq!(code, 0);
        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1, "the parent goes on");
    });
}

/// The thread that goes on in the child is a worker there, too, of a runtime that has no other
/// thread.
#[test]
fn spawning_in_a_child_that_a_task_has_forked_panics_clearly() {
    isolated("fork::spawning_in_a_child_that_a_task_has_forked_panics_clearly", || {
        let runtime = runtime(2);
        let forks = runtime.spawn(async {
            in_fork(|| {
                assert_clear(&panic_of(|| giveway::spawn(async {})));
                assert_clear(&panic_of(|| giveway::Handle::current().spawn_background(async {})));
            })
        });
        assert_eq!(runtime.block_on(forks).unwrap(), 0);
        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1, "the parent goes on");
    });
}

#[test]
fn block_on_in_a_forked_child_panics_clearly() {
    isolated("fork::block_on_in_a_forked_child_panics_clearly", || {
        let runtime = runtime(1);
        runtime.block_on(async {});
        let code = in_fork(|| {
            assert_clear(&panic_of(|| runtime.block_on(async {})));
            assert_clear(&panic_of(|| runtime.handle().block_on(async {})));
        });
        assert_eq!(code, 0);
    });
}

#[test]
fn the_default_runtime_refuses_in_a_forked_child() {
    isolated("fork::the_default_runtime_refuses_in_a_forked_child", || {
        giveway::block_on(async { giveway::spawn(async {}).await.unwrap() });
        let code = in_fork(|| {
            assert_clear(&panic_of(|| giveway::block_on(async {})));
            assert_clear(&panic_of(|| giveway::spawn(async {})));
        });
        assert_eq!(code, 0);
    });
}

#[test]
fn dropping_a_runtime_in_a_forked_child_does_not_hang() {
    type End = fn(giveway::Runtime);
    let ways: [(&str, End); 3] = [
        ("drop", drop),
        ("shutdown_timeout", |runtime| {
            assert!(runtime.shutdown_timeout(std::time::Duration::MAX).is_clean())
        }),
        ("shutdown_background", giveway::Runtime::shutdown_background),
    ];
    isolated("fork::dropping_a_runtime_in_a_forked_child_does_not_hang", || {
        for (name, end) in ways {
            let wakers = Wakers::default();
            let mut runtime = Some(runtime(2));
            let task = runtime.as_ref().unwrap().spawn(wakers.park(()));
            eventually(|| wakers.len() == 1);
            assert_eq!(in_fork(|| end(runtime.take().unwrap())), 0, "{name}");
            drop(runtime);
            drop(task);
        }
    });
}

#[test]
fn waking_and_aborting_in_a_forked_child_do_not_hang() {
    isolated("fork::waking_and_aborting_in_a_forked_child_do_not_hang", || {
        let runtime = runtime(2);
        let wakers = Wakers::default();
        let task = runtime.spawn(wakers.park(()));
        // A wake-up of this task would start a thread in the child.
        let lowered = giveway::task::Builder::new()
            .preemptible(true)
            .spawn_on(wakers.park(()), runtime.handle());
        eventually(|| wakers.len() == 2);
        let code = in_fork(|| {
            wakers.wake_all();
            task.abort();
            task.abort_handle().abort();
            lowered.abort();
            assert_eq!(
                std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count),
                1,
                "a thread was started"
            );
        });
        assert_eq!(code, 0);
        assert!(!task.is_finished(), "the child's abort stayed in the child");
        assert!(!lowered.is_finished(), "the child's abort stayed in the child");
    });
}

/// In the child no thread fills the bucket or serves the alarm.
#[test]
fn pacing_in_a_forked_child_does_not_hang() {
    isolated("fork::pacing_in_a_forked_child_does_not_hang", || {
        let runtime =
            || giveway::Builder::new().workers(1).elastic(Settings::fixed(0.01)).build().unwrap();
        let job = || async {
            let all = vec![Pacer::new(); 20];
            // The first pacer takes the only slice that there is.
            assert!(all[0].pace().now_or_never().is_some());
            assert!(all[1].pace().now_or_never().is_none());
            in_fork(|| all.iter().for_each(|pacer| assert!(pacer.pace().now_or_never().is_some())))
        };
        let (one, other) = (runtime(), runtime());
        assert_eq!(one.block_on(one.spawn(job())).unwrap(), 0, "in a task");
        assert_eq!(other.block_on(job()), 0, "in block_on");
    });
}

#[test]
fn a_new_runtime_works_in_a_forked_child() {
    isolated("fork::a_new_runtime_works_in_a_forked_child", || {
        let old = runtime(2);
        old.block_on(old.spawn(async {})).unwrap();
        let code = in_fork(|| {
            let new = runtime(2);
            assert_eq!(new.block_on(async { giveway::spawn(async { 7 }).await }).unwrap(), 7);
            drop(new);
            drop(old.handle().clone());
        });
        assert_eq!(code, 0);
    });
}

/// A child whose own code does not catch the refusal writes its message, and ends.
#[test]
fn an_uncaught_refusal_ends_the_child_with_its_message() {
    let child = in_child("fork::an_uncaught_refusal_ends_the_child_with_its_message", &[], || {
        let runtime = runtime(1);
        let code = in_fork(|| drop(runtime.spawn(async {})));
        std::process::exit(40 + code);
    });
    if let Some(child) = child {
        assert_eq!(child.status.code(), Some(41), "{}", child.output);
        assert!(child.output.contains(CLEAR), "{}", child.output);
    }
}

#[test]
fn a_yield_point_in_a_forked_child_goes_on() {
    isolated("fork::a_yield_point_in_a_forked_child_goes_on", || {
        let (runtime, gate) = (runtime(1), giveway_tests::Gate::new());
        let busy = giveway_tests::occupy(runtime.handle(), 1, &gate);
        runtime.spawn(async {});
        let code = runtime.block_on(async {
            assert!(giveway::should_yield(), "a task is queued, and nobody is idle");
            // The worker waits in a system call, and holds no lock.
            in_fork(|| futures::executor::block_on(giveway::yield_now_if_busy()))
        });
        assert_eq!(code, 0);
        gate.open();
        busy.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// In a task, too: its worker is the only thread of the child, and if the task gave way, no thread
/// would come back to it.
#[test]
fn a_yield_point_of_a_task_that_has_forked_goes_on_in_the_child() {
    isolated("fork::a_yield_point_of_a_task_that_has_forked_goes_on_in_the_child", || {
        let runtime = runtime(1);
        let forks = runtime.spawn(async {
            giveway::spawn(async {});
            assert!(giveway::should_yield(), "a task is queued, and nobody is idle");
            in_fork(|| {
                assert!(!giveway::should_yield());
                assert!(giveway::yield_now_if_busy().now_or_never().is_some());
            })
        });
        assert_eq!(runtime.block_on(forks).unwrap(), 0);
    });
}

/// Any lock may have been held at the fork, and no thread of the child would release it.
#[test]
fn a_forked_child_gets_the_last_figures_and_no_tasks() {
    isolated("fork::a_forked_child_gets_the_last_figures_and_no_tasks", || {
        let runtime = runtime(2);
        let named = giveway::task::Builder::new()
            .name("left")
            .spawn_on(std::future::pending::<()>(), runtime.handle());
        eventually(|| runtime.metrics().polls() == 1);
        let code = in_fork(|| {
            let (metrics, dump) = (runtime.metrics(), runtime.dump());
            assert_eq!((metrics.polls(), dump.tasks().len()), (1, 0));
        });
        assert_eq!(code, 0);
        assert!(
            runtime.dump().tasks().iter().any(|task| task.id == named.id()),
            "the parent has it"
        );
    });
}
