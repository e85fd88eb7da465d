//! Accepting connections, serving each in a task of its own, and ending in order.
//!
//! Two channels of tokio's `sync`, which needs no runtime, connect the parts. In `phase` the task
//! that accepts says what is to happen; all connections watch it. In `counting` nothing is ever
//! sent: each open connection holds a receiver, so the number of receivers is the number of open
//! connections, and the channel is closed when the last one ends.

use crate::{IncomingStream, Listener, Report};
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::UPGRADE;
use axum::response::Response;
use giveway::hyper::{Executor, Timer};
use giveway::time::{sleep, timeout};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tower_service::Service;

/// How long the listener rests after an error, such as that there are no file descriptors.
const REST: Duration = Duration::from_millis(50);

/// How long a client may take for the TLS handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Serves a router, or another of axum's services, on the connections of a listener.
///
/// The listener is one of [`giveway::net`]. The service is a `Router`, a `MethodRouter`, or what
/// `into_make_service_with_connect_info` returns. Await the result to serve; it ends only after
/// [`with_graceful_shutdown`](Serve::with_graceful_shutdown).
///
/// Each connection is served in a task of its own, which [`giveway::spawn`] spawns. A client of
/// HTTP/1 has 30 seconds to send the head of its first request, and of each next one: after that
/// its connection is closed. [`configure`](Serve::configure) changes that and the rest of hyper's
/// settings. After an error of the listener, such as that there are no file descriptors, it pauses
/// for 50 ms and goes on.
///
/// See the [crate](crate) for an example.
///
/// # Cancel safety
///
/// If the future is dropped, no more connections are accepted. Those that are open are served to
/// their end.
pub fn serve<L, M, S>(listener: L, make_service: M) -> Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Response = S, Error = Infallible>,
{
    let mut http = Builder::new(Executor);
    http.http1().timer(Timer);
    http.http2().timer(Timer);
    Serve {
        listener,
        make_service,
        tap: None,
        http,
        signal: None,
        grace: None,
        #[cfg(feature = "tls")]
        tls: None,
        service: PhantomData,
    }
}

/// A function that is called with each connection.
type Tap<L> = Box<dyn FnMut(&mut <L as Listener>::Stream) + Send>;

/// What [`serve`] returns. Await it to serve.
#[must_use = "it serves when it is awaited"]
pub struct Serve<L: Listener, M, S> {
    listener: L,
    make_service: M,
    tap: Option<Tap<L>>,
    http: Builder<Executor>,
    signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    grace: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
    service: PhantomData<fn() -> S>,
}

