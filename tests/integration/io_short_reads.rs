//! Reads that take less than they could, although there is more: the rest brings no event of its
//! own.

use super::io_common::tcp_pair;
use futures::{AsyncRead, AsyncReadExt, poll};
use giveway::net::UnixStream;
use giveway_tests::with_runtimes;
use std::os::fd::{AsRawFd, RawFd};

/// Reads, with more room than is needed, until eleven bytes have come.
async fn read_eleven(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::<u8>::new(), [0; 64]);
    while bytes.len() < 11 {
        let read = stream.read(&mut buffer).await.unwrap();
        assert_ne!(read, 0);
        bytes.extend(&buffer[..read]);
    }
    bytes
}

/// Waits until the reactor has reported everything that happened before: events come in the order
/// in which they happened.
async fn reported() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut byte = [0];
    let mut read = there.read(&mut byte);
    assert!(poll!(&mut read).is_pending());
    assert_eq!(here.try_write(&[1]).unwrap(), 1);
    assert_eq!(read.await.unwrap(), 1);
}

/// Sends `byte` out of band, over TCP.
fn send_urgent(socket: RawFd, byte: u8) {
    // SAFETY: the descriptor is open. The pointer is valid for a read of one byte, which is the
    // length.
    let sent = unsafe { libc::send(socket, (&raw const byte).cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
}

/// A read stops before a byte that is out of band. It has taken less than it could, but not all.
#[test]
fn what_comes_after_an_urgent_byte_is_read_without_another_event() {
    with_runtimes(|runtime| {
        let reading = runtime.spawn(async {
            let (client, mut server) = tcp_pair().await;
            assert_eq!(client.try_write(b"before").unwrap(), 6);
            send_urgent(client.as_raw_fd(), b'!');
            assert_eq!(client.try_write(b"after").unwrap(), 5);
            reported().await;
            read_eleven(&mut server).await
        });
        assert_eq!(runtime.block_on(reading).unwrap(), b"beforeafter");
    });
}

/// Sends `bytes` over a Unix socket, and `descriptor` with them.
fn send_with_descriptor(socket: RawFd, bytes: &[u8], descriptor: RawFd) {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // Room for a header and one descriptor, aligned as the header needs it.
    let mut control = [0_u64; 4];
    // SAFETY: `msghdr` consists of integers and pointers, all of which may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the call only computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    // SAFETY: `message` is valid for reads, and its control part has the length that it says.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: the call only computes a length.
    let length = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as _;
    let rights = libc::cmsghdr {
        cmsg_len: length,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    // SAFETY: `header` points into `control`, which has room for a header, is aligned for one, and
    // is not borrowed.
    unsafe { header.write(rights) };
    // SAFETY: `header` points to a whole header inside of `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: `data` points into `control`, behind the header, where there is room for one
    // descriptor. An unaligned write needs no alignment.
    unsafe { data.cast::<RawFd>().write_unaligned(descriptor) };
    // SAFETY: both descriptors are open. `message` and everything that it points to is valid for
    // reads, and outlives the call.
    let sent = unsafe { libc::sendmsg(socket, &raw const message, 0) };
    assert_eq!(sent, bytes.len() as isize, "{}", std::io::Error::last_os_error());
}

/// A read stops after the bytes that a descriptor came with. It has taken less than it could, but
/// not all.
#[test]
fn what_comes_after_a_descriptor_is_read_without_another_event() {
    with_runtimes(|runtime| {
        let reading = runtime.spawn(async {
            let (here, mut there) = UnixStream::pair().unwrap();
            send_with_descriptor(here.as_raw_fd(), b"with", here.as_raw_fd());
            assert_eq!(here.try_write(b"without").unwrap(), 7);
            reported().await;
            read_eleven(&mut there).await
        });
        assert_eq!(runtime.block_on(reading).unwrap(), b"withwithout");
    });
}
