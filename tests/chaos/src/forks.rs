//! Processes that fork. They are child processes of the soak, because the soak itself must not be
//! forked: a fork copies only one of its threads.

use crate::failure::ensure;
use crate::options::Options;
use crate::random::Random;
use crate::roll_call::CHILDREN;
use crate::world::lock;
use futures::{AsyncReadExt, AsyncWriteExt};
use giveway::net::UnixStream;
use giveway::{Builder, Runtime};
use giveway_patience::WaitingFor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two processes that fork.
const EVERY: Duration = Duration::from_secs(7);

/// How many processes that fork have ended.
pub(crate) static MADE: AtomicU64 = AtomicU64::new(0);

/// Starts a process that forks every [`EVERY`], until `end`.
pub(crate) fn run_until(end: Instant, options: &Options) {
    let mut random = Random::of(&[options.seed, u64::MAX - 1]);
    while Instant::now() < end {
        thread::sleep(EVERY.min(end.saturating_duration_since(Instant::now())));
        let _alone = lock(&CHILDREN);
        let seed = random.next();
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["--act-fork", &seed.to_string()]).stdin(Stdio::null());
        let mut child = command.spawn().expect("a process starts");
        let waiting = WaitingFor::child(child.id());
        let ended = waiting.patience().keep_trying(|_| match child.try_wait() {
            Ok(None) => {
                thread::sleep(Duration::from_millis(2));
                None
            }
            ended => Some(ended),
        });
        if ended.is_none() {
            _ = child.kill();
        }
        let status = ended.and_then(Result::ok).flatten();
        ensure!(
            status.is_some_and(|status| status.success()),
            "a process that forks, --act-fork {seed}: {status:?}"
        );
        MADE.fetch_add(1, Relaxed);
    }
}

/// The process that forks: runs a runtime with tasks, timers and jobs, and forks from several
/// places.
pub(crate) fn act(seed: u64) -> ExitCode {
    crate::failure::expect_told_panics(seed);
    let mut random = Random::of(&[seed]);
    let workers = 1 + random.index(4);
    let runtime = Builder::new().workers(workers).build().expect("a runtime starts");
    for _ in 0..1 + random.below(3) {
        load(&runtime, &mut random);
        let handle = runtime.handle().clone();
        let mut own = random.child();
        let pair =
            runtime.block_on(async { UnixStream::pair() }).expect("there are descriptors enough");
        runtime.block_on(round_trip(&pair));
        let fork = move || {
            let mut pair = Some(pair);
            in_fork(|| {
                // Closes the child's copy of the parent's sockets.
                drop(pair.take());
                child(&handle, &mut own);
            });
            pair.expect("this is not the child")
        };
        let pair = match random.below(3) {
            0 => fork(),
            1 => runtime.block_on(runtime.spawn_blocking(fork)).expect("the job runs"),
            _ => runtime.block_on(runtime.spawn(async move { fork() })).expect("the task runs"),
        };
        runtime.block_on(round_trip(&pair));
        load(&runtime, &mut random);
    }
    let report = runtime.shutdown_timeout(Duration::from_secs(3_600));
    ensure!(report.is_clean(), "after a fork the parent does not end: {report}");
    ExitCode::SUCCESS
}

/// Sends a word from one end of the pair to the other.
async fn round_trip((one, other): &(UnixStream, UnixStream)) {
    let (mut one, mut other, mut word) = (one, other, [0; 4]);
    let (read, written) = futures::join!(one.read_exact(&mut word), async {
        giveway::yield_now().await;
        other.write_all(b"word").await
    });
    ensure!(
        read.is_ok() && written.is_ok() && word == *b"word",
        "a socket beside a fork: {read:?}, {written:?}"
    );
}

/// Runs tasks, a timer and a blocking job, and waits for them.
fn load(runtime: &Runtime, random: &mut Random) {
    let tasks: Vec<_> =
        (0..1 + random.small(31)).map(|n| runtime.spawn(async move { n })).collect();
    let nap = crate::acts::nap(random);
    runtime.block_on(async {
        for (n, task) in tasks.into_iter().enumerate() {
            ensure!(task.await.ok() == Some(n), "a task beside a fork");
        }
        giveway::time::sleep(nap).await;
        giveway::spawn_blocking(|| ()).await.expect("the job runs");
    });
}

/// Checks, in the child of a fork, that the old runtime refuses tasks and that a new one works.
fn child(old: &giveway::Handle, random: &mut Random) {
    let refused = catch_unwind(AssertUnwindSafe(|| old.spawn(async {}))).is_err();
    assert!(refused, "a runtime from before the fork took a task");
    assert_eq!(old.dump().tasks().len(), 0);
    let runtime =
        Builder::new().workers(1 + random.index(2)).build().expect("a runtime starts in the child");
    load(&runtime, random);
    drop(runtime);
}

/// Forks, runs `body` in the child, and checks that the child succeeds.
fn in_fork(body: impl FnOnce()) {
    // SAFETY: the child continues with a copy of this thread only, so it must not use a lock that
    // another thread held at the fork. Neither this function nor `body` does, except for those of
    // the allocator, which the C library releases in the child.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Replaces the soak's panic hook, which would inspect threads that do not exist here.
        std::panic::set_hook(Box::new(|panic| {
            if !panic.to_string().contains("was started before a fork") {
                eprintln!("in the child of a fork: {panic}");
            }
        }));
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: `_exit` takes no pointer and does not return. It runs no destructors or handlers
        // of the parent.
        unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 1 }) };
    }
    ensure!(pid > 0, "a fork failed");
    let waiting = WaitingFor::child(pid.cast_unsigned());
    let mut status = 0;
    let ended = waiting.patience().keep_trying(|_| {
        // SAFETY: the pointer is to `status`, which this function may write to. `pid` is a child of
        // this process.
        let waited = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if waited == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        (waited != 0).then_some(waited)
    });
    if ended.is_none() {
        // SAFETY: the call takes no pointer. `waitpid` has not reaped the child, so `pid` still
        // names it and no other process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    ensure!(ended == Some(pid), "the child of a fork hangs");
    ensure!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "the child of a fork ended with {status:#x}"
    );
}
