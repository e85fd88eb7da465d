//! Reading and writing a stream of bytes, the same for TCP and for Unix sockets.
//!
//! A short read does not always mean that there is nothing more. The end of the stream, for one,
//! may be reported in the same edge as the last bytes, and is then not reported again. Where the
//! system reports the end apart from data (`REPORTS_ENDS`), a short read has taken all, unless an
//! event has told of more, and readiness ends with it. Elsewhere readiness ends only with a read
//! that would block. That is also so for a Unix socket: a read there stops at a message that came
//! with a descriptor, and no event tells of that.

use crate::reactor::Direction::{Read, Write};
use crate::{Async, Interest};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

/// A write to a peer that has gone away returns an error, and never raises a signal. (Apple's
/// systems have a socket option for that instead, which std sets.)
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::empty();

fn recv(io: &impl AsFd, buf: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let (read, _of_the_message) = rustix::net::recv(io, buf, flags)?;
    Ok(read)
}

fn send(io: &impl AsFd, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(io, buf, SEND)?)
}

fn readv(io: &impl AsFd, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    Ok(rustix::io::readv(io, bufs)?)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn writev(io: &impl AsFd, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    // The system takes at most this many at once; more are an error.
    let bufs = &bufs[..bufs.len().min(1024)];
    Ok(rustix::net::sendmsg(io, bufs, &mut rustix::net::SendAncillaryBuffer::default(), SEND)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn writev(io: &impl AsFd, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(rustix::io::writev(io, bufs)?)
}

/// A socket that carries a stream of bytes.
pub trait ByteStream: AsFd {
    /// Whether a read that takes less than it could has taken all, unless an event has told of
    /// more.
    const SHORT_MEANS_ALL: bool;
}

impl ByteStream for std::net::TcpStream {
    const SHORT_MEANS_ALL: bool = true;
}

impl ByteStream for std::os::unix::net::UnixStream {
    const SHORT_MEANS_ALL: bool = false;
}

pub(crate) fn poll_read<T: ByteStream>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    let most = if T::SHORT_MEANS_ALL { buf.len() } else { 0 };
    io.poll_bytes(Read, cx, most, |io| recv(io, buf, RecvFlags::empty()))
}

/// [`poll_read`] into memory that may be uninitialized. If it returns `n`, the first `n` bytes have
/// been written.
#[cfg(any(feature = "tokio-io", feature = "hyper"))]
pub(crate) fn poll_read_uninit<T: ByteStream>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    buf: &mut [std::mem::MaybeUninit<u8>],
) -> Poll<io::Result<usize>> {
    let most = if T::SHORT_MEANS_ALL { buf.len() } else { 0 };
    io.poll_bytes(Read, cx, most, |io| {
        let ((written, _rest), _of_the_message) =
            rustix::net::recv(io, &mut *buf, RecvFlags::empty())?;
        Ok(written.len())
    })
}

pub(crate) fn poll_peek<T: AsFd>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    io.poll_io(Read, cx, |io| recv(io, buf, RecvFlags::PEEK))
}

pub(crate) fn poll_read_vectored<T: AsFd>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    bufs: &mut [IoSliceMut<'_>],
) -> Poll<io::Result<usize>> {
    io.poll_io(Read, cx, |io| readv(io, bufs))
}

pub(crate) fn poll_write<T: AsFd>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    buf: &[u8],
) -> Poll<io::Result<usize>> {
    io.poll_bytes(Write, cx, buf.len(), |io| send(io, buf))
}

pub(crate) fn poll_write_vectored<T: AsFd>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    io.poll_io(Write, cx, |io| writev(io, bufs))
}

pub(crate) fn try_read<T: AsFd>(io: &Async<T>, buf: &mut [u8]) -> io::Result<usize> {
    io.try_io(Interest::READABLE, |io| recv(io, buf, RecvFlags::empty()))
}

pub(crate) fn try_read_vectored<T: AsFd>(
    io: &Async<T>,
    bufs: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    io.try_io(Interest::READABLE, |io| readv(io, bufs))
}

pub(crate) fn try_write<T: AsFd>(io: &Async<T>, buf: &[u8]) -> io::Result<usize> {
    io.try_io(Interest::WRITABLE, |io| send(io, buf))
}

pub(crate) fn try_write_vectored<T: AsFd>(
    io: &Async<T>,
    bufs: &[IoSlice<'_>],
) -> io::Result<usize> {
    io.try_io(Interest::WRITABLE, |io| writev(io, bufs))
}

/// Shuts down one direction or both. A stream that the peer has torn down before is no error, since
/// it is in the state that was asked for (tokio 4665).
pub(crate) fn shutdown(io: &impl AsFd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
        Shutdown::Both => rustix::net::Shutdown::Both,
    };
    match rustix::net::shutdown(io, how) {
        Err(rustix::io::Errno::NOTCONN) => Ok(()),
        result => Ok(result?),
    }
}

/// Implements the traits of a stream, for the type itself and for a reference to it.
macro_rules! async_stream {
    ($($stream:ty),*) => { $(
        impl futures_io::AsyncRead for $stream {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::net::bytes::poll_read(&self.0, cx, buf)
            }

            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::net::bytes::poll_read_vectored(&self.0, cx, bufs)
            }
        }

        /// Closing shuts down the direction of writing, as tokio's `shutdown` does. Flushing does
        /// nothing, because nothing is buffered.
        impl futures_io::AsyncWrite for $stream {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::net::bytes::poll_write(&self.0, cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::net::bytes::poll_write_vectored(&self.0, cx, bufs)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(crate::net::bytes::shutdown(&self.0, std::net::Shutdown::Write))
            }
        }
    )* };
}
pub(crate) use async_stream;
