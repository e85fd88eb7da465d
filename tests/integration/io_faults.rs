//! Connections that fail, sockets that several tasks wait on and some give up, and what happens
//! without descriptors.

use super::io_common::{TOO_MUCH, echo_server, read_all_of, round_trips, tcp_pair, telling};
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway::net::{TcpListener, TcpStream};
use giveway::spawn;
use giveway::time::{Duration, sleep};
use giveway_tests::{Gate, in_child, isolated, recv, runtime, watch, with_runtimes};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, mpsc};

/// Returns a socket that has taken a port, so that no other socket listens there, or connects from
/// that port to itself.
fn bound() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket
}

#[test]
fn a_refused_connection_is_an_error_in_every_task() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let bound = bound();
            let address = bound.local_addr().unwrap().as_socket().unwrap();
            let refused = move || async move {
                for _ in 0..20 {
                    assert_eq!(
                        TcpStream::connect(address).await.unwrap_err().kind(),
                        ErrorKind::ConnectionRefused
                    );
                }
            };
            let tasks: Vec<_> = (0..8).map(|_| spawn(refused())).collect();
            for task in tasks {
                task.await.unwrap();
            }
            round_trips(&mut TcpStream::connect(echo_server().await).await.unwrap(), 0, 5).await;
        });
    });
}

/// One task waits for bytes and another for room. The peer resets the connection: on purpose, or
/// because it is dropped with bytes unread.
#[test]
fn a_reset_wakes_who_waits_to_read_and_who_waits_to_write() {
    with_runtimes(|runtime| {
        for says_so in [true, false] {
            let (client, mut server) = runtime.block_on(tcp_pair());
            let (mut reader, mut writer) = client.into_split();
            let (reads, writes) = (Gate::new(), Gate::new());
            let reading = runtime.spawn(telling(reads.clone(), async move {
                reader.read_exact(&mut [0; 1000]).await.unwrap();
                reader.read(&mut [0; 1000]).await
            }));
            let writing = runtime.spawn(telling(writes.clone(), async move {
                writer.write_all(&vec![1; TOO_MUCH]).await
            }));
            reads.wait();
            writes.wait();
            runtime.block_on(async {
                // Both directions are in the middle of a transfer.
                server.write_all(&[2; 1000]).await.unwrap();
                server.read_exact(&mut [0; 1000]).await.unwrap();
                if says_so {
                    server.set_zero_linger().unwrap();
                }
                drop(server);
                let (read, wrote) = (reading.await.unwrap(), writing.await.unwrap());
                // The system reports the reset once. The task that comes second finds the end, or a
                // broken pipe.
                let read = read.map_err(|error| error.kind());
                let wrote = wrote.map_err(|error| error.kind());
                assert!(matches!(read, Ok(0) | Err(ErrorKind::ConnectionReset)), "{read:?}");
                assert!(
                    matches!(wrote, Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)),
                    "{wrote:?}"
                );
                assert!([read.err(), wrote.err()].contains(&Some(ErrorKind::ConnectionReset)));
            });
        }
    });
}

