//! The traits of other crates for the streams of this one. Their methods call the functions of
//! `bytes`, and spend the budget as those do.

/// Implements a trait that reads and one that writes for every stream and every half of one. No
/// blanket implementation can do that for a trait of another crate.
///
/// Both traits have the methods of [`writes_as_futures`]. `poll_read` of the caller's module reads
/// from a socket into a buffer of type `$buffer`.
macro_rules! implement_for_streams {
    ($read:ident, $buffer:ty, $write:ident) => {
        reads! { $read, $buffer:
            [] crate::net::TcpStream, this => this.socket();
            [] &crate::net::TcpStream, this => this.socket();
            [] crate::net::UnixStream, this => this.socket();
            [] &crate::net::UnixStream, this => this.socket();
            [S: Stream] crate::net::ReadHalf<'_, S>, this => this.as_ref().socket();
            [S: Stream] crate::net::OwnedReadHalf<S>, this => this.as_ref().socket();
        }
        writes! { $write:
            [] crate::net::TcpStream;
            [] &crate::net::TcpStream;
            [] crate::net::UnixStream;
            [] &crate::net::UnixStream;
            [S: Stream] crate::net::WriteHalf<'_, S>;
            [S: Stream] crate::net::OwnedWriteHalf<S>;
        }
    };
}

/// Implements `$trait` for each type, given its generics, its name, and how to get from a reference
/// to it to its socket.
macro_rules! reads {
    ($trait:ident, $buffer:ty: $([$($generics:tt)*] $type:ty, $this:ident => $socket:expr;)*) => { $(
        impl<$($generics)*> $trait for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: $buffer) -> Poll<io::Result<()>> {
                let $this = &*self;
                poll_read($socket, cx, buf)
            }
        }
    )* };
}

/// Implements `$trait` for each type, given its generics and its name.
macro_rules! writes {
    ($trait:ident: $([$($generics:tt)*] $type:ty;)*) => { $(
        /// Shutting down shuts down the direction of writing. Flushing does nothing, because
        /// nothing is buffered.
        impl<$($generics)*> $trait for $type {
            writes_as_futures!();
        }
    )* };
}

/// Expands to the methods of a trait that writes. Those of tokio and of hyper have the same names.
macro_rules! writes_as_futures {
    () => {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            futures_io::AsyncWrite::poll_write(self, cx, buf)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            futures_io::AsyncWrite::poll_write_vectored(self, cx, bufs)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            futures_io::AsyncWrite::poll_flush(self, cx)
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            futures_io::AsyncWrite::poll_close(self, cx)
        }
    };
}

#[cfg(feature = "hyper-client")]
mod client;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "tokio-io")]
mod tokio;
