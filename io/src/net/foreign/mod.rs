//! The traits of other crates for our streams. What they ask for is done by the functions of `bytes`, and spends the budget
//! as there.

/// Gives a macro every type that reads, and another every one that writes: its generics, its name, and how to get from a
/// reference to it to its socket. No blanket implementation can do that for a trait of another crate.
macro_rules! each_stream {
    ($reads:ident, $writes:ident) => {
        $reads! {
            [] crate::net::TcpStream, this => this.socket();
            [] &crate::net::TcpStream, this => this.socket();
            [] crate::net::UnixStream, this => this.socket();
            [] &crate::net::UnixStream, this => this.socket();
            [S: Stream] crate::net::ReadHalf<'_, S>, this => this.as_ref().socket();
            [S: Stream] crate::net::OwnedReadHalf<S>, this => this.as_ref().socket();
        }
        $writes! {
            [] crate::net::TcpStream;
            [] &crate::net::TcpStream;
            [] crate::net::UnixStream;
            [] &crate::net::UnixStream;
            [S: Stream] crate::net::WriteHalf<'_, S>;
            [S: Stream] crate::net::OwnedWriteHalf<S>;
        }
    };
}

/// The methods of a trait that writes. Those of tokio and of hyper have the same names.
macro_rules! writes_as_futures {
    () => {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
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

#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "tokio-io")]
mod tokio;
