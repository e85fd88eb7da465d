//! A UDP socket, polled and tried.

use super::UdpSocket;
use super::socket::{poll_ready, try_io};
use crate::source::Direction::{Read, Write};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// The asynchronous methods, to be polled. Every task that polls is woken.
impl UdpSocket {
    /// [`send`](Self::send), to be polled.
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

    /// [`recv`](Self::recv), to be polled.
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

    /// [`send_to`](Self::send_to), to be polled.
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
    pub fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        self.0.poll_io(Write, cx, |socket| socket.send_to(buf, target))
    }

    /// [`recv_from`](Self::recv_from), to be polled.
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
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(Read, cx, |socket| socket.recv_from(buf))
    }

    /// [`peek`](Self::peek), to be polled.
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

    /// [`peek_from`](Self::peek_from), to be polled.
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
    pub fn poll_peek_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(Read, cx, |socket| socket.peek_from(buf))
    }

    /// [`readable`](Self::readable), to be polled.
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
        poll_ready(&self.0, Read, cx)
    }

    /// [`writable`](Self::writable), to be polled.
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
        poll_ready(&self.0, Write, cx)
    }
}

/// The asynchronous methods, tried once.
impl UdpSocket {
    /// Sends a datagram to the peer, now.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room; and those of [`send`](Self::send).
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
        try_io(&self.0, Write, |socket| socket.send(buf))
    }

    /// Receives a datagram from the peer, or from anybody if there is none, now.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none; and those of [`recv`](Self::recv).
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
        try_io(&self.0, Read, |socket| socket.recv(buf))
    }

    /// Sends a datagram to an address, now.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room; and those of [`send_to`](Self::send_to).
    ///
    /// # Examples
    ///
    /// See [`writable`](Self::writable).
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        try_io(&self.0, Write, |socket| socket.send_to(buf, target))
    }

    /// Receives a datagram, now.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none; and those of [`recv_from`](Self::recv_from).
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
        try_io(&self.0, Read, |socket| socket.recv_from(buf))
    }

    /// Looks at the next datagram from the peer, now, without taking it.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none; and those of [`peek`](Self::peek).
    ///
    /// # Examples
    ///
    /// See [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        try_io(&self.0, Read, |socket| socket.peek(buf))
    }

    /// Looks at the next datagram, now, without taking it.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none; and those of [`peek_from`](Self::peek_from).
    ///
    /// # Examples
    ///
    /// See [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        try_io(&self.0, Read, |socket| socket.peek_from(buf))
    }
}
