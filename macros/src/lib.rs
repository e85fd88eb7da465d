//! The attributes of the Giveway runtime. Use them as `giveway::main` and `giveway::test`.
//!
//! An attribute replaces an async function by a plain one that has the async one inside, as it was
//! written, and runs it. For example
//!
//! ```
//! # mod written {
//! #[giveway::main]
//! async fn main() -> std::io::Result<()> {
//!     giveway::fs::read("/dev/null").await?;
//!     Ok(())
//! }
//! # }
//! # mod made {
//! // becomes
//! fn main() -> std::io::Result<()> {
//!     async fn main() -> std::io::Result<()> {
//!         giveway::fs::read("/dev/null").await?;
//!         Ok(())
//!     }
//!     // With a runtime of its own, as `Runtime::block_on` does.
//!     ::giveway::Runtime::new().expect("a runtime starts").block_on(main())
//! }
//! # pub fn run() { main().unwrap(); }
//! # }
//! # made::run();
//! ```
//!
//! So the compiler checks the function as if the attribute were not there, and reports an error in
//! it where the error is. The inner function sees none of the local variables around it. If it is a
//! function of an `impl`, it sees neither `Self` nor the generics of that.

#![deny(unsafe_code)]

mod error;
mod expand;
mod function;
mod options;

use expand::Kind;
use proc_macro::TokenStream;

/// Replaces an async function, usually `main`, by a plain one that runs it on a runtime.
///
/// The runtime is started when the function is called. It has as many workers as `GIVEWAY_WORKERS`
/// says, or as the process may use CPUs. The future itself runs on the calling thread, and what it
/// spawns on the workers. So a server accepts connections faster in a task.
///
/// When the function returns or panics the runtime is shut down, as a `giveway::Runtime` that is
/// dropped: its tasks are dropped at their next await point, blocking jobs that were spawned before
/// run to their end, and its threads are joined. If anything is stuck then, the runtime says so on
/// standard error. A function that is called inside of a task blocks its worker meanwhile.
///
/// While the function runs, its runtime is the default one: `giveway::spawn` and
/// `giveway::block_on` on a plain thread, which is in no runtime, go there too. (Unless a default
/// runtime is there already, started by such a call or by another function with this attribute that
/// has not returned. Then plain threads go on using that one.) What plain threads spawn while the
/// runtime is being shut down is cancelled.
///
/// The function returns the value of the async one, whatever its type: `Result`, `ExitCode`, `!`.
///
/// # Options
///
/// - `workers = 4`: the number of workers, whatever `GIVEWAY_WORKERS` says. `worker_threads`,
///   tokio's name, is the same.
/// - `flavor = "current_thread"`: the same as `workers = 1`. Unlike tokio's, tasks run on the
///   thread of the one worker and not on the calling thread, and have to be `Send`; for others
///   there is `giveway::spawn_pinned`. `flavor = "multi_thread"` changes nothing.
/// - `tokio`, or `tokio = true`: a tokio runtime runs beside it, for libraries that need one. Needs
///   the feature `tokio` of `giveway`; see `Builder::tokio` there.
/// - `crate = "path"`: the path of `giveway`, if it has another name:
///   `crate = "my_prelude::giveway"`.
///
/// # Not guaranteed
///
/// That tasks finish: the runtime does not wait for them. To let them finish, join them.
///
/// # Panics
///
/// The function panics if the future does, or if the runtime cannot be started.
///
/// # Errors
///
/// Compilation fails for anything but an async function without arguments and generics.
///
/// # Examples
///
/// ```
/// #[giveway::main]
/// async fn main() -> Result<(), giveway::task::JoinError> {
///     let answer = giveway::spawn(async { 6 * 7 });
///     assert_eq!(answer.await?, 42);
///     Ok(())
/// }
/// ```
///
/// ```
/// #[giveway::main(workers = 3)]
/// async fn main() {
///     assert_eq!(giveway::Handle::current().workers(), 3);
/// }
/// ```
///
/// With the feature `tokio` of `giveway`:
///
/// ```
/// #[giveway::main(tokio)]
/// async fn main() {
///     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
/// }
/// ```
///
/// ```compile_fail
/// #[giveway::main]
/// fn main() {} // not async
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Main, options, item)
}

/// Makes an async function a test with a runtime of its own.
///
/// The runtime has two workers, so that tasks really run at the same time, on any machine. It is
/// shut down when the function returns or panics. What the test has left behind is dropped then.
/// The shutdown waits for blocking jobs and for tasks that do not return from their poll, and after
/// a second says on standard error for which.
///
/// A test that has not ended after a minute says what all of its tasks are doing. It says so again
/// after two more minutes, and so on. With a `timeout` it fails instead.
///
/// Other attributes stay: `#[should_panic]`, `#[ignore]`, documentation. `#[test]` is added, unless
/// it follows this attribute. A test that returns a `Result` fails with its error.
///
/// # Options
///
/// Those of `giveway::main`, `tokio` included. Without them `workers` is 2, whatever `GIVEWAY_WORKERS` says. There
/// are two more:
///
/// - `timeout = "30s"`: the test fails if its future still waits then, and says what each of its
///   tasks is doing, as `giveway::Handle::dump` does. The value is a whole number with `ms`, `s` or
///   `min`. The runtime has what is left of that time to come to its end, but at least some
///   seconds. If anything is stuck then, the test fails and says what.
/// - `detect_deadlock = true`: the test fails as soon as nothing can wake it any more; see
///   `giveway::Builder::detect_deadlock`. Off by default: a runtime cannot know that a thread of
///   the test's own will wake it. Such a thread has to say so (`giveway::Handle::expect_wake`).
///
/// # Not guaranteed
///
/// That a panic in a task fails the test: it does so only if the task's `JoinHandle` is awaited and
/// the error unwrapped.
///
/// That a timeout fails its test alone: a test whose own thread is stuck in a call that does not
/// return cannot be failed. When as much time again has passed, and at least some seconds, the
/// timeout says what the test is doing and aborts the process.
///
/// # Panics
///
/// The test panics if the future does, if the runtime cannot be started, or if a timeout is over.
///
/// # Errors
///
/// Compilation fails for anything but an async function without arguments and generics.
///
/// # Examples
///
/// ```
/// #[giveway::test]
/// async fn an_answer_comes() {
///     assert_eq!(giveway::spawn(async { 6 * 7 }).await.unwrap(), 42);
/// }
///
/// #[giveway::test(timeout = "30s")]
/// async fn an_answer_comes_in_time() {
///     assert_eq!(giveway::spawn_blocking(|| 6 * 7).await.unwrap(), 42);
/// }
///
/// #[giveway::test(workers = 8)]
/// #[should_panic(expected = "no bread")]
/// async fn without_bread_there_is_no_toast() {
///     giveway::spawn(async { panic!("no bread") }).await.unwrap()
/// }
/// ```
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Test, options, item)
}
