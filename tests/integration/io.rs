//! Sockets and timers in tasks of the runtime: which threads serve them, and what happens when no
//! thread seems to.

use futures::{AsyncReadExt, AsyncWriteExt};
use giveway::net::{TcpListener, TcpStream};
use giveway::time::{Duration, Instant, interval, sleep, timeout};
use giveway_tests::{Gate, occupy, runtime, watch, with_runtimes};
use std::future::pending;

/// Spawns a server on loopback that echoes what it receives. Returns its address.
async fn echo_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    giveway::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            giveway::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

async fn round_trips(address: std::net::SocketAddr, trips: usize) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut buffer = [0; 5];
    for _ in 0..trips {
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"hello");
    }
}

#[test]
fn tasks_talk_over_sockets() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let address = echo_server().await;
            let clients: Vec<_> =
                (0..20).map(|_| giveway::spawn(round_trips(address, 50))).collect();
            for client in clients {
                client.await.unwrap();
            }
            round_trips(address, 5).await;
        });
    });
}

#[test]
fn a_sleep_is_never_early_in_a_task_or_in_block_on() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let nap = |micros| async move {
                let (start, nap) = (Instant::now(), Duration::from_micros(micros));
                sleep(nap).await;
                assert!(start.elapsed() >= nap);
            };
            let tasks: Vec<_> = (0..200).map(|n| giveway::spawn(nap(n * 37))).collect();
            nap(1_000).await;
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn a_timeout_ends_what_takes_too_long_and_nothing_else() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            assert!(timeout(Duration::from_millis(1), pending::<()>()).await.is_err());
            assert_eq!(timeout(Duration::MAX, async { 5 }).await, Ok(5));
            let in_task = giveway::spawn(timeout(Duration::from_millis(1), pending::<()>()));
            assert!(in_task.await.unwrap().is_err());
        });
    });
}

#[test]
fn an_interval_ticks_in_a_task() {
    with_runtimes(|runtime| {
        let ticks = runtime.spawn(async {
            let mut ticks = interval(Duration::from_millis(1));
            let first = ticks.tick().await;
            for n in 1..5 {
                assert_eq!(ticks.tick().await, first + n * Duration::from_millis(1));
            }
        });
        runtime.block_on(ticks).unwrap();
    });
}

/// tokio 4730, 6315; slatedb PR 1964: one poll that blocks stalls the I/O and the timers of all
/// tasks.
#[test]
fn a_poll_that_blocks_does_not_stop_timers_and_sockets_of_other_workers() {
    let _watch = watch();
    let runtime = runtime(2);
    let gate = Gate::new();
    let blocked = occupy(runtime.handle(), 1, &gate);
    let served = runtime.spawn(async {
        let address = echo_server().await;
        round_trips(address, 20).await;
        sleep(Duration::from_millis(2)).await;
    });
    runtime.block_on(served).unwrap();
    gate.open();
    blocked.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

/// tokio PR 5223, PR 7185: tasks that always yield kept the driver from running.
#[test]
fn f5_workers_that_are_always_busy_serve_timers_and_sockets() {
    with_runtimes(|runtime| {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let busy: Vec<_> = (0..4 * runtime.handle().workers())
            .map(|n| {
                let stop = stop.clone();
                runtime.spawn(async move {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        if n % 2 == 0 {
                            giveway::yield_now().await
                        } else {
                            giveway::yield_now_if_busy().await
                        }
                    }
                })
            })
            .collect();
        let served = runtime.spawn(async {
            let address = echo_server().await;
            round_trips(address, 10).await;
            sleep(Duration::from_millis(2)).await;
        });
        runtime.block_on(served).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        busy.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

#[test]
fn a_runtime_is_dropped_with_sockets_and_timers_in_flight() {
    with_runtimes(|runtime| {
        let (listening, accepted) = (Gate::new(), Gate::new());
        let handle = runtime.handle().clone();
        handle.spawn({
            let (listening, accepted) = (listening.clone(), accepted.clone());
            async move {
                let address = echo_server().await;
                let mut stream = TcpStream::connect(address).await.unwrap();
                giveway::spawn(sleep(Duration::from_secs(3600)));
                giveway::spawn(async move {
                    accepted.open();
                    let _never = stream.read(&mut [0]).await;
                });
                listening.open();
            }
        });
        listening.wait();
        accepted.wait();
    });
}

#[test]
fn a_socket_that_outlives_its_runtime_says_so_and_does_not_hang() {
    let _watch = watch();
    let (one, other) = (runtime(1), runtime(1));
    let (stream, _listener) = one.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (TcpStream::connect(listener.local_addr().unwrap()).await.unwrap(), listener)
    });
    let reading = other.spawn(async move {
        let mut stream = stream;
        stream.read(&mut [0]).await
    });
    drop(one);
    let error = other.block_on(reading).unwrap().unwrap_err();
    assert!(error.to_string().contains("was shut down"), "{error}");
}

#[test]
fn a_sleep_that_outlives_its_runtime_goes_on_in_another() {
    let _watch = watch();
    let (one, other) = (runtime(1), runtime(1));
    let mut nap = Box::pin(sleep(Duration::from_millis(100)));
    let deadline = nap.deadline();
    one.block_on(async { assert!(futures::poll!(nap.as_mut()).is_pending()) });
    drop(one);
    other.block_on(nap);
    assert!(Instant::now() >= deadline);
}

#[test]
fn sockets_and_timers_work_under_a_foreign_executor() {
    let _watch = watch();
    futures::executor::block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"x").await.unwrap();
        };
        let server =
            async { listener.accept().await.unwrap().0.read_exact(&mut [0]).await.unwrap() };
        futures::join!(client, server);
        sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn a_sleep_in_a_block_on_whose_runtime_was_shut_down_ends() {
    let _watch = watch();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    handle.block_on(async {
        let mut before = Box::pin(sleep(Duration::from_millis(100)));
        assert!(futures::poll!(before.as_mut()).is_pending());
        drop(runtime);
        sleep(Duration::from_millis(1)).await;
        before.await;
    });
}

/// If the socket were reported ready again and again, a loop around `readable` would never end.
#[test]
fn readiness_of_a_socket_that_outlives_its_runtime_is_an_error() {
    let _watch = watch();
    let (one, other) = (runtime(1), runtime(1));
    let socket = one.block_on(giveway::net::UdpSocket::bind("127.0.0.1:0")).unwrap();
    drop(one);
    other.block_on(async {
        assert!(socket.readable().await.is_err());
        assert!(socket.writable().await.is_err());
        let error = socket.try_recv(&mut [0]).unwrap_err();
        assert!(error.to_string().contains("was shut down"), "{error}");
    });
}
