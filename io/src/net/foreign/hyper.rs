//! Hyper's traits.

use crate::Async;
use crate::net::bytes::{self, ByteStream};
use crate::net::split::sealed::Stream;
use ::hyper::rt::{Read, ReadBufCursor, Write};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

macro_rules! reads {
    ($([$($generics:tt)*] $type:ty, $this:ident => $socket:expr;)*) => { $(
        impl<$($generics)*> Read for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                let $this = &*self;
                poll_read($socket, cx, buf)
            }
        }
    )* };
}

macro_rules! writes {
    ($([$($generics:tt)*] $type:ty;)*) => { $(
        /// Shutting down is for the direction of writing. Flushing does nothing: nothing is kept back.
        impl<$($generics)*> Write for $type {
            writes_as_futures!();
        }
    )* };
}

each_stream!(reads, writes);

/// Reads into what nobody has written to yet, for the reason that is given with tokio's traits.
fn poll_read<T: ByteStream>(io: &Async<T>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
    // SAFETY: what is initialized there stays so: it is passed on as memory to read into, and nothing else is put there.
    let room = unsafe { buf.as_mut() };
    let read = ready!(bytes::poll_read_uninit(io, cx, room))?;
    // SAFETY: so many bytes at the beginning of the room have just been written, says the function.
    unsafe { buf.advance(read) };
    Poll::Ready(Ok(()))
}
