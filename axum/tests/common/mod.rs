//! A client of HTTP/1 or HTTP/2 over any stream.

#![allow(dead_code, reason = "each test uses a part")]

use giveway::hyper::{Executor, Timer};
use giveway::net::TcpStream;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper::{Request, Response, Version};
use std::net::SocketAddr;

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub(crate) struct Client {
    sender: Sender,
    /// Ends with the connection.
    connection: giveway::task::JoinHandle<()>,
}

impl Client {
    pub(crate) async fn over<S>(stream: S, version: Version) -> Self
    where
        S: Read + Write + Send + Unpin + 'static,
    {
        if version == Version::HTTP_2 {
            let (sender, connection) =
                http2::Builder::new(Executor).timer(Timer).handshake(stream).await.unwrap();
            let connection = giveway::spawn(async { drop(connection.await) });
            Self { sender: Sender::Http2(sender), connection }
        } else {
            let (sender, connection) = http1::handshake(stream).await.unwrap();
            let connection = giveway::spawn(async { drop(connection.with_upgrades().await) });
            Self { sender: Sender::Http1(sender), connection }
        }
    }

    pub(crate) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.try_send(request).await.unwrap()
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn closed(self) {
        let _sender = self.sender;
        self.connection.await.unwrap();
    }
}

pub(crate) async fn client(address: SocketAddr, version: Version) -> Client {
    Client::over(TcpStream::connect(address).await.unwrap(), version).await
}

pub(crate) fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("http://here{path}"))
        .header("host", "here")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

pub(crate) async fn get_text(client: &mut Client, path: &str) -> String {
    let answer = client.send(request("GET", path, "")).await;
    assert_eq!(answer.status(), 200);
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) fn address_of(text: &str) -> Option<SocketAddr> {
    text.parse().ok()
}
