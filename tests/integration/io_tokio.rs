//! Tokio's traits on our streams, and what is made for these traits, without a tokio runtime.

use crate::io_common::tcp_pair;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use giveway::budget::with_budget;
use giveway::net::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, TcpStream, UnixStream, WriteHalf};
use giveway_tests::{watch, with_runtimes};
use std::future::poll_fn;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf, copy,
    join,
};
use tokio_util::codec::{Framed, LengthDelimitedCodec, LinesCodec};

#[test]
fn everything_that_reads_or_writes_has_tokios_traits() {
    fn reads<T: AsyncRead>() {}
    fn writes<T: AsyncWrite>() {}
    fn stream<S: AsyncRead + AsyncWrite>()
    where
        for<'a> &'a S: AsyncRead + AsyncWrite,
        for<'a> ReadHalf<'a, S>: AsyncRead,
        for<'a> WriteHalf<'a, S>: AsyncWrite,
    {
    }
    stream::<TcpStream>();
    stream::<UnixStream>();
    reads::<OwnedReadHalf<TcpStream>>();
    reads::<OwnedReadHalf<UnixStream>>();
    writes::<OwnedWriteHalf<TcpStream>>();
    writes::<OwnedWriteHalf<UnixStream>>();
}

/// Sends a text there and back, through halves of each kind.
async fn round_trip<A, B>(
    mut here: impl AsyncRead + AsyncWrite + Unpin,
    mut reader: A,
    mut writer: B,
) where
    A: AsyncRead + Unpin + Send + 'static,
    B: AsyncWrite + Unpin + Send + 'static,
{
    let echo = giveway::spawn(async move {
        let copied = copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
        copied
    });
    let text = "all work and no play\n".repeat(10_000);
    let (mut reader, mut writer) = tokio::io::split(&mut here);
    let sending = async {
        writer.write_all(text.as_bytes()).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut back = String::new();
    let (read, ()) = futures::join!(reader.read_to_string(&mut back), sending);
    assert_eq!(read.unwrap(), text.len());
    assert!(back == text);
    assert_eq!(echo.await.unwrap(), text.len() as u64);
}

#[test]
fn halves_and_streams_copy_and_shut_down() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (here, there) = tcp_pair().await;
            let (reader, writer) = there.into_split();
            round_trip(here, reader, writer).await;

            let (here, there) = UnixStream::pair().unwrap();
            let (reader, writer) = there.into_split();
            round_trip(&here, reader, writer).await;

            let (mut here, there) = UnixStream::pair().unwrap();
            let (reader, writer) = here.split();
            let (there_reader, there_writer) = tokio::io::split(there);
            round_trip(join(reader, writer), there_reader, there_writer).await;
        });
    });
}

#[test]
fn lines_and_codecs_work() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (mut here, there) = tcp_pair().await;
            here.write_all(b"one\ntwo").await.unwrap();
            drop(here);
            let mut lines = BufReader::new(there).lines();
            let mut all = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                all.push(line);
            }
            assert_eq!(all, ["one", "two"]);

            let (here, there) = tcp_pair().await;
            let mut there = Framed::new(there, LengthDelimitedCodec::new());
            let sent: Vec<Bytes> = (0..300_usize).map(|n| vec![n as u8; n * 37].into()).collect();
            let frames = sent.clone();
            let sending = giveway::spawn(async move {
                let mut here = Framed::new(here, LengthDelimitedCodec::new());
                for frame in frames {
                    here.feed(frame).await.unwrap();
                }
                SinkExt::<Bytes>::close(&mut here).await.unwrap();
            });
            let mut received: Vec<BytesMut> = Vec::new();
            while let Some(frame) = there.next().await {
                received.push(frame.unwrap());
            }
            assert!(received == sent);
            sending.await.unwrap();

            let (here, there) = UnixStream::pair().unwrap();
            let mut here = Framed::new(here, LinesCodec::new());
            here.send("hello").await.unwrap();
            assert_eq!(
                Framed::new(there, LinesCodec::new()).next().await.unwrap().unwrap(),
                "hello"
            );
        });
    });
}

