//! What connections come from, and what a service is made for.

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::routing::MethodRouter;
use giveway::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tower_service::Service;

mod sealed {
    use giveway::net::{TcpListener, UnixListener};

    pub trait Sealed {}
    impl Sealed for TcpListener {}
    impl Sealed for UnixListener {}

    /// What is asked of a connection: hyper's traits, and tokio's for TLS.
    #[cfg(not(feature = "tls"))]
    pub trait Stream: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static {}
    #[cfg(feature = "tls")]
    pub trait Stream:
        hyper::rt::Read
        + hyper::rt::Write
        + tokio::io::AsyncRead
        + tokio::io::AsyncWrite
        + Send
        + Unpin
        + 'static
    {
    }
    impl Stream for giveway::net::TcpStream {}
    impl Stream for giveway::net::UnixStream {}
}

pub(crate) use sealed::Stream;

/// A listener of Giveway's: [`TcpListener`] and [`UnixListener`].
pub trait Listener: sealed::Sealed + Send + Sync + 'static {
    /// The connections.
    type Stream: Stream;
    /// The type of their addresses.
    type Addr: fmt::Debug + Clone + Send + Sync + 'static;

    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready has accepted nothing.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Self::Addr)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    type Addr = SocketAddr;

    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send {
        TcpListener::accept(self)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    type Addr = unix::SocketAddr;

    fn accept(&self) -> impl Future<Output = io::Result<(UnixStream, unix::SocketAddr)>> + Send {
        UnixListener::accept(self)
    }
}

/// A connection that was accepted, for which [`serve`](crate::serve) has a service made.
///
/// Implement axum's [`Connected`] for it to give handlers an own
/// [`ConnectInfo`](axum::extract::ConnectInfo).
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::extract::ConnectInfo;
/// use axum::extract::connect_info::Connected;
/// use axum::routing::get;
/// use giveway::net::TcpListener;
/// use giveway_axum::IncomingStream;
///
/// #[derive(Clone)]
/// struct Port(u16);
///
/// impl Connected<IncomingStream<'_, TcpListener>> for Port {
///     fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
///         Self(stream.remote_addr().port())
///     }
/// }
///
/// let router = Router::new()
///     .route("/", get(async |ConnectInfo(Port(port))| format!("from port {port}")))
///     .into_make_service_with_connect_info::<Port>();
/// # giveway::block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let serving = giveway_axum::serve(listener, router);
/// # drop(serving);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct IncomingStream<'a, L: Listener> {
    pub(crate) io: &'a L::Stream,
    pub(crate) remote_addr: &'a L::Addr,
}

impl<L: Listener> IncomingStream<'_, L> {
    /// Returns the connection.
    pub fn io(&self) -> &L::Stream {
        self.io
    }

    /// Returns the address of the client.
    ///
    /// See [`IncomingStream`] for an example.
    pub fn remote_addr(&self) -> &L::Addr {
        self.remote_addr
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for SocketAddr {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        *stream.remote_addr
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for unix::SocketAddr {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        stream.remote_addr.clone()
    }
}

/// Every connection gets a clone of the router.
impl<L: Listener> Service<IncomingStream<'_, L>> for Router {
    type Response = Self;
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: IncomingStream<'_, L>) -> Self::Future {
        ready(Ok(self.clone()))
    }
}

/// Every connection gets a clone of the method router.
impl<L: Listener> Service<IncomingStream<'_, L>> for MethodRouter {
    type Response = Self;
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: IncomingStream<'_, L>) -> Self::Future {
        ready(Ok(self.clone()))
    }
}
