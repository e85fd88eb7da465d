//! Files and name look-up run on the blocking threads.

use giveway::fs;
use giveway_tests::{isolated, with_runtimes};
use std::io::ErrorKind;
use std::path::PathBuf;

/// A directory of this test's own.
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
                assert_eq!(fs::read(root.join("a/one")).await.unwrap_err().kind(), ErrorKind::NotFound);
                Ok::<_, std::io::Error>(())
            }))
            .unwrap()
            .unwrap();
    });
}

/// With every worker busy: a job does not need one.
#[test]
fn names_are_looked_up_on_blocking_threads_of_the_runtime() {
    isolated("files::names_are_looked_up_on_blocking_threads_of_the_runtime", || {
        let runtime = giveway::Builder::new().workers(1).thread_name("kitchen").build().unwrap();
        let names = || -> Vec<String> {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
        };
        let looked_up = runtime.block_on(runtime.spawn(giveway::net::TcpStream::connect("localhost:1")));
        assert!(looked_up.unwrap().is_err(), "nobody listens there");
        assert!(names().iter().any(|name| name.starts_with("kitchen-bl")), "{:?}", names());
        assert!(!names().iter().any(|name| name.starts_with("giveway-resolve")), "{:?}", names());
    });
}

#[test]
fn a_look_up_that_nobody_can_do_is_an_error() {
    let runtime = giveway_tests::runtime(1);
    let handle = runtime.handle().clone();
    drop(runtime);
    // The future of a `block_on` goes on after the end of its runtime, and is served by the default one.
    let result = handle.block_on(giveway::net::TcpStream::connect("localhost:1"));
    assert!(result.is_err());
    let error = handle.block_on(fs::read("Cargo.toml")).unwrap_err();
    assert!(error.to_string().contains("its runtime was shut down"), "{error}");
}
