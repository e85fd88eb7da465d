//! What all sockets have in common: how they are made, tried and waited for, and the traits of a
//! descriptor.

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use socket2::{Domain, Socket, Type};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Creates a socket that is non-blocking from the start.
pub(crate) fn new(domain: Domain, kind: Type) -> io::Result<Socket> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Socket::new(domain, kind.nonblocking(), None);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let socket = Socket::new(domain, kind, None)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// Accepts a connection. Its socket is non-blocking, and closed on exec. That is one system call
/// where the system can do it in one.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::net::SocketFlags;
        Ok(rustix::net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let (fd, peer) = rustix::net::acceptfrom(listener)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        #[cfg(target_vendor = "apple")]
        rustix::net::sockopt::set_socket_nosigpipe(&fd, true)?;
        Ok((fd, peer))
    }
}

/// Checks whether an attempt to connect has come to an end.
///
/// The error is [`WouldBlock`](io::ErrorKind::WouldBlock) while it has not. That the socket is
/// writable does not tell, since readiness may be a guess.
pub(crate) fn connected(socket: &impl AsFd) -> io::Result<()> {
    rustix::net::sockopt::socket_error(socket)??;
    match rustix::net::getpeername(socket) {
        // Also if the attempt has failed since `socket_error` was read. The failure is reported as
        // an event, and found the next time.
        Err(Errno::NOTCONN) => Err(io::ErrorKind::WouldBlock.into()),
        result => Ok(result.map(drop)?),
    }
}

/// Implements the traits of a socket's descriptor.
macro_rules! descriptor {
    ($socket:ty, $std:ty) => {
        impl std::os::fd::AsFd for $socket {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $socket {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.as_raw_fd()
            }
        }

        /// See `from_std`.
        impl TryFrom<$std> for $socket {
            type Error = std::io::Error;

            fn try_from(socket: $std) -> std::io::Result<Self> {
                Self::from_std(socket)
            }
        }

        impl From<$socket> for std::os::fd::OwnedFd {
            fn from(socket: $socket) -> Self {
                socket.0.into()
            }
        }

        impl std::fmt::Debug for $socket {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.0.get_ref(), f)
            }
        }
    };
}
pub(crate) use descriptor;

