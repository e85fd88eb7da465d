//! A Unix socket for datagrams: the polling methods, and those that do not wait.

use super::{UnixDatagram, unix_addr};
use crate::Interest;
use crate::reactor::Direction::{Read, Write};
use giveway_budget::poll_proceed;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

/// The asynchronous methods in polling form. Every task that polls one is woken, not only the last.
impl UnixDatagram {
    /// Polling form of [`send`](Self::send).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// assert_eq!(poll_fn(|cx| here.poll_send(cx, b"hello")).await?, 5);
    /// # drop(there);
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
    /// # use giveway::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// here.send(b"hello").await?;
    /// let mut buffer = [0; 16];
    /// assert_eq!(poll_fn(|cx| there.poll_recv(cx, &mut buffer)).await?, 5);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(Read, cx, |socket| socket.recv(buf))
    }

    /// Polling form of [`recv_from`](Self::recv_from).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// here.send(b"hello").await?;
    /// let mut buffer = [0; 16];
    /// let (length, sender) = poll_fn(|cx| there.poll_recv_from(cx, &mut buffer)).await?;
    /// assert!(length == 5 && sender.is_unnamed());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(Read, cx, |socket| socket.recv_from(buf))
    }

    /// Polling form of [`readable`](Self::readable).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// here.send(b"hello").await?;
    /// poll_fn(|cx| there.poll_recv_ready(cx)).await?;
    /// assert_eq!(there.try_recv(&mut [0; 16])?, 5);
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
    /// # use giveway::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// poll_fn(|cx| here.poll_send_ready(cx)).await?;
    /// assert_eq!(here.try_send(b"hello")?, 5);
    /// # drop(there);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_writable(cx)
    }

    /// Tries once, and spends an operation unless the attempt would have blocked.
    pub(crate) fn poll_try_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        target: &SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let spent = ready!(poll_proceed(cx));
        let sent = self.0.get_ref().send_to_addr(buf, target);
        if !sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            spent.made_progress();
        }
        Poll::Ready(sent)
    }
}

/// The asynchronous methods, tried once without waiting.
impl UnixDatagram {
    /// Sends a datagram to the peer, without waiting. Returns its size.
    ///
    /// See [`writable`](Self::writable) for an example.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the errors of
    /// [`send`](Self::send).
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_io(Interest::WRITABLE, |socket| socket.send(buf))
    }

    /// Receives a datagram, without waiting.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram, and the errors of
    /// [`recv`](Self::recv).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// # use std::io::ErrorKind;
    /// let (here, _there) = UnixDatagram::pair()?;
    /// assert_eq!(here.try_recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |socket| socket.recv(buf))
    }

    /// Sends a datagram to the socket at a path, without waiting. Returns its size.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the errors of
    /// [`send_to`](Self::send_to). Waiting with [`writable`](Self::writable) does not help then,
    /// for the reason given there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// let nobody = std::env::temp_dir().join("giveway-doc-nobody");
    /// assert!(UnixDatagram::unbound()?.try_send_to(b"hello", nobody).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_send_to(&self, buf: &[u8], target: impl AsRef<Path>) -> io::Result<usize> {
        let target = unix_addr::of_path(target.as_ref())?;
        self.0.try_io(Interest::WRITABLE, |socket| socket.send_to_addr(buf, &target))
    }

    /// Receives a datagram, without waiting. Returns its size and its sender.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram, and the errors of
    /// [`recv_from`](Self::recv_from).
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UnixDatagram;
    /// # giveway::block_on(async {
    /// let (here, there) = UnixDatagram::pair()?;
    /// here.send(b"hello").await?;
    /// there.readable().await?;
    /// let (length, sender) = there.try_recv_from(&mut [0; 16])?;
    /// assert!(length == 5 && sender.is_unnamed());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_io(Interest::READABLE, |socket| socket.recv_from(buf))
    }
}
