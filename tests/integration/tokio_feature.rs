//! The feature `tokio`: what a tokio runtime beside this one does for its tasks, and what code that
//! tokio runs gets of this one. Its end is in `tokio_feature_end.rs`.

use super::blocking::threads_named;
use super::blocking_refused::{HUGE, allow_huge_stacks, refuse_huge_stacks};
use giveway::task::{self, Class};
use giveway::{Builder, Runtime, spawn, spawn_background, spawn_blocking, yield_now_if_busy};
use giveway_tests::{Gate, Log, eventually, in_child, isolated, occupy, panic_of, recv, watch};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Returns a builder of a runtime with a tokio beside it.
pub(crate) fn with_tokio(workers: usize) -> Builder {
    // Without these settings a poll that is long because the machine is loaded would get a spare
    // worker, and later polls could move to lowered threads.
    Builder::new().workers(workers).max_spare_workers(0).preempt_background(false).tokio(true)
}

pub(crate) fn runtime(workers: usize) -> Runtime {
    with_tokio(workers).build().expect("a runtime starts")
}

/// Returns the name of the calling thread.
pub(crate) fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Uses tokio's clock, its sockets and its `spawn`.
async fn use_tokio() -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    tokio::time::sleep(Duration::from_millis(1)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut said = [0; 5];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    echo.await.unwrap();
    tokio::task::spawn_blocking(move || heard).await.unwrap()
}

#[test]
fn a_task_uses_tokio_wherever_it_is_polled() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Builder::new().workers(workers).tokio(true).build().unwrap();
        let heard = runtime.block_on(async {
            let pinned = giveway::spawn_pinned(use_tokio).await.unwrap();
            let lowered = task::Builder::new().preemptible(true).spawn(use_tokio());
            [
                use_tokio().await,
                spawn(use_tokio()).await.unwrap(),
                spawn_background(use_tokio()).await.unwrap(),
                pinned,
                lowered.await.unwrap(),
            ]
        });
        assert_eq!(heard, ["hello"; 5]);
    }
}

#[test]
fn a_blocking_job_and_a_nested_block_on_use_tokio() {
    let _watch = watch();
    let runtime = runtime(1);
    let nested = || giveway::block_on(use_tokio());
    assert_eq!(runtime.block_on(runtime.spawn_blocking(nested)).unwrap(), "hello");
    assert_eq!(runtime.block_on(runtime.spawn(async move { nested() })).unwrap(), "hello");
    let by_tokio = || tokio::runtime::Handle::current().block_on(use_tokio());
    assert_eq!(runtime.block_on(runtime.spawn_blocking(by_tokio)).unwrap(), "hello");
}

