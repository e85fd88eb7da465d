//! The addresses of Unix sockets, from std's to the system's and back.

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use std::io;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

/// Returns the address at a path. On Linux a path that begins with a zero byte is a name without a
/// file, as in tokio.
pub(crate) fn of_path(path: &Path) -> io::Result<SocketAddr> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some((0, name)) = path.as_os_str().as_bytes().split_first() {
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(path)
}

/// Returns the address of a peer that was accepted; `peer` is what `accept` returned.
pub(crate) fn of_peer(peer: Option<SocketAddrAny>, stream: &UnixStream) -> io::Result<SocketAddr> {
    // Almost no peer has a name: nothing follows the family. If one has, the system is asked for it
    // again, because rustix panics at the longest names and takes an empty name for none (1.1.6).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if peer.is_some_and(|peer| peer.addr_len() as usize == size_of::<rustix::net::AddressFamily>())
    {
        return SocketAddr::from_pathname("");
    }
    let _ = peer;
    stream.peer_addr()
}

/// Returns the address in the form in which the system connects to it.
pub(crate) fn to_system(addr: &SocketAddr) -> io::Result<SocketAddrUnix> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(name) = addr.as_abstract_name() {
        return Ok(SocketAddrUnix::new_abstract_name(name)?);
    }
    match addr.as_pathname() {
        Some(path) => Ok(SocketAddrUnix::new(path)?),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a socket without a name cannot be connected to",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_told_apart() {
        for (path, shown) in [
            ("/tmp/socket", "path"),
            ("socket", "path"),
            ("\0name", "abstract"),
            ("\0", "abstract"),
        ] {
            let addr = of_path(path.as_ref()).unwrap();
            assert_eq!(addr.as_pathname().is_some(), shown == "path");
            let system = to_system(&addr).unwrap();
            assert_eq!(system.abstract_name().is_some(), shown == "abstract");
            assert_eq!(system.path_bytes().is_some(), shown == "path");
        }
        assert!(to_system(&of_path("".as_ref()).unwrap()).is_err());
        assert!(of_path(&Path::new("/").join("x".repeat(200))).is_err());
    }
}
