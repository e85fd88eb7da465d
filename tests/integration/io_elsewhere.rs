//! Sockets and timers under other executors, on threads without a runtime, and moved from one
//! runtime to another.

use super::io_common::{echo, round_trips, tcp_pair, telling};
use futures::executor::{LocalPool, block_on};
use futures::task::LocalSpawnExt;
use futures::{AsyncReadExt, AsyncWriteExt, join, poll};
use giveway::io::Async;
use giveway::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use giveway::time::{Duration, Instant, interval, sleep, timeout};
use giveway_tests::{Gate, HANG, isolated, recv, runtime, watch, with_runtimes};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// Uses a bit of everything: ten messages there and back, a datagram, a timer, a timeout.
async fn a_bit_of_everything() {
    let (mut client, server) = tcp_pair().await;
    let client = async {
        round_trips(&mut client, 3, 10).await;
        drop(client);
    };
    join!(client, echo(server));
    let (one, other) = (
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
    );
    let (sent, received) = join!(one.send_to(b"x", other.local_addr().unwrap()), async {
        timeout(HANG, other.recv(&mut [0; 8])).await.unwrap()
    });
    assert_eq!((sent.unwrap(), received.unwrap()), (1, 1));
    let (start, mut ticks) = (Instant::now(), interval(Duration::from_micros(500)));
    for _ in 0..3 {
        ticks.tick().await;
    }
    assert!(start.elapsed() >= Duration::from_millis(1));
    assert!(
        timeout(Duration::from_millis(1), other.recv(&mut [0])).await.is_err(),
        "there was one datagram"
    );
}

/// Sends a message to the thread that polls, when it is woken.
struct Flag(mpsc::SyncSender<()>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        // If the channel is full, it has been woken already.
        let _full = self.0.try_send(());
    }
}

/// The plainest executor: it polls again only when the future was woken. Returns the number of
/// polls, too.
fn poll_by_hand<F: Future>(future: F) -> (F::Output, usize) {
    let (wake, woken) = mpsc::sync_channel(1);
    let waker = Waker::from(Arc::new(Flag(wake)));
    let mut future = pin!(future);
    for polls in 1.. {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, polls);
        }
        recv(&woken);
    }
    unreachable!()
}

#[test]
fn everything_works_in_a_hand_written_loop_that_polls_when_it_is_woken() {
    let _watch = watch();
    let ((), polls) = poll_by_hand(a_bit_of_everything());
    assert!(polls > 1, "something was waited for");
    let ((), polls) = poll_by_hand(sleep(Duration::from_millis(5)));
    assert_eq!(polls, 2, "once to begin, and once when the time had come");
    let (here, mut there) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let gate = Gate::new();
        let reading = scope.spawn({
            let gate = gate.clone();
            move || {
                poll_by_hand(telling(gate, async move { there.read(&mut [0; 8]).await.unwrap() }))
            }
        });
        gate.wait();
        assert_eq!(here.try_write(b"five!").unwrap(), 5);
        assert_eq!(reading.join().unwrap().0, 5);
    });
}

#[test]
fn everything_works_under_the_executors_of_futures() {
    let _watch = watch();
    thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(|| block_on(a_bit_of_everything()))));
    let mut pool = LocalPool::new();
    for _ in 0..10 {
        pool.spawner().spawn_local(a_bit_of_everything()).unwrap();
    }
    pool.run();
}

#[test]
fn everything_works_in_tasks_of_tokio_and_talks_to_its_sockets() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let _watch = watch();
    for workers in [1, 2] {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()
            .unwrap();
        tokio.block_on(async {
            let tasks: Vec<_> = (0..10).map(|_| tokio::spawn(a_bit_of_everything())).collect();
            for task in tasks {
                task.await.unwrap();
            }
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let answering = tokio::spawn(async move {
                let (mut stream, mut buffer) = (listener.accept().await.unwrap().0, [0; 16]);
                while stream.read_exact(&mut buffer).await.is_ok() {
                    stream.write_all(&buffer).await.unwrap();
                }
            });
            tokio::spawn(async move {
                round_trips(&mut TcpStream::connect(address).await.unwrap(), 1, 50).await
            })
            .await
            .unwrap();
            answering.await.unwrap();
            // The timers of both, one inside of the other.
            let nap = tokio::time::timeout(HANG, sleep(Duration::from_millis(1)));
            assert!(timeout(HANG, nap).await.unwrap().is_ok());
        });
    }
}

