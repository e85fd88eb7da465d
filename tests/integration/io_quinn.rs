//! QUIC by quinn on our sockets, timers and tasks, without a tokio runtime.

use giveway::budget::consume;
use giveway::spawn;
use giveway_tests::{Gate, runtime, watch, with_runtimes};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// More than one datagram, and more than a window.
const LARGE: usize = 4 << 20;

struct Certificate {
    der: CertificateDer<'static>,
    key: Vec<u8>,
}

/// A certificate for the name `here` that vouches for itself.
fn certificate() -> Certificate {
    let made = rcgen::generate_simple_self_signed(["here".to_owned()]).unwrap();
    Certificate { der: made.cert.der().clone(), key: made.signing_key.serialize_der() }
}

fn endpoint(
    server: Option<ServerConfig>,
    runtime: impl quinn::Runtime,
) -> io::Result<(Endpoint, SocketAddr)> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let endpoint = Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(runtime))?;
    Ok((endpoint, address))
}

/// Returns an endpoint of a server and one of a client that trusts it.
fn endpoints(runtime: impl quinn::Runtime + Clone) -> (Endpoint, SocketAddr, Endpoint) {
    let Certificate { der, key } = certificate();
    let key = PrivatePkcs8KeyDer::from(key).into();
    let config = ServerConfig::with_single_cert(vec![der.clone()], key).unwrap();
    let (server, address) = endpoint(Some(config), runtime.clone()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(der).unwrap();
    let (mut client, _) = endpoint(None, runtime).unwrap();
    client
        .set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots)).unwrap());
    (server, address, client)
}

/// Sends back what comes on each stream, and each datagram.
async fn echo(server: Endpoint) {
    while let Some(incoming) = server.accept().await {
        spawn(async move {
            let connection = incoming.await.unwrap();
            let datagrams = connection.clone();
            spawn(async move {
                while let Ok(datagram) = datagrams.read_datagram().await {
                    datagrams.send_datagram(datagram).unwrap();
                }
            });
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                spawn(async move {
                    assert!(
                        tokio::runtime::Handle::try_current().is_err(),
                        "nobody has started a runtime of tokio's"
                    );
                    let all = receive.read_to_end(LARGE).await.unwrap();
                    send.write_all(&all).await.unwrap();
                    send.finish().unwrap();
                });
            }
        });
    }
}

async fn ask(connection: &Connection, question: &[u8]) -> Vec<u8> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(question).await.unwrap();
    send.finish().unwrap();
    receive.read_to_end(LARGE).await.unwrap()
}

#[test]
fn a_client_and_a_server_talk_in_one_runtime() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (server, address, client) = endpoints(giveway::quinn::Runtime);
            let serving = spawn(echo(server.clone()));
            let connection = client.connect(address, "here").unwrap().await.unwrap();
            let large: Vec<u8> = (0..LARGE).map(|n| n as u8).collect();
            assert!(ask(&connection, &large).await == large);
            let asked: Vec<_> = (0..50_u8)
                .map(|n| {
                    let connection = connection.clone();
                    spawn(async move { assert_eq!(ask(&connection, &[n; 500]).await, [n; 500]) })
                })
                .collect();
            for task in asked {
                task.await.unwrap();
            }
            connection.send_datagram("datagram".into()).unwrap();
            assert_eq!(connection.read_datagram().await.unwrap(), "datagram");

            connection.close(0_u8.into(), b"done");
            client.wait_idle().await;
            server.close(0_u8.into(), b"done");
            serving.await.unwrap();
            server.wait_idle().await;
        });
    });
}

/// A timer of quinn's is ours, and moves.
#[test]
fn a_peer_that_is_gone_is_noticed_by_our_timer() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
            let (_server, _, client) = endpoints(giveway::quinn::Runtime);
            let mut config = ClientConfig::with_root_certificates(Arc::new({
                let mut roots = RootCertStore::empty();
                roots.add(certificate().der).unwrap();
                roots
            }))
            .unwrap();
            let mut transport = quinn::TransportConfig::default();
            transport.max_idle_timeout(Some(Duration::from_millis(30).try_into().unwrap()));
            config.transport_config(Arc::new(transport));
            let address = silent.local_addr().unwrap();
            let gone = client.connect_with(config, address, "here").unwrap().await;
            assert_eq!(gone.unwrap_err(), quinn::ConnectionError::TimedOut);
        });
    });
}

#[test]
fn a_handle_serves_an_endpoint_by_its_runtime() {
    let _watch = watch();
    let (here, elsewhere) = (runtime(1), runtime(2));
    let (server, address, client) = {
        let _inside = here.enter();
        endpoints(elsewhere.handle().clone())
    };
    elsewhere.spawn(echo(server));
    here.block_on(async {
        let connection = client.connect(address, "here").unwrap().await.unwrap();
        assert_eq!(ask(&connection, b"hello").await, b"hello");
    });
    drop(elsewhere);
    // The endpoint's tasks have ended with that runtime.
    assert!(client.connect(address, "here").is_err());
}

/// A runtime that ends drops the endpoint's tasks, in the middle of a connection.
#[test]
fn a_runtime_that_is_dropped_drops_the_endpoint() {
    let _watch = watch();
    let runtime = runtime(2);
    let alive = Arc::new(());
    let connection = runtime.block_on(async {
        let (server, address, client) = endpoints(giveway::quinn::Runtime);
        spawn(echo(server));
        let connection = client.connect(address, "here").unwrap().await.unwrap();
        let (held, waiting) = (alive.clone(), connection.clone());
        spawn(async move {
            let _held = held;
            waiting.closed().await
        });
        connection
    });
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(runtime);
    assert_eq!(Arc::strong_count(&alive), 1);
    drop(connection);
}

/// Background work on every worker keeps no connection waiting for long.
#[test]
fn a_connection_is_served_beside_background_work() {
    let _watch = watch();
    let runtime = runtime(2);
    let done = Gate::new();
    for _ in 0..8 {
        let done = done.clone();
        runtime.spawn_background(async move {
            while !done.is_open() {
                consume().await;
            }
        });
    }
    runtime.block_on(async {
        let (server, address, client) = endpoints(giveway::quinn::Runtime);
        spawn(echo(server));
        let connection = client.connect(address, "here").unwrap().await.unwrap();
        for _ in 0..20 {
            assert_eq!(ask(&connection, b"hello").await, b"hello");
        }
    });
    done.open();
}
