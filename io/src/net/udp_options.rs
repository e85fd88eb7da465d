//! The addresses and options of a UDP socket.

use super::UdpSocket;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

impl UdpSocket {
    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) if there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let server = UdpSocket::bind("127.0.0.1:0").await?;
    /// let client = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert!(client.peer_addr().is_err());
    /// client.connect(server.local_addr()?).await?;
    /// assert_eq!(client.peer_addr()?, server.local_addr()?);
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
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// assert!(socket.take_error()?.is_none());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get_ref().take_error()
    }

    /// Returns whether the socket may send to a broadcast address (`SO_BROADCAST`).
    ///
    /// See [`set_broadcast`](Self::set_broadcast) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.get_ref().broadcast()
    }

    /// Sets whether the socket may send to a broadcast address (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_broadcast(true)?;
    /// assert_eq!(socket.broadcast()?, true);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.0.get_ref().set_broadcast(on)
    }

    /// Returns how many routers a datagram may pass (`IP_TTL`).
    ///
    /// See [`set_ttl`](Self::set_ttl) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get_ref().ttl()
    }

    /// Sets how many routers a datagram may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_ttl(10)?;
    /// assert_eq!(socket.ttl()?, 10);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get_ref().set_ttl(ttl)
    }

    /// Returns how many routers a datagram to a group may pass (`IP_MULTICAST_TTL`).
    ///
    /// See [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.get_ref().multicast_ttl_v4()
    }

    /// Sets how many routers a datagram to a group may pass (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_multicast_ttl_v4(10)?;
    /// assert_eq!(socket.multicast_ttl_v4()?, 10);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.0.get_ref().set_multicast_ttl_v4(ttl)
    }

    /// Returns whether datagrams to a group come back to this machine (`IP_MULTICAST_LOOP`).
    ///
    /// See [`set_multicast_loop_v4`](Self::set_multicast_loop_v4) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.get_ref().multicast_loop_v4()
    }

    /// Sets whether datagrams to a group come back to this machine (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0").await?;
    /// socket.set_multicast_loop_v4(false)?;
    /// assert_eq!(socket.multicast_loop_v4()?, false);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.0.get_ref().set_multicast_loop_v4(on)
    }

    /// Returns whether datagrams to a group come back to this machine (`IPV6_MULTICAST_LOOP`).
    ///
    /// See [`set_multicast_loop_v6`](Self::set_multicast_loop_v6) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.get_ref().multicast_loop_v6()
    }

    /// Sets whether datagrams to a group come back to this machine (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use giveway::net::UdpSocket;
    /// # giveway::block_on(async {
    /// # let Ok(socket) = UdpSocket::bind("[::1]:0").await else { return Ok(()) };
    /// socket.set_multicast_loop_v6(false)?;
    /// assert_eq!(socket.multicast_loop_v6()?, false);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.0.get_ref().set_multicast_loop_v6(on)
    }

    /// Joins a group of IPv4, on the interface with this address. If it is the unspecified address,
    /// the system chooses the interface.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use giveway::net::UdpSocket;
    /// # use std::net::Ipv4Addr;
    /// # giveway::block_on(async {
    /// let group = Ipv4Addr::new(239, 255, 0, 1);
    /// let socket = UdpSocket::bind("0.0.0.0:0").await?;
    /// socket.join_multicast_v4(group, Ipv4Addr::UNSPECIFIED)?;
    /// socket.leave_multicast_v4(group, Ipv4Addr::UNSPECIFIED)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn join_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get_ref().join_multicast_v4(&multiaddr, &interface)
    }

    /// Joins a group of IPv6, on the interface with this number. If it is zero, the system chooses
    /// the interface.
    ///
    /// # Errors
    ///
    /// The system's errors.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use giveway::net::UdpSocket;
    /// # use std::net::Ipv6Addr;
    /// # giveway::block_on(async {
    /// let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x123);
    /// let socket = UdpSocket::bind("[::]:0").await?;
    /// socket.join_multicast_v6(&group, 0)?;
    /// socket.leave_multicast_v6(&group, 0)?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get_ref().join_multicast_v6(multiaddr, interface)
    }

    /// Leaves a group of IPv4, on the interface with this address. If it is the unspecified
    /// address, the system chooses the interface.
    ///
    /// See [`join_multicast_v4`](Self::join_multicast_v4) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn leave_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get_ref().leave_multicast_v4(&multiaddr, &interface)
    }

    /// Leaves a group of IPv6, on the interface with this number. If it is zero, the system chooses
    /// the interface.
    ///
    /// See [`join_multicast_v6`](Self::join_multicast_v6) for an example.
    ///
    /// # Errors
    ///
    /// The system's errors.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get_ref().leave_multicast_v6(multiaddr, interface)
    }
}
