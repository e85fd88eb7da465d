//! Tests that need a process of their own, because they end it, fork it, measure it, or may crash
//! it.

use giveway_patience::WaitingFor;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;

/// Set in the child process, to the name of the test that it runs.
const VARIABLE: &str = "GIVEWAY_TEST_CHILD";

/// How a child process ended.
#[derive(Debug)]
pub struct Child {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output, then what it wrote to standard error.
    pub output: String,
}

impl Child {
    /// Fails the test unless the child succeeded.
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "the child ended with {}:\n{}", self.status, self.output);
    }
}

/// Runs `body` in a process of its own, with `variables` in its environment, and returns how the
/// process ended.
///
/// `test` is the full name of the calling test. The child runs the same test; in the child this
/// function runs `body` and returns `None`.
#[track_caller]
pub fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> Option<Child> {
    if std::env::var(VARIABLE).is_ok_and(|name| name == test) {
        body();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(VARIABLE, test);
    command
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("a child process starts");
    let waiting = WaitingFor::child(child.id());
    let pid = child.id().cast_signed();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Some(output) = waiting.patience().keep_trying(|pause| ended.recv_timeout(pause).ok())
    else {
        // SAFETY: the call takes no pointer. `pid` names the child and no other process: its number
        // is not reused before the child is reaped, and the thread above, which reaps it, has not.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let output = ended.recv().map(|output| format!("{output:?}"));
        panic!("the child of {test} did not end, something hangs: {output:?}");
    };
    let output = output.expect("a child process can be waited for");
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    assert!(
        text.contains("running 1 test"),
        "the child did not find {test}; is its name right?\n{text}"
    );
    Some(Child { status: output.status, output: text })
}

/// Runs `body` in a process of its own, so that a crash or a hang fails this test and does not end
/// the whole test run.
#[track_caller]
pub fn isolated(test: &str, body: impl FnOnce()) {
    if let Some(child) = in_child(test, &[], body) {
        child.assert_success();
    }
}
