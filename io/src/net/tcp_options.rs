//! The addresses and options of a TCP connection.

use super::TcpStream;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

impl TcpStream {
    /// Returns the address of this end.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert!(client.local_addr()?.ip().is_loopback());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    ///
    /// The system's errors: the stream may no longer be connected.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(client.peer_addr()?, listener.local_addr()?);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().peer_addr()
    }

    /// Returns the error that is pending on the socket, if there is one, and clears it
    /// (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// The system's errors when it is asked for the pending one.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert!(client.take_error()?.is_none());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }

    /// Returns whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// See [`set_nodelay`](Self::set_nodelay) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get_ref().nodelay()
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// If not, they are gathered until the peer has acknowledged those before. Off at first, as
    /// everywhere.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// client.set_nodelay(true)?;
    /// assert!(client.nodelay()?);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get_ref().set_nodelay(nodelay)
    }

    /// Returns how long the socket lingers when it is closed with something unsent (`SO_LINGER`).
    ///
    /// See [`set_zero_linger`](Self::set_zero_linger) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    /// Sets how long the socket lingers when it is closed with something unsent (`SO_LINGER`).
    ///
    /// With any time but zero, *dropping the stream blocks the thread* until all is sent or the
    /// time is over, also on a worker and although the socket is non-blocking. To know that the
    /// peer has received everything, close the stream and read until its end. To reset the
    /// connection, use [`set_zero_linger`](Self::set_zero_linger). This method exists for code that
    /// is ported.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # #![allow(deprecated)]
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// client.set_linger(None)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[deprecated = "a stream that lingers blocks its thread when it is dropped; see \
                    `set_zero_linger`"]
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(self).set_linger(linger)
    }

    /// Makes dropping the stream reset the connection (`SO_LINGER` with a time of zero).
    ///
    /// What was written and not sent yet is lost, the peer's next read is an error, and no port
    /// stays in the state TIME_WAIT. Dropping the stream does not block.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # use std::time::Duration;
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(client.linger()?, None);
    /// client.set_zero_linger()?;
    /// assert_eq!(client.linger()?, Some(Duration::ZERO));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_zero_linger(&self) -> io::Result<()> {
        SockRef::from(self).set_linger(Some(Duration::ZERO))
    }

    /// Returns how many routers a packet may pass (`IP_TTL`).
    ///
    /// See [`set_ttl`](Self::set_ttl) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get_ref().ttl()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::{TcpListener, TcpStream};
    /// # giveway::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// client.set_ttl(10)?;
    /// assert_eq!(client.ttl()?, 10);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get_ref().set_ttl(ttl)
    }
}
