//! The timer slack of a thread: how late the kernel may let its timers fire. Threads and processes
//! that a task starts have the slack of the process, and not the one that a worker sets while it
//! waits in the reactor.

use giveway::Builder;
use giveway::time::{Duration, sleep};
use giveway_tests::{on_one_worker, with_runtimes};
use std::ffi::c_ulong;
use std::process::Command;
use std::thread;

/// Returns the timer slack of the calling thread, in nanoseconds.
fn slack() -> i32 {
    // SAFETY: `PR_GET_TIMERSLACK` takes no pointer and writes no memory: it returns a setting of
    // the calling thread.
    unsafe {
        libc::prctl(libc::PR_GET_TIMERSLACK, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong)
    }
}

/// Returns the timer slack of a new thread and of a new process.
fn slack_of_what_is_started() -> [i32; 2] {
    let output = Command::new("cat").arg("/proc/self/timerslack_ns").output().unwrap();
    let of_process = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    [thread::spawn(slack).join().unwrap(), of_process]
}

#[test]
fn threads_and_processes_that_a_task_starts_have_the_slack_that_the_process_had() {
    let before = slack_of_what_is_started();
    with_runtimes(|runtime| {
        let tasks = (0..4).map(|nth| {
            runtime.spawn(async move {
                // A short wait, of which the thread's own slack is the larger part, and a long one.
                sleep(Duration::from_millis(1 + 60 * (nth % 2))).await;
                slack_of_what_is_started()
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(runtime.block_on(task).unwrap(), before);
        }
    });
}

#[test]
fn threads_that_a_start_hook_starts_have_it_too() {
    let (before, (told, starts)) = (slack(), std::sync::mpsc::channel());
    let hook = move || told.send(thread::spawn(slack).join().unwrap()).unwrap();
    let runtime =
        Builder::new().workers(2).max_spare_workers(0).on_thread_start(hook).build().unwrap();
    assert_eq!((starts.recv(), starts.recv()), (Ok(before), Ok(before)));
    drop(runtime);
}

#[test]
fn a_slack_that_a_task_sets_for_its_worker_stays() {
    on_one_worker(async {
        // SAFETY: `PR_SET_TIMERSLACK` takes no pointer: it changes a setting of the calling thread.
        unsafe {
            libc::prctl(
                libc::PR_SET_TIMERSLACK,
                123_456 as c_ulong,
                0 as c_ulong,
                0 as c_ulong,
                0 as c_ulong,
            );
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(slack(), 123_456);
    });
}
