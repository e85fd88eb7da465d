//! What all sockets have in common: how they are made, tried and waited for, and the traits of a
//! descriptor.

use crate::Async;
use crate::reactor::Direction;
use giveway_budget::poll_proceed;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use socket2::{Domain, Socket, Type};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

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

/// Tries an operation once, whatever is known of the readiness.
pub(crate) fn try_io<T: AsFd, R>(
    io: &Async<T>,
    direction: Direction,
    operation: impl FnOnce(&T) -> io::Result<R>,
) -> io::Result<R> {
    io.check_open()?;
    // Read before the operation, so that an event that comes while the operation runs is not wiped
    // out.
    let seen = io.source().look(direction);
    let result = operation(io.get_ref());
    if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        io.source().clear(direction, seen);
    }
    result
}

/// Waits until a direction is reported as ready.
///
/// Spends an operation, because a loop of `readable` and `try_read` over a socket that always has
/// data would not return from its poll otherwise.
pub(crate) fn poll_ready<T: AsFd>(
    io: &Async<T>,
    direction: Direction,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let spent = ready!(poll_proceed(cx));
    io.check_open()?;
    ready!(io.source().poll_reported(direction, cx));
    io.check_open()?;
    spent.made_progress();
    Poll::Ready(Ok(()))
}

/// [`poll_ready`] as a future.
pub(crate) async fn ready<T: AsFd>(io: &Async<T>, direction: Direction) -> io::Result<()> {
    poll_fn(|cx| poll_ready(io, direction, cx)).await
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

#[cfg(test)]
mod tests {
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
        ];
        for result in gone {
            let error =
                result.expect("it does not wait").expect_err("nobody would report anything");
            assert!(error.to_string().contains("was shut down"), "{error}");
        }
    }
}
