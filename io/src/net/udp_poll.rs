//! A UDP socket: the polling methods, and those that do not wait.

use super::UdpSocket;
use crate::Interest;
use crate::reactor::Direction::{Read, Write};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// The asynchronous methods in polling form. Every task that polls one is woken, not only the last.
impl UdpSocket {
    /// Polling form of [`send`](Self::send).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.connect(server.local_addr()?).await?;
    /// assert_eq!(poll_fn(|cx| client.poll_send(cx, b"hello")).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(Write, cx, |socket| socket.send(buf))
    }

    /// Polling form of [`recv`](Self::recv).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 16];
    /// assert_eq!(poll_fn(|cx| server.poll_recv(cx, &mut buffer)).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(Read, cx, |socket| socket.recv(buf))
    }

    /// Polling form of [`send_to`](Self::send_to).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// let target = server.local_addr()?;
    /// assert_eq!(poll_fn(|cx| client.poll_send_to(cx, b"hello", target)).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_io(Write, cx, |socket| socket.send_to(buf, target))
    }

    /// Polling form of [`recv_from`](Self::recv_from).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 16];
    /// let received = poll_fn(|cx| server.poll_recv_from(cx, &mut buffer)).await?;
    /// assert_eq!(received, (5, client.local_addr()?));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(Read, cx, |socket| socket.recv_from(buf))
    }

    /// Polling form of [`peek`](Self::peek).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 16];
    /// assert_eq!(poll_fn(|cx| server.poll_peek(cx, &mut buffer)).await?, 5);
    /// assert_eq!(server.recv(&mut buffer).await?, 5, "it was not taken");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(Read, cx, |socket| socket.peek(buf))
    }

    /// Polling form of [`peek_from`](Self::peek_from).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 16];
    /// let peeked = poll_fn(|cx| server.poll_peek_from(cx, &mut buffer)).await?;
    /// assert_eq!(server.recv_from(&mut buffer).await?, peeked);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(Read, cx, |socket| socket.peek_from(buf))
    }

    /// Polling form of [`readable`](Self::readable).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// poll_fn(|cx| server.poll_recv_ready(cx)).await?;
    /// assert_eq!(server.try_recv(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_readable(cx)
    }

    /// Polling form of [`writable`](Self::writable).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.connect(server.local_addr()?).await?;
    /// poll_fn(|cx| client.poll_send_ready(cx)).await?;
    /// assert_eq!(client.try_send(b"hello")?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_writable(cx)
    }
}

/// The asynchronous methods, tried once without waiting.
impl UdpSocket {
    /// Sends a datagram to the peer, without waiting. Returns its size.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the errors of
    /// [`send`](Self::send).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.connect(server.local_addr()?).await?;
    /// assert_eq!(client.try_send(b"hello")?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_io(Interest::WRITABLE, |socket| socket.send(buf))
    }

    /// Receives a datagram from the peer, or from any address if there is no peer, without waiting.
    /// Returns its size.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram, and the errors of
    /// [`recv`](Self::recv).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # use std::io::ErrorKind;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert_eq!(socket.try_recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |socket| socket.recv(buf))
    }

    /// Sends a datagram to an address, without waiting. Returns its size.
    ///
    /// See [`writable`](Self::writable) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the errors of
    /// [`send_to`](Self::send_to).
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.0.try_io(Interest::WRITABLE, |socket| socket.send_to(buf, target))
    }

    /// Receives a datagram, without waiting.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram, and the errors of
    /// [`recv_from`](Self::recv_from).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// client.send_to(b"hello", server.local_addr()?).await?;
    /// let mut buffer = [0; 16];
    /// server.peek(&mut buffer).await?; // there it is
    /// let hello = (5, client.local_addr()?);
    /// assert_eq!(server.try_peek(&mut buffer)?, 5);
    /// assert_eq!(server.try_peek_from(&mut buffer)?, hello);
    /// assert_eq!(server.try_recv_from(&mut buffer)?, hello);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_io(Interest::READABLE, |socket| socket.recv_from(buf))
    }

    /// Looks at the next datagram from the peer, without taking it and without waiting.
    ///
    /// See [`try_recv_from`](Self::try_recv_from) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram, and the errors of
    /// [`peek`](Self::peek).
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |socket| socket.peek(buf))
    }

    /// Looks at the next datagram, without taking it and without waiting.
    ///
    /// See [`try_recv_from`](Self::try_recv_from) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram, and the errors of
    /// [`peek_from`](Self::peek_from).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_io(Interest::READABLE, |socket| socket.peek_from(buf))
    }
}