impl<L: Listener, M, S> Serve<L, M, S> {
    /// Ends when `signal` is ready: closes the listener, lets the requests under way be answered,
    /// and waits until all connections have ended.
    ///
    /// Connections without a request are closed at once. A WebSocket is waited for like a request;
    /// its handler learns of the shutdown by `WebSocketUpgrade::draining`.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use giveway::net::TcpListener;
    /// use giveway::time::sleep;
    /// use std::time::Duration;
    ///
    /// # #[giveway::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let router = Router::new().route("/", get(async || "hello"));
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// // In a server: a signal, by the crate `async-signal`.
    /// let signal = sleep(Duration::from_millis(1));
    /// let report = giveway_axum::serve(listener, router)
    ///     .with_graceful_shutdown(signal)
    ///     .with_grace_period(Duration::from_secs(20))
    ///     .await?;
    /// println!("{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_graceful_shutdown(
        mut self,
        signal: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// Limits how long a graceful shutdown waits. Connections that are open after that are dropped,
    /// with their requests and WebSockets, and the [`Report`] counts them.
    ///
    /// A handler that does not return from its poll is dropped when it does. What handlers have
    /// spawned by themselves is not dropped.
    ///
    /// See [`with_graceful_shutdown`](Self::with_graceful_shutdown) for an example.
    pub fn with_grace_period(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Calls a function with each connection that is accepted: to set its options.
    ///
    /// # Examples
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use giveway::net::TcpListener;
    /// # giveway::block_on(async {
    /// # let router = Router::new().route("/", get(async || "hello"));
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let serving = giveway_axum::serve(listener, router).tap_io(|stream| {
    ///     if let Err(error) = stream.set_nodelay(true) {
    ///         eprintln!("cannot set TCP_NODELAY: {error}");
    ///     }
    /// });
    /// # drop(serving);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn tap_io(mut self, tap: impl FnMut(&mut L::Stream) + Send + 'static) -> Self {
        self.tap = Some(Box::new(tap));
        self
    }

    /// Changes hyper's settings for connections.
    ///
    /// # Examples
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use giveway::net::TcpListener;
    /// use std::time::Duration;
    ///
    /// # giveway::block_on(async {
    /// # let router = Router::new().route("/", get(async || "hello"));
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let serving = giveway_axum::serve(listener, router).configure(|http| {
    ///     http.http1().header_read_timeout(Duration::from_secs(5));
    ///     http.http2().keep_alive_interval(Duration::from_secs(60));
    /// });
    /// # drop(serving);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn configure(mut self, configure: impl FnOnce(&mut Builder<Executor>)) -> Self {
        configure(&mut self.http);
        self
    }

    /// Serves TLS. If `config` names no protocols for ALPN, HTTP/2 and HTTP/1.1 are offered.
    ///
    /// The handshake is part of the connection's task: a slow client delays no other. It may take
    /// ten seconds. The provider of `rustls` is that of `config`.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use giveway::net::TcpListener;
    /// use giveway_axum::rustls::ServerConfig;
    /// use giveway_axum::rustls::pki_types::PrivatePkcs8KeyDer;
    /// use std::sync::Arc;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # giveway::block_on(async {
    /// // In a server: from files.
    /// let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    /// let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    /// let config = ServerConfig::builder()
    ///     .with_no_client_auth()
    ///     .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    /// let router = Router::new().route("/", get(async || "hello"));
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let serving = giveway_axum::serve(listener, router).tls(Arc::new(config));
    /// # drop(serving);
    /// # Ok(()) })
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, mut config: Arc<crate::rustls::ServerConfig>) -> Self {
        if config.alpn_protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        self.tls = Some(config.into());
        self
    }
}

impl<L, M, S> Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Response = S, Error = Infallible>,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    async fn run(self) -> Report {
        let Self { listener, mut make_service, mut tap, http, signal, grace, .. } = self;
        let mut signal = signal.unwrap_or_else(|| Box::pin(pending()));
        let (phase, watched) = watch::channel(Phase::Serving);
        let (counting, counted) = watch::channel(());
        let http = Arc::new(http);
        let mut report = Report::default();
        loop {
            let mut accepting = pin!(accept(&listener, &mut report.accept_errors));
            let accepted = poll_fn(|cx| match signal.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => accepting.as_mut().poll(cx).map(Some),
            });
            let Some((mut io, remote_addr)) = accepted.await else { break };
            report.accepted += 1;
            if let Some(tap) = &mut tap {
                tap(&mut io);
            }
            let Ok(()) = poll_fn(|cx| make_service.poll_ready(cx)).await;
            let incoming = IncomingStream { io: &io, remote_addr: &remote_addr };
            let Ok(service) = make_service.call(incoming).await;
            let held = Held { phase: watched.clone(), _counted: Arc::new(counted.clone()) };
            let connection = Connection {
                service: Served { service, held: held.clone() },
                held,
                http: http.clone(),
            };
            #[cfg(feature = "tls")]
            if let Some(acceptor) = &self.tls {
                giveway::spawn(connection.serve_tls(io, acceptor.clone()));
                continue;
            }
            giveway::spawn(connection.serve(io));
        }
        // From here on connections are refused by the system.
        drop((listener, watched, counted));
        let begun = Instant::now();
        report.open_at_shutdown = counting.receiver_count();
        phase.send_replace(Phase::Draining);
        let all_ended = counting.closed();
        match grace {
            None => all_ended.await,
            Some(grace) if timeout(grace, all_ended).await.is_err() => {
                report.cut_off = counting.receiver_count();
                phase.send_replace(Phase::Over);
            }
            Some(_) => {}
        }
        report.took = begun.elapsed();
        report
    }
}

