//! What `docs/porting.md` says of tokio and of this runtime, shown on both. A test has the name of
//! its row.

use futures::AsyncReadExt as _;
use giveway::budget;
use giveway_tests::{Gate, eventually, in_child, message, on_drop, panic_of, recv, runtime, watch};
use std::future::{Future, poll_fn, ready};
use std::ops::Add;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(1);

/// Returns a tokio runtime with one worker.
fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Returns in how many polls a future comes to its end.
async fn polls_of(future: impl Future) -> usize {
    let (mut future, mut polls) = (pin!(future), 0);
    poll_fn(|cx| {
        polls += 1;
        future.as_mut().poll(cx).map(|_| polls)
    })
    .await
}

#[test]
fn block_on_inside_of_a_task() {
    let _watch = watch();
    let theirs = tokio();
    let nested = theirs.spawn(async { tokio::runtime::Handle::current().block_on(async { 1 }) });
    let panic = theirs.block_on(nested).unwrap_err().into_panic();
    assert!(message(&*panic).contains("Cannot start a runtime from within a runtime"));
    assert!(
        panic_of(|| theirs.block_on(async { theirs.block_on(async { 1 }) }))
            .contains("Cannot start")
    );

    let ours = runtime(1);
    let sleep = || giveway::time::sleep(MOMENT);
    ours.block_on(ours.spawn(async move { giveway::block_on(sleep()) })).unwrap();
    ours.block_on(async { ours.block_on(sleep()) });
}

#[test]
fn dropping_a_runtime_in_async_code() {
    let _watch = watch();
    let text = panic_of(|| tokio().block_on(async { drop(tokio()) }));
    assert!(
        text.contains("Cannot drop a runtime in a context where blocking is not allowed"),
        "{text}"
    );

    let (stops, stopped) = mpsc::channel();
    let other = giveway::Builder::new()
        .workers(2)
        .max_spare_workers(0)
        .on_thread_stop(move || stops.send(()).unwrap())
        .build()
        .unwrap();
    let ours = runtime(1);
    let dropping = ours.spawn(async move {
        drop(other);
        stopped.try_iter().count()
    });
    assert_eq!(ours.block_on(dropping).unwrap(), 2, "its workers have ended when the drop returns");
}

#[test]
fn spawning_after_the_shutdown() {
    let _watch = watch();
    let theirs = tokio();
    let handle = theirs.handle().clone();
    drop(theirs);
    let late = handle.spawn(async {});
    assert!(futures::executor::block_on(late).unwrap_err().is_cancelled());

    let ours = runtime(1);
    let handle = ours.handle().clone();
    drop(ours);
    let error = futures::executor::block_on(handle.spawn(async {})).unwrap_err();
    assert!(error.is_cancelled());
    assert!(error.to_string().contains("shut down"), "{error}");
}

#[test]
fn sleeping_after_the_shutdown() {
    let _watch = watch();
    let theirs = tokio();
    let handle = theirs.handle().clone();
    drop(theirs);
    let text = panic_of(|| handle.block_on(async { tokio::time::sleep(MOMENT).await }));
    assert!(text.contains("being shutdown"), "{text}");

    let ours = runtime(1);
    let handle = ours.handle().clone();
    drop(ours);
    handle.block_on(async {
        let mut nap = pin!(giveway::time::sleep(MOMENT));
        nap.as_mut().await;
        assert!(nap.is_elapsed());
    });
}

#[test]
fn binding_after_the_shutdown() {
    let _watch = watch();
    let theirs = tokio();
    let handle = theirs.handle().clone();
    drop(theirs);
    let error = handle.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap_err();
    assert!(error.to_string().contains("being shutdown"), "{error}");

    let ours = runtime(1);
    let handle = ours.handle().clone();
    drop(ours);
    handle.block_on(async {
        let listener = giveway::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client =
            giveway::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        drop(client);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "the default runtime serves it");
    });
}

