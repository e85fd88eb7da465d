//! Serves axum's routers on the [Giveway](giveway) runtime, without tokio's.
//!
//! [`serve`] takes what `axum::serve` takes. It ends when told to, waits for requests under way, and
//! [reports](Report) what became of the connections. HTTP/1 and HTTP/2 are told apart by what
//! the client sends, or by ALPN where there is TLS.
//!
//! # Examples
//!
//! ```
//! use axum::{Router, routing::get};
//! use giveway::net::TcpListener;
//!
//! # #[giveway::main]
//! # async fn main() -> std::io::Result<()> {
//! let router = Router::new().route("/", get(async || "hello"));
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! # stop.send(()).unwrap();
//! # let signal = async move { stopped.await.unwrap() };
//! let report = giveway_axum::serve(listener, router).with_graceful_shutdown(signal).await?;
//! assert_eq!(report.cut_off, 0);
//! # Ok(())
//! # }
//! ```
//!
//! Handlers are tasks of Giveway: they use [`giveway::time`], [`giveway::net`] and
//! [`giveway::spawn_background`]. What a handler spawns in the background gives way to requests.
//!
//! # Features
//!
//! - `tls`: TLS by rustls, `Serve::tls`.
//! - `ws`: WebSockets, in `giveway_axum::ws`. The extractor of axum's own feature `ws` spawns on
//!   tokio, and panics here.
//!
//! # What of axum needs tokio
//!
//! `axum::serve`, its feature `ws`, and `Sse::keep_alive`, whose clock is tokio's. The rest does
//! not.

mod listener;
mod report;
mod serve;
#[cfg(feature = "ws")]
pub mod ws;

pub use listener::{IncomingStream, Listener};
pub use report::Report;
pub use serve::{Serve, serve};
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
