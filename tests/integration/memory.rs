//! What tasks cost while they wait, what is left of them afterwards, and what an idle runtime does:
//! nothing.
//!
//! Each test runs in a process of its own, so that nothing else is measured. `GIVEWAY_TEST_TASKS`
//! sets how many tasks are spawned and joined, for a longer run.

#![cfg(target_os = "linux")]

use giveway::task::JoinHandle;
use giveway_tests::{Gate, Patience, isolated, recv, runtime, watch};
use std::sync::mpsc;
use std::time::Duration;

/// The most bytes of resident memory that a waiting task may cost.
const BYTES_A_TASK: usize = 200;

/// The number of tasks that wait at once.
const WAITING: usize = 1_000_000;

/// The number of tasks that are spawned and joined, unless `GIVEWAY_TEST_TASKS` is set.
const JOINED: usize = 500_000;

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("the second field");
    pages * 4096
}

#[test]
fn a_million_waiting_tasks_cost_at_most_200_bytes_each() {
    isolated("memory::a_million_waiting_tasks_cost_at_most_200_bytes_each", || {
        let _watch = watch();
        let runtime = runtime(2);
        // The memory of the handles is not what is measured, so it is touched beforehand.
        let mut handles: Vec<JoinHandle<()>> = Vec::with_capacity(WAITING);
        // SAFETY: the capacity is at least `WAITING`, so the memory is valid for writes. The length
        // is zero, so no value is overwritten.
        unsafe { handles.as_mut_ptr().write_bytes(0xff, WAITING) };
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let before = resident();
        handles.extend((0..WAITING).map(|_| runtime.spawn(std::future::pending())));
        // Every task has been polled when both workers meet here, so that what waiting costs is
        // counted too.
        let meet = std::sync::Arc::new(std::sync::Barrier::new(2));
        let tasks = [(); 2].map(|()| {
            let meet = meet.clone();
            runtime.spawn(async move { _ = meet.wait() })
        });
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        let each = (resident() - before) / WAITING;
        println!("{each} bytes a task");
        assert!(each <= BYTES_A_TASK, "a task that waits costs {each} bytes");
        assert!(each >= 50, "{each} bytes a task cannot be: the measurement is broken");
        drop(runtime);
        assert!(handles.iter().all(JoinHandle::is_finished));
    });
}

#[test]
fn spawning_and_joining_for_long_leaves_memory_flat() {
    isolated("memory::spawning_and_joining_for_long_leaves_memory_flat", || {
        let tasks = std::env::var("GIVEWAY_TEST_TASKS")
            .map_or(JOINED, |n| n.parse().expect("a number of tasks"));
        let runtime = runtime(2);
        let round = |size: usize| {
            let joined = runtime.spawn(async move {
                let tasks: Vec<_> = (0..size).map(|i| giveway::spawn(async move { i })).collect();
                for (i, task) in tasks.into_iter().enumerate() {
                    assert_eq!(task.await.unwrap(), i);
                }
            });
            runtime.block_on(joined).unwrap();
            // Tasks from outside that wait in between, one of them aborted.
            let mixed: Vec<_> =
                (0..size / 10).map(|_| runtime.spawn(giveway::yield_now())).collect();
            mixed[0].abort();
            mixed.into_iter().for_each(|task| _ = runtime.block_on(task));
        };
        (0..20).for_each(|_| round(1_000));
        let before = resident();
        (0..tasks / 1_000).for_each(|_| round(1_000));
        let grown = resident().saturating_sub(before);
        // A leak of ten bytes a task would show. The allocator's noise stays well below the limit.
        println!("grown by {grown} bytes over {tasks} tasks");
        assert!(grown < 4 << 20, "grown by {grown} bytes over {tasks} tasks");
    });
}

/// Returns state and context switches of each thread of this process whose name begins with `name`.
fn switches(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").expect("/proc is mounted") {
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else {
            continue;
        };
        let field =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("").trim();
        if field("Name:").starts_with(name) {
            let counts = [field("voluntary_ctxt_switches:"), field("nonvoluntary_ctxt_switches:")];
            all.push(format!("{} {} {counts:?}", field("Pid:"), field("State:")));
        }
    }
    all.sort();
    all
}

/// A thread that makes no system call and does not run has no context switches. Once they are at
/// rest, all 65 threads stay so for a second.
#[test]
fn an_idle_runtime_of_64_workers_does_nothing_at_all() {
    isolated("memory::an_idle_runtime_of_64_workers_does_nothing_at_all", || {
        let _watch = watch();
        let runtime = giveway::Builder::new()
            .workers(64)
            .max_spare_workers(0)
            .thread_name("idle")
            .build()
            .unwrap();
        let gate = Gate::new();
        let (started, starts) = mpsc::channel();
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (gate, started) = (gate.clone(), started.clone());
                runtime.spawn(async move {
                    started.send(()).unwrap();
                    gate.wait();
                })
            })
            .collect();
        (0..64).for_each(|_| recv(&starts));
        gate.open();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        // At rest means that all threads sleep, and that nothing has changed after five of the
        // monitor's longest pauses. These waits order no events: the test is that nothing happens
        // during them.
        let pause = Duration::from_millis(50);
        let at_rest = Patience::new().keep_trying(|_| {
            let before = switches("idle-");
            std::thread::sleep(pause);
            let sleep = || before.iter().all(|thread| thread.contains(" S (sleeping) "));
            (switches("idle-") == before && sleep()).then_some(before)
        });
        let at_rest = at_rest.expect("it does not come to rest");
        assert_eq!(at_rest.len(), 65, "64 workers and the monitor");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(switches("idle-"), at_rest, "somebody ran");
    });
}