/// Implements the waiting for readiness, and operations of the caller's, which are those of
/// [`Async`](crate::Async). `$setup` are the hidden lines of an example that make `$here` ready to
/// read, and `$operation` reads from it by a call that the type has no method for.
macro_rules! readiness {
    ($socket:ty, $here:ident, $setup:literal, $operation:literal) => {
        impl $socket {
            /// Waits until one of the kinds of readiness in `interest` is reported. Returns all of
            /// them that are reported.
            ///
            /// Spends one operation of the [budget](giveway_budget). Readiness may be false:
            /// another task may have taken what was reported. See
            /// [`Async::ready`](crate::Async::ready), which this is, for the rest.
            ///
            /// # Errors
            ///
            /// If the runtime that it belongs to was shut down.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future before it is ready loses nothing: what was reported is still
            /// reported for the next call.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// use giveway::io::Interest;
            ///
            #[doc = concat!("assert!(", stringify!($here), ".ready(Interest::READABLE).await?.is_readable());")]
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub async fn ready(
                &self,
                interest: crate::Interest,
            ) -> std::io::Result<crate::Ready> {
                self.0.ready(interest).await
            }

            /// Polling form of [`ready`](Self::ready). Every task that polls is woken, not only the
            /// last.
            ///
            /// # Errors
            ///
            /// If the runtime that it belongs to was shut down.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// use giveway::io::Interest;
            /// use std::future::poll_fn;
            ///
            #[doc = concat!("poll_fn(|cx| ", stringify!($here), ".poll_ready(Interest::READABLE, cx)).await?;")]
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn poll_ready(
                &self,
                interest: crate::Interest,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<crate::Ready>> {
                self.0.poll_ready(interest, cx)
            }

            /// Tries `operation` once, without waiting.
            ///
            /// If it returns [`WouldBlock`](std::io::ErrorKind::WouldBlock), the readiness that
            /// `interest` names is over, and the next wait for it waits for a new report. After any
            /// other result readiness is as before. The operation must not block. It is tried
            /// whatever is known of the readiness; in tokio it is not called before the first
            /// report. See [`Async::try_io`](crate::Async::try_io), which this is, for the rest.
            ///
            /// # Errors
            ///
            /// Those of the operation, and one of its own if the runtime that the socket belongs to
            /// was shut down.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// use giveway::io::Interest;
            /// use socket2::SockRef;
            ///
            #[doc = concat!(stringify!($here), ".ready(Interest::READABLE).await?;")]
            #[doc = concat!(stringify!($here), ".try_io(Interest::READABLE, || ", $operation, ")?;")]
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn try_io<R>(
                &self,
                interest: crate::Interest,
                operation: impl FnOnce() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.0.try_io(interest, |_| operation())
            }

            /// Tries `operation` whenever the socket is reported as ready, until it returns
            /// something other than [`WouldBlock`](std::io::ErrorKind::WouldBlock).
            ///
            /// Each attempt spends one operation of the [budget](giveway_budget). See
            /// [`Async::async_io`](crate::Async::async_io), which this is, for the rest.
            ///
            /// # Errors
            ///
            /// Those of the operation, and one of its own if the runtime that the socket belongs to
            /// was shut down.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future before it is ready loses nothing: the operation was not done.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// use giveway::io::Interest;
            /// use socket2::SockRef;
            ///
            #[doc = concat!(stringify!($here), ".async_io(Interest::READABLE, || ", $operation, ").await?;")]
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub async fn async_io<R>(
                &self,
                interest: crate::Interest,
                mut operation: impl FnMut() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.0.async_io(interest, |_| operation()).await
            }
        }
    };
}
pub(crate) use readiness;

/// Implements the waiting for connections, for a listener. `$setup` is as for [`readiness`].
macro_rules! listener_readiness {
    ($listener:ty, $setup:literal) => {
        impl $listener {
            /// Waits until the system reports a connection, or an error.
            ///
            /// The report counts until an operation finds no connection, such as an
            /// [`accept`](Self::accept) that has to wait. So this may be ready although another
            /// task has accepted the connection. A listener is never writable.
            ///
            /// # Errors
            ///
            /// If the runtime that it belongs to was shut down.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future before it is ready loses nothing.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// listener.readable().await?;
            /// let (stream, peer) = listener.accept().await?;
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub async fn readable(&self) -> std::io::Result<()> {
                self.0.readable().await
            }

            /// Polling form of [`readable`](Self::readable).
            ///
            /// # Errors
            ///
            /// If the runtime that it belongs to was shut down.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// std::future::poll_fn(|cx| listener.poll_readable(cx)).await?;
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn poll_readable(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.0.poll_readable(cx)
            }
        }
    };
}
pub(crate) use listener_readiness;

#[cfg(test)]
mod tests {
    use crate::Interest;
    use crate::driver::{Reactor, enter};
    use crate::net::UnixDatagram;
    use futures::FutureExt;

    #[test]
    fn a_socket_that_is_made_after_the_end_of_its_runtime_says_so() {
        let reactor = Reactor::new(0).expect("a reactor starts");
        reactor.close();
        let (here, there) = enter(&reactor, 0, UnixDatagram::pair).expect("a pair of sockets");
        let gone = [
            here.readable().now_or_never(),
            here.writable().now_or_never(),
            here.recv(&mut [0; 8]).now_or_never().map(|received| received.map(drop)),
            there.send(&[0; 8]).now_or_never().map(|sent| sent.map(drop)),
            here.ready(Interest::ERROR).now_or_never().map(|ready| ready.map(drop)),
            here.async_io(Interest::READABLE, || Ok(())).now_or_never(),
            Some(here.try_io(Interest::WRITABLE, || Ok(()))),
        ];
        for result in gone {
            let error =
                result.expect("it does not wait").expect_err("nobody would report anything");
            assert!(error.to_string().contains("was shut down"), "{error}");
        }
    }
}
