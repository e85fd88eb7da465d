//! Loopback sockets and socket pairs, and what may go wrong with them. Nothing here may hang.

use crate::actor::Actor;
use crate::acts::burst::join_all;
use crate::failure::ensure;
use crate::ledger::Fate;
use crate::random::Random;
use crate::world::World;
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use giveway::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use giveway::time::{Duration, timeout};
use std::io;
use std::net::Shutdown;
use std::sync::Arc;

/// Errors that the system may return in a correct program: it has run out of ports or descriptors.
const MAY_BE_REFUSED: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::EADDRNOTAVAIL, libc::ENOBUFS];

/// Returns the value, or `None` if the runtime is closing or the system has run out of something.
/// Any other error fails the soak.
#[track_caller]
fn unless_closing<T>(world: &World, result: io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let refused = error.raw_os_error().is_some_and(|code| MAY_BE_REFUSED.contains(&code));
            let place = std::panic::Location::caller();
            ensure!(refused || world.closes(), "{place}: a socket of {}: {error}", world.name());
            None
        }
    }
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Writes `total` bytes in pieces.
async fn write_all(
    stream: &mut (impl AsyncWriteExt + Unpin),
    random: &mut Random,
    total: usize,
) -> io::Result<()> {
    let mut at = 0;
    while at < total {
        let piece: Vec<u8> = (at..total.min(at + 1 + random.small(8_191))).map(byte).collect();
        stream.write_all(&piece).await?;
        at += piece.len();
    }
    Ok(())
}

/// Reads to the end, in pieces, and checks every byte. Returns the number of bytes.
async fn read_all(
    stream: &mut (impl AsyncReadExt + Unpin),
    random: &mut Random,
) -> io::Result<usize> {
    let (mut at, mut buffer) = (0, vec![0; 1 + random.small(8_191)]);
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(at);
        }
        for (offset, &found) in buffer[..read].iter().enumerate() {
            ensure!(found == byte(at + offset), "byte {} of a stream is {found}", at + offset);
        }
        at += read;
    }
}

/// Sends data through a socket pair and back, with a task at each end. The sending side is closed
/// before the answer comes.
pub(crate) async fn pairs(actor: &mut Actor) {
    let Some((mut one, mut other)) = unless_closing(&actor.world, UnixStream::pair()) else {
        return;
    };
    let total = actor.random.small(100_000);
    let (world, mut random) = (actor.world.clone(), actor.random.child());
    let there = actor.start(Fate::Finishes, async move {
        let sent = async {
            write_all(&mut one, &mut random, total).await?;
            one.shutdown(Shutdown::Write)?;
            read_all(&mut one, &mut random).await
        };
        if let Some(back) = unless_closing(&world, sent.await) {
            ensure!(back == total, "{total} bytes went there and {back} came back");
        }
    });
    let (world, mut random) = (actor.world.clone(), actor.random.child());
    let back = actor.start(Fate::Finishes, async move {
        let answered = async {
            let total = read_all(&mut other, &mut random).await?;
            write_all(&mut other, &mut random, total).await
        };
        unless_closing(&world, answered.await);
    });
    join_all(vec![there, back]).await;
}

async fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (client, server) =
        futures::try_join!(TcpStream::connect(listener.local_addr()?), listener.accept())?;
    Ok((client, server.0))
}

/// Sends data through a TCP connection and back, with the two halves of the client in tasks of
/// their own.
pub(crate) async fn tcp(actor: &mut Actor) {
    let Some((client, server)) = unless_closing(&actor.world, connection().await) else { return };
    let total = actor.random.small(60_000);
    let (mut read, mut write) = client.into_split();
    let (world, mut random) = (actor.world.clone(), actor.random.child());
    let writer = actor.start(Fate::Finishes, async move {
        let sent = async {
            write_all(&mut write, &mut random, total).await?;
            write.close().await
        };
        unless_closing(&world, sent.await);
    });
    let (world, mut random) = (actor.world.clone(), actor.random.child());
    let reader = actor.start(Fate::Finishes, async move {
        if let Some(back) = unless_closing(&world, read_all(&mut read, &mut random).await) {
            ensure!(back == total, "{total} bytes were sent and {back} echoed");
        }
    });
    let (world, mut server) = (actor.world.clone(), server);
    let echo = actor.start(Fate::Finishes, async move {
        let echo = async {
            let mut buffer = vec![0; 4_096];
            loop {
                let read = server.read(&mut buffer).await?;
                if read == 0 {
                    return server.close().await;
                }
                server.write_all(&buffer[..read]).await?;
            }
        };
        unless_closing(&world, echo.await);
    });
    join_all(vec![writer, reader, echo]).await;
}

