//! A TCP server that sends back the bytes that it receives: one task per connection, and an orderly
//! shutdown.
//!
//! ```sh
//! cargo run --example echo                      # connects to itself, then exits
//! cargo run --example echo -- 127.0.0.1:7777    # serves until standard input ends (Ctrl-D)
//! ```
//!
//! To talk to the second one: `nc 127.0.0.1 7777`.

use futures::channel::oneshot;
use futures::{AsyncBufReadExt, AsyncWriteExt, FutureExt, StreamExt, io::BufReader};
use giveway::net::{TcpListener, TcpStream};
use giveway::task::JoinSet;
use giveway::time::{Duration, sleep, timeout};
use std::env;
use std::io::{self, ErrorKind};
use std::pin::pin;

/// How long open connections may continue after the server has stopped accepting.
const GRACE: Duration = Duration::from_secs(2);

fn main() -> io::Result<()> {
    match env::args().nth(1) {
        Some(address) => giveway::block_on(serve_until_end_of_input(&address)),
        None => giveway::block_on(demo()),
    }
}

/// Sends back what the client sends, until the client closes its sending side. Dropping the stream
/// closes the connection.
async fn echo(stream: TcpStream) -> io::Result<u64> {
    // `&TcpStream` implements `AsyncRead` and `AsyncWrite`, so the stream need not be split.
    futures::io::copy(&stream, &mut &stream).await
}

/// Accepts connections until `end` is ready.
async fn serve(listener: TcpListener, end: impl Future) {
    // Dropping the set aborts the tasks in it.
    let mut connections = JoinSet::new();
    let mut incoming = listener.incoming().fuse();
    let mut end = pin!(end.fuse());
    loop {
        futures::select! {
            accepted = incoming.select_next_some() => match accepted {
                Ok(stream) => { connections.spawn(echo(stream)); }
                // The client left before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Out of descriptors or memory, say. The connection waits until there are some again.
                Err(error) => {
                    eprintln!("cannot accept: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            },
            _ = end => break,
        }
        // The set keeps the result of a finished task until it is joined: take them out.
        while connections.try_join_next().is_some() {}
    }
    // No new connections. The open ones have `GRACE` to finish; after that they are aborted.
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, all).await.is_err() {
        println!("{} connections were cut off", connections.len());
        connections.shutdown().await;
    }
}

async fn serve_until_end_of_input(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}; end with Ctrl-D", listener.local_addr()?);
    // Reading from a terminal blocks its thread, so it is done on a blocking thread.
    let end_of_input = giveway::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    serve(listener, end_of_input).await;
    Ok(())
}

/// Runs the server and three clients at the same time.
async fn demo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?; // port 0: the system picks a free one
    let address = listener.local_addr()?;
    println!("listening on {address}");
    let (end, ended) = oneshot::channel::<()>();
    let server = giveway::spawn(serve(listener, ended));

    let mut clients = JoinSet::new();
    for number in 1..=3 {
        clients.spawn(async move {
            let stream = TcpStream::connect(address).await?;
            (&stream).write_all(format!("hello from client {number}\n").as_bytes()).await?;
            let mut answer = String::new();
            BufReader::new(&stream).read_line(&mut answer).await?;
            io::Result::Ok(answer)
        });
    }
    while let Some(answer) = clients.join_next().await {
        // Two results: that of the task, and that of the connection.
        print!("came back: {}", answer??);
    }

    drop(end); // a receiver is ready when its sender is dropped
    server.await?;
    println!("the server has ended");
    Ok(())
}
