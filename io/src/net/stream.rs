//! The methods that TCP and Unix streams share.

/// Implements them for a stream type, of which `$address` is the type of addresses and `$halves` the
/// module with the types of its halves. `$connect` are the hidden lines of an example that connect
/// `here` to `there`.
macro_rules! stream_methods {
    ($stream:ident, $std:path, $address:ty, $halves:ident, $connect:literal) => {
        impl $stream {
            /// Looks at what the next read will find, without taking it. Returns zero at the end of
            /// the stream.
            ///
            /// # Errors
            ///
            /// The system's errors, such as a connection that was reset.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future before it is ready loses nothing.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// here.write_all(b"hello").await?;
            /// let mut buffer = [0; 5];
            /// let peeked = there.peek(&mut buffer).await?;
            /// assert_eq!(there.read(&mut buffer).await?, peeked);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                poll_fn(|cx| self.poll_peek(cx, buf)).await
            }

            /// Polling form of [`peek`](Self::peek).
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// use std::future::poll_fn;
            ///
            /// here.write_all(b"hello").await?;
            /// let mut buffer = [0; 4];
            /// assert_eq!(poll_fn(|cx| there.poll_peek(cx, &mut buffer)).await?, 4);
            /// assert_eq!(&buffer, b"hell");
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn poll_peek(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                bytes::poll_peek(&self.0, cx, buf)
            }

            /// Waits until the system reports something to read: data, the end, or an error.
            ///
            /// The report counts until an operation finds nothing left, such as a
            /// [`try_read`](Self::try_read) that would block; over TCP also a read that does not
            /// fill its buffer. So this may be ready although another task has read what came. It
            /// is never ready before anything has come.
            ///
            /// # Errors
            ///
            /// If the runtime that it belongs to was shut down.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future before it is ready loses nothing: what was ready is still ready
            /// for the next call.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// # use std::io::ErrorKind;
            /// here.write_all(b"hello").await?;
            /// let mut buffer = [0; 16];
            /// let read = loop {
            ///     there.readable().await?;
            ///     match there.try_read(&mut buffer) {
            ///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ///         result => break result?,
            ///     }
            /// };
            /// assert_eq!(&buffer[..read], b"hello");
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub async fn readable(&self) -> io::Result<()> {
                self.0.readable().await
            }

            /// Polling form of [`readable`](Self::readable).
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// use std::future::poll_fn;
            ///
            /// here.write_all(b"hello").await?;
            /// poll_fn(|cx| there.poll_read_ready(cx)).await?;
            /// assert_eq!(there.try_read(&mut [0; 16])?, 5);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_readable(cx)
            }

            /// Reads what is there, without waiting. Returns zero at the end of the stream, or if
            /// the buffer is empty.
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to read, and the
            /// system's errors.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// # use std::io::ErrorKind;
            /// assert_eq!(here.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                bytes::try_read(&self.0, buf)
            }

            /// Reads what is there into several buffers, one after the other, without waiting.
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing to read, and the
            /// system's errors.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// # use std::io::IoSliceMut;
            /// here.write_all(b"abc").await?;
            /// there.peek(&mut [0]).await?;
            /// let (mut first, mut second) = ([0; 2], [0; 2]);
            /// let mut both = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            /// assert_eq!(there.try_read_vectored(&mut both)?, 3);
            /// assert_eq!((first, second), (*b"ab", *b"c\0"));
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                bytes::try_read_vectored(&self.0, bufs)
            }

            /// Waits until the system reports room to write, or an error.
            ///
            /// The report counts until an operation finds no room left, such as a
            /// [`try_write`](Self::try_write) that would block. So this may be ready although
            /// another task has filled the room.
            ///
            /// # Errors
            ///
            /// If the runtime that it belongs to was shut down.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future before it is ready loses nothing: what was ready is still ready
            /// for the next call.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// here.writable().await?;
            /// here.try_write(b"hello")?;
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub async fn writable(&self) -> io::Result<()> {
                self.0.writable().await
            }

            /// Polling form of [`writable`](Self::writable).
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// use std::future::poll_fn;
            ///
            /// poll_fn(|cx| here.poll_write_ready(cx)).await?;
            /// assert_eq!(here.try_write(b"hello")?, 5);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_writable(cx)
            }

            /// Writes as much as there is room for, without waiting.
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's
            /// errors.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// assert_eq!(here.try_write(b"hello")?, 5);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                bytes::try_write(&self.0, buf)
            }

            /// Writes as much as there is room for from several buffers, one after the other,
            /// without waiting.
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and the system's
            /// errors.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// # use std::io::IoSlice;
            /// let both = [IoSlice::new(b"head"), IoSlice::new(b"body")];
            /// assert_eq!(here.try_write_vectored(&both)?, 8);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                bytes::try_write_vectored(&self.0, bufs)
            }

            /// Shuts down one direction or both, and so wakes the tasks that wait for it.
            ///
            /// # Errors
            ///
            /// The system's errors. A connection that the peer has torn down before is not an
            /// error.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// # use std::net::Shutdown;
            /// here.shutdown(Shutdown::Write)?;
            /// assert_eq!(there.read(&mut [0]).await?, 0);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                bytes::shutdown(&self.0, how)
            }

            /// Splits the stream into its two directions, to be used at once within one task. This
            /// costs nothing.
            ///
            /// Where `futures::AsyncReadExt` is in scope, `stream.split()` calls that trait's
            /// method, which takes the stream and has a lock. There, write
            #[doc = concat!("`", stringify!($stream), "::split(&mut stream)`.")]
            ///
            /// See [`ReadHalf`](super::ReadHalf) for an example.
            pub fn split(&mut self) -> ($halves::ReadHalf<'_>, $halves::WriteHalf<'_>) {
                (split::ReadHalf(self), split::WriteHalf(self))
            }

            /// Splits the stream into its two directions, to be used by two tasks. This costs an
            /// allocation. Dropping the half that writes shuts down writing.
            ///
            /// See [`OwnedReadHalf`](super::OwnedReadHalf) for an example.
            pub fn into_split(self) -> ($halves::OwnedReadHalf, $halves::OwnedWriteHalf) {
                split_owned::split(self)
            }

            /// Takes over a stream of std, and makes it non-blocking.
            ///
            /// See [`into_std`](Self::into_std) for an example.
            ///
            /// # Errors
            ///
            /// The system's errors, and those of starting a runtime if there is none yet.
            pub fn from_std(stream: $std) -> io::Result<Self> {
                Ok(Self(Async::new(stream)?))
            }

            /// Turns it into a stream of std.
            ///
            /// It stays non-blocking until its `set_nonblocking` makes it block.
            ///
            /// # Errors
            ///
            /// None. The `Result` is there because tokio's method returns one.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $connect]
            /// let stream = here.into_std()?;
            /// stream.set_nonblocking(false)?;
            #[doc = concat!("let here = ", stringify!($stream), "::from_std(stream)?;")]
            /// # assert_eq!(here.try_write(b"hello")?, 5);
            /// # std::io::Result::Ok(()) }).unwrap();
            /// ```
            pub fn into_std(self) -> io::Result<$std> {
                Ok(self.0.into_inner())
            }
        }

        impl Stream for $stream {
            type Inner = $std;
            type Address = $address;

            fn socket(&self) -> &Async<Self::Inner> {
                &self.0
            }

            fn local_addr(&self) -> io::Result<$address> {
                self.local_addr()
            }

            fn peer_addr(&self) -> io::Result<$address> {
                self.peer_addr()
            }
        }
    };
}

pub(super) use stream_methods;
