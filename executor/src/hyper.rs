//! Support for hyper on this runtime, without tokio's.
//!
//! Streams of [`net`](crate::net) have hyper's traits and are given to it as they are. [`Timer`] is
//! for hyper's timeouts, [`Executor`] for what it spawns, which is HTTP/2. With the feature
//! `hyper-client`, `Connector` is for the pooled client of `hyper-util`.
//!
//! # Examples
//!
//! ```
//! use giveway::net::{TcpListener, TcpStream};
//! use giveway::time::{Duration, sleep};
//! use hyper::body::Incoming;
//! use hyper::server::conn::http1;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use std::convert::Infallible;
//! use std::io::ErrorKind;
//!
//! async fn greet(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new(format!("this is {}", request.uri())))
//! }
//!
//! async fn serve(stream: TcpStream) -> hyper::Result<()> {
//!     http1::Builder::new()
//!         .timer(giveway::hyper::Timer)
//!         .header_read_timeout(Duration::from_secs(30))
//!         .serve_connection(stream, service_fn(greet))
//!         .await
//! }
//!
//! #[giveway::main]
//! async fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     giveway::spawn(async move {
//!         loop {
//!             match listener.accept().await {
//!                 Ok((stream, _)) => drop(giveway::spawn(serve(stream))),
//!                 // The client left before it was accepted.
//!                 Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
//!                 // Out of descriptors or memory, say. The connection waits until there are some again.
//!                 Err(error) => {
//!                     eprintln!("cannot accept: {error}");
//!                     sleep(Duration::from_millis(50)).await;
//!                 }
//!             }
//!         }
//!     });
//!     # use futures::{AsyncReadExt, AsyncWriteExt};
//!     # let mut client = TcpStream::connect(address).await?;
//!     # client.write_all(b"GET /here HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await?;
//!     # let mut answer = String::new();
//!     # client.read_to_string(&mut answer).await?;
//!     # assert!(answer.ends_with("this is /here"), "{answer}");
//!     Ok(())
//! }
//! ```

#[cfg(feature = "hyper-client")]
pub use crate::hyper_client::Connector;
pub use giveway_io::hyper::Timer;

use crate::Handle;
use hyper::rt;

/// Spawns what hyper spawns as tasks of the current runtime, or of the default one; see
/// [`giveway::spawn`](crate::spawn).
///
/// To spawn onto a certain runtime use its [`Handle`], which is an executor too.
///
/// What hyper spawns in a [background](crate::spawn_background) task is a background task too. The
/// handles of these tasks are dropped: a task ends with the connection, or with the runtime, and
/// only [`Builder::on_task_panic`](crate::Builder::on_task_panic) sees a panic in it.
///
/// # Panics
///
/// Where [`giveway::spawn`](crate::spawn) does.
///
/// # Examples
///
/// ```
/// use hyper::rt::Executor;
///
/// let (sender, receiver) = futures::channel::oneshot::channel();
/// giveway::hyper::Executor.execute(async { sender.send(5).unwrap() });
/// assert_eq!(giveway::block_on(receiver), Ok(5));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Executor;

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        crate::spawn(future);
    }
}

/// Spawns what hyper spawns onto the runtime of the handle.
impl<F> rt::Executor<F> for Handle
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}
