//! Settings that cannot be met, hooks that misbehave, an OS that refuses.

use giveway::{Builder, Handle, MAX_WORKERS, PanicPolicy};
use giveway_tests::{
    Alive, Child, drain, eventually, hold, in_child, isolated, recv, watch, worker_counts,
};
use std::io::ErrorKind;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};

#[test]
fn a_worker_count_out_of_range_is_an_error() {
    for workers in [0, MAX_WORKERS + 1, 1_000_000, usize::MAX] {
        let error = Builder::new().workers(workers).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&workers.to_string()), "{error}");
        assert!(error.to_string().contains("1 to 4096"), "the range is named: {error}");
    }
}

#[test]
fn a_stack_too_small_for_the_runtime_is_an_error() {
    for bytes in [0, 1, 16 << 10] {
        let error = Builder::new().stack_size(bytes).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("`stack_size`"), "{error}");
    }
    assert!(Builder::new().workers(1).stack_size(64 << 10).build().is_ok());
}

#[test]
fn a_nul_in_a_thread_name_is_an_error() {
    let error = Builder::new().workers(1).thread_name("a\0b").build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("NUL"), "{error}");
}

/// Builds a runtime in a child process with the variable set, and prints the result there.
fn with_variable(test: &str, value: &str) -> Option<Child> {
    in_child(test, &[("GIVEWAY_WORKERS", value)], || match Builder::new().build() {
        Ok(runtime) => println!("workers: {}", runtime.handle().workers()),
        Err(error) => println!("error: {:?} {error}", error.kind()),
    })
}

#[test]
fn the_workers_variable_sets_the_default() {
    for value in ["3", " 3 "] {
        let Some(child) = with_variable("misuse::the_workers_variable_sets_the_default", value)
        else {
            return;
        };
        child.assert_success();
        assert!(child.output.contains("workers: 3\n"), "{}", child.output);
    }
}

#[test]
fn a_workers_variable_set_to_nothing_counts_as_unset() {
    let Some(child) =
        with_variable("misuse::a_workers_variable_set_to_nothing_counts_as_unset", "")
    else {
        return;
    };
    child.assert_success();
    let workers = std::thread::available_parallelism().unwrap();
    assert!(child.output.contains(&format!("workers: {workers}\n")), "{}", child.output);
}

#[test]
fn a_workers_variable_that_makes_no_sense_is_an_error() {
    for value in ["garbage", " ", "-1", "1.5", "0", "5000", "99999999999999999999999999"] {
        let test = "misuse::a_workers_variable_that_makes_no_sense_is_an_error";
        let Some(child) = with_variable(test, value) else { return };
        child.assert_success();
        assert!(child.output.contains("error: InvalidInput"), "{value:?}: {}", child.output);
        assert!(child.output.contains("GIVEWAY_WORKERS"), "its source is named: {}", child.output);
    }
}

#[test]
fn the_builder_counts_for_more_than_the_variable() {
    let test = "misuse::the_builder_counts_for_more_than_the_variable";
    let child = in_child(test, &[("GIVEWAY_WORKERS", "garbage")], || {
        assert_eq!(Builder::new().workers(2).build().unwrap().handle().workers(), 2);
    });
    if let Some(child) = child {
        child.assert_success();
    }
}

/// Once the cause is mended, the next attempt succeeds: nothing is poisoned.
#[test]
fn a_default_runtime_that_cannot_start_panics_clearly_each_time() {
    let test = "misuse::a_default_runtime_that_cannot_start_panics_clearly_each_time";
    let child = in_child(test, &[("GIVEWAY_WORKERS", "garbage")], || {
        for _ in 0..2 {
            let text = giveway_tests::panic_of(|| giveway::block_on(async {}));
            assert!(text.contains("the default runtime could not be started"), "{text}");
            assert!(text.contains("GIVEWAY_WORKERS"), "{text}");
        }
        // SAFETY: the harness runs this test alone, and its other threads do not read the
        // environment.
        unsafe { std::env::set_var("GIVEWAY_WORKERS", "2") };
        assert_eq!(giveway::block_on(async { giveway::spawn(async { 1 }).await }).unwrap(), 1);
    });
    if let Some(child) = child {
        child.assert_success();
    }
}