#[test]
fn vectored_writes_are_said_to_work_and_do() {
    with_runtimes(|runtime| {
        runtime.block_on(async {
            let (here, mut there) = UnixStream::pair().unwrap();
            assert!(here.is_write_vectored());
            let (_reader, mut here) = here.into_split();
            assert!(here.is_write_vectored());
            let slices = [IoSlice::new(b"bread"), IoSlice::new(b""), IoSlice::new(b" and butter")];
            assert_eq!(here.write_vectored(&slices).await.unwrap(), 16, "in one write");
            drop(here);
            let mut text = String::new();
            there.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "bread and butter");
        });
    });
}

fn poll_read(stream: &UnixStream, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
    let mut stream = stream;
    AsyncRead::poll_read(Pin::new(&mut stream), &mut Context::from_waker(Waker::noop()), buf)
}

/// Makes one read, however long it takes. (`AsyncReadExt` has no such method that leaves the memory
/// alone.)
async fn read(mut stream: &UnixStream, buf: &mut ReadBuf<'_>) -> std::io::Result<()> {
    poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut stream), cx, buf)).await
}

#[test]
fn a_read_goes_behind_what_is_there_and_says_what_it_has_written() {
    let _watch = watch();
    giveway::block_on(async {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut memory = [MaybeUninit::new(7); 16];
        let mut buf = ReadBuf::uninit(&mut memory);
        buf.put_slice(b"it is ");

        assert!(poll_read(&here, &mut buf).is_pending());
        assert_eq!(
            (buf.filled(), buf.initialized().len()),
            (&b"it is "[..], 6),
            "nothing came, nothing is touched"
        );

        there.write_all(b"bread").await.unwrap();
        read(&here, &mut buf).await.unwrap();
        assert_eq!((buf.filled(), buf.initialized().len()), (&b"it is bread"[..], 11));

        // What was initialized before stays so, beyond what was read.
        let mut buf = ReadBuf::uninit(&mut memory);
        buf.initialize_unfilled();
        there.write_all(b"butter").await.unwrap();
        read(&here, &mut buf).await.unwrap();
        assert_eq!((buf.filled(), buf.initialized().len()), (&b"butter"[..], 16));

        // More comes than there is room for.
        let mut buf = ReadBuf::uninit(&mut memory[..3]);
        there.write_all(b"marmalade").await.unwrap();
        read(&here, &mut buf).await.unwrap();
        assert_eq!((buf.filled(), buf.remaining()), (&b"mar"[..], 0));

        // The end of the stream.
        let mut buf = ReadBuf::uninit(&mut memory);
        drop(there);
        read(&here, &mut buf).await.unwrap();
        assert_eq!(buf.filled(), b"malade");
        read(&here, &mut buf).await.unwrap();
        assert_eq!(buf.filled(), b"malade", "nothing more: that is the end");
    });
}

#[test]
fn reads_and_writes_spend_the_budget() {
    let _watch = watch();
    giveway::block_on(async {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&[1; 64]).await.unwrap();
        with_budget(3, || {
            let mut byte = [MaybeUninit::uninit()];
            for _ in 0..3 {
                assert!(poll_read(&here, &mut ReadBuf::uninit(&mut byte)).is_ready());
            }
            assert!(
                poll_read(&here, &mut ReadBuf::uninit(&mut byte)).is_pending(),
                "there is more, but not for this poll"
            );
        });
        with_budget(3, || {
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..3 {
                assert!(AsyncWrite::poll_write(Pin::new(&mut &here), &mut cx, b"x").is_ready());
            }
            assert!(AsyncWrite::poll_write(Pin::new(&mut &here), &mut cx, b"x").is_pending());
        });
    });
}
