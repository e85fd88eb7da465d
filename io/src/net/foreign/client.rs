//! The trait that `hyper-util`'s client asks of a connection.

use crate::net::{TcpStream, UnixStream};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// A connection that speaks HTTP/1 unless the client was told otherwise.
impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// As for a [`TcpStream`].
impl Connection for UnixStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
