//! No descriptors left: operations fail, and succeed again later. In a process of its own, because
//! the limit is that of the process.

use super::{poll_once, watch};
use futures::executor::block_on;
use giveway_io::net::{TcpListener, UnixListener};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::pin::pin;
use std::process::Command;

const IN_CHILD: &str = "GIVEWAY_TEST_DESCRIPTORS";
const LIMIT: u64 = 64;

/// Runs the test of this name alone in a child process. Returns true in the child.
fn in_child(name: &str) -> bool {
    if std::env::var_os(IN_CHILD).is_some() {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..limit }).unwrap();
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "no such test: {text}");
    false
}

/// Opens files until no descriptor is left.
fn take_all() -> Vec<File> {
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
        assert!(taken.len() <= LIMIT as usize, "the limit does not hold");
    }
    assert!(!taken.is_empty());
    taken
}

fn is_no_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error())
}

/// The listener is told of the connection once. If the failure ended its readiness, the connection
/// would never be accepted.
#[test]
fn accept_fails_without_descriptors_and_succeeds_when_there_is_one() {
    let _watch = watch();
    if !in_child("descriptors::accept_fails_without_descriptors_and_succeeds_when_there_is_one") {
        return;
    }
    let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let addr = listener.local_addr().unwrap();
    // In the first round no task has waited yet. Later the connection is announced to a task that
    // has.
    for round in 0..5 {
        if round > 0 {
            assert!(poll_once(&mut pin!(listener.accept())).is_pending());
        }
        let client = std::net::TcpStream::connect(addr).unwrap();
        let mut taken = take_all();
        for _ in 0..3 {
            let error = block_on(listener.accept()).unwrap_err();
            assert!(is_no_descriptors(&error), "{error}");
        }
        taken.pop();
        let (_server, peer) = block_on(listener.accept()).unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    }
}

#[test]
fn a_unix_listener_does_so_too() {
    let _watch = watch();
    if !in_child("descriptors::a_unix_listener_does_so_too") {
        return;
    }
    let directory = super::directory();
    let listener = UnixListener::bind(directory.path("socket")).unwrap();
    assert!(poll_once(&mut pin!(listener.accept())).is_pending());
    let _client = std::os::unix::net::UnixStream::connect(directory.path("socket")).unwrap();
    let mut taken = take_all();
    assert!(is_no_descriptors(&block_on(listener.accept()).unwrap_err()));
    taken.pop();
    block_on(listener.accept()).unwrap();
}
