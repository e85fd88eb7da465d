//! While the drop of a runtime waits, it reports on standard error what it waits for: first after a
//! second, then again after longer and longer pauses.

use super::blocking::{limited, occupy_thread};
use giveway::task::{Builder, Class};
use giveway::{Runtime, block_in_place};
use giveway_tests::{Gate, isolated, on_drop, recv, runtime, watch};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Redirects the standard error of this process, and returns a channel of the lines that are
/// written to it from now on. Only for a test in a process of its own.
fn lines_of_stderr() -> Receiver<String> {
    let mut ends = [0; 2];
    // SAFETY: `pipe` writes two descriptors to its pointer; `ends` is a writable array of two.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: a `File` must own an open descriptor. `pipe` has just opened these two, and no other
    // code knows their numbers.
    let [read, write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    // SAFETY: the call takes no pointer. `write` is open. Descriptor 2 has no owner that closes it:
    // std writes to standard error by this number.
    assert_eq!(unsafe { libc::dup2(write.as_raw_fd(), 2) }, 2);
    let (line, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(read).lines().map_while(Result::ok).try_for_each(|text| line.send(text))
    });
    lines
}

/// Returns the next line that says what the drop waits for.
fn next(lines: &Receiver<String>) -> String {
    loop {
        let line = recv(lines);
        if line.contains("dropping the runtime waits for") {
            return line;
        }
    }
}

/// Drops `runtime` on another thread and passes `look` the lines that are written meanwhile. The
/// drop must still wait when `look` returns. Then opens `release`, which lets the drop end.
fn while_dropped(runtime: Runtime, release: &Gate, look: impl FnOnce(&Receiver<String>)) {
    let lines = lines_of_stderr();
    let dropper = thread::spawn(move || drop(runtime));
    look(&lines);
    assert!(!dropper.is_finished());
    release.open();
    dropper.join().unwrap();
}

/// The report names the task, its spawn location, its worker and how long its poll has gone on.
#[test]
fn a_drop_that_waits_for_a_poll_says_so_again_and_again() {
    isolated("shutdown_says::a_drop_that_waits_for_a_poll_says_so_again_and_again", || {
        let _watch = watch();
        let (runtime, gate, begun) = (runtime(2), Gate::new(), Gate::new());
        let (waits, begins) = (gate.clone(), begun.clone());
        let poll = async move {
            begins.open();
            waits.wait();
        };
        let task = Builder::new().name("snail").spawn_on(poll, runtime.handle());
        let (id, line) = (task.id(), line!() - 1);
        begun.wait();
        while_dropped(runtime, &gate, |lines| {
            let seconds = [(); 2].map(|()| {
                let said = next(lines);
                let what = format!("task \"snail\" ({id}), spawned at {}:{line}:", file!());
                assert!(said.contains(&what) && said.contains("on worker "), "{said}");
                let seconds =
                    said.split("in one poll for ").nth(1).and_then(|rest| rest.split_once(" s on"));
                seconds
                    .and_then(|(seconds, _)| seconds.parse::<u64>().ok())
                    .unwrap_or_else(|| panic!("{said}"))
            });
            assert!(seconds[0] >= 1 && seconds[1] > seconds[0], "{seconds:?}");
        });
        futures::executor::block_on(task).unwrap();
    });
}

/// The only blocking thread is in a job, and three jobs are queued behind it. Two lines say so.
#[test]
fn a_drop_that_waits_for_blocking_jobs_says_so() {
    isolated("shutdown_says::a_drop_that_waits_for_blocking_jobs_says_so", || {
        let _watch = watch();
        let (runtime, gate) = (limited(1, 1), Gate::new());
        let job = occupy_thread(runtime.handle(), &gate);
        (0..3).for_each(|_| drop(runtime.spawn_blocking(|| ())));
        while_dropped(runtime, &gate, |lines| {
            let said = next(lines);
            let id = job.id();
            assert!(
                said.contains(&format!("task {id}, "))
                    && said.contains("a blocking job that has not ended"),
                "{said}"
            );
            let said = next(lines);
            assert!(said.contains("3 blocking jobs in the queue"), "{said}");
        });
    });
}

/// One task's destructor does not return, and another task blocks in place on a thread that has
/// lost its core. Each is named with what it does.
#[test]
fn a_drop_that_waits_for_a_destructor_or_a_call_in_place_says_so() {
    isolated(
        "shutdown_says::a_drop_that_waits_for_a_destructor_or_a_call_in_place_says_so",
        || {
            let _watch = watch();
            let (runtime, gate, begun) = (runtime(1), Gate::new(), Gate::new());
            let waits = gate.clone();
            let guard = on_drop(move || waits.wait());
            let clings = Builder::new()
                .name("limpet")
                .spawn_on(giveway_tests::hold(guard), runtime.handle());
            let (waits, begins) = (gate.clone(), begun.clone());
            let call = async move {
                block_in_place(|| {
                    // The spawned task can run only on a thread that has taken this worker's core:
                    // after this line the core is elsewhere.
                    giveway::block_on(giveway::spawn(async {})).unwrap();
                    begins.open();
                    waits.wait();
                })
            };
            let blocks =
                Builder::new().name("ox").class(Class::Foreground).spawn_on(call, runtime.handle());
            begun.wait();
            let mut said = Vec::new();
            while_dropped(runtime, &gate, |lines| {
                // The first report may come before the destructor has begun, so each name is waited
                // for.
                for (name, what) in
                    [("\"limpet\"", "in its destructor for "), ("\"ox\"", "blocks in place for ")]
                {
                    while said.iter().all(|line: &String| !line.contains(name)) {
                        said.push(next(lines));
                    }
                    assert!(
                        said.iter().any(|line| line.contains(name) && line.contains(what)),
                        "{said:?}"
                    );
                }
            });
            drop((clings, blocks));
        },
    );
}

/// No task is left: the only worker is in the user's thread-stop hook.
#[test]
fn a_drop_that_waits_for_a_hook_says_so() {
    isolated("shutdown_says::a_drop_that_waits_for_a_hook_says_so", || {
        let _watch = watch();
        let gate = Gate::new();
        let waits = gate.clone();
        let runtime = giveway::Builder::new()
            .workers(1)
            .max_spare_workers(0)
            .on_thread_stop(move || waits.wait())
            .build()
            .unwrap();
        while_dropped(runtime, &gate, |lines| {
            let said = next(lines);
            assert!(said.contains("1 thread in no task"), "{said}");
        });
    });
}
