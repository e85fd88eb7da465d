//! The pooled client of `hyper-util` on our sockets, timers and tasks.

use bytes::Bytes;
use giveway::hyper::{Connector, Executor, Timer};
use giveway::net::{TcpListener, TcpStream};
use giveway_tests::with_runtimes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, Version, server};
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{Builder, Client};
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// How many connections a server has accepted, and how many of them are open.
#[derive(Default)]
struct Connections {
    accepted: AtomicUsize,
    open: AtomicUsize,
}

/// Starts a server that answers with the path. A request for `/close` is its connection's last.
async fn serve() -> (String, Arc<Connections>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Connections::default());
    let counted = connections.clone();
    giveway::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.accepted.fetch_add(1, SeqCst);
            counted.open.fetch_add(1, SeqCst);
            let counted = counted.clone();
            giveway::spawn(async move {
                let answer = async |request: Request<Incoming>| {
                    assert!(tokio::runtime::Handle::try_current().is_err(), "no tokio runtime");
                    let mut response = Response::builder();
                    if request.uri().path() == "/close" {
                        response = response.header("connection", "close");
                    }
                    response.body(request.uri().path().to_owned())
                };
                let mut start = [0];
                let _ = stream.peek(&mut start).await;
                // The preface of HTTP/2; the requests here are GET.
                if start == *b"P" {
                    let answer = service_fn(|request: Request<Incoming>| async move {
                        Ok::<_, Infallible>(Response::new(request.uri().path().to_owned()))
                    });
                    let _ = server::conn::http2::Builder::new(Executor)
                        .timer(Timer)
                        .serve_connection(stream, answer)
                        .await;
                } else {
                    let _ = server::conn::http1::Builder::new()
                        .timer(Timer)
                        .serve_connection(stream, service_fn(answer))
                        .await;
                }
                counted.open.fetch_sub(1, SeqCst);
            });
        }
    });
    (format!("http://{address}"), connections)
}

fn builder() -> Builder {
    let mut builder = Client::builder(Executor);
    builder.pool_timer(Timer).timer(Timer);
    builder
}

type Plain = Client<Connector, Empty<Bytes>>;

async fn get<C>(client: &Client<C, Empty<Bytes>>, uri: String) -> Bytes
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let answer = client.get(uri.parse().unwrap()).await.unwrap();
    answer.into_body().collect().await.unwrap().to_bytes()
}

/// Makes one connection. Every attempt after that waits for ever, so that only a connection which
/// has come back to the pool can serve a request.
#[derive(Clone)]
struct Once {
    connector: Connector,
    made: Arc<AtomicUsize>,
}

impl Service<Uri> for Once {
    type Response = TcpStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if self.made.fetch_add(1, SeqCst) == 0 {
            self.connector.call(uri)
        } else {
            Box::pin(std::future::pending())
        }
    }
}

#[test]
fn requests_one_after_the_other_use_one_connection() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (server, connections) = serve().await;
            let once = Once { connector: Connector::new(), made: Arc::default() };
            let client: Client<_, Empty<Bytes>> = builder().build(once);
            for n in 0..50 {
                assert_eq!(get(&client, format!("{server}/{n}")).await, format!("/{n}"));
            }
            assert_eq!(connections.accepted.load(SeqCst), 1);
        });
    });
}

#[test]
fn a_connection_that_the_server_closes_is_replaced() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (server, connections) = serve().await;
            let client: Plain = builder().build(Connector::new());
            for n in 1..=5 {
                assert_eq!(get(&client, format!("{server}/close")).await, "/close");
                assert_eq!(connections.accepted.load(SeqCst), n);
            }
        });
    });
}

#[test]
fn requests_at_once_share_what_the_pool_has() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (server, connections) = serve().await;
            let mut connector = Connector::new();
            connector.set_nodelay(true);
            connector.set_connect_timeout(Some(Duration::from_secs(60)));
            let client: Plain = builder().build(connector);
            for _ in 0..5 {
                let asked: Vec<_> = (0..8)
                    .map(|n| {
                        let (client, uri) = (client.clone(), format!("{server}/{n}"));
                        giveway::spawn(async move {
                            assert_eq!(get(&client, uri).await, format!("/{n}"));
                        })
                    })
                    .collect();
                for task in asked {
                    task.await.unwrap();
                }
            }
            let accepted = connections.accepted.load(SeqCst);
            assert!((1..=16).contains(&accepted), "{accepted} connections for 40 requests");
        });
    });
}

#[test]
fn all_requests_of_http2_go_over_one_connection() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (server, connections) = serve().await;
            let client: Plain = builder().http2_only(true).build(Connector::new());
            assert_eq!(get(&client, format!("{server}/first")).await, "/first");
            let asked: Vec<_> = (0..50)
                .map(|n| {
                    let (client, uri) = (client.clone(), format!("{server}/{n}"));
                    giveway::spawn(async move {
                        let answer = client.get(uri.parse().unwrap()).await.unwrap();
                        assert_eq!(answer.version(), Version::HTTP_2);
                    })
                })
                .collect();
            for task in asked {
                task.await.unwrap();
            }
            assert_eq!(connections.accepted.load(SeqCst), 1);
        });
    });
}

/// The pool's clock is ours.
#[test]
fn a_connection_that_was_idle_for_long_is_closed() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (server, connections) = serve().await;
            let client: Plain =
                builder().pool_idle_timeout(Duration::from_millis(5)).build(Connector::new());
            get(&client, format!("{server}/")).await;
            while connections.open.load(SeqCst) > 0 {
                giveway::time::sleep(Duration::from_millis(1)).await;
            }
            get(&client, format!("{server}/")).await;
            assert_eq!(connections.accepted.load(SeqCst), 2);
        });
    });
}

#[test]
fn what_cannot_be_connected_to_is_an_error() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let mut connector = Connector::new();
            let mut connect = |uri: &'static str| connector.call(Uri::from_static(uri));
            let https = connect("https://localhost:1/").await.unwrap_err();
            assert_eq!(https.kind(), ErrorKind::InvalidInput);
            let refused = connect("http://127.0.0.1:1/").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let client: Plain = builder().build(connector);
            assert!(
                client.get(Uri::from_static("http://127.0.0.1:1/")).await.unwrap_err().is_connect()
            );
        });
    });
}
