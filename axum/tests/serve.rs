//! Requests, what handlers may use, and the end.

mod common;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use common::{Client, address_of, client, get_text};
use futures::channel::{mpsc, oneshot};
use giveway::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use giveway::time::{Duration, sleep};
use giveway_axum::{Report, serve};
use http_body_util::BodyExt;
use hyper::Version;
use std::io;
use std::net::SocketAddr;

/// A server that was started.
struct Started {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: giveway::task::JoinHandle<io::Result<Report>>,
}

impl Started {
    async fn stop(self) -> Report {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap()
    }
}

async fn start(router: Router, grace: Option<Duration>) -> Started {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = serve(listener, router).with_graceful_shutdown(async { stopped.await.unwrap() });
    let serving = match grace {
        Some(grace) => serving.with_grace_period(grace),
        None => serving,
    };
    Started { address, stop, serving: giveway::spawn(serving.into_future()) }
}

#[giveway::test]
async fn requests_of_both_versions_are_answered_without_tokio() {
    let router = Router::new().route(
        "/",
        get(async || {
            assert!(tokio::runtime::Handle::try_current().is_err(), "no tokio runtime");
            sleep(Duration::from_millis(1)).await;
            giveway::spawn_background(async { "hello" }).await.unwrap()
        }),
    );
    let server = start(router, None).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut client = client(server.address, version).await;
        for _ in 0..20 {
            assert_eq!(get_text(&mut client, "/").await, "hello");
        }
    }
    let report = server.stop().await;
    assert_eq!((report.accepted, report.accept_errors, report.cut_off), (2, 0, 0));
}

