//! The repository: its files, its packages and their targets.

use cargo_metadata::{Metadata, MetadataCommand, Package};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;
use walkdir::{DirEntry, WalkDir};

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package is a folder of the workspace")
}

/// Every file, relative to the root. Found without git, so that an unpacked archive can be checked
/// too.
pub(crate) static FILES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    // Hidden folders belong to tools, except for these.
    let ours = |name: &str| [".ci", ".github", ".config"].contains(&name);
    let is_wanted = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || name != "target" && (!name.starts_with('.') || ours(&name))
    };
    let entries = WalkDir::new(root()).into_iter().filter_entry(is_wanted);
    let files = entries.map(|entry| entry.expect("the repository can be read"));
    let relative = |entry: DirEntry| {
        let path = entry.path().strip_prefix(root()).expect("found below the root");
        path.to_str().expect("names in the repository are UTF-8").to_owned()
    };
    files.filter(|entry| entry.file_type().is_file()).map(relative).collect()
});

/// Returns the files whose names end with `end`.
pub(crate) fn files_ending(end: &str) -> impl Iterator<Item = &'static str> {
    FILES.iter().map(String::as_str).filter(move |path| path.ends_with(end))
}

/// Returns the text of a file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let mut command = MetadataCommand::new();
    command.current_dir(root()).no_deps().exec().expect("cargo describes the workspace")
});

/// Returns the members of the workspace.
pub(crate) fn packages() -> &'static [Package] {
    &METADATA.packages
}

/// Returns the libraries that are published.
pub(crate) fn public_packages() -> impl Iterator<Item = &'static Package> {
    // `publish = false` is an empty list of registries.
    packages().iter().filter(|package| package.publish.as_ref().is_none_or(|list| !list.is_empty()))
}

/// Returns the folder of a package relative to the root, with a slash at its end.
pub(crate) fn folder(package: &Package) -> String {
    let folder = package.manifest_path.parent().expect("a manifest is in a folder");
    let relative = folder.strip_prefix(root()).expect("members are below the root");
    format!("{relative}/")
}

/// Returns the name of a package as paths in Rust have it.
pub(crate) fn crate_name(package: &Package) -> String {
    package.name.replace('-', "_")
}