#[test]
fn guards_dropped_in_any_order() {
    let (one, two) = (tokio(), tokio());
    let text = panic_of(|| {
        let (outer, inner) = (one.enter(), two.enter());
        drop(outer);
        drop(inner);
    });
    assert!(text.contains("dropped out of order"), "{text}");

    let (one, two) = (runtime(1), runtime(2));
    let (outer, inner) = (one.enter(), two.enter());
    drop(outer);
    assert_eq!(giveway::Handle::current().workers(), 2);
    drop(inner);
    assert!(giveway::Handle::try_current().is_none());
}

#[test]
fn no_workers_or_no_blocking_threads() {
    let theirs = || tokio::runtime::Builder::new_multi_thread();
    assert!(panic_of(|| theirs().worker_threads(0).build()).contains("cannot be set to 0"));
    assert!(panic_of(|| theirs().max_blocking_threads(0).build()).contains("cannot be set to 0"));

    for ours in
        [giveway::Builder::new().workers(0), giveway::Builder::new().max_blocking_threads(0)]
    {
        assert_eq!(ours.build().unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}

/// `macros/tests/cases/misuse.rs` tests that our attributes refuse both, and what they say.
#[test]
fn attributes_on_functions_with_arguments_or_generics() {
    #[tokio::main(flavor = "current_thread")]
    async fn theirs<T: Add<Output = T>>(a: T, b: T) -> T {
        a + b
    }

    fn ours<T: Add<Output = T>>(a: T, b: T) -> T {
        giveway::block_on(async { a + b })
    }

    assert_eq!((theirs(1, 2), ours(1, 2)), (3, 3));
}

#[test]
fn poll_recv_and_its_like() {
    let _watch = watch();
    tokio().block_on(async {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        socket.send_to(b"abc", address).await.unwrap();
        let mut bytes = [0; 8];
        let mut buffer = tokio::io::ReadBuf::new(&mut bytes);
        let from = poll_fn(|cx| socket.poll_recv_from(cx, &mut buffer)).await.unwrap();
        assert_eq!((from, buffer.filled()), (address, &b"abc"[..]));
    });
    runtime(1).block_on(async {
        let socket = giveway::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        socket.send_to(b"abc", address).await.unwrap();
        let mut bytes = [0; 8];
        let (read, from) = poll_fn(|cx| socket.poll_recv_from(cx, &mut bytes)).await.unwrap();
        assert_eq!((from, &bytes[..read]), (address, &b"abc"[..]));
    });
}

#[test]
fn metrics() {
    let _watch = watch();
    let theirs = tokio();
    let live = theirs.metrics();
    let waiting = theirs.spawn(std::future::pending::<()>());
    assert_eq!((live.num_workers(), live.num_alive_tasks()), (1, 1), "counted when it is asked");
    eventually(|| live.global_queue_depth() == 0 && live.worker_park_count(0) > 0);
    eventually(|| !live.worker_total_busy_duration(0).is_zero());
    waiting.abort();

    let ours = runtime(1);
    let before = ours.metrics();
    let (gate, (begun, begins)) = (Gate::new(), mpsc::channel());
    let opens = gate.clone();
    let waiting = ours.spawn(async move {
        begun.send(()).unwrap();
        opens.wait();
        std::future::pending::<()>().await;
    });
    recv(&begins);
    assert_eq!(ours.metrics().tasks, 0, "it has not waited yet");
    gate.open();
    eventually(|| ours.metrics().tasks == 1);
    assert_eq!((before.workers.len(), before.tasks), (1, 0), "a snapshot does not change");
    let since = ours.metrics().since(&before);
    assert_eq!((since.polls(), since.injector), (1, 0));
    // A park is counted when it is over, so a task has to end it.
    eventually(|| {
        ours.block_on(ours.spawn(async {})).unwrap();
        ours.metrics().workers[0].parks > 0
    });
    assert!(!ours.metrics().workers[0].busy.is_zero());
    waiting.abort();
}

#[test]
fn tokio_io_empty_and_the_budget() {
    async fn reads() {
        for _ in 0..1_000 {
            tokio::io::AsyncReadExt::read(&mut tokio::io::empty(), &mut [0]).await.unwrap();
        }
    }
    let _watch = watch();
    let theirs = tokio();
    assert!(
        theirs.block_on(theirs.spawn(polls_of(reads()))).unwrap() > 1,
        "tokio's budget is for this"
    );
    let ours = runtime(1);
    assert_eq!(ours.block_on(ours.spawn(polls_of(reads()))).unwrap(), 1, "ours is not spent");
    let polite = async {
        for _ in 0..1_000 {
            tokio::io::AsyncReadExt::read(&mut tokio::io::empty(), &mut [0]).await.unwrap();
            budget::consume().await;
        }
    };
    assert!(ours.block_on(ours.spawn(polls_of(polite))).unwrap() > 1);
}

/// One of the two branches spends the budget, and the other is always ready.
#[test]
fn tokio_select_and_the_budget() {
    async fn rounds<F: Future>(spends: fn() -> F) -> (usize, usize) {
        let mut without = 0;
        let rounds = async {
            for _ in 0..1_000 {
                tokio::select! {
                    biased;
                    _ = spends() => {}
                    () = ready(()) => without += 1,
                }
            }
        };
        (polls_of(rounds).await, without)
    }
    let _watch = watch();
    let theirs = tokio();
    let (polls, without) =
        theirs.block_on(theirs.spawn(rounds(tokio::task::consume_budget))).unwrap();
    assert!(
        polls > 1 && without == 0,
        "it returns when the budget is spent: {polls} polls, {without}"
    );
    let ours = runtime(1);
    let (polls, without) = ours.block_on(ours.spawn(rounds(budget::consume))).unwrap();
    assert!(polls == 1 && without > 0, "it takes the other branch: {polls} polls, {without}");
}

#[test]
fn join_errors_in_debug_and_display() {
    let _watch = watch();
    let theirs = tokio();
    let ours = runtime(1);
    let (their_message, our_message) = (
        theirs.block_on(theirs.spawn(async { panic!("no {}", "bread") })).unwrap_err(),
        ours.block_on(ours.spawn(async { panic!("no {}", "bread") })).unwrap_err(),
    );
    let expected = |id: &str| format!("JoinError::Panic(Id({id}), \"no bread\", ...)");
    assert_eq!(format!("{their_message:?}"), expected(&their_message.id().to_string()));
    assert_eq!(format!("{our_message:?}"), expected(&our_message.id().to_string()));
    assert!(
        !their_message.to_string().contains(file!()) && our_message.to_string().contains(file!())
    );

    let their_payload =
        theirs.block_on(theirs.spawn(async { std::panic::panic_any(5) })).unwrap_err();
    let our_payload = ours.block_on(ours.spawn(async { std::panic::panic_any(5) })).unwrap_err();
    let expected = |id: &str| format!("JoinError::Panic(Id({id}), ...)");
    assert_eq!(format!("{their_payload:?}"), expected(&their_payload.id().to_string()));
    assert_eq!(format!("{our_payload:?}"), expected(&our_payload.id().to_string()));

    let (theirs_aborted, ours_aborted) =
        (theirs.spawn(std::future::pending::<()>()), ours.spawn(std::future::pending::<()>()));
    theirs_aborted.abort();
    ours_aborted.abort();
    let (their_cancel, our_cancel) =
        (theirs.block_on(theirs_aborted).unwrap_err(), ours.block_on(ours_aborted).unwrap_err());
    let expected = |id: &str| format!("JoinError::Cancelled(Id({id}))");
    assert_eq!(format!("{their_cancel:?}"), expected(&their_cancel.id().to_string()));
    assert_eq!(format!("{our_cancel:?}"), expected(&our_cancel.id().to_string()));

    let shut_down = ours.spawn(std::future::pending::<()>());
    drop(ours);
    let error = futures::executor::block_on(shut_down).unwrap_err();
    assert_eq!(format!("{error:?}"), expected(&error.id().to_string()));

    let (theirs, ours) = (std::io::Error::from(their_message), std::io::Error::from(our_message));
    assert_eq!(theirs.to_string(), "task panicked");
    assert!(ours.to_string().contains("no bread"), "{ours}");
}

#[test]
fn is_elapsed_of_a_sleep() {
    let _watch = watch();
    tokio().block_on(async {
        let mut nap = pin!(tokio::time::sleep(Duration::ZERO));
        let mut moved = pin!(tokio::time::sleep(Duration::ZERO));
        tokio::time::sleep(MOMENT).await;
        assert!(!nap.is_elapsed(), "it has not begun");
        nap.as_mut().await;
        assert!(nap.is_elapsed());
        moved.as_mut().reset(tokio::time::Instant::now());
        tokio::time::sleep(10 * MOMENT).await;
        assert!(moved.is_elapsed(), "a reset begins it");
    });
    runtime(1).block_on(async {
        let mut nap = pin!(giveway::time::sleep(Duration::ZERO));
        let mut moved = pin!(giveway::time::sleep(Duration::ZERO));
        giveway::time::sleep(MOMENT).await;
        assert!(!nap.is_elapsed(), "it has not begun");
        nap.as_mut().await;
        assert!(nap.is_elapsed());
        moved.as_mut().reset(giveway::time::Instant::now());
        assert!(moved.is_elapsed(), "a reset begins it");
        moved.as_mut().reset(giveway::time::Instant::now() + Duration::from_secs(3600));
        assert!(!moved.is_elapsed());
    });
}

/// `destructors.rs` tests at length that this is so here.
#[test]
fn the_id_in_destructors() {
    let _watch = watch();
    let theirs = tokio();
    let (sent, ids) = mpsc::channel();
    let tells = move || on_drop(move || sent.send(tokio::task::try_id()).unwrap());
    let held = tells.clone();
    let ended = theirs.spawn(async move { held() });
    eventually(|| ended.is_finished());
    let id = ended.id();
    drop(ended);
    assert_eq!(recv(&ids), Some(id), "an output that is dropped with its handle");
    let waiting = theirs.spawn(giveway_tests::hold(tells()));
    let id = waiting.id();
    drop(theirs);
    assert_eq!(recv(&ids), Some(id), "a future that is dropped by the shutdown");
}

/// Returns a future that holds `held` when its poll panics.
fn panics_holding(held: impl Send) -> impl Future<Output = ()> + Send {
    poll_fn(move |_| -> Poll<()> {
        let _part_of_the_future = &held;
        panic!("first")
    })
}

/// `destructors.rs` tests that this is so here.
#[test]
fn thread_panicking_in_the_destructor_of_a_future_that_panics() {
    let _watch = watch();
    let theirs = tokio();
    let (sent, seen) = mpsc::channel();
    let tells = on_drop(move || sent.send(std::thread::panicking()).unwrap());
    assert!(theirs.block_on(theirs.spawn(panics_holding(tells))).unwrap_err().is_panic());
    assert!(recv(&seen));
}

#[cfg(unix)]
#[test]
fn a_destructor_that_panics_while_the_panic_of_its_future_unwinds() {
    use std::os::unix::process::ExitStatusExt;
    let name = "porting::a_destructor_that_panics_while_the_panic_of_its_future_unwinds";
    let child = in_child(name, &[], || {
        let ours = runtime(1);
        let twice = ours.spawn(panics_holding(on_drop(|| panic!("second"))));
        assert_eq!(message(&*ours.block_on(twice).unwrap_err().into_panic()), "first");
        println!("ours has survived");

        let theirs = tokio();
        let twice = theirs.spawn(panics_holding(on_drop(|| panic!("second"))));
        let _ = theirs.block_on(twice);
        println!("theirs has survived");
    });
    if let Some(child) = child {
        assert!(child.output.contains("ours has survived"), "{}", child.output);
        assert!(!child.output.contains("theirs has survived"), "{}", child.output);
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{}", child.output);
    }
}
