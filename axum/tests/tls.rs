//! TLS, and the versions of HTTP that it agrees on.

#![cfg(feature = "tls")]

mod common;

use axum::{Router, routing::get};
use common::{Client, get_text};
use giveway::net::{TcpListener, TcpStream};
use giveway::time::Duration;
use giveway_axum::rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use giveway_axum::rustls::{ClientConfig, RootCertStore, ServerConfig};
use giveway_axum::serve;
use hyper::Version;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Returns the configuration of a server, and one of a client that trusts it.
fn configurations() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["here".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    (server, ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

#[giveway::test]
async fn alpn_chooses_the_version() {
    let (server, client) = configurations();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(async |version: Version| format!("{version:?}")));
    giveway::spawn(serve(listener, router).tls(Arc::new(server)).into_future());
    for (protocol, version) in [("h2", Version::HTTP_2), ("http/1.1", Version::HTTP_11)] {
        let mut config = client.clone();
        config.alpn_protocols = vec![protocol.into()];
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("here").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        let mut client = Client::over(TokioIo::new(stream), version).await;
        for _ in 0..10 {
            assert_eq!(get_text(&mut client, "/").await, format!("{version:?}"));
        }
    }
}

/// Neither a client that says nothing nor one that speaks no TLS delays others, or the end.
#[giveway::test]
async fn a_bad_handshake_delays_nobody() {
    let (server, client) = configurations();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    let serving = serve(listener, Router::new().route("/", get(async || "hello")))
        .tls(Arc::new(server))
        .with_graceful_shutdown(async { stopped.await.unwrap() })
        .with_grace_period(Duration::from_secs(600));
    let serving = giveway::spawn(serving.into_future());
    let silent = TcpStream::connect(address).await.unwrap();
    let plain = TcpStream::connect(address).await.unwrap();
    futures::AsyncWriteExt::write_all(&mut &plain, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = futures::AsyncReadExt::read_to_end(&mut &plain, &mut answer).await;

    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("here").unwrap();
    let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
    let mut client = Client::over(TokioIo::new(stream), Version::HTTP_11).await;
    assert_eq!(get_text(&mut client, "/").await, "hello");
    drop(client);
    stop.send(()).unwrap();
    let report = serving.await.unwrap().unwrap();
    assert_eq!((report.accepted, report.cut_off), (3, 0), "{report}");
    drop(silent);
}
