//! Hyper's traits.

use crate::Async;
use crate::net::bytes::{self, ByteStream};
use crate::net::split::sealed::Stream;
use ::hyper::rt::{Read, ReadBufCursor, Write};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

implement_for_streams!(Read, ReadBufCursor<'_>, Write);

/// Reads into memory that may be uninitialized, for the reason that is given at tokio's traits.
fn poll_read<T: ByteStream>(
    io: &Async<T>,
    cx: &mut Context<'_>,
    mut buf: ReadBufCursor<'_>,
) -> Poll<io::Result<()>> {
    // SAFETY: no byte of the room that is initialized becomes uninitialized: the room is only
    // passed to `poll_read_uninit`, which has the system write bytes there and writes nothing else.
    let room = unsafe { buf.as_mut() };
    let read = ready!(bytes::poll_read_uninit(io, cx, room))?;
    // SAFETY: the first `read` bytes of the room are initialized, because `poll_read_uninit`
    // returned that it has written them; so there are at least `read` bytes of room.
    unsafe { buf.advance(read) };
    Poll::Ready(Ok(()))
}
