//! What can be turned into socket addresses.

use super::resolve::{LookUp, Name, look_up};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What can be turned into socket addresses: an address, several, or a name with a port.
///
/// An address, also as text, is known at once. A name is looked up on a thread that is there for
/// look-ups only, never on a worker, nor on a blocking thread of a runtime. The process has at most
/// eight such threads. The trait cannot be implemented elsewhere.
///
/// # Errors
///
/// The function that takes the address returns the errors of the look-up: the name is unknown, or
/// the text is neither an address nor a name with a port.
///
/// # Examples
///
/// ```
/// use giveway::net::UdpSocket;
/// use std::net::Ipv6Addr;
///
/// # giveway::block_on(async {
/// UdpSocket::bind("127.0.0.1:0").await?;
/// UdpSocket::bind(("localhost", 0)).await?;
/// # if UdpSocket::bind("[::1]:0").await.is_ok() {
/// UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await?;
/// # }
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub trait ToSocketAddrs: sealed::Resolve {}

pub(crate) mod sealed {
    use super::Resolution;

    /// The method behind [`ToSocketAddrs`](super::ToSocketAddrs), which only this crate can
    /// implement.
    pub trait Resolve {
        /// Returns the addresses if they are known, otherwise starts to look them up.
        fn resolve(&self) -> Resolution;
    }
}
use sealed::Resolve;

/// The future of the addresses.
#[derive(Debug)]
pub enum Resolution {
    /// The addresses are known. `None` once they were returned.
    Known(Option<Addrs>),
    /// The name is being looked up.
    LookUp(LookUp),
}

impl Resolution {
    fn one(addr: SocketAddr) -> Self {
        Self::Known(Some(Addrs::One(Some(addr))))
    }
}

impl Future for Resolution {
    type Output = io::Result<Addrs>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Known(addrs) => Poll::Ready(Ok(addrs.take().expect("it was ready before"))),
            Self::LookUp(look_up) => Pin::new(look_up).poll(cx),
        }
    }
}

/// The addresses, in the order in which they should be tried.
#[derive(Debug)]
pub enum Addrs {
    /// One address, which is the most common case, without an allocation.
    One(Option<SocketAddr>),
    /// Several addresses.
    Many(std::vec::IntoIter<SocketAddr>),
}

impl Addrs {
    pub(crate) fn many(addrs: Vec<SocketAddr>) -> Self {
        Self::Many(addrs.into_iter())
    }

    /// Returns the result of the first address that `operation` succeeds with, or the last error.
    pub(crate) fn first_that<R>(
        self,
        operation: impl FnMut(SocketAddr) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut last = None;
        for result in self.map(operation) {
            match result {
                Err(error) => last = Some(error),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(no_address))
    }
}

impl Iterator for Addrs {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Self::One(addr) => addr.take(),
            Self::Many(addrs) => addrs.next(),
        }
    }
}

pub(crate) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address to try: the name or the list has none")
}

/// Looks up a name, without blocking the worker.
///
/// # Errors
///
/// The errors of the look-up.
///
/// # Cancel safety
///
/// Dropping the future before it is ready loses nothing. A look-up that has begun goes on, and its
/// answer is dropped.
///
/// # Examples
///
/// ```
/// use giveway::net::lookup_host;
///
/// # giveway::block_on(async {
/// for addr in lookup_host("localhost:80").await? {
///     assert!(addr.ip().is_loopback());
/// }
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub async fn lookup_host(host: impl ToSocketAddrs) -> io::Result<impl Iterator<Item = SocketAddr>> {
    host.resolve().await
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {}
impl<T: Resolve + ?Sized> Resolve for &T {
    fn resolve(&self) -> Resolution {
        (**self).resolve()
    }
}

impl ToSocketAddrs for SocketAddr {}
impl Resolve for SocketAddr {
    fn resolve(&self) -> Resolution {
        Resolution::one(*self)
    }
}

impl ToSocketAddrs for SocketAddrV4 {}
impl Resolve for SocketAddrV4 {
    fn resolve(&self) -> Resolution {
        Resolution::one((*self).into())
    }
}

impl ToSocketAddrs for SocketAddrV6 {}
impl Resolve for SocketAddrV6 {
    fn resolve(&self) -> Resolution {
        Resolution::one((*self).into())
    }
}

impl ToSocketAddrs for (IpAddr, u16) {}
impl Resolve for (IpAddr, u16) {
    fn resolve(&self) -> Resolution {
        Resolution::one((*self).into())
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {}
impl Resolve for (Ipv4Addr, u16) {
    fn resolve(&self) -> Resolution {
        Resolution::one((*self).into())
    }
}

impl ToSocketAddrs for (Ipv6Addr, u16) {}
impl Resolve for (Ipv6Addr, u16) {
    fn resolve(&self) -> Resolution {
        Resolution::one((*self).into())
    }
}

impl ToSocketAddrs for [SocketAddr] {}
impl Resolve for [SocketAddr] {
    fn resolve(&self) -> Resolution {
        Resolution::Known(Some(Addrs::many(self.to_vec())))
    }
}

impl ToSocketAddrs for str {}
impl Resolve for str {
    fn resolve(&self) -> Resolution {
        match self.parse() {
            Ok(addr) => Resolution::one(addr),
            Err(_) => Resolution::LookUp(look_up(Name::Whole(self.into()))),
        }
    }
}

impl ToSocketAddrs for String {}
impl Resolve for String {
    fn resolve(&self) -> Resolution {
        self.as_str().resolve()
    }
}

impl ToSocketAddrs for (&str, u16) {}
impl Resolve for (&str, u16) {
    fn resolve(&self) -> Resolution {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(ip) => (ip, port).resolve(),
            Err(_) => Resolution::LookUp(look_up(Name::Parts(host.into(), port))),
        }
    }
}

impl ToSocketAddrs for (String, u16) {}
impl Resolve for (String, u16) {
    fn resolve(&self) -> Resolution {
        (self.0.as_str(), self.1).resolve()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    #[test]
    fn addresses_are_known_at_once_and_names_are_not() {
        let v4 = SocketAddr::from(([127, 0, 0, 1], 7));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 7));
        let known = [
            (v4.resolve(), v4),
            (SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7).resolve(), v4),
            (SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0, 0).resolve(), v6),
            ((Ipv4Addr::LOCALHOST, 7).resolve(), v4),
            ((Ipv6Addr::LOCALHOST, 7).resolve(), v6),
            ((v4.ip(), 7).resolve(), v4),
            ("127.0.0.1:7".resolve(), v4),
            (String::from("[::1]:7").resolve(), v6),
            (("::1", 7).resolve(), v6),
            ((String::from("127.0.0.1"), 7).resolve(), v4),
            ([v4].as_slice().resolve(), v4),
        ];
        for (resolution, expected) in known {
            assert!(matches!(resolution, Resolution::Known(_)), "{expected}");
            assert!(block_on(resolution).unwrap().eq([expected]));
        }
        for resolution in ["localhost:7".resolve(), ("localhost", 7).resolve()] {
            assert!(matches!(resolution, Resolution::LookUp(_)));
            assert!(block_on(resolution).unwrap().any(|addr| addr == v4 || addr == v6));
        }
    }

    #[test]
    fn text_without_a_port_is_an_error() {
        assert_eq!(
            block_on("localhost".resolve()).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        let empty: &[SocketAddr] = &[];
        let error = block_on(empty.resolve()).unwrap().first_that(|_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
