//! WebSockets that run on Giveway.

#![cfg(feature = "ws")]

mod common;

use axum::Router;
use axum::response::Response;
use axum::routing::any;
use common::client;
use futures::{FutureExt, SinkExt, StreamExt, select};
use giveway::net::{TcpListener, TcpStream};
use giveway::time::Duration;
use giveway_axum::ws::{Message, WebSocket, WebSocketUpgrade};
use giveway_axum::{Report, serve};
use hyper::Version;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response as Answer;
use tokio_tungstenite::{WebSocketStream, client_async};

async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.protocols(["v2", "v1"]).on_upgrade(async |mut socket: WebSocket| {
        assert!(tokio::runtime::Handle::try_current().is_err(), "no tokio runtime");
        while let Some(Ok(message)) = socket.next().await {
            if message.is_close() {
                break;
            }
            let job = giveway::spawn_background(async move { message });
            socket.send(job.await.unwrap()).await.unwrap();
        }
    })
}

/// Ends when the server does.
async fn polite(upgrade: WebSocketUpgrade) -> Response {
    let mut draining = upgrade.draining().fuse();
    upgrade.on_upgrade(async move |mut socket: WebSocket| {
        loop {
            select! {
                message = socket.next() => match message {
                    Some(Ok(message)) => socket.send(message).await.unwrap(),
                    _ => break,
                },
                () = draining => {
                    socket.send(Message::text("bye")).await.unwrap();
                    break;
                }
            }
        }
    })
}

struct Started {
    address: SocketAddr,
    stop: futures::channel::oneshot::Sender<()>,
    serving: giveway::task::JoinHandle<io::Result<Report>>,
}

async fn start(grace: Duration) -> Started {
    let router = Router::new().route("/echo", any(echo)).route("/polite", any(polite));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = futures::channel::oneshot::channel();
    let serving = serve(listener, router)
        .with_graceful_shutdown(async { stopped.await.unwrap() })
        .with_grace_period(grace);
    Started { address, stop, serving: giveway::spawn(serving.into_future()) }
}

type Socket = WebSocketStream<TokioIo<TcpStream>>;

async fn connect(address: SocketAddr, path: &str, protocols: &str) -> (Socket, Answer) {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    if !protocols.is_empty() {
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    }
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(request, TokioIo::new(stream)).await.unwrap()
}

async fn talk(socket: &mut Socket) {
    for n in 0..50 {
        let said = Message::text(format!("{n}").repeat(n * 100 + 1));
        socket.send(said.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), said);
    }
    let binary = Message::binary(vec![7; 1 << 20]);
    socket.send(binary.clone()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), binary);
}

#[giveway::test]
async fn messages_go_both_ways_without_tokio() {
    let server = start(Duration::from_secs(600)).await;
    let sockets: Vec<_> = (0..5)
        .map(|_| {
            let address = server.address;
            giveway::spawn(async move {
                let (mut socket, _) = connect(address, "/echo", "").await;
                talk(&mut socket).await;
                socket.close(None).await.unwrap();
            })
        })
        .collect();
    for socket in sockets {
        socket.await.unwrap();
    }
    server.stop.send(()).unwrap();
    let report = server.serving.await.unwrap().unwrap();
    assert_eq!((report.accepted, report.cut_off), (5, 0));
}

#[giveway::test]
async fn the_first_protocol_of_the_server_that_the_client_offers_is_chosen() {
    let server = start(Duration::from_secs(600)).await;
    for (offered, chosen) in [("v1, v2", Some("v2")), ("v0,v1", Some("v1"))] {
        let (_socket, answer) = connect(server.address, "/echo", offered).await;
        let header = answer.headers().get("sec-websocket-protocol");
        assert_eq!(header.map(|header| header.to_str().unwrap()), chosen);
    }
}

#[giveway::test]
async fn a_socket_is_told_of_the_shutdown_and_waited_for() {
    let server = start(Duration::from_secs(600)).await;
    let (mut socket, _) = connect(server.address, "/polite", "").await;
    talk(&mut socket).await;
    server.stop.send(()).unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("bye"));
    let report = server.serving.await.unwrap().unwrap();
    assert_eq!((report.open_at_shutdown, report.cut_off), (1, 0));
}

#[giveway::test]
async fn a_socket_that_does_not_end_is_cut_off_and_counted() {
    let server = start(Duration::from_millis(10)).await;
    let (mut socket, _) = connect(server.address, "/echo", "").await;
    talk(&mut socket).await;
    server.stop.send(()).unwrap();
    let report = server.serving.await.unwrap().unwrap();
    assert_eq!((report.open_at_shutdown, report.cut_off), (1, 1));
    assert!(!matches!(socket.next().await, Some(Ok(_))), "it was dropped");
}

#[giveway::test]
async fn what_is_no_wish_for_a_socket_is_refused() {
    let server = start(Duration::from_secs(600)).await;
    let headers = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ];
    let refused = async |change: (&str, Option<&str>), method: &str, version| {
        let mut client = client(server.address, version).await;
        let mut request = common::request(method, "/echo", "");
        for (name, value) in headers {
            let value = if name == change.0 { change.1 } else { Some(value) };
            // HTTP/2 knows no such headers.
            if let Some(value) =
                value.filter(|_| version == Version::HTTP_11 || name.starts_with("sec"))
            {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
        }
        client.send(request).await
    };
    let one = Version::HTTP_11;
    let accepted = refused(("", None), "GET", one).await;
    assert_eq!(accepted.status(), 101);
    assert_eq!(accepted.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(refused(("", None), "POST", one).await.status(), 405);
    assert_eq!(refused(("upgrade", Some("h2c")), "GET", one).await.status(), 400);
    assert_eq!(refused(("connection", Some("close")), "GET", one).await.status(), 400);
    assert_eq!(refused(("sec-websocket-key", None), "GET", one).await.status(), 400);
    let other = refused(("sec-websocket-version", Some("8")), "GET", one).await;
    assert_eq!(
        (other.status().as_u16(), &other.headers()["sec-websocket-version"]),
        (426, &"13".parse().unwrap())
    );
    assert_eq!(refused(("", None), "GET", Version::HTTP_2).await.status(), 400);
}