#[test]
fn who_has_said_all_still_hears_the_answer_and_then_the_end() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let conversation = |name: u8| async move {
                let (mut client, mut server) = tcp_pair().await;
                let answering = spawn(async move {
                    assert_eq!(read_all_of(&mut server, name, 100).await, 100);
                    server.write_all(&vec![name; 1 << 20]).await.unwrap();
                });
                client.write_all(&[name; 100]).await.unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(client.write(&[0]).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                assert_eq!(read_all_of(client, name, 1 << 20).await, 1 << 20);
                answering.await.unwrap();
            };
            let tasks: Vec<_> = (0..10).map(|name| spawn(conversation(name))).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

/// Spawns a task that waits for a byte of `stream`. Returns its handle, and a gate that opens when
/// it waits.
fn waits_for_a_byte(
    runtime: &giveway::Runtime,
    stream: &Arc<TcpStream>,
) -> (giveway::task::JoinHandle<u8>, Gate) {
    let (stream, gate) = (stream.clone(), Gate::new());
    let task = runtime.spawn(telling(gate.clone(), async move {
        let mut byte = [0];
        (&*stream).read_exact(&mut byte).await.unwrap();
        byte[0]
    }));
    (task, gate)
}

#[test]
fn a_task_that_gives_up_waiting_takes_nothing_from_the_next() {
    with_runtimes(|runtime| {
        let (client, server) = runtime.block_on(tcp_pair());
        let client = Arc::new(client);
        for round in 0..50 {
            let (first, waits) = waits_for_a_byte(runtime, &client);
            waits.wait();
            let (second, waits) = waits_for_a_byte(runtime, &client);
            waits.wait();
            first.abort();
            // The abort comes before the byte, or at the same time.
            if round % 2 == 0 {
                assert!(runtime.block_on(first).unwrap_err().is_cancelled());
                assert_eq!(server.try_write(&[round]).unwrap(), 1);
            } else {
                assert_eq!(server.try_write(&[round]).unwrap(), 1);
                if let Ok(byte) = runtime.block_on(first) {
                    assert_eq!(byte, round, "it was faster");
                    assert_eq!(server.try_write(&[round]).unwrap(), 1);
                }
            }
            assert_eq!(runtime.block_on(second).unwrap(), round);
        }
    });
}

#[test]
fn a_socket_stays_open_for_the_tasks_that_wait_on_it_and_no_longer() {
    with_runtimes(|runtime| {
        let (client, mut server) = runtime.block_on(tcp_pair());
        let client = Arc::new(client);
        let waiting: Vec<_> = (0..3).map(|_| waits_for_a_byte(runtime, &client)).collect();
        waiting.iter().for_each(|(_, waits)| waits.wait());
        drop(client);
        let [first, second, third] =
            waiting.into_iter().map(|(task, _)| task).collect::<Vec<_>>().try_into().unwrap();
        runtime.block_on(async {
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            server.write_all(&[7, 7]).await.unwrap();
            assert_eq!((second.await.unwrap(), third.await.unwrap()), (7, 7));
            assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "the last one has closed it");
        });
    });
}

#[test]
fn a_half_that_waits_is_served_when_the_other_half_is_gone() {
    with_runtimes(|runtime| {
        let (client, mut server) = runtime.block_on(tcp_pair());
        let ((mut reader, writer), waits) = (client.into_split(), Gate::new());
        let reading = runtime.spawn(telling(waits.clone(), async move {
            let mut text = String::new();
            reader.read_to_string(&mut text).await.map(|_| text)
        }));
        waits.wait();
        drop(writer);
        runtime.block_on(async {
            assert_eq!(
                server.read(&mut [0]).await.unwrap(),
                0,
                "dropping the half that writes ends the stream"
            );
            server.write_all(b"still there").await.unwrap();
            drop(server);
            assert_eq!(reading.await.unwrap().unwrap(), "still there");
        });
    });
}

/// smol PR 170: with two tasks waiting on one source, the wake-up of one was lost.
#[test]
fn two_readers_and_two_writers_of_one_stream_are_all_served() {
    with_runtimes(|runtime| {
        let (client, server) = runtime.block_on(tcp_pair());
        let (client, server) = (Arc::new(client), Arc::new(server));
        for _ in 0..50 {
            let readers = [(); 2].map(|()| waits_for_a_byte(runtime, &client));
            readers.iter().for_each(|(_, waits)| waits.wait());
            // Often there is one event for both bytes.
            assert_eq!(server.try_write(&[1]).unwrap() + server.try_write(&[1]).unwrap(), 2);
            readers
                .into_iter()
                .for_each(|(task, _)| assert_eq!(runtime.block_on(task).unwrap(), 1));
        }
        let gates = [(); 4].map(|()| Gate::new());
        let write = |gate: &Gate| {
            let (stream, gate) = (client.clone(), gate.clone());
            runtime.spawn(telling(gate, async move {
                (&*stream).write_all(&vec![3; TOO_MUCH / 2]).await.unwrap()
            }))
        };
        let read = |gate: &Gate| {
            let (stream, gate) = (client.clone(), gate.clone());
            runtime.spawn(telling(gate, async move { read_all_of(&*stream, 4, 100_000).await }))
        };
        let (writers, readers) =
            ([write(&gates[0]), write(&gates[1])], [read(&gates[2]), read(&gates[3])]);
        gates.iter().for_each(Gate::wait);
        runtime.block_on(async {
            (&*server).write_all(&[4; 100_000]).await.unwrap();
            (&*server).close().await.unwrap();
            let reading = spawn({
                let server = server.clone();
                async move { read_all_of(&*server, 3, TOO_MUCH).await }
            });
            for writer in writers {
                writer.await.unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(reading.await.unwrap(), TOO_MUCH);
            let [one, other] = readers;
            assert_eq!(one.await.unwrap() + other.await.unwrap(), 100_000, "and both see the end");
        });
    });
}

/// Refuses this process every new descriptor until it is dropped. To be used in a process of its
/// own.
///
/// It does not take all descriptors that there are: another thread that has one open for a moment
/// (the monitor looks into `/proc`) would give it back, and so leave one free.
pub(super) struct NoDescriptors {
    before: libc::rlimit,
}

impl NoDescriptors {
    /// Takes effect before it connects to `address`: there is a descriptor for this end of the
    /// connection, and none for the other.
    pub(super) fn connect(address: SocketAddr) -> (Self, std::net::TcpStream) {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `before` is valid for writes.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) }, 0);
        set_limit(&libc::rlimit { rlim_cur: 0, ..before });
        client.connect(&address.into()).unwrap();
        (Self { before }, client.into())
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        set_limit(&self.before);
    }
}

