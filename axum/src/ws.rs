//! WebSockets.
//!
//! [`WebSocketUpgrade`] is an extractor like that of axum's feature `ws`, whose socket is served by
//! a task of Giveway. The [`WebSocket`] is that of tokio-tungstenite, which needs no tokio runtime:
//! a stream and a sink of [`Message`]s.
//!
//! # Examples
//!
//! ```
//! use axum::{Router, response::Response, routing::any};
//! use futures::{SinkExt, StreamExt};
//! use giveway_axum::ws::{Message, WebSocket, WebSocketUpgrade};
//!
//! async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
//!     upgrade.on_upgrade(echo)
//! }
//!
//! async fn echo(mut socket: WebSocket) {
//!     while let Some(Ok(message)) = socket.next().await {
//!         if message.is_text() && socket.send(message).await.is_err() {
//!             break;
//!         }
//!     }
//! }
//!
//! let router: Router = Router::new().route("/echo", any(upgrade));
//! # drop(router);
//! # drop(Message::text("hello"));
//! ```

use crate::serve::{Held, Phase};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

pub use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
pub use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// A WebSocket: a stream and a sink of [`Message`]s.
pub type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Extracts a client's wish for a WebSocket. Only HTTP/1.1 has it.
///
/// See the [module](self) for an example.
#[must_use = "the client waits for the response of `on_upgrade`"]
pub struct WebSocketUpgrade {
    accept: String,
    upgrade: OnUpgrade,
    /// The protocols that the client would speak, in its order.
    offered: Vec<String>,
    protocol: Option<HeaderValue>,
    config: WebSocketConfig,
    /// `None` if the router is served by other means than [`serve`](crate::serve).
    held: Option<Held>,
}