/// Accepts a connection, however many attempts fail.
async fn accept<L: Listener>(listener: &L, errors: &mut u64) -> (L::Stream, L::Addr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // The client left before it was accepted.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionAborted
                        | ErrorKind::ConnectionReset
                        | ErrorKind::ConnectionRefused
                ) => {}
            Err(_) => {
                *errors += 1;
                sleep(REST).await;
            }
        }
    }
}

impl<L, M, S> IntoFuture for Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Response = S, Error = Infallible> + Send + 'static,
    for<'a> <M as Service<IncomingStream<'a, L>>>::Future: Send,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    /// It is always `Ok`. The `Result` is there because that of `axum::serve` returns one.
    type Output = io::Result<Report>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<Report>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.run().await) })
    }
}

impl<L: Listener + fmt::Debug, M, S> fmt::Debug for Serve<L, M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listener", &self.listener)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

/// What connections are to do. In the order in which it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// Answer the requests under way, and end.
    Draining,
    /// End.
    Over,
}

/// Counts as an open connection while a clone of it exists.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    phase: watch::Receiver<Phase>,
    _counted: Arc<watch::Receiver<()>>,
}

impl Held {
    /// Returns a future that is ready when a phase is reached. It does not count as a connection,
    /// and is never ready if the server was dropped.
    pub(crate) fn reached(&self, phase: Phase) -> impl Future<Output = ()> + Send + use<> {
        let mut watched = self.phase.clone();
        async move {
            if watched.wait_for(|now| *now >= phase).await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Runs a future to its end, or until a phase is reached.
    pub(crate) async fn until<R>(
        &self,
        phase: Phase,
        future: impl Future<Output = R>,
    ) -> Option<R> {
        let (mut future, mut reached) = (pin!(future), pin!(self.reached(phase)));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Pending => reached.as_mut().poll(cx).map(|()| None),
            ready => ready.map(Some),
        })
        .await
    }
}

/// An open connection.
struct Connection<S> {
    service: Served<S>,
    held: Held,
    http: Arc<Builder<Executor>>,
}

impl<S> Connection<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    /// Serves the connection to its end. Its errors are the client's: one that goes away, say.
    async fn serve(self, io: impl Read + Write + Send + Unpin + 'static) {
        let Self { service, held, http } = self;
        let service = TowerToHyperService::new(service);
        let mut connection = pin!(http.serve_connection_with_upgrades(io, service));
        if held.until(Phase::Draining, connection.as_mut()).await.is_none() {
            connection.as_mut().graceful_shutdown();
            let _ended = held.until(Phase::Over, connection).await;
        }
    }

    /// Does as [`serve`](Self::serve), after the handshake. A shutdown ends a handshake.
    #[cfg(feature = "tls")]
    async fn serve_tls<I>(self, io: I, acceptor: tokio_rustls::TlsAcceptor)
    where
        I: crate::listener::Stream,
    {
        let handshake = timeout(HANDSHAKE, acceptor.accept(io));
        if let Some(Ok(Ok(stream))) = self.held.until(Phase::Draining, handshake).await {
            self.serve(hyper_util::rt::TokioIo::new(stream)).await;
        }
    }
}

/// The service of a connection, for the body that hyper reads.
#[derive(Clone)]
struct Served<S> {
    service: S,
    held: Held,
}

impl<S: Service<Request>> Service<Request<Incoming>> for Served<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> S::Future {
        let mut request = request.map(Body::new);
        // What the connection becomes counts as open, and is told of the shutdown. Not for every
        // request: an extension is an allocation.
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(self.held.clone());
        }
        self.service.call(request)
    }
}