/// The thread that comes for the core of a blocking call is entered too.
#[test]
fn a_thread_that_stands_in_for_a_worker_uses_tokio() {
    let _watch = watch();
    let (runtime, gate) = (runtime(1), Gate::new());
    let blocked = giveway_tests::block_in_place(runtime.handle(), 1, &gate);
    let there = runtime.spawn(async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        thread_name()
    });
    let there = runtime.block_on(there).unwrap();
    assert!(there.starts_with("giveway-bl"), "a thread of the pool has the core: {there}");
    gate.open();
    for task in blocked {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn without_a_tokio_its_code_panics() {
    let _watch = watch();
    let runtime = Builder::new().workers(1).tokio(false).build().unwrap();
    let sleeps = runtime.spawn(async { tokio::time::sleep(Duration::ZERO).await });
    assert!(runtime.block_on(sleeps).unwrap_err().is_panic());
}

/// What the code of this test spawns, from wherever, is run by the runtime `kitchen`, and no second
/// runtime is started for it.
#[cfg(target_os = "linux")]
#[test]
fn code_that_tokio_runs_reaches_the_same_runtime() {
    isolated("tokio_feature::code_that_tokio_runs_reaches_the_same_runtime", || {
        let _watch = watch();
        let runtime = with_tokio(2).thread_name("kitchen").build().unwrap();

        async fn where_tasks_run() -> [(String, Class); 4] {
            let here = || (thread_name(), task::class());
            [
                here(),
                spawn(async move { here() }).await.unwrap(),
                spawn_background(async move { spawn(async move { here() }).await.unwrap() })
                    .await
                    .unwrap(),
                spawn_blocking(here).await.unwrap(),
            ]
        }

        let on_tokios_worker = runtime.block_on(async { tokio::spawn(where_tasks_run()).await });
        let on_its_blocking_thread = runtime.block_on(async {
            tokio::task::spawn_blocking(|| giveway::block_on(where_tasks_run())).await
        });
        for answers in [on_tokios_worker.unwrap(), on_its_blocking_thread.unwrap()] {
            let classes = answers.each_ref().map(|(_, class)| *class);
            let (fg, bg) = (Class::Foreground, Class::Background);
            assert_eq!(classes, [fg, fg, bg, fg], "the class is inherited from its own tasks");
            let [tokio, task, background, job] = answers.map(|(name, _)| name);
            assert!(tokio.starts_with("kitchen-tokio"), "{tokio}");
            for name in [task, background] {
                assert!(["kitchen-0", "kitchen-1"].contains(&&*name), "{name}");
            }
            assert!(job.starts_with("kitchen-bl"), "{job}");
        }
        assert_eq!(threads_named("giveway"), 0, "a default runtime was started");
    });
}

#[test]
fn the_thread_hooks_are_called_on_tokios_threads() {
    let (_watch, started, stopped) = (watch(), Log::default(), Log::default());
    let runtime = {
        let (started, stopped) = (started.clone(), stopped.clone());
        with_tokio(1)
            .thread_name("cook")
            .on_thread_start(move || started.add(thread_name()))
            .on_thread_stop(move || stopped.add(thread_name()))
            .build()
            .unwrap()
    };
    runtime.block_on(async { tokio::spawn(async {}).await.unwrap() });
    drop(runtime);
    assert!(started.has("cook-tokio"), "{started:?}");
    assert!(stopped.has("cook-tokio"), "{stopped:?}");
}

/// Tokio has one thread. A loop with yield points holds it only for a moment at a time, although
/// the runtime's own workers are idle.
#[test]
fn a_yield_point_lets_the_other_tasks_of_tokios_thread_go_first() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.block_on(async {
        let done = Arc::new(AtomicBool::new(false));
        let (begun, begins) = tokio::sync::oneshot::channel();
        let polite = tokio::spawn({
            let done = done.clone();
            async move {
                begun.send(()).unwrap();
                while !done.load(SeqCst) {
                    yield_now_if_busy().await;
                }
            }
        });
        begins.await.unwrap();
        // By its clock, too: it is the thread of the loop that has to look.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            done.store(true, SeqCst);
        })
        .await
        .unwrap();
        polite.await.unwrap();
    });
}

/// A task that tokio polls waits in the yield queue while foreground work waits for a worker.
/// Tokio's thread does not wait with it.
#[test]
fn a_yield_point_on_tokios_thread_gives_way_to_the_tasks_of_the_workers() {
    let (_watch, gate, log) = (watch(), Gate::new(), Log::default());
    let runtime = runtime(1);
    let occupied = occupy(runtime.handle(), 1, &gate);
    let foreground = runtime.spawn({
        let log = log.clone();
        async move { log.add("foreground") }
    });
    runtime.block_on(async {
        let (pending, is_pending) = tokio::sync::oneshot::channel();
        let polite = tokio::spawn({
            let log = log.clone();
            async move {
                let mut yield_point = std::pin::pin!(yield_now_if_busy());
                let mut pending = Some(pending);
                poll_fn(|cx| {
                    let poll = yield_point.as_mut().poll(cx);
                    if let (Poll::Pending, Some(pending)) = (poll, pending.take()) {
                        pending.send(()).unwrap();
                    }
                    poll
                })
                .await;
                log.add("polite");
            }
        });
        is_pending.await.expect("the yield point is pending at first");
        // Several turns of tokio's thread, in which the task is not polled.
        for _ in 0..10 {
            tokio::spawn(async { tokio::time::sleep(Duration::from_millis(1)).await })
                .await
                .unwrap();
        }
        log.assert(&[]);
        gate.open();
        polite.await.unwrap();
        foreground.await.unwrap();
        for task in occupied {
            task.await.unwrap();
        }
    });
    log.assert(&["foreground", "polite"]);
}

