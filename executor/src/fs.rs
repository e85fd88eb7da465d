//! Files, on threads where they may block.
//!
//! The system has no way to wait for a disk that a reactor could use for all files. So each of
//! these functions runs the one of the same name in [`std::fs`] as a
//! [blocking job](crate::spawn_blocking). Work on many small files, or on parts of one, is better
//! put into one job of your own:
//!
//! ```
//! giveway::block_on(async {
//!     let lines = giveway::spawn_blocking(|| {
//!         let manifest = std::fs::read_to_string("Cargo.toml")?;
//!         Ok::<_, std::io::Error>(manifest.lines().count())
//!     });
//!     assert!(lines.await.unwrap().unwrap() > 0);
//! });
//! ```
//!
//! All functions, each for what takes one call:
//!
//! ```
//! use giveway::fs;
//!
//! giveway::block_on(async {
//!     let place = std::env::temp_dir().join(format!("giveway-doc-fs-{}", std::process::id()));
//!     fs::create_dir_all(&place).await?;
//!     let place = fs::canonicalize(place).await?;
//!     let (desk, shelf) = (place.join("desk"), place.join("shelf"));
//!     fs::create_dir(&desk).await?;
//!     fs::create_dir(&shelf).await?;
//!
//!     fs::write(desk.join("draft"), "Dear all").await?;
//!     fs::rename(desk.join("draft"), desk.join("letter")).await?;
//!     assert_eq!(fs::copy(desk.join("letter"), shelf.join("letter")).await?, 8);
//!     fs::hard_link(shelf.join("letter"), shelf.join("the same letter")).await?;
//!
//!     let mut permissions = fs::metadata(shelf.join("letter")).await?.permissions();
//!     permissions.set_readonly(true);
//!     fs::set_permissions(shelf.join("letter"), permissions).await?;
//!     assert!(fs::metadata(shelf.join("the same letter")).await?.permissions().readonly());
//!
//!     std::os::unix::fs::symlink(&shelf, place.join("archive"))?;
//!     assert_eq!(fs::read_link(place.join("archive")).await?, shelf);
//!     assert!(fs::symlink_metadata(place.join("archive")).await?.is_symlink());
//!
//!     fs::remove_file(desk.join("letter")).await?;
//!     fs::remove_dir(desk).await?;
//!     fs::remove_dir_all(place).await
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Cancel safety
//!
//! Dropping the future of a function does not stop what has begun: a file may be written all the
//! same.
//!
//! # Errors
//!
//! Those of [`std::fs`]. If the job is not run, because the runtime was shut down or the system
//! gave no thread, an error that says so.

use crate::spawn_blocking;
use std::fs::{Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

async fn run<T: Send + 'static>(
    f: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(f).await?
}

/// Defines functions of `std::fs` that take paths.
macro_rules! like_std {
    ($($(#[$doc:meta])* $name:ident($($path:ident),+) -> $output:ty;)+) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        #[doc = concat!("Those of [`std::fs::", stringify!($name), "`]; see also the [module's page](self).")]
        pub async fn $name($($path: impl AsRef<Path>),+) -> io::Result<$output> {
            $(let $path = $path.as_ref().to_owned();)+
            run(move || std::fs::$name($($path),+)).await
        }
    )+};
}

like_std! {
    /// Reads a whole file.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     assert!(!giveway::fs::read("Cargo.toml").await?.is_empty());
    /// #   Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    read(path) -> Vec<u8>;

    /// Reads a whole file as text.
    ///
    /// # Examples
    ///
    /// ```
    /// giveway::block_on(async {
    ///     assert!(giveway::fs::read_to_string("Cargo.toml").await?.contains("giveway"));
    /// #   Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    read_to_string(path) -> String;

    /// Copies a file. Returns its size in bytes.
    copy(from, to) -> u64;

    /// Renames a file or a directory.
    rename(from, to) -> ();

    /// Makes another name for a file: a hard link.
    hard_link(original, link) -> ();

    /// Removes a file.
    remove_file(path) -> ();

    /// Creates a directory.
    create_dir(path) -> ();

    /// Creates a directory, and those above it that do not exist.
    create_dir_all(path) -> ();

    /// Removes an empty directory.
    remove_dir(path) -> ();

    /// Removes a directory and everything in it.
    remove_dir_all(path) -> ();

    /// Returns what the system knows of a file. Follows links.
    metadata(path) -> Metadata;

    /// Returns what the system knows of a file, or of a link itself.
    symlink_metadata(path) -> Metadata;

    /// Returns the absolute path of a file, without links in it.
    canonicalize(path) -> PathBuf;

    /// Returns the path that a link leads to.
    read_link(path) -> PathBuf;
}

/// Writes a whole file, and replaces what was there.
///
/// # Errors
///
/// Those of [`std::fs::write`]; see also the [module's page](self).
///
/// # Examples
///
/// ```
/// let path = std::env::temp_dir().join(format!("giveway-{}", std::process::id()));
/// giveway::block_on(async {
///     giveway::fs::write(&path, "bread").await?;
///     assert_eq!(giveway::fs::read(&path).await?, b"bread");
///     giveway::fs::remove_file(&path).await
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    run(move || std::fs::write(path, contents)).await
}

/// Returns whether there is such a file.
///
/// # Errors
///
/// Those of [`Path::try_exists`]; see also the [module's page](self).
///
/// # Examples
///
/// ```
/// assert!(giveway::block_on(giveway::fs::try_exists("Cargo.toml"))?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref().to_owned();
    run(move || path.try_exists()).await
}

/// Changes the permissions of a file.
///
/// # Errors
///
/// Those of [`std::fs::set_permissions`]; see also the [module's page](self).
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || std::fs::set_permissions(path, permissions)).await
}
