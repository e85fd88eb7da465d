//! The repository as these checks see it: its files, its packages and their targets.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the repository is.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is a folder of the workspace")
}

/// Every file of the repository, relative to its root, sorted. Without git, so that an unpacked archive can be tested
/// too; what is not tracked yet is checked like the rest.
pub(crate) fn files() -> &'static BTreeSet<String> {
    static FILES: OnceLock<BTreeSet<String>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut found = BTreeSet::new();
        walk(root(), "", &mut found);
        found
    })
}

fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in folder.read_dir().expect("a folder of the repository can be read") {
        let entry = entry.expect("a folder of the repository can be read");
        let name = entry.file_name().into_string().expect("names in the repository are UTF-8");
        // Hidden folders are tools' own, except for ours.
        if (name.starts_with('.') && ![".ci", ".github", ".gitignore"].contains(&&*name)) || name == "target" {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("a file has a type").is_dir() {
            walk(&entry.path(), &format!("{path}/"), found);
        } else {
            found.insert(path);
        }
    }
}

/// The files whose names end like this.
pub(crate) fn files_ending(end: &str) -> impl Iterator<Item = &'static str> {
    files().iter().map(String::as_str).filter(move |path| path.ends_with(end))
}

/// The text of one file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root, with a slash at its end.
    pub(crate) folder: String,
    /// Others can depend on it: it has a library and is published.
    pub(crate) public: bool,
    pub(crate) features: BTreeSet<String>,
    /// The names of the packages that it depends on, for tests too.
    pub(crate) dependencies: BTreeSet<String>,
    /// Kind (`bin`, `example`, `test`, `bench`, `lib`, …) and name.
    pub(crate) targets: BTreeSet<(String, String)>,
}

impl Package {
    /// As it is written in paths.
    pub(crate) fn crate_name(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// The cargo that runs this test.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// The members of the workspace.
pub(crate) fn packages() -> &'static [Package] {
    static PACKAGES: OnceLock<Vec<Package>> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output().expect("cargo runs");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
        list(&metadata["packages"]).map(package).collect()
    })
}

fn package(value: &Value) -> Package {
    let manifest = PathBuf::from(text(&value["manifest_path"]));
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok()).expect("a member is inside");
    let mut targets = BTreeSet::new();
    for target in list(&value["targets"]) {
        for kind in list(&target["kind"]) {
            targets.insert((text(kind), text(&target["name"])));
        }
    }
    let library = targets.iter().any(|(kind, _)| kind == "lib" || kind == "proc-macro");
    Package {
        name: text(&value["name"]),
        folder: format!("{}/", folder.display()),
        // `publish = false` is an empty list of registries.
        public: library && value["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        features: value["features"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        dependencies: list(&value["dependencies"]).map(|dependency| text(&dependency["name"])).collect(),
        targets,
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string in cargo's metadata").to_owned()
}
