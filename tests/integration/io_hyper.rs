//! Hyper on our streams, timers and tasks, without a tokio runtime.

use crate::io_common::{HOUR, tcp_pair};
use bytes::Bytes;
use giveway::hyper::{Executor, Timer};
use giveway::net::{TcpListener, TcpStream, UnixStream};
use giveway_tests::{Alive, eventually, hold, runtime, watch, with_runtimes};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::{self, Timer as _};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// More than a socket takes at once.
const LARGE: usize = 3 << 20;

/// Sends the body back, with the path in front of it.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert!(
        tokio::runtime::Handle::try_current().is_err(),
        "nobody has started a runtime of tokio's"
    );
    let mut answer = request.uri().path().as_bytes().to_vec();
    answer.extend(request.into_body().collect().await.unwrap().to_bytes());
    Ok(Response::new(answer.into()))
}

fn request(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder()
        .uri(format!("http://here{path}"))
        .header("host", "here")
        .body(Full::new(body.into()))
        .unwrap()
}

async fn body_of(response: Response<Incoming>) -> Bytes {
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Runs a server and a client of HTTP/1 over these two ends.
async fn talk_http1<S: rt::Read + rt::Write + Send + Unpin + 'static>(here: S, there: S) {
    let serving = giveway::spawn(
        server::conn::http1::Builder::new().timer(Timer).serve_connection(there, service_fn(echo)),
    );
    let (mut sender, connection) = client::conn::http1::handshake(here).await.unwrap();
    let client = giveway::spawn(connection);
    for n in 0..20 {
        let path = format!("/{n}");
        sender.ready().await.unwrap();
        let answer = body_of(sender.send_request(request(&path, "?")).await.unwrap()).await;
        assert_eq!(answer, format!("{path}?"));
    }
    sender.ready().await.unwrap();
    let answer = body_of(sender.send_request(request("/", vec![b'x'; LARGE])).await.unwrap()).await;
    assert!(answer.len() == LARGE + 1 && answer[1..].iter().all(|byte| *byte == b'x'));
    drop(sender);
    client.await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
}

#[test]
fn http1_works_over_tcp_and_over_unix_sockets() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (here, there) = tcp_pair().await;
            talk_http1(here, there).await;
            let (here, there) = UnixStream::pair().unwrap();
            talk_http1(here, there).await;
        });
    });
}

/// Serves one HTTP/2 connection on loopback, spawning with `executor`. Returns the client's end.
async fn serve_http2<E>(executor: E) -> TcpStream
where
    E: rt::bounds::Http2ServerConnExec<
            <ServiceFn as hyper::service::Service<Request<Incoming>>>::Future,
            Full<Bytes>,
        > + Clone
        + Send
        + Unpin
        + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    giveway::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = server::conn::http2::Builder::new(executor)
            .timer(Timer)
            .serve_connection(stream, ServiceFn);
        let _ = connection.await;
    });
    TcpStream::connect(address).await.unwrap()
}

/// [`echo`] as a type that has a name.
#[derive(Clone, Copy)]
struct ServiceFn;

impl hyper::service::Service<Request<Incoming>> for ServiceFn {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(echo(request))
    }
}

#[test]
fn http2_spawns_its_tasks_here() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let stream = serve_http2(Executor).await;
            let (sender, connection) =
                client::conn::http2::handshake(Executor, stream).await.unwrap();
            let client = giveway::spawn(connection);
            let requests = (0..50).map(|n| {
                let mut sender = sender.clone();
                giveway::spawn(async move {
                    let answer = sender
                        .send_request(request(&format!("/{n}"), vec![b'x'; n * 1_000]))
                        .await
                        .unwrap();
                    let answer = body_of(answer).await;
                    assert_eq!(answer.len(), format!("/{n}").len() + n * 1_000);
                })
            });
            for request in requests.collect::<Vec<_>>() {
                request.await.unwrap();
            }
            drop(sender);
            client.await.unwrap().unwrap();
        });
    });
}

#[test]
fn a_handle_is_an_executor_of_its_runtime() {
    let _watch = watch();
    let (here, elsewhere) = (runtime(1), runtime(3));
    here.block_on(async {
        let (sender, workers) = futures::channel::oneshot::channel();
        let count = async { sender.send(giveway::Handle::current().workers()).unwrap() };
        rt::Executor::execute(elsewhere.handle(), count);
        assert_eq!(workers.await, Ok(3));

        let stream = serve_http2(elsewhere.handle().clone()).await;
        let (mut sender, connection) =
            client::conn::http2::handshake(elsewhere.handle().clone(), stream).await.unwrap();
        elsewhere.spawn(connection);
        assert_eq!(
            body_of(sender.send_request(request("/", "hello")).await.unwrap()).await,
            "/hello"
        );
    });
}

#[test]
fn a_client_that_does_not_send_its_head_is_let_go_by_our_timer() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (mut here, there) = tcp_pair().await;
            futures::AsyncWriteExt::write_all(&mut here, b"GET / HTTP/1.1\r\nhost:").await.unwrap();
            let serving = server::conn::http1::Builder::new()
                .timer(Timer)
                .header_read_timeout(Duration::from_millis(5))
                .serve_connection(there, service_fn(echo));
            assert!(giveway::spawn(serving).await.unwrap().unwrap_err().is_timeout());
        });
    });
}

#[test]
fn moving_a_sleep_keeps_it() {
    let _watch = watch();
    let mut cx = Context::from_waker(Waker::noop());
    let mut sleep = Timer.sleep(HOUR);
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    let address = |sleep: &Pin<Box<dyn rt::Sleep>>| (&raw const **sleep).cast::<()>();
    let before = address(&sleep);
    Timer.reset(&mut sleep, Instant::now());
    assert_eq!(address(&sleep), before, "the same allocation");
    giveway::block_on(sleep);
}

/// A sleep of another timer is replaced.
#[test]
fn a_foreign_sleep_can_be_moved_too() {
    struct Never;
    impl Future for Never {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    impl rt::Sleep for Never {}

    let _watch = watch();
    let mut sleep: Pin<Box<dyn rt::Sleep>> = Box::pin(Never);
    Timer.reset(&mut sleep, Instant::now());
    giveway::block_on(sleep);
    giveway::block_on(Timer.sleep_until(Instant::now()));
}

/// A runtime that ends drops what hyper has spawned, in the middle of a request.
#[test]
fn a_runtime_that_is_dropped_drops_connections_and_requests() {
    let _watch = watch();
    let alive = Alive::default();
    let runtime = runtime(2);
    let (held, service) = (alive.clone(), alive.clone());
    let service = service_fn(move |_: Request<Incoming>| {
        let alive = service.clone();
        async move {
            hold(alive).await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    runtime.block_on(async {
        let (here, there) = tcp_pair().await;
        giveway::spawn(
            server::conn::http2::Builder::new(Executor)
                .timer(Timer)
                .serve_connection(there, service),
        );
        let (mut sender, connection) =
            client::conn::http2::handshake(Executor, here).await.unwrap();
        giveway::spawn(connection);
        giveway::spawn(async move {
            let _held = held;
            sender.send_request(request("/", "")).await
        });
    });
    eventually(|| Arc::strong_count(&alive) == 4);
    drop(runtime);
    assert_eq!(Arc::strong_count(&alive), 1);
}
