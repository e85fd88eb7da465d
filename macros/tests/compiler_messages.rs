//! What the compiler says about a misuse, and where. The cases are compiled here, by the compiler
//! that cargo uses; each error that is expected is marked in the case, at its line: `//~ its text`.

use std::env::{consts, current_exe};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The library of the attributes that this test was built with.
fn macros() -> PathBuf {
    let binary = current_exe().unwrap();
    let folder = binary.parent().unwrap();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&format!("{}giveway_macros-", consts::DLL_PREFIX))
            && name.ends_with(consts::DLL_SUFFIX)
    };
    let age = |path: &PathBuf| {
        path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    // With `--target` it is one of the host, and those are elsewhere.
    let folders = [
        folder.to_owned(),
        folder.join("../../../debug/deps"),
        folder.join("../../../release/deps"),
    ];
    let all = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let newest = all.map(|entry| entry.unwrap().path()).filter(is_ours).max_by_key(age);
    newest.expect("cargo has built the attributes for this test")
}

/// Compiles a case, and returns what the compiler says: the lines and the texts of the errors.
fn errors(case: &Path) -> Vec<(usize, String)> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(case.file_stem().unwrap());
    fs::create_dir_all(&out).unwrap();
    let rustc = |file: &Path| {
        let mut command = Command::new(
            Path::new(env!("CARGO")).with_file_name(format!("rustc{}", consts::EXE_SUFFIX)),
        );
        command
            .args(["--edition=2024", "--emit=metadata", "--error-format=short", "--out-dir"])
            .arg(&out);
        command.arg(file).arg("-L").arg(macros().parent().unwrap());
        command
    };
    let mut library = rustc(&case.with_file_name("giveway.rs"));
    library
        .args(["--crate-type=lib", "--extern"])
        .arg(format!("giveway_macros={}", macros().display()));
    let made = library.output().expect("the compiler starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let mut case = rustc(case);
    case.args(["--test", "--extern"])
        .arg(format!("giveway={}", out.join("libgiveway.rmeta").display()));
    let text = String::from_utf8(case.output().expect("the compiler starts").stderr).unwrap();
    let error = |line: &str| {
        let (place, message) = line.split_once(": error")?;
        // A number in brackets may stand before the colon.
        let (_code, message) = message.split_once(": ")?;
        let mut place = place.rsplit(':');
        let (_column, line) = (place.next()?, place.next()?);
        Some((line.parse().ok()?, message.to_owned()))
    };
    text.lines().filter_map(error).collect()
}

#[track_caller]
fn assert_errors_are_where_they_are_marked(case: &str) {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(case);
    let source = fs::read_to_string(&case).unwrap();
    let marked = source.lines().enumerate();
    let marked: Vec<_> =
        marked.filter_map(|(at, line)| Some((at + 1, line.split_once("//~ ")?.1))).collect();
    let mut found = errors(&case);
    found.sort();
    let same = |((line, text), (marked, begin)): (&(usize, String), &(usize, &str))| {
        line == marked && text.starts_with(begin)
    };
    assert!(
        found.len() == marked.len() && found.iter().zip(&marked).all(same),
        "found:\n{found:#?}\nmarked:\n{marked:#?}"
    );
}

#[test]
fn each_misuse_is_one_error_at_the_right_place() {
    assert_errors_are_where_they_are_marked("misuse.rs");
}

#[test]
fn a_mistake_in_the_body_is_reported_in_the_body() {
    assert_errors_are_where_they_are_marked("mistakes_in_the_body.rs");
}
