//! Many connections at once: does each echo, what does an idle one cost, and what does the runtime
//! do while all are idle?
//!
//! `cargo run --release -p giveway-benches --bin connections [-- N]`
//!
//! Each peer serves in a process of its own, so its memory is its own. The clients are in another
//! process, so a process needs N descriptors and not 2 N. Beside the connections there is a timer
//! that is an hour away. The figures are the growth of resident memory for each connection, and how
//! often a thread of the server went to sleep in a second in which nothing happened. A runtime that
//! makes no system call does not go to sleep.
//!
//! Not isolated: the memory of a connection is that of its task with a buffer of 64 bytes, as the
//! allocator rounds it. The kernel's buffers are not in it.

use giveway_benches::peers::{Giveway, Peer, Smol, Tokio};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare("10000"),
        [number] => compare(number),
        ["client", address, number] => client(address.parse().expect("an address"), count(number)),
        [Giveway::NAME, number] => serve::<Giveway>(count(number)),
        [Tokio::NAME, number] => serve::<Tokio>(count(number)),
        [Smol::NAME, number] => serve::<Smol>(count(number)),
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: connections [N]");
    std::process::exit(2);
}

fn count(number: &str) -> usize {
    number.parse().ok().filter(|&number| number > 0).unwrap_or_else(|| usage())
}

fn compare(number: &str) {
    count(number);
    println!("{number} connections, each of which has echoed ten times\n");
    println!(
        "| | bytes for an idle connection | sleeps of its threads in an idle second \
         |\n|---|---|---|"
    );
    for peer in [Giveway::NAME, Tokio::NAME, Smol::NAME] {
        let status =
            again(&[peer, number]).spawn().and_then(|mut child| child.wait()).expect("runs itself");
        assert!(status.success(), "{peer} failed");
    }
}

/// Returns a command that runs this program with other arguments.
fn again(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(arguments);
    command
}

fn serve<P: Peer>(connections: usize) {
    allow_descriptors(connections);
    P::start(2);
    let (address, before) = P::block_on(async move {
        let (listener, address) = P::listen().await.expect("listens on loopback");
        P::spawn_detached(async move {
            for _ in 0..connections {
                let mut stream = P::accept(&listener).await.expect("a client comes");
                P::spawn_detached(async move {
                    let mut buffer = [0; 64];
                    while let Ok(read @ 1..) = P::read(&mut stream, &mut buffer).await {
                        P::write_all(&mut stream, &buffer[..read]).await.expect("the client reads");
                    }
                });
            }
        });
        P::spawn_detached(P::sleep(Duration::from_secs(3_600)));
        (address, resident())
    });
    let clients = Clients::start(address, connections);
    // What is under way ends, and monitors stop looking.
    std::thread::sleep(Duration::from_millis(500));
    let bytes = (resident() - before) as f64 / connections as f64;
    let slept = sleeps();
    std::thread::sleep(Duration::from_secs(1));
    // One of the sleeps is this thread's.
    println!("| {} | {bytes:.0} | {} |", P::NAME, sleeps() - slept - 1);
    clients.end();
}

/// The process of the clients.
struct Clients(Child);

impl Clients {
    fn start(address: SocketAddr, connections: usize) -> Self {
        let mut child = again(&["client", &address.to_string(), &connections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs itself");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "done", "the clients failed");
        Self(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait().expect("it was started");
        assert!(status.success(), "the clients failed");
    }
}

fn client(address: SocketAddr, connections: usize) {
    allow_descriptors(connections);
    let connect = |_| TcpStream::connect(address).expect("the server accepts");
    let mut streams: Vec<_> = (0..connections).map(connect).collect();
    for trip in 0..10_u64 {
        let message = |connection: usize| (connection as u64 * 10 + trip).to_ne_bytes();
        for (connection, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&message(connection)).expect("the server reads");
        }
        for (connection, stream) in streams.iter_mut().enumerate() {
            let mut answer = [0; 8];
            stream.read_exact(&mut answer).expect("the server answers");
            assert_eq!(answer, message(connection), "an answer to somebody else");
        }
    }
    println!("done");
    // Keeps the connections until the server has measured.
    io::stdin().read_to_end(&mut Vec::new()).expect("it is a pipe");
}

/// Raises the limit of open descriptors as far as the system allows. Ends the process if that is
/// too low.
fn allow_descriptors(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _refused = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if allowed < connections as u64 + 50 {
        eprintln!("only {allowed} descriptors are allowed: ask for fewer connections");
        std::process::exit(1);
    }
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is always there");
    let kibibytes: i64 =
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    kibibytes * 1_024
}

/// Returns how often the threads of this process have gone to sleep.
fn sleeps() -> i64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let of_thread = |thread: std::path::PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        let line =
            status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"))?.to_owned();
        line.split_whitespace().nth(1)?.parse::<i64>().ok()
    };
    threads.filter_map(|thread| of_thread(thread.ok()?.path())).sum()
}
