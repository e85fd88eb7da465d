//! Files are read and written on the blocking threads.

use giveway::fs;
use giveway_tests::with_runtimes;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Returns a path of this test's own, where there is nothing.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("giveway-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn what_std_does_with_files_is_done_elsewhere() {
    let root = directory("files");
    with_runtimes(|runtime| {
        let root = root.clone();
        runtime
            .block_on(runtime.spawn(async move {
                fs::create_dir_all(root.join("a/b")).await?;
                fs::write(root.join("a/one"), "bread").await?;
                assert_eq!(fs::copy(root.join("a/one"), root.join("a/two")).await?, 5);
                fs::rename(root.join("a/two"), root.join("a/b/three")).await?;
                assert_eq!(fs::read_to_string(root.join("a/b/three")).await?, "bread");
                assert_eq!(fs::metadata(root.join("a/one")).await?.len(), 5);
                assert!(!fs::try_exists(root.join("a/two")).await?);
                fs::remove_dir_all(&root).await?;
                assert_eq!(
                    fs::read(root.join("a/one")).await.unwrap_err().kind(),
                    ErrorKind::NotFound
                );
                Ok::<_, std::io::Error>(())
            }))
            .unwrap()
            .unwrap();
    });
}

#[test]
fn files_of_a_runtime_that_was_shut_down_are_an_error() {
    let runtime = giveway_tests::runtime(1);
    let handle = runtime.handle().clone();
    drop(runtime);
    let error = handle.block_on(fs::read("Cargo.toml")).unwrap_err();
    assert!(error.to_string().contains("its runtime was shut down"), "{error}");
}