/// A call that blocks on tokio's only worker, while its driver is needed for that very call.
#[test]
fn block_on_and_block_in_place_in_a_tokio_task_leave_tokio_going() {
    let _watch = watch();
    let runtime = runtime(1);
    let (there, both_there) = mpsc::channel();
    let tasks: Vec<_> = runtime.block_on(async {
        let nested = tokio::spawn(async { giveway::block_on(use_tokio()) });
        assert_eq!(nested.await.unwrap(), "hello");
        // Each of the two needs the other to be polled at the same time.
        let barrier = Arc::new(std::sync::Barrier::new(2));
        (0..2)
            .map(|_| {
                let (barrier, there) = (barrier.clone(), there.clone());
                tokio::spawn(async move {
                    giveway::block_in_place(|| barrier.wait());
                    there.send(()).unwrap();
                })
            })
            .collect()
    });
    recv(&both_there);
    recv(&both_there);
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[giveway::main(tokio, workers = 1)]
async fn by_the_attribute() -> String {
    // In the future itself, and in a task that tokio polls.
    use_tokio().await;
    tokio::spawn(async { spawn(use_tokio()).await.unwrap() }).await.unwrap()
}

#[giveway::main(tokio = false, workers = 1)]
async fn not_by_the_attribute() {
    tokio::time::sleep(Duration::ZERO).await;
}

#[test]
fn main_with_tokio_has_one() {
    let _watch = watch();
    assert_eq!(by_the_attribute(), "hello");
    let message = panic_of(not_by_the_attribute);
    assert!(message.contains("there is no reactor running"), "{message}");
}

#[giveway::test(tokio, timeout = "10min")]
async fn a_test_with_tokio_has_one() {
    assert_eq!(use_tokio().await, "hello");
}

#[giveway::test(tokio = true)]
async fn a_test_with_tokio_set_to_true_has_one() {
    assert_eq!(spawn(use_tokio()).await.unwrap(), "hello");
}

/// The program of the README's server, with axum: each connection is a task of tokio's, whose
/// handlers spawn background work here.
#[cfg(target_os = "linux")]
#[test]
fn handlers_of_axum_spawn_background_work_that_gives_way() {
    isolated("tokio_feature::handlers_of_axum_spawn_background_work_that_gives_way", || {
        let _watch = watch();
        let runtime = with_tokio(1).thread_name("kitchen").build().unwrap();
        let (gate, (ran, runs)) = (Gate::new(), mpsc::channel());
        let handler = move || {
            let run = |ran: mpsc::Sender<_>| async move {
                ran.send((thread_name(), task::class())).unwrap();
            };
            drop(spawn_background(run(ran.clone())));
            let foreground = spawn(run(ran.clone()));
            // The handler is a task of tokio's, and so is this one.
            drop(tokio::spawn(async move { foreground.await.unwrap() }));
            std::future::ready(thread_name())
        };
        let router = axum::Router::new().route("/", axum::routing::get(handler));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (address, server) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = axum::serve(listener, router)
                .with_graceful_shutdown(async move { _ = stopped.await });
            (address, spawn(server.into_future()))
        });
        // The server's own task is woken by tokio, and needs the only worker to accept.
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: kitchen\r\n\r\n").unwrap();
        let answer = read_answer(&mut client);
        assert!(answer.ends_with("kitchen-tokio"), "where the handler ran: {answer}");
        let mut both = [recv(&runs), recv(&runs)];
        both.sort_by_key(|(_, class)| *class == Class::Background);
        let in_order = [Class::Foreground, Class::Background].map(|it| ("kitchen-0".into(), it));
        assert_eq!(both, in_order);

        // With the worker in a poll, what the handler spawns waits; the answer does not.
        let occupied = occupy(runtime.handle(), 1, &gate);
        client.write_all(b"GET / HTTP/1.1\r\nhost: kitchen\r\nconnection: close\r\n\r\n").unwrap();
        assert!(read_answer(&mut client).ends_with("kitchen-tokio"));
        assert!(runs.try_recv().is_err());
        gate.open();
        assert_eq!([recv(&runs), recv(&runs)], in_order, "the background gave way");

        stop.send(()).unwrap();
        runtime.block_on(server).unwrap().unwrap();
        occupied.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        assert_eq!(threads_named("giveway"), 0, "a default runtime was started");
    });
}

