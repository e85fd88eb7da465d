//! The two directions of a stream, at once and apart.

use super::{run, tcp_pair, watch};
use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt, join};
use giveway_io::net::{TcpStream, UnixStream, tcp};
use std::io::ErrorKind;
use std::sync::mpsc::channel;
use std::thread;

const BYTES: usize = 4 << 20;

fn pattern() -> impl Iterator<Item = u8> {
    (0_u32..).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
}

async fn send_all(mut writer: tcp::OwnedWriteHalf) {
    let bytes: Vec<u8> = pattern().take(BYTES).collect();
    writer.write_all(&bytes).await.unwrap();
}

async fn receive_all(mut reader: tcp::OwnedReadHalf) {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len(), BYTES);
    assert!(bytes.into_iter().eq(pattern().take(BYTES)));
}

#[test]
fn both_directions_are_full_at_once_on_four_threads() {
    let _watch = watch();
    let (client, server) = block_on(tcp_pair());
    let threads = [client, server].map(|stream| {
        let (reader, writer) = stream.into_split();
        [
            thread::spawn(|| block_on(send_all(writer))),
            thread::spawn(|| block_on(receive_all(reader))),
        ]
    });
    threads.into_iter().flatten().for_each(|thread| thread.join().unwrap());
}

#[test]
fn both_directions_are_full_at_once_in_one_task() {
    run(async {
        let (mut client, mut server) = tcp_pair().await;
        // Not `client.split()`: with `AsyncReadExt` in scope that is another method.
        let (mut client, mut server) =
            (TcpStream::split(&mut client), TcpStream::split(&mut server));
        let bytes: Vec<u8> = pattern().take(BYTES).collect();
        let (mut there, mut back) = (vec![0; BYTES], vec![0; BYTES]);
        let (a, b, c, d) = join!(
            client.1.write_all(&bytes),
            server.1.write_all(&bytes),
            server.0.read_exact(&mut there),
            client.0.read_exact(&mut back),
        );
        a.and(b).and(c).and(d).unwrap();
        assert!(there == bytes && back == bytes);
        assert_eq!(client.0.peer_addr().unwrap(), server.1.local_addr().unwrap());
    });
}

#[test]
fn dropping_the_half_that_writes_ends_the_stream_for_the_peer_only() {
    let _watch = watch();
    let (client, mut server) = block_on(tcp_pair());
    let (mut reader, writer) = client.into_split();
    // The reader waits on the socket while the other half is dropped.
    let waiting = thread::spawn(move || {
        let mut text = String::new();
        block_on(reader.read_to_string(&mut text)).unwrap();
        text
    });
    drop(writer);
    block_on(async {
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        server.write_all(b"still here").await.unwrap();
    });
    drop(server);
    assert_eq!(waiting.join().unwrap(), "still here");
}

#[test]
fn dropping_the_half_that_reads_does_nothing_to_the_one_that_writes() {
    let _watch = watch();
    let (client, mut server) = block_on(tcp_pair());
    let (reader, mut writer) = client.into_split();
    let (full, is_full) = channel();
    let waiting = thread::spawn(move || {
        while writer.try_write(&[7; 1 << 16]).is_ok() {}
        full.send(()).unwrap();
        block_on(writer.write_all(&[7; BYTES])).unwrap();
    });
    is_full.recv().unwrap();
    drop(reader);
    let mut bytes = Vec::new();
    block_on(server.read_to_end(&mut bytes)).unwrap();
    waiting.join().unwrap();
    assert!(bytes.len() > BYTES);
}

#[test]
fn halves_are_reunited_only_with_their_own() {
    run(async {
        let (here, there) = UnixStream::pair().unwrap();
        let (here_reader, here_writer) = here.into_split();
        let (there_reader, there_writer) = there.into_split();
        let error = here_writer.reunite(there_reader).unwrap_err();
        assert!(error.to_string().contains("not of one stream"));
        let mut here = error.1.reunite(here_reader).unwrap();
        let mut there = there_writer.reunite(error.0).unwrap();
        here.write_all(b"x").await.unwrap();
        assert_eq!(there.read(&mut [0; 2]).await.unwrap(), 1, "and nothing was shut down");
        assert_eq!(there.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_forgotten_half_shuts_nothing_down_and_a_closed_one_does() {
    run(async {
        let (client, server) = tcp_pair().await;
        let (mut reader, writer) = client.into_split();
        writer.forget();
        let (_server_reader, mut server_writer) = server.into_split();
        server_writer.write_all(b"abc").await.unwrap();
        server_writer.close().await.unwrap();
        assert_eq!(reader.peek(&mut [0; 8]).await.unwrap(), 3);
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "abc");
        assert_eq!(server_writer.try_write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(_server_reader.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}