/// Provokes faults: resets, refused connections, operations that are dropped before they are done.
/// Every operation must return, with whatever result.
pub(crate) async fn faults(actor: &mut Actor) {
    match actor.random.below(5) {
        0 => {
            // The server closes with unread data: the client, which reads and writes, gets a reset.
            let Some((mut client, server)) = unless_closing(&actor.world, connection().await)
            else {
                return;
            };
            let waits = actor.start(Fate::Finishes, async move {
                _ = client.write_all(&[1; 512]).await;
                _ = client.read_to_end(&mut Vec::new()).await;
                _ = client.write_all(&[2; 512]).await;
            });
            _ = timeout(Duration::from_micros(actor.random.below(200)), server.readable()).await;
            drop(server);
            waits.join().await;
        }
        1 => {
            let refusing =
                TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr());
            let Some(address) = unless_closing(&actor.world, refusing) else { return };
            // Refused, unless another process has taken the port meanwhile.
            _ = TcpStream::connect(address).await;
        }
        2 => {
            let Some(listener) =
                unless_closing(&actor.world, TcpListener::bind("127.0.0.1:0").await)
            else {
                return;
            };
            let late =
                timeout(Duration::from_micros(actor.random.below(200)), listener.accept()).await;
            ensure!(
                late.is_err() || actor.world.closes(),
                "somebody connected to a port that nobody knows"
            );
        }
        3 => {
            // Reads are dropped by a timeout and started anew: no data may be lost.
            let Some((one, mut other)) = unless_closing(&actor.world, UnixStream::pair()) else {
                return;
            };
            let (world, mut random, total) =
                (actor.world.clone(), actor.random.child(), actor.random.small(4_000));
            let reader = actor.start(Fate::Finishes, async move {
                let (mut got, mut buffer) = (0, [0; 300]);
                loop {
                    let nap = Duration::from_micros(random.below(60));
                    let read = match timeout(nap, (&one).read(&mut buffer)).await {
                        Ok(result) => unless_closing(&world, result),
                        Err(_) => continue,
                    };
                    match read {
                        None => return,
                        Some(0) => break,
                        Some(read) => got += read,
                    }
                }
                ensure!(got == total, "of {total} bytes {got} came");
            });
            let sent = write_all(&mut other, &mut actor.random, total).await;
            unless_closing(&actor.world, sent);
            drop(other);
            reader.join().await;
        }
        _ => {
            // Operations are polled once and dropped; the peer is closed by an outsider.
            let Some((one, other)) = unless_closing(&actor.world, UnixStream::pair()) else {
                return;
            };
            _ = (&one).read(&mut [0; 8]).now_or_never();
            _ = one.readable().now_or_never();
            actor.world.outsiders.clone().run(&mut actor.random, move || drop(other));
            if actor.random.once_in(2) {
                _ = one.readable().await;
            }
        }
    }
}

/// Has several tasks wait for one socket.
pub(crate) async fn crowd(actor: &mut Actor) {
    let count = 1 + actor.random.small(7);
    let mut tasks = Vec::new();
    if actor.random.once_in(2) {
        // Few and small datagrams, so that the system drops none.
        let sockets = futures::future::try_join(
            UdpSocket::bind("127.0.0.1:0"),
            UdpSocket::bind("127.0.0.1:0"),
        )
        .await;
        let Some((one, other)) = unless_closing(&actor.world, sockets) else { return };
        let Some(target) = unless_closing(&actor.world, other.local_addr()) else { return };
        let other = Arc::new(other);
        for _ in 0..count {
            let (world, other) = (actor.world.clone(), other.clone());
            tasks.push(actor.start(Fate::Finishes, async move {
                for _ in 0..2 {
                    if let Some(size) = unless_closing(&world, other.recv(&mut [0; 16]).await) {
                        ensure!(size == 4, "a datagram of {size} bytes");
                    }
                }
            }));
        }
        for _ in 0..2 * count {
            if unless_closing(&actor.world, one.send_to(b"four", target).await).is_none() {
                return;
            }
        }
    } else {
        let Some((one, other)) = unless_closing(&actor.world, UnixStream::pair()) else { return };
        let one = Arc::new(one);
        for _ in 0..count {
            let (world, one) = (actor.world.clone(), one.clone());
            tasks.push(actor.start(Fate::Finishes, async move {
                _ = unless_closing(&world, one.readable().await);
            }));
        }
        // The data wakes all tasks, and is there for those that wait later: no task reads it.
        let sent = (&other).write_all(b"news").await;
        if unless_closing(&actor.world, sent).is_none() || !join_all(tasks).await {
            return;
        }
        tasks = Vec::new();
    }
    join_all(tasks).await;
}
