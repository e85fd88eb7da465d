//! The loop that accepts connections, as the pages show it: no error of a single `accept` ends it.
//! `cargo xtask docs` checks that the pages show this loop.

use super::io_faults::NoDescriptors;
use futures::AsyncWriteExt;
use giveway::net::{TcpListener, TcpStream};
use giveway::time::{Duration, sleep};
use giveway_tests::{isolated, recv, runtime, watch};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};

/// A listener that first fails with `errors`, from the last to the first.
struct Failing {
    errors: Mutex<Vec<io::Error>>,
    listener: TcpListener,
}

impl Failing {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let error = self.errors.lock().unwrap().pop();
        match error {
            Some(error) => Err(error),
            None => self.listener.accept().await,
        }
    }
}

async fn serve(mut client: TcpStream) -> io::Result<()> {
    client.write_all(b"welcome").await
}

/// The loop of the pages. `printed` receives what it prints.
async fn accept_all(listener: Failing, printed: Sender<String>) {
    macro_rules! eprintln {
        ($($text:tt)*) => { printed.send(format!($($text)*)).unwrap() };
    }
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(giveway::spawn(serve(client))),
            // The client left before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            // Out of descriptors or memory, say. The connection waits until there are some again.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Returns the text that the server sends.
fn read_from(mut server: std::net::TcpStream) -> String {
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_loop_of_the_pages_goes_on_after_connections_that_were_given_up() {
    let _watch = watch();
    let runtime = runtime(1);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let errors = [libc::ECONNABORTED, libc::ENFILE, libc::ECONNABORTED, libc::ECONNABORTED];
    let errors = Mutex::new(errors.map(io::Error::from_raw_os_error).into());
    let (printed, prints) = mpsc::channel();
    runtime.spawn(accept_all(Failing { errors, listener }, printed));
    assert_eq!(read_from(std::net::TcpStream::connect(address).unwrap()), "welcome");
    assert_eq!(prints.try_iter().count(), 1, "that of the system, and not those of connections");
}

#[test]
fn the_loop_of_the_pages_serves_again_when_there_are_descriptors_again() {
    isolated(
        "io_accept::the_loop_of_the_pages_serves_again_when_there_are_descriptors_again",
        || {
            let runtime = runtime(2);
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let (printed, prints) = mpsc::channel();
            runtime.spawn(accept_all(Failing { errors: Mutex::default(), listener }, printed));
            for _ in 0..3 {
                let (none, client) = NoDescriptors::connect(address);
                for _ in 0..2 {
                    let error = recv(&prints);
                    assert!(error.contains("Too many open files"), "{error}");
                }
                drop(none);
                assert_eq!(read_from(client), "welcome");
            }
        },
    );
}