/// Reads one answer, whose body is as long as its header says.
fn read_answer(client: &mut std::net::TcpStream) -> String {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    loop {
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_some_and(|length| length.parse() == Ok(body.len())) {
            return text.into_owned();
        }
    }
}

/// The runtime that a thread has entered decides where `giveway::spawn` goes; tokio's context is
/// that of the `block_on`, or of the thread's own runtime.
#[test]
fn each_of_two_runtimes_has_its_own_tokio() {
    let _watch = watch();
    let outer = with_tokio(1).thread_name("outer").build().unwrap();
    let inner = with_tokio(1).thread_name("inner").build().unwrap();
    async fn where_tokio_runs() -> String {
        tokio::spawn(async { thread_name() }).await.unwrap()
    }
    let names = outer.block_on(async move {
        let before = where_tokio_runs().await;
        let in_task = spawn(async move {
            let nested = inner.block_on(where_tokio_runs());
            let handle = inner.handle().clone();
            let in_tokio =
                tokio::spawn(async move { handle.block_on(where_tokio_runs()) }).await.unwrap();
            (nested, in_tokio, where_tokio_runs().await)
        });
        (before, in_task.await.unwrap(), where_tokio_runs().await)
    });
    let [outer, inner] = ["outer-tokio", "inner-tokio"].map(str::to_owned);
    let expected = (outer.clone(), (inner.clone(), inner, outer.clone()), outer);
    assert_eq!(names, expected);
}

#[test]
fn a_runtime_may_be_used_inside_of_another_tokio() {
    let _watch = watch();
    let foreign = tokio::runtime::Runtime::new().unwrap();
    foreign.block_on(async {
        let runtime = runtime(1);
        assert_eq!(runtime.block_on(use_tokio()), "hello");
        assert_eq!(runtime.spawn(use_tokio()).await.unwrap(), "hello");
        tokio::spawn(async move {
            assert_eq!(runtime.spawn(use_tokio()).await.unwrap(), "hello");
            drop(runtime); // in a context in which tokio refuses to drop a runtime of its own
        })
        .await
        .unwrap();
    });
}

#[test]
fn a_panic_on_either_side_stays_there() {
    let _watch = watch();
    let runtime = runtime(1);
    for _ in 0..3 {
        runtime.block_on(async {
            let on_tokio = tokio::spawn(async { spawn(async { panic!("here") }).await.unwrap() });
            assert!(on_tokio.await.unwrap_err().is_panic());
            let here = spawn(async { tokio::spawn(async { panic!("there") }).await.unwrap() });
            assert!(here.await.unwrap_err().is_panic());
            let blocking = tokio::task::spawn_blocking(|| panic!("there, in a job")).await;
            assert!(blocking.unwrap_err().is_panic());
        });
    }
    assert_eq!(runtime.block_on(use_tokio()), "hello");
}