impl WebSocketUpgrade {
    /// Chooses the first of `protocols` that the client has offered. If it has offered none of
    /// them, none is chosen.
    ///
    /// # Examples
    ///
    /// ```
    /// # use axum::response::Response;
    /// # use giveway_axum::ws::WebSocketUpgrade;
    /// async fn chat(upgrade: WebSocketUpgrade) -> Response {
    ///     upgrade.protocols(["chat.v2", "chat.v1"]).on_upgrade(async |socket| drop(socket))
    /// }
    /// # drop(axum::routing::get::<_, _, ()>(chat));
    /// ```
    pub fn protocols<P: AsRef<str>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.protocol = protocols
            .into_iter()
            .find(|protocol| self.offered.iter().any(|offered| offered == protocol.as_ref()))
            .and_then(|protocol| HeaderValue::from_str(protocol.as_ref()).ok());
        self
    }

    /// Returns the protocol that [`protocols`](Self::protocols) has chosen.
    pub fn selected_protocol(&self) -> Option<&HeaderValue> {
        self.protocol.as_ref()
    }

    /// Sets the limits of messages, frames and buffers.
    ///
    /// # Examples
    ///
    /// ```
    /// # use axum::response::Response;
    /// # use giveway_axum::ws::{WebSocketConfig, WebSocketUpgrade};
    /// async fn small(upgrade: WebSocketUpgrade) -> Response {
    ///     let config = WebSocketConfig::default().max_message_size(Some(64 << 10));
    ///     upgrade.config(config).on_upgrade(async |socket| drop(socket))
    /// }
    /// # drop(axum::routing::get::<_, _, ()>(small));
    /// ```
    pub fn config(mut self, config: WebSocketConfig) -> Self {
        self.config = config;
        self
    }

    /// Returns a future that is ready when the server begins to shut down. Without it, a handler
    /// ends when its client does, or at the end of the grace period.
    ///
    /// # Examples
    ///
    /// ```
    /// # use axum::response::Response;
    /// use futures::{FutureExt, StreamExt, select};
    /// use giveway_axum::ws::WebSocketUpgrade;
    ///
    /// async fn listen(upgrade: WebSocketUpgrade) -> Response {
    ///     let mut draining = upgrade.draining().fuse();
    ///     upgrade.on_upgrade(async move |mut socket| {
    ///         loop {
    ///             select! {
    ///                 message = socket.next() => match message {
    ///                     Some(Ok(message)) => println!("{message}"),
    ///                     _ => break,
    ///                 },
    ///                 () = draining => break drop(socket.close(None).await),
    ///             }
    ///         }
    ///     })
    /// }
    /// # drop(axum::routing::get::<_, _, ()>(listen));
    /// ```
    pub fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match &self.held {
            Some(held) => Box::pin(held.reached(Phase::Draining)),
            None => Box::pin(pending()),
        }
    }

    /// Returns the response that makes the connection a WebSocket, and spawns a task that serves
    /// it.
    ///
    /// A graceful shutdown waits for the task, as for a request. At the end of the grace period it
    /// is dropped. If the client goes away before the connection is a WebSocket, `handler` is not
    /// called.
    pub fn on_upgrade<F>(self, handler: impl FnOnce(WebSocket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { accept, upgrade, protocol, config, held, .. } = self;
        let serving = async move {
            if let Ok(upgraded) = upgrade.await {
                let io = TokioIo::new(upgraded);
                handler(WebSocket::from_raw_socket(io, Role::Server, Some(config)).await).await;
            }
        };
        giveway::spawn(async move {
            match held {
                Some(held) => drop(held.until(Phase::Over, serving).await),
                None => serving.await,
            }
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(protocol) = protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        response
    }
}

impl fmt::Debug for WebSocketUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketUpgrade")
            .field("offered", &self.offered)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// Why a request is no wish for a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebSocketRejection {
    /// The method is not `GET`.
    MethodNotGet,
    /// The headers do not ask for a WebSocket, or have no key.
    NotWebSocket,
    /// The client speaks another version than 13.
    OtherVersion,
    /// The connection cannot become one: it is HTTP/2, or another extractor has taken it.
    NotUpgradable,
}

impl fmt::Display for WebSocketRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MethodNotGet => "a WebSocket is asked for with GET",
            Self::NotWebSocket => "the headers do not ask for a WebSocket",
            Self::OtherVersion => "the version of the WebSocket is not 13",
            Self::NotUpgradable => "this connection cannot become a WebSocket; use HTTP/1.1",
        })
    }
}

impl std::error::Error for WebSocketRejection {}

impl IntoResponse for WebSocketRejection {
    fn into_response(self) -> Response {
        let status = match self {
            Self::MethodNotGet => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotWebSocket => StatusCode::BAD_REQUEST,
            Self::OtherVersion | Self::NotUpgradable => StatusCode::UPGRADE_REQUIRED,
        };
        let mut response = (status, self.to_string()).into_response();
        if self == Self::OtherVersion {
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}

/// Returns the items of a header that is a list, over all of its lines.
fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

impl<S: Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = WebSocketRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, WebSocketRejection> {
        if parts.method != Method::GET {
            return Err(WebSocketRejection::MethodNotGet);
        }
        let headers = &parts.headers;
        let has =
            |name, wanted: &str| items(headers, name).any(|item| item.eq_ignore_ascii_case(wanted));
        let key = headers.get(SEC_WEBSOCKET_KEY);
        let (true, true, Some(key)) = (has(CONNECTION, "upgrade"), has(UPGRADE, "websocket"), key)
        else {
            return Err(WebSocketRejection::NotWebSocket);
        };
        if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(WebSocketRejection::OtherVersion);
        }
        let accept = derive_accept_key(key.as_bytes());
        let offered = items(headers, SEC_WEBSOCKET_PROTOCOL).map(str::to_owned).collect();
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        Ok(Self {
            accept,
            upgrade: upgrade.ok_or(WebSocketRejection::NotUpgradable)?,
            offered,
            protocol: None,
            config: WebSocketConfig::default(),
            held: parts.extensions.get::<Held>().cloned(),
        })
    }
}