#[test]
fn everything_works_in_block_on_beside_tasks_and_in_one_within_another() {
    with_runtimes(|runtime| {
        let task = runtime.spawn(a_bit_of_everything());
        runtime.block_on(async {
            a_bit_of_everything().await;
            // The `block_on` of another runtime, within the `block_on` of this one.
            giveway_tests::runtime(1).block_on(a_bit_of_everything());
            block_on(a_bit_of_everything());
        });
        runtime.block_on(task).unwrap();
    });
}

/// Such a thread is served by a reactor of its own before there is any runtime, and by that of the
/// default runtime once that was started. What was made with the first reactor goes on after that.
#[test]
fn a_thread_without_runtime_is_served_before_there_is_one_and_after() {
    isolated(
        "io_elsewhere::a_thread_without_runtime_is_served_before_there_is_one_and_after",
        || {
            let _watch = watch();
            block_on(a_bit_of_everything());
            let (mut client, server) = block_on(tcp_pair());
            let mut nap = Box::pin(sleep(Duration::from_millis(100)));
            assert!(block_on(async { poll!(nap.as_mut()) }).is_pending());
            let ours = std::fs::read_dir("/proc/self/task").map(|threads| {
                let name = |thread: std::fs::DirEntry| {
                    std::fs::read_to_string(thread.path().join("comm")).unwrap()
                };
                threads.map(|thread| name(thread.unwrap())).collect::<String>()
            });
            if let Ok(names) = ours {
                assert!(
                    names.contains("giveway-io") && !names.contains("giveway-0"),
                    "no runtime was started: {names}"
                );
            }
            // This runtime is not the default one, and ends at once.
            runtime(1).block_on(a_bit_of_everything());
            thread::spawn(|| block_on(a_bit_of_everything())).join().unwrap();
            giveway::block_on(async {
                giveway::spawn(a_bit_of_everything()).await.unwrap();
                let answering = giveway::spawn(echo(server));
                round_trips(&mut client, 1, 10).await;
                drop(client);
                answering.await.unwrap();
                nap.await;
            });
            thread::spawn(|| block_on(a_bit_of_everything())).join().unwrap();
        },
    );
}

#[test]
fn a_connection_goes_from_runtime_to_runtime() {
    with_runtimes(|one| {
        let other = runtime(1);
        let (mut client, server) = one.block_on(one.spawn(tcp_pair())).unwrap();
        let answering = other.spawn(echo(server));
        for name in 0..6 {
            let travels = async move {
                round_trips(&mut client, name, 5).await;
                client
            };
            client = match name % 3 {
                0 => one.block_on(one.spawn(travels)).unwrap(),
                1 => other.block_on(other.spawn(travels)).unwrap(),
                _ => block_on(travels),
            };
        }
        drop(client);
        other.block_on(answering).unwrap();
    });
}