#[test]
fn hooks_run_once_on_each_worker_around_its_tasks() {
    for workers in worker_counts() {
        let _watch = watch();
        let (sent, events) = mpsc::channel();
        let (start, stop) = (sent.clone(), sent);
        let name = || std::thread::current().name().unwrap().to_owned();
        let runtime = Builder::new()
            .workers(workers)
            .thread_name("kitchen")
            .on_thread_start(move || start.send((true, name())).unwrap())
            .on_thread_stop(move || stop.send((false, name())).unwrap())
            .build()
            .unwrap();
        let mut started: Vec<_> = (0..workers).map(|_| recv(&events)).collect();
        started.sort_unstable();
        let mut expected: Vec<_> = (0..workers).map(|i| (true, format!("kitchen-{i}"))).collect();
        expected.sort_unstable();
        assert_eq!(started, expected);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        drop(runtime);
        let mut stopped = drain(&events);
        stopped.sort_unstable();
        expected.iter_mut().for_each(|event| event.0 = false);
        assert_eq!(stopped, expected, "once each, and the hooks are gone with the runtime");
    }
}

/// As in tokio, what a hook spawns goes to the runtime on whose thread the hook runs. It is
/// cancelled once that runtime is closed.
#[test]
fn hooks_run_inside_their_runtime() {
    for workers in worker_counts() {
        let _watch = watch();
        let (sent, seen) = mpsc::channel();
        let (start, stop) = (sent.clone(), sent);
        let look =
            || (Handle::try_current().map(|handle| handle.workers()), giveway::spawn(async {}));
        let runtime = Builder::new()
            .workers(workers)
            .on_thread_start(move || start.send(look()).unwrap())
            .on_thread_stop(move || stop.send(look()).unwrap())
            .build()
            .unwrap();
        for _ in 0..workers {
            let (current, task) = recv(&seen);
            assert_eq!(current, Some(workers), "at the start");
            runtime.block_on(task).unwrap();
        }
        drop(runtime);
        let stopped = drain(&seen);
        assert_eq!(stopped.len(), workers);
        for (current, task) in stopped {
            assert_eq!(current, Some(workers), "at the stop");
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
    }
}

/// A worker thread cannot join itself, not even after its last task.
#[test]
fn a_thread_stop_hook_may_drop_the_runtime() {
    let test = "misuse::a_thread_stop_hook_may_drop_the_runtime";
    let child = in_child(test, &[], || {
        let _watch = watch();
        let owner: Arc<Mutex<Option<giveway::Runtime>>> = Arc::default();
        let (dropped, drops) = mpsc::channel();
        let of_hook = owner.clone();
        let runtime = Builder::new()
            .workers(2)
            .on_task_panic(|_| PanicPolicy::Shutdown)
            .on_thread_stop(move || {
                let runtime = of_hook.lock().unwrap().take();
                dropped.send(runtime.is_some()).unwrap();
                drop(runtime);
                dropped.send(false).unwrap();
            })
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        *owner.lock().unwrap() = Some(runtime);
        handle.spawn(async { panic_any(()) });
        let events: Vec<_> = (0..4).map(|_| recv(&drops)).collect();
        assert_eq!(events.iter().filter(|&&owned| owned).count(), 1);
    });
    if let Some(child) = child {
        child.assert_success();
        assert!(!child.output.contains("failed to join"), "{}", child.output);
    }
}

#[test]
fn tasks_run_on_threads_with_the_given_name_and_stack() {
    let _watch = watch();
    let runtime =
        Builder::new().workers(2).thread_name("kitchen").stack_size(16 << 20).build().unwrap();
    let task = runtime.spawn(async {
        // More than the usual two megabytes.
        let large = std::hint::black_box([1_u8; 3 << 20]);
        (
            std::thread::current().name().map(str::to_owned),
            large.iter().map(|&b| usize::from(b)).sum::<usize>(),
        )
    });
    let (name, sum) = runtime.block_on(task).unwrap();
    assert!(name.unwrap().starts_with("kitchen-"));
    assert_eq!(sum, 3 << 20);
}

#[test]
fn thread_hooks_that_panic_are_contained() {
    for workers in worker_counts() {
        let _watch = watch();
        let calls = Arc::new(AtomicUsize::new(0));
        let (start, stop) = (calls.clone(), calls.clone());
        let runtime = Builder::new()
            .workers(workers)
            .on_thread_start(move || {
                start.fetch_add(1, Relaxed);
                panic!("in the start hook")
            })
            .on_thread_stop(move || {
                stop.fetch_add(1, Relaxed);
                panic!("in the stop hook")
            })
            .build()
            .unwrap();
        assert_eq!(runtime.block_on(runtime.spawn(async { 4 })).unwrap(), 4);
        eventually(|| calls.load(Relaxed) == workers);
        drop(runtime);
        assert_eq!(calls.load(Relaxed), 2 * workers);
    }
}

/// The payload of a hook's panic may itself panic when it is dropped.
#[test]
fn thread_hooks_whose_payload_panics_too_are_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the payload");
        }
    }
    isolated("misuse::thread_hooks_whose_payload_panics_too_are_contained", || {
        let _watch = watch();
        let runtime =
            Builder::new().workers(1).on_thread_start(|| panic_any(Bomb)).build().unwrap();
        assert_eq!(runtime.block_on(runtime.spawn(async { 4 })).unwrap(), 4);
        assert!(runtime.shutdown_timeout(giveway_tests::HANG).is_clean());
    });
}

