//! Many connections at once, and sockets that are always ready: no task is lost, and none starves.

#![cfg(target_os = "linux")]

use super::io_common::{echo, echo_server, round_trips, tcp_pair};
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway::net::{TcpListener, TcpStream, UdpSocket};
use giveway::time::{Duration, sleep};
use giveway::{Runtime, spawn, yield_now};
use giveway_tests::{eventually, isolated, runtime, watch};
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

/// The number of connections at once, if the limit of descriptors allows it.
const CONNECTIONS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

/// Raises the limit of descriptors as far as it goes, and returns it.
fn raise_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is valid for reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    usize::try_from(limit.rlim_cur).unwrap()
}

/// Returns the number of descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// Both ends of a connection are in this process: two descriptors each. All are open before the
/// first message, and until after the last.
#[test]
fn ten_thousand_connections_echo_at_once_and_leave_no_descriptor() {
    isolated("io_scale::ten_thousand_connections_echo_at_once_and_leave_no_descriptor", || {
        let _watch = watch();
        let connections = CONNECTIONS.min((raise_limit() - 100) / 2);
        let runtime = runtime(2);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let before = descriptors();
        let all = runtime.spawn(async move {
            let address = echo_server().await;
            let open = Arc::new(AtomicUsize::new(0));
            let all_open = Arc::new(tokio::sync::Barrier::new(connections));
            // A listener has room for at most this many connections that it has not accepted yet.
            let connecting = Arc::new(tokio::sync::Semaphore::new(100));
            let client = |name| {
                let (all_open, connecting, open) =
                    (all_open.clone(), connecting.clone(), open.clone());
                async move {
                    let turn = connecting.acquire().await.unwrap();
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    drop(turn);
                    all_open.wait().await;
                    round_trips(&mut stream, name, 5).await;
                    if all_open.wait().await.is_leader() {
                        open.store(descriptors(), SeqCst);
                    }
                    all_open.wait().await;
                    stream.close().await.unwrap();
                    assert_eq!(
                        stream.read(&mut [0]).await.unwrap(),
                        0,
                        "and nothing but what was sent"
                    );
                }
            };
            let clients: Vec<_> = (0..connections).map(|name| spawn(client(name))).collect();
            for client in clients {
                client.await.unwrap();
            }
            assert!(
                open.load(SeqCst) >= before + 2 * connections,
                "they were not all open at once"
            );
        });
        runtime.block_on(all).unwrap();
        // The listener is still there.
        eventually(|| descriptors() == before + 1);
        println!("{connections} connections");
    });
}

/// Runs tasks, timers and sockets beside the tasks that flood the runtime.
async fn neighbours() {
    // Each yield may wait for other tasks to spend their whole budget: 128 connections that are
    // made and accepted.
    let yields = spawn(async {
        for _ in 0..100 {
            yield_now().await;
        }
    });
    let sleeps = spawn(async {
        for _ in 0..5 {
            sleep(Duration::from_millis(1)).await;
        }
    });
    let echoes = spawn(async {
        let (mut client, server) = tcp_pair().await;
        let answering = spawn(echo(server));
        round_trips(&mut client, 7, 20).await;
        drop(client);
        answering.await.unwrap();
    });
    for neighbour in [yields, sleeps, echoes] {
        neighbour.await.unwrap();
    }
}

/// Runs `greedy` tasks, which never stop by themselves, on one worker and on two, beside
/// [`neighbours`]. The passed counter counts their operations: they still go on when the neighbours
/// are done.
fn assert_does_not_starve<F>(greedy: impl Fn(Arc<AtomicUsize>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for (workers, tasks) in [(1, 1), (1, 4), (2, 1), (2, 4)] {
        let _watch = watch();
        let runtime = runtime(workers);
        let operations = Arc::new(AtomicUsize::new(0));
        let greedy: Vec<_> =
            (0..tasks).map(|_| runtime.spawn(greedy(operations.clone()))).collect();
        eventually(|| operations.load(SeqCst) > 1_000);
        runtime.block_on(runtime.spawn(neighbours())).unwrap();
        let after = operations.load(SeqCst);
        eventually(|| operations.load(SeqCst) > after);
        greedy.iter().for_each(|task| assert!(!task.is_finished(), "it is not always ready"));
    }
}

/// The task reads byte by byte what is sent without end.
#[test]
fn a_task_that_reads_a_socket_that_is_always_ready_does_not_starve_others() {
    assert_does_not_starve(|operations| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Writes until the reader is gone.
        thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            while stream.write_all(&[1; 1 << 16]).is_ok() {}
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        loop {
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
            operations.fetch_add(1, SeqCst);
        }
    });
}

