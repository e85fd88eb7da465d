//! Three clients that follow a script.

use crate::room::Room;
use crate::{read_line, serve};
use futures::io::{AsyncWriteExt, BufReader};
use giveway::net::{TcpListener, TcpStream};
use giveway::time::{Duration, sleep};
use std::io;
use std::net::SocketAddr;

/// A client that prints the lines that it receives.
struct Client {
    name: &'static str,
    stream: BufReader<TcpStream>,
}

impl Client {
    async fn join(name: &'static str, address: SocketAddr) -> io::Result<Self> {
        let mut client = Self { name, stream: BufReader::new(TcpStream::connect(address).await?) };
        client.say(name).await?;
        client.wait_for(&format!("{name} has joined")).await?;
        Ok(client)
    }

    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).await
    }

    /// Reads up to and including a line that ends with `end`, or to the end of the stream.
    async fn wait_for(&mut self, end: &str) -> io::Result<()> {
        while let Some(line) = read_line(&mut self.stream).await? {
            println!("{:>6} sees   {line}", self.name);
            if line.ends_with(end) {
                break;
            }
        }
        Ok(())
    }
}

pub(crate) async fn run() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let idle = Duration::from_secs(1);
    let server = giveway::spawn(serve(listener, Room::new(idle)));

    let mut ada = Client::join("ada", address).await?;
    let mut ben = Client::join("ben", address).await?;
    let mut zoe = Client::join("zoe", address).await?;
    let ada = async {
        ada.say("hello, everybody").await?;
        ada.wait_for("hello, ada").await?;
        drop(ada); // closes the connection
        Ok(())
    };
    let ben = async {
        ben.wait_for("hello, everybody").await?;
        ben.say("hello, ada").await?;
        ben.wait_for("ada has left").await?;
        sleep(idle / 2).await;
        ben.say("zoe? are you there?").await?;
        ben.wait_for("zoe has fallen asleep").await
    };
    // Sends nothing, so the server disconnects it after `idle`. Reads to the end of the stream.
    let zoe = zoe.wait_for("the end");
    futures::try_join!(ada, ben, zoe)?;
    server.abort();
    Ok(())
}