/// With little address space and huge stacks, a few threads start and then no more.
#[cfg(target_os = "linux")]
#[test]
fn an_os_that_refuses_threads_is_an_error_and_no_hang() {
    isolated("misuse::an_os_that_refuses_threads_is_an_error_and_no_hang", || {
        let _watch = watch();
        let limit = libc::rlimit { rlim_cur: 8 << 30, rlim_max: 8 << 30 };
        // SAFETY: `limit` is valid for reads.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
        assert_eq!(limited, 0);
        let (sent, events) = mpsc::channel();
        let (start, stop) = (sent.clone(), sent);
        let alive = Alive::default();
        let held = alive.clone();
        let error = Builder::new()
            .workers(64)
            .stack_size(1 << 30)
            .on_thread_start(move || {
                giveway::spawn(hold(held.clone()));
                start.send(1).unwrap();
            })
            .on_thread_stop(move || stop.send(-1).unwrap())
            .build()
            .unwrap_err();
        assert!(error.to_string().contains("of 65 could not be started"), "{error}");
        let events = drain(&events);
        assert!(!events.is_empty(), "some threads could be started");
        assert_eq!(events.iter().sum::<i32>(), 0, "and have ended by now");
        assert_eq!(Arc::strong_count(&alive), 1, "with what their hooks spawned");
        // Not even the first thread starts.
        let error = Builder::new().workers(2).stack_size(100 << 30).build().unwrap_err();
        assert!(error.to_string().starts_with("thread 1 of 3 could not be started"), "{error}");
        // What fits still works.
        let runtime = Builder::new().workers(2).build().unwrap();
        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
    });
}

/// A task in a slot is not announced. In the slot of a worker that is still in its start hook it
/// has to be found all the same.
#[test]
fn a_task_spawned_by_a_start_hook_that_waits_for_it_runs_on_another_worker() {
    let (done, finished) = mpsc::channel();
    let (went_on, goes_on) = mpsc::channel();
    let finished = std::sync::Mutex::new(Some(finished));
    let runtime = Builder::new()
        .workers(2)
        .on_thread_start(move || {
            // The first of the two workers waits.
            let Some(finished) = finished.lock().unwrap().take() else { return };
            let done = done.clone();
            giveway::spawn(async move { done.send(()).unwrap() });
            recv(&finished);
            went_on.send(()).unwrap();
        })
        .build()
        .unwrap();
    recv(&goes_on);
    drop(runtime);
}