#[test]
fn a_task_that_writes_to_a_socket_that_always_has_room_does_not_starve_others() {
    assert_does_not_starve(|operations| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let _until_the_end = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        loop {
            stream.write_all(&[1]).await.unwrap();
            operations.fetch_add(1, SeqCst);
        }
    });
}

/// The task looks at a datagram and never takes it.
#[test]
fn a_task_that_looks_at_a_datagram_again_and_again_does_not_starve_others() {
    assert_does_not_starve(|operations| async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(b"here", socket.local_addr().unwrap()).await.unwrap();
        loop {
            assert_eq!(socket.peek_from(&mut [0; 8]).await.unwrap().0, 4);
            operations.fetch_add(1, SeqCst);
        }
    });
}

/// The task sends to itself, so that there is always something to receive.
#[test]
fn a_task_that_receives_datagrams_without_end_does_not_starve_others() {
    assert_does_not_starve(|operations| async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        loop {
            socket.send_to(b"here", address).await.unwrap();
            assert_eq!(socket.recv_from(&mut [0; 8]).await.unwrap(), (4, address));
            operations.fetch_add(1, SeqCst);
        }
    });
}

/// The task connects to itself, so that there is always a connection to accept.
#[test]
fn a_task_that_accepts_without_end_does_not_starve_others() {
    assert_does_not_starve(|operations| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        loop {
            let client = TcpStream::connect(address).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            // The connection is reset, so that no port lingers.
            client.set_zero_linger().unwrap();
            drop((client, server));
            operations.fetch_add(1, SeqCst);
        }
    });
}

#[test]
fn a_loop_of_readable_and_a_try_does_not_starve_others() {
    assert_does_not_starve(|operations| async move {
        let (client, server) = tcp_pair().await;
        assert_eq!(client.try_write(b"x").unwrap(), 1);
        loop {
            server.readable().await.unwrap();
            server.writable().await.unwrap();
            assert_eq!(server.peek(&mut [0; 8]).await.unwrap(), 1);
            operations.fetch_add(1, SeqCst);
        }
    });
}

/// Spawns a task that counts rounds of `work` until `stop` is set.
fn count<F>(
    runtime: &Runtime,
    stop: &Arc<AtomicBool>,
    counter: &Arc<AtomicUsize>,
    mut work: impl FnMut() -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (counter, stop) = (counter.clone(), stop.clone());
    runtime.spawn(async move {
        while !stop.load(SeqCst) {
            work().await;
            counter.fetch_add(1, SeqCst);
        }
    });
}

/// On one worker of two, a poll does not return for 200 ms, again and again. The test counts what
/// other tasks did in that very time: all of them together, since a task that is queued behind the
/// poll may have to wait.
#[test]
fn timers_and_sockets_go_on_while_a_task_blocks_its_worker_again_and_again() {
    let _watch = watch();
    let runtime = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let [timers, echoes] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    for _ in 0..4 {
        count(&runtime, &stop, &timers, || sleep(Duration::from_millis(1)));
        let (client, server) = runtime.block_on(tcp_pair());
        runtime.spawn(echo(server));
        let client = Arc::new(tokio::sync::Mutex::new(client));
        count(&runtime, &stop, &echoes, move || {
            let client = client.clone();
            async move { round_trips(&mut *client.lock().await, 1, 1).await }
        });
    }
    let blocking = runtime.spawn(async move {
        let look = || [&timers, &echoes].map(|counter| counter.load(SeqCst));
        for _ in 0..5 {
            let before = look();
            thread::sleep(Duration::from_millis(200));
            let after = look();
            let least = before.iter().zip(&after).map(|(before, after)| after - before).min();
            assert!(
                least >= Some(3),
                "timers or sockets stood still: from {before:?} to {after:?}"
            );
            yield_now().await;
        }
    });
    runtime.block_on(blocking).unwrap();
    stop.store(true, SeqCst);
}
