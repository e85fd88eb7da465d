//! A chat over TCP: a line that one member sends goes to all members.
//!
//! One task per connection reads and writes at the same time. A member that does not read does not
//! delay the others: its queue fills up, and it is disconnected. A member that sends nothing for
//! too long is disconnected as well.
//!
//! ```sh
//! cargo run --example chat                      # runs three scripted clients, then exits
//! cargo run --example chat -- 127.0.0.1:7777    # serves until it is stopped (Ctrl-C)
//! ```
//!
//! To talk to the second one: `nc 127.0.0.1 7777`, from several terminals.

mod demo;
mod room;

use futures::future::{Either, select};
use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use futures::stream::StreamExt;
use giveway::net::{TcpListener, TcpStream};
use giveway::time::{Duration, sleep, timeout};
use room::Room;
use std::env;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;

/// How long writing one line to a member may take.
const STALLED: Duration = Duration::from_secs(5);
const MAX_LINE: u64 = 1024;

fn main() -> io::Result<()> {
    giveway::block_on(async {
        let Some(address) = env::args().nth(1) else { return demo::run().await };
        let listener = TcpListener::bind(address).await?;
        println!("listening on {}", listener.local_addr()?);
        serve(listener, Room::new(Duration::from_secs(300))).await
    })
}

async fn serve(listener: TcpListener, room: Arc<Room>) -> io::Result<()> {
    loop {
        match listener.accept().await {
            // Dropping the handle does not end the task.
            Ok((stream, _)) => drop(giveway::spawn(member(stream, Arc::clone(&room)))),
            // The client left before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            // Out of descriptors or memory, say. The connection waits until there are some again.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Serves one connection. The first line is the member's name.
async fn member(stream: TcpStream, room: Arc<Room>) -> io::Result<()> {
    let mut reader = BufReader::new(&stream);
    (&stream).write_all(b"* what is your name?\n").await?;
    let Some(name) = timeout(room.idle, read_line(&mut reader)).await?? else { return Ok(()) };
    let Some((mut seat, mut lines)) = room.join(name.clone()) else {
        return (&stream).write_all(b"* this name is taken\n").await;
    };
    let reading = async {
        loop {
            match timeout(room.idle, read_line(&mut reader)).await {
                Ok(Ok(Some(line))) => room.say(&format!("{name}: {line}")),
                Ok(_) => return "has left",
                Err(_) => return "has fallen asleep",
            }
            // A hundred lines may have arrived at once. Yield after each, so that `writing` and the
            // other tasks get a turn: otherwise the members' queues would fill up although the
            // members read.
            giveway::yield_now().await;
        }
    };
    let writing = async {
        while let Some(line) = lines.next().await {
            if !matches!(timeout(STALLED, (&stream).write_all(line.as_bytes())).await, Ok(Ok(()))) {
                break;
            }
        }
        "did not keep up"
    };
    // The first of the two to end closes the connection: the other is dropped with the stream.
    seat.why = match select(pin!(reading), pin!(writing)).await {
        Either::Left((why, _)) | Either::Right((why, _)) => why,
    };
    Ok(())
}

/// Reads the next line, at most `MAX_LINE` bytes, and removes control characters. Returns `None` at
/// the end of the stream.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = reader.take(MAX_LINE).read_line(&mut line).await?;
    line.retain(|c| !c.is_control());
    Ok((read > 0).then_some(line))
}