/// Each future waits in one runtime first, and becomes ready in another. The waker of its last poll
/// is woken, in whichever runtime that poll was.
#[test]
fn a_future_that_has_waited_in_one_runtime_is_completed_in_another() {
    with_runtimes(|one| {
        let other = runtime(1);
        for _ in 0..20 {
            let (mut client, mut server) = one.block_on(tcp_pair());
            let listener = one.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let mut read = Box::pin(async move {
                let mut text = [0; 5];
                client.read_exact(&mut text).await.unwrap();
                text
            });
            let mut accept = Box::pin(async move { listener.accept().await.unwrap().1 });
            let limit =
                || Box::pin(timeout(Duration::from_millis(5), std::future::pending::<()>()));
            let mut limited = limit();
            one.block_on(async {
                assert!(poll!(read.as_mut()).is_pending() && poll!(accept.as_mut()).is_pending());
                // On a slow machine the time may be over before the first poll. Then the timeout
                // has not waited in any runtime.
                while poll!(limited.as_mut()).is_ready() {
                    limited = limit();
                }
            });
            let gates = [(); 2].map(|()| Gate::new());
            let (read, accept) = (
                other.spawn(telling(gates[0].clone(), read)),
                other.spawn(telling(gates[1].clone(), accept)),
            );
            let limited = other.spawn(limited);
            gates.iter().for_each(Gate::wait);
            let visitor = std::net::TcpStream::connect(address).unwrap();
            one.block_on(async {
                server.write_all(b"hello").await.unwrap();
                assert_eq!(&read.await.unwrap(), b"hello");
                assert_eq!(accept.await.unwrap(), visitor.local_addr().unwrap());
                assert!(limited.await.unwrap().is_err());
            });
        }
    });
}

#[test]
fn a_pipe_is_waited_for_in_both_directions_until_either_end_goes() {
    with_runtimes(|runtime| {
        const BYTES: usize = 1 << 20;
        runtime.block_on(async {
            let (reader, writer) = std::io::pipe().unwrap();
            // Both are made here and used in tasks. `BYTES` is more than a pipe holds.
            let (reader, writer) = (Async::new(reader).unwrap(), Async::new(writer).unwrap());
            let writing = giveway::spawn(async move {
                let (bytes, mut written) = (vec![5; BYTES], 0);
                while written < BYTES {
                    written +=
                        writer.write_with(|mut pipe| pipe.write(&bytes[written..])).await.unwrap();
                }
            });
            let (mut buffer, mut all) = ([0; 4096], 0);
            loop {
                match reader.read_with(|mut pipe| pipe.read(&mut buffer)).await.unwrap() {
                    0 => break,
                    read => all += read,
                }
                assert!(buffer.iter().all(|&byte| byte == 5));
            }
            assert_eq!(all, BYTES);
            writing.await.unwrap();
        });
        let (reader, writer) = std::io::pipe().unwrap();
        let (writes, gate) = (Gate::new(), Gate::new());
        let writing = runtime.spawn(telling(writes.clone(), async move {
            let writer = Async::new(writer).unwrap();
            loop {
                if let Err(error) = writer.write_with(|mut pipe| pipe.write(&[0; 1 << 16])).await {
                    return error.kind();
                }
            }
        }));
        writes.wait();
        drop((reader, gate));
        assert_eq!(runtime.block_on(writing).unwrap(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn any_descriptor_that_can_be_waited_for_is_made_async_and_given_back() {
    with_runtimes(|runtime| {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let (waits, here) = (Gate::new(), runtime.block_on(async { Async::new(here) }).unwrap());
        let reading = runtime.spawn(telling(waits.clone(), async move {
            let mut buffer = [0; 8];
            let read = here.read_with(|mut stream| stream.read(&mut buffer)).await.unwrap();
            (buffer[..read].to_vec(), here)
        }));
        waits.wait();
        (&there).write_all(b"async").unwrap();
        let (text, here) = runtime.block_on(reading).unwrap();
        assert_eq!(text, b"async");
        let mut here = here.into_inner();
        here.set_nonblocking(false).unwrap();
        (&there).write_all(b"plain").unwrap();
        here.read_exact(&mut [0; 5]).unwrap();
        // The descriptor is registered again, in another reactor than before.
        let here = Async::new(here).unwrap();
        (&there).write_all(b"again").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(block_on(here.read_with(|mut stream| stream.read(&mut buffer))).unwrap(), 5);
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let error = runtime.block_on(async { Async::new(file) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "a file cannot be waited for");
    });
}