#[giveway::test]
async fn many_clients_are_served_at_once() {
    let echo = async |body: String| body;
    let server = start(Router::new().route("/", post(echo)), None).await;
    let clients: Vec<_> = (0..20)
        .map(|n| {
            let address = server.address;
            giveway::spawn(async move {
                let mut client = client(address, Version::HTTP_11).await;
                for _ in 0..20 {
                    let body = format!("{n}").repeat(1_000);
                    let answer = client.send(common::request("POST", "/", &body)).await;
                    let answer = answer.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(answer, body.as_bytes());
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(server.stop().await.accepted, 20);
}

#[giveway::test]
async fn connect_info_names_the_client() {
    async fn who(ConnectInfo(address): ConnectInfo<SocketAddr>) -> String {
        address.to_string()
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(who));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    giveway::spawn(serve(listener, service).into_future());
    let stream = TcpStream::connect(address).await.unwrap();
    let here = stream.local_addr().unwrap();
    let mut client = Client::over(stream, Version::HTTP_11).await;
    assert_eq!(get_text(&mut client, "/").await, here.to_string());
}

#[giveway::test]
async fn a_unix_listener_serves_a_single_route() {
    async fn who(ConnectInfo(address): ConnectInfo<unix::SocketAddr>) -> String {
        address.is_unnamed().to_string()
    }
    let path = std::env::temp_dir().join(format!("giveway-axum-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let service = Router::new()
        .route("/", get(who))
        .into_make_service_with_connect_info::<unix::SocketAddr>();
    giveway::spawn(serve(listener, service).into_future());
    let stream = UnixStream::connect(&path).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut client = Client::over(stream, Version::HTTP_11).await;
    assert_eq!(get_text(&mut client, "/").await, "true");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    giveway::spawn(serve(listener, get(async || "any path")).into_future());
    let mut client = client_of(address).await;
    assert_eq!(get_text(&mut client, "/somewhere").await, "any path");
}

async fn client_of(address: SocketAddr) -> Client {
    client(address, Version::HTTP_11).await
}

/// A router whose handler says that it was entered, and answers when it is told to.
fn gate() -> (Router, mpsc::UnboundedReceiver<()>, oneshot::Sender<()>) {
    let (entered, is_entered) = mpsc::unbounded();
    let (open, is_open) = oneshot::channel::<()>();
    let is_open = futures::FutureExt::shared(is_open);
    let handler = async move || {
        entered.unbounded_send(()).unwrap();
        is_open.await.unwrap();
        "answered"
    };
    (Router::new().route("/", get(handler)), is_entered, open)
}

#[giveway::test]
async fn a_request_under_way_is_answered_and_idle_connections_are_closed() {
    use futures::StreamExt;

    for version in [Version::HTTP_11, Version::HTTP_2] {
        let (router, mut entered, open) = gate();
        let server = start(router, Some(Duration::from_secs(600))).await;
        let address = server.address;
        let mut busy = client(address, version).await;
        let answer = giveway::spawn(async move { get_text(&mut busy, "/").await });
        entered.next().await.unwrap();
        // One that has never said anything, one that has its answer, and one with half of a head.
        let silent = TcpStream::connect(address).await.unwrap();
        let mut idle = client(address, version).await;
        assert_eq!(idle.send(common::request("GET", "/none", "")).await.status(), 404);
        let half = TcpStream::connect(address).await.unwrap();
        futures::AsyncWriteExt::write_all(&mut &half, b"GET / HT").await.unwrap();

        server.stop.send(()).unwrap();
        idle.closed().await;
        assert_eq!(futures::AsyncReadExt::read(&mut &silent, &mut [0; 8]).await.unwrap_or(0), 0);
        drop(half);
        open.send(()).unwrap();
        assert_eq!(answer.await.unwrap(), "answered");
        let report = server.serving.await.unwrap().unwrap();
        assert_eq!(report.cut_off, 0, "{report}");
        assert!(report.open_at_shutdown >= 2, "{report}");
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    }
}

#[giveway::test]
async fn what_is_open_after_the_grace_period_is_cut_off_and_counted() {
    use futures::StreamExt;

    let (router, mut entered, open) = gate();
    let server = start(router, Some(Duration::from_millis(10))).await;
    let mut busy = client(server.address, Version::HTTP_11).await;
    let asking =
        giveway::spawn(
            async move { busy.try_send(common::request("GET", "/", "")).await.is_err() },
        );
    entered.next().await.unwrap();
    let report = server.stop().await;
    assert_eq!((report.open_at_shutdown, report.cut_off), (1, 1));
    assert!(report.took >= Duration::from_millis(10));
    assert!(asking.await.unwrap(), "there was no answer");
    drop(open);
}

/// Dropping the server stops accepting, and nothing else.
#[giveway::test]
async fn a_server_that_is_dropped_serves_what_it_has_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = giveway::spawn(
        serve(listener, Router::new().route("/", get(async || "hello"))).into_future(),
    );
    let mut client = client_of(address).await;
    assert_eq!(get_text(&mut client, "/").await, "hello");
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    assert_eq!(get_text(&mut client, "/").await, "hello");
    assert!(TcpStream::connect(address).await.is_err());
}

#[giveway::test]
async fn a_handler_that_panics_ends_its_connection_and_no_other() {
    let router = Router::new().route("/", get(async || "hello")).route(
        "/panic",
        get(async || {
            if address_of("x").is_none() {
                panic!("on purpose")
            }
        }),
    );
    let server = start(router, None).await;
    let mut other = client_of(server.address).await;
    assert_eq!(get_text(&mut other, "/").await, "hello");
    let mut client = client_of(server.address).await;
    assert!(client.try_send(common::request("GET", "/panic", "")).await.is_err());
    assert_eq!(get_text(&mut other, "/").await, "hello");
    assert_eq!(server.stop().await.accepted, 2);
}

/// An option is set before anything is served.
#[giveway::test]
async fn a_tap_sees_every_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (saw, mut seen) = mpsc::unbounded();
    let serving = serve(listener, get(async || "hello")).tap_io(move |stream| {
        stream.set_nodelay(true).unwrap();
        saw.unbounded_send(stream.nodelay().unwrap()).unwrap();
    });
    giveway::spawn(serving.into_future());
    for _ in 0..3 {
        let mut client = client_of(address).await;
        assert_eq!(get_text(&mut client, "/").await, "hello");
        assert!(futures::StreamExt::next(&mut seen).await.unwrap());
    }
}

/// The head of a request comes in time, or the connection is closed.
#[giveway::test]
async fn a_client_that_sends_no_head_is_let_go() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = serve(listener, Router::new()).configure(|http| {
        http.http1().header_read_timeout(Duration::from_millis(5));
    });
    giveway::spawn(serving.into_future());
    let stream = TcpStream::connect(address).await.unwrap();
    futures::AsyncWriteExt::write_all(&mut &stream, b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    let mut answer = Vec::new();
    let _ = futures::AsyncReadExt::read_to_end(&mut &stream, &mut answer).await;
}