fn set_limit(limit: &libc::rlimit) {
    // SAFETY: `limit` is valid for reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) }, 0);
}

/// Makes every further system call `number` fail with `error`, on this thread and on those that it
/// starts. A filter of system calls that does not know the call does the same.
#[cfg(target_os = "linux")]
pub(super) fn refuse_call(number: libc::c_long, error: libc::c_int) {
    let step = |code, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    // The number of the call is the first word of what the filter sees.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the call takes no pointer, and changes a setting of this thread.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: `program` is valid for reads. It points to `steps`, which outlive the call, and has
    // their number. The kernel makes a copy.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Like a kernel before 5.11, or a container whose filter is as old. One timer is further away than
/// the older call can wait.
#[cfg(target_os = "linux")]
#[test]
fn without_the_call_that_waits_for_nanoseconds_sockets_and_timers_work() {
    const NAME: &str =
        "io_faults::without_the_call_that_waits_for_nanoseconds_sockets_and_timers_work";
    for error in [libc::ENOSYS, libc::EPERM] {
        let child = in_child(NAME, &[("GIVEWAY_TEST_ERROR", &error.to_string())], || {
            let _watch = watch();
            let error = std::env::var("GIVEWAY_TEST_ERROR").unwrap().parse().unwrap();
            refuse_call(libc::SYS_epoll_pwait2, error);
            let runtime = runtime(2);
            let far = runtime.spawn(sleep(Duration::MAX));
            let served = runtime.spawn(async {
                let mut client = TcpStream::connect(echo_server().await).await.unwrap();
                for name in 0..3 {
                    sleep(Duration::from_micros(300)).await;
                    round_trips(&mut client, name, 3).await;
                }
            });
            runtime.block_on(served).unwrap();
            far.abort();
        });
        match child {
            Some(child) => child.assert_success(),
            None => return,
        }
    }
}

#[test]
fn without_descriptors_accept_fails_and_goes_on_when_there_is_one() {
    isolated("io_faults::without_descriptors_accept_fails_and_goes_on_when_there_is_one", || {
        let runtime = runtime(2);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = mpsc::channel();
        let (go_on, may_go_on) = async_channel::unbounded();
        let accepting = runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((mut stream, _)) => stream.write_all(b"welcome").await.unwrap(),
                    Err(error) => {
                        tell.send(error).unwrap();
                        if may_go_on.recv().await.is_err() {
                            break;
                        }
                    }
                }
            }
        });
        for _ in 0..5 {
            let (none, mut client) = NoDescriptors::connect(address);
            for _ in 0..3 {
                let error = recv(&told);
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
                let others = runtime.spawn(async move {
                    sleep(Duration::from_micros(100)).await;
                    (
                        TcpStream::connect(address).await.unwrap_err(),
                        TcpListener::bind(address).await.unwrap_err(),
                    )
                });
                let (connect, bind) = runtime.block_on(others).unwrap();
                assert_eq!([connect.raw_os_error(), bind.raw_os_error()], [Some(libc::EMFILE); 2]);
                go_on.try_send(()).unwrap();
            }
            recv(&told);
            drop(none);
            go_on.try_send(()).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, "welcome");
        }
        accepting.abort();
    });
}
