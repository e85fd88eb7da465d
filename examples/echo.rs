//! A TCP server that sends back whatever it is sent: one task a connection, and an end in good order.
//!
//! ```sh
//! cargo run --example echo                      # is its own client, and ends
//! cargo run --example echo -- 127.0.0.1:7777    # serves until its input ends (Ctrl-D)
//! ```
//!
//! Talk to the second with `nc 127.0.0.1 7777`.

use futures::channel::oneshot;
use futures::{AsyncBufReadExt, AsyncWriteExt, FutureExt, StreamExt, io::BufReader};
use giveway::net::{TcpListener, TcpStream};
use giveway::task::JoinSet;
use giveway::time::{Duration, sleep, timeout};
use std::env;
use std::io::{self, ErrorKind};
use std::pin::pin;

/// How long connections may go on when the server ends.
const GRACE: Duration = Duration::from_secs(2);

fn main() -> io::Result<()> {
    match env::args().nth(1) {
        Some(address) => giveway::block_on(serve_until_end_of_input(&address)),
        None => giveway::block_on(demo()),
    }
}

/// Sends back what comes, until the client has no more to send. Dropping the stream closes the connection.
async fn echo(stream: TcpStream) -> io::Result<u64> {
    // A shared reference to a stream reads and writes too, so there is no need to split it.
    futures::io::copy(&stream, &mut &stream).await
}

/// Accepts connections until `end` is ready.
async fn serve(listener: TcpListener, end: impl Future) {
    // Whatever is in the set is aborted when the set is dropped.
    let mut connections = JoinSet::new();
    let mut incoming = listener.incoming().fuse();
    let mut end = pin!(end.fuse());
    loop {
        futures::select! {
            accepted = incoming.select_next_some() => match accepted {
                Ok(stream) => { connections.spawn(echo(stream)); }
                // It was given up before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Out of descriptors or memory, say. The connection waits until there are some again.
                Err(error) => {
                    eprintln!("cannot accept: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            },
            _ = end => break,
        }
        // A set keeps what has finished until it is asked for it.
        while connections.try_join_next().is_some() {}
    }
    // Nobody new. Those who are here may finish; after that they are told to.
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, all).await.is_err() {
        println!("{} connections were cut off", connections.len());
        connections.shutdown().await;
    }
}

async fn serve_until_end_of_input(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}; end with Ctrl-D", listener.local_addr()?);
    // Reading from a terminal blocks its thread, so it is done on one where it may.
    let end_of_input = giveway::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    serve(listener, end_of_input).await;
    Ok(())
}

/// The server, and three clients at the same time.
async fn demo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?; // port 0: any that is free
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
        // Two errors to look at: that of the task, and that of the connection.
        print!("came back: {}", answer??);
    }

    drop(end); // a receiver whose sender is gone is ready
    server.await?;
    println!("the server has ended");
    Ok(())
}
