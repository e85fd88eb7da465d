//! A small web server: a page, a job in the background, a WebSocket, and an orderly end.
//!
//! Without an argument it serves itself a page, and ends:
//!
//! ```sh
//! cargo run -p giveway-axum --features ws --example web
//! ```
//!
//! With an address it keeps serving, for a browser:
//!
//! ```sh
//! cargo run -p giveway-axum --features ws --example web -- 127.0.0.1:3000
//! ```

use axum::extract::ConnectInfo;
use axum::response::{Html, Response};
use axum::{Router, routing::any, routing::get};
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, SinkExt, StreamExt, select};
use giveway::net::{TcpListener, TcpStream};
use giveway::time::{Duration, sleep};
use giveway_axum::ws::{WebSocket, WebSocketUpgrade};
use std::future::Future;
use std::io;
use std::net::SocketAddr;

const PAGE: &str = r#"<!doctype html><title>Giveway</title>
<p>Type: <input id="said"> <span id="answer"></span>
<script>
  const socket = new WebSocket("ws://" + location.host + "/echo");
  socket.onmessage = (message) => { answer.textContent = message.data; };
  said.oninput = () => socket.send(said.value);
</script>"#;

/// Adds up numbers for as long as it takes. Requests go first at every yield point.
async fn sum() -> String {
    let job = giveway::spawn_background(async {
        let mut sum = 0_u64;
        for chunk in 0..10_000_u64 {
            sum = sum.wrapping_add((0..1_000).map(|n| n ^ chunk).sum::<u64>());
            giveway::yield_now_if_busy().await;
        }
        sum
    });
    match job.await {
        Ok(sum) => format!("the sum is {sum}\n"),
        Err(error) => format!("no sum: {error}\n"),
    }
}

async fn who(ConnectInfo(address): ConnectInfo<SocketAddr>) -> String {
    format!("you are {address}\n")
}

async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
    let draining = upgrade.draining();
    upgrade.on_upgrade(|socket| echo(socket, draining))
}

/// Sends back what comes, until the client or the server ends.
async fn echo(mut socket: WebSocket, draining: impl Future<Output = ()> + Unpin) {
    let mut draining = draining.fuse();
    loop {
        select! {
            message = socket.next() => match message {
                Some(Ok(message)) if message.is_text() => {
                    if socket.send(message).await.is_err() {
                        return;
                    }
                }
                Some(Ok(_)) => {}
                _ => return,
            },
            () = draining => return drop(socket.close(None).await),
        }
    }
}

/// Asks for a page as a browser does, and returns the last line of the answer.
async fn visit(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().last().unwrap_or_default().to_owned())
}

#[giveway::main]
async fn main() -> io::Result<()> {
    let router = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/sum", get(sum))
        .route("/who", get(who))
        .route("/echo", any(upgrade));
    let wanted = std::env::args().nth(1);
    let listener = TcpListener::bind(wanted.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let address = listener.local_addr()?;
    println!("http://{address}/");
    let end = async move {
        if wanted.is_some() {
            // A server on the internet waits for a signal here, by the crate `async-signal`.
            sleep(Duration::MAX).await;
        }
        for path in ["/who", "/sum"] {
            match visit(address, path).await {
                Ok(answer) => println!("{path}: {answer}"),
                Err(error) => println!("{path}: {error}"),
            }
        }
    };
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let report = giveway_axum::serve(listener, service)
        .with_graceful_shutdown(end)
        .with_grace_period(Duration::from_secs(10))
        .await?;
    println!("{report}");
    Ok(())
}
