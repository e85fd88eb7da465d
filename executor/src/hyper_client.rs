//! What `hyper-util`'s pooled client connects with.

use crate::net::TcpStream;
use crate::time::timeout;
use ::hyper::Uri;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// Connects by TCP on this runtime, for the pooled client of `hyper-util`.
///
/// Its settings have the names of `hyper-util`'s `HttpConnector`, which needs tokio. Names are
/// looked up on threads of their own, and their addresses are tried in the order of the answer.
///
/// For TLS wrap it, as one wraps `HttpConnector`: in the connector of hyper-rustls, say, after
/// [`enforce_http(false)`](Self::enforce_http).
///
/// # Cancel safety
///
/// Dropping a future of it closes the connection that it was making.
///
/// # Examples
///
/// ```
/// use giveway::hyper::{Connector, Executor, Timer};
/// use http_body_util::{BodyExt, Empty};
/// use hyper_util::client::legacy::Client;
/// # use giveway::net::TcpListener;
/// # use hyper::{Request, Response, body::{Bytes, Incoming}, service::service_fn};
///
/// # #[giveway::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # giveway::spawn(async move {
/// #     let greet = async |_: Request<Incoming>| {
/// #         Ok::<_, std::convert::Infallible>(Response::new("hello".to_owned()))
/// #     };
/// #     let (stream, _) = listener.accept().await.unwrap();
/// #     let http = hyper::server::conn::http1::Builder::new();
/// #     http.serve_connection(stream, service_fn(greet)).await
/// # });
/// let client = Client::builder(Executor)
///     .pool_timer(Timer) // ends connections that were idle for long
///     .build::<_, Empty<Bytes>>(Connector::new());
/// let answer = client.get(format!("http://{address}/").parse()?).await?;
/// assert_eq!(answer.into_body().collect().await?.to_bytes(), "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    nodelay: bool,
    connect_timeout: Option<Duration>,
    /// Whether other schemes than `http` are refused.
    http_only: bool,
}

impl Connector {
    /// Returns a connector for `http`, with the system's options and no timeout of its own.
    ///
    /// See [`Connector`] for an example.
    pub fn new() -> Self {
        Self { nodelay: false, connect_timeout: None, http_only: true }
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`). By default the system waits for
    /// more to send.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut connector = giveway::hyper::Connector::new();
    /// connector.set_nodelay(true);
    /// ```
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.nodelay = nodelay;
    }

    /// Sets how long connecting may take, with looking up the name. By default the system decides.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let mut connector = giveway::hyper::Connector::new();
    /// connector.set_connect_timeout(Some(Duration::from_secs(5)));
    /// ```
    pub fn set_connect_timeout(&mut self, timeout: Option<Duration>) {
        self.connect_timeout = timeout;
    }

    /// Sets whether URIs of other schemes than `http` are refused, which is the default. A
    /// connector for TLS that wraps this one passes on URIs with `https`.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut connector = giveway::hyper::Connector::new();
    /// connector.enforce_http(false);
    /// ```
    pub fn enforce_http(&mut self, enforced: bool) {
        self.http_only = enforced;
    }

    /// Returns the host and the port that a URI names.
    fn target(&self, uri: &Uri) -> io::Result<(String, u16)> {
        let invalid = |message| io::Error::new(ErrorKind::InvalidInput, message);
        let standard = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") if !self.http_only => 443,
            Some(_) if !self.http_only => 80,
            Some(_) => {
                return Err(invalid(
                    "the scheme is not http; for TLS, wrap the connector and `enforce_http(false)`",
                ));
            }
            None => return Err(invalid("the URI has no scheme; write http:// in front of it")),
        };
        let host = uri.host().ok_or_else(|| invalid("the URI has no host"))?;
        // An address of IPv6 is in brackets.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok((host.to_owned(), uri.port_u16().unwrap_or(standard)))
    }
}

/// The same as [`Connector::new`].
impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

impl Service<Uri> for Connector {
    type Response = TcpStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (target, nodelay, limit) = (self.target(&uri), self.nodelay, self.connect_timeout);
        Box::pin(async move {
            let (host, port) = target?;
            let connecting = TcpStream::connect((host.as_str(), port));
            let stream = match limit {
                Some(limit) => timeout(limit, connecting).await??,
                None => connecting.await?,
            };
            if nodelay {
                stream.set_nodelay(true)?;
            }
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(connector: &Connector, uri: &str) -> Result<(String, u16), String> {
        connector.target(&uri.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_target_is_what_the_uri_names() {
        let mut connector = Connector::new();
        let of = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(target(&connector, "http://here/path"), of("here", 80));
        assert_eq!(target(&connector, "http://user@here:8080"), of("here", 8080));
        assert_eq!(target(&connector, "http://[::1]:81/"), of("::1", 81));
        assert!(target(&connector, "https://here").unwrap_err().contains("enforce_http"));
        assert!(target(&connector, "/path").unwrap_err().contains("no scheme"));
        connector.enforce_http(false);
        assert_eq!(target(&connector, "https://here"), of("here", 443));
    }
}