/// A task leaves a guard of tokio's behind on its worker. Tokio panics when an older guard is
/// dropped then, and the runtime drops none.
#[test]
fn a_guard_of_tokio_that_a_task_forgets_does_no_harm() {
    let _watch = watch();
    let runtime = runtime(1);
    runtime
        .block_on(runtime.spawn(async {
            std::mem::forget(tokio::runtime::Handle::current().enter());
        }))
        .unwrap();
    assert_eq!(runtime.block_on(runtime.spawn(use_tokio())).unwrap(), "hello");
}

#[test]
fn the_detection_of_deadlocks_excludes_tokio() {
    let error = with_tokio(1).detect_deadlock(true).build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("`detect_deadlock` and `tokio`"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_tokio_that_cannot_be_started_is_an_error_of_build() {
    isolated("tokio_feature::a_tokio_that_cannot_be_started_is_an_error_of_build", || {
        let _watch = watch();
        refuse_huge_stacks();
        let error = with_tokio(1).stack_size(HUGE).build().unwrap_err();
        assert!(error.to_string().contains("tokio could not be started"), "{error}");
        allow_huge_stacks();
        assert_eq!(threads_named("giveway"), 0);
        assert_eq!(runtime(1).block_on(use_tokio()), "hello");
    });
}

/// Room for the stack of tokio's thread, and not for those of the workers.
#[cfg(target_os = "linux")]
#[test]
fn tokio_ends_if_the_runtimes_own_threads_cannot_be_started() {
    isolated("tokio_feature::tokio_ends_if_the_runtimes_own_threads_cannot_be_started", || {
        let _watch = watch();
        // Eight of them at once do not fit; each of the first few does.
        super::blocking_refused::limit_address_space(HUGE as u64 * 5 / 2);
        let error = with_tokio(8).stack_size(HUGE).build().unwrap_err();
        assert!(error.to_string().contains("of 9 could not be started"), "{error}");
        allow_huge_stacks();
        eventually(|| threads_named("giveway") == 0);
    });
}

const REMEDY: &str = "`Builder::tokio(true)` or `#[giveway::main(tokio)]`";

#[test]
fn a_panic_for_want_of_tokio_names_the_remedy_once() {
    let child =
        in_child("tokio_feature::a_panic_for_want_of_tokio_names_the_remedy_once", &[], || {
            let _watch = watch();
            let runtime = Builder::new().workers(1).build().unwrap();
            let sleeps = || tokio::time::sleep(Duration::ZERO);
            for _ in 0..2 {
                let task = runtime.spawn(async move { sleeps().await });
                assert!(runtime.block_on(task).unwrap_err().is_panic());
            }
            let job = runtime.spawn_blocking(move || drop(sleeps()));
            assert!(runtime.block_on(job).unwrap_err().is_panic());
        });
    if let Some(child) = child {
        child.assert_success();
        assert_eq!(child.output.matches(REMEDY).count(), 1, "{}", child.output);
    }
}

#[test]
fn a_panic_for_want_of_tokio_in_main_itself_names_the_remedy() {
    let name = "tokio_feature::a_panic_for_want_of_tokio_in_main_itself_names_the_remedy";
    if let Some(child) = in_child(name, &[], not_by_the_attribute) {
        assert!(!child.status.success());
        assert_eq!(child.output.matches(REMEDY).count(), 1, "{}", child.output);
    }
}

/// With a tokio beside the runtime the sentence has another cause, which the hint would hide.
#[test]
fn other_panics_name_no_remedy() {
    let child = in_child("tokio_feature::other_panics_name_no_remedy", &[], || {
        let _watch = watch();
        let plain = Builder::new().workers(1).build().unwrap();
        let task = plain.spawn(async { panic!("there is no reactor in this kitchen") });
        assert!(plain.block_on(task).unwrap_err().is_panic());
        let runtime = runtime(1);
        let same_words = runtime.spawn(async {
            panic!(
                "there is no reactor running, must be called from the context of a Tokio 1.x \
                 runtime"
            )
        });
        assert!(runtime.block_on(same_words).unwrap_err().is_panic());
    });
    if let Some(child) = child {
        child.assert_success();
        assert!(!child.output.contains(REMEDY), "{}", child.output);
    }
}
