//! Hyper's traits.

use crate::Async;
use crate::net::bytes::{self, ByteStream};
use crate::net::split::sealed::Stream;
use ::hyper::rt::{Read, ReadBufCursor, Write};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

implement_for_streams!(Read, ReadBufCursor<'_>, Write);

/// Reads into what nobody has written to yet, for the reason that is given with tokio's traits.
fn poll_read<T: ByteStream>(io: &Async<T>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
    // SAFETY: what is initialized there stays so: it is passed on as memory to read into, and nothing else is put there.
    let room = unsafe { buf.as_mut() };
    let read = ready!(bytes::poll_read_uninit(io, cx, room))?;
    // SAFETY: so many bytes at the beginning of the room have just been written, says the function.
    unsafe { buf.advance(read) };
    Poll::Ready(Ok(()))
}
