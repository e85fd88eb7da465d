//! The attributes of the Giveway runtime. Use them as `giveway::main` and `giveway::test`.
//!
//! An async function becomes a plain one that has the async one inside, as it was written, and runs it:
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
//! // is
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
//! So the compiler checks the function as if the attribute were not there, and what is wrong with it is reported where it
//! is. The function inside sees none of the local variables around it, and if it is one of an `impl`, neither
//! `Self` nor the generics of that.

#![deny(unsafe_code)]

mod error;
mod expand;
mod function;
mod options;

use expand::Kind;
use proc_macro::TokenStream;

/// Makes an async function a plain one that runs it on a runtime; above all `main`.
///
/// The runtime is started when the function is called, with as many workers as the process may use CPUs, or as
/// `GIVEWAY_WORKERS` says. The future itself runs on the calling thread, what it spawns on the workers; so a server accepts
/// faster in a task.
///
/// When the function returns or panics the runtime is shut down, as a `giveway::Runtime` that is dropped: its tasks are
/// dropped at their next await point, blocking jobs that were spawned before run to their end, and its threads are joined. What
/// is stuck then is said on standard error. A function that is called inside of a task blocks its worker meanwhile.
///
/// While the function runs its runtime is the default one: `giveway::spawn` and `giveway::block_on` on a plain thread, which
/// is in no runtime, go there too. (Unless a default runtime was started before, by such a call or by another function with
/// this attribute, that has not returned. Then plain threads go on using that one.) What plain threads spawn while the runtime
/// is being shut down is cancelled.
///
/// The value comes through, whatever its type: `Result`, `ExitCode`, `!`.
///
/// # Options
///
/// - `workers = 4`: as many workers as that, whatever `GIVEWAY_WORKERS` says. `worker_threads`, tokio's name, is the same.
/// - `flavor = "current_thread"`: the same as `workers = 1`. Unlike tokio's, tasks run on the one worker's thread and not on
///   the calling one, and have to be `Send`; for others there is `giveway::spawn_pinned`. `flavor = "multi_thread"` changes
///   nothing.
/// - `crate = "path"`: where `giveway` is found, if it has another name: `crate = "my_prelude::giveway"`.
///
/// # Not guaranteed
///
/// That tasks finish: they are not waited for. To let them, join them.
///
/// # Panics
///
/// If the future does, and if the runtime cannot be started.
///
/// # Errors
///
/// It does not compile on anything but an async function without arguments and generics.
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
/// ```compile_fail
/// #[giveway::main]
/// fn main() {} // not async
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Main, options, item)
}

/// Makes an async function a test, with a runtime of its own.
///
/// The runtime has two workers: so what is spawned really runs at once, on any machine. It is shut down when the function
/// returns or panics, and what the test has left behind is dropped then. The shutdown waits for a task that does not return
/// from its poll and for blocking jobs, and after a second says on standard error for which.
///
/// A test that has not ended after a minute says what all of its tasks are doing, and again after two more, and so on. With a
/// `timeout` it fails.
///
/// Other attributes stay: `#[should_panic]`, `#[ignore]`, documentation. It adds `#[test]`, unless that follows it. A test
/// that returns a `Result` fails with its error.
///
/// # Options
///
/// Those of `giveway::main`. `workers` is 2 without them, whatever `GIVEWAY_WORKERS` says. And two more:
///
/// - `timeout = "30s"`: the test fails if its future still waits then, and says what each of its tasks is doing, as
///   `giveway::Handle::dump` does. A whole number with `ms`, `s` or `min`. Its runtime has what is left of that time to come
///   to its end, but at least some seconds; if something is stuck then, the test fails and says what.
/// - `detect_deadlock = true`: the test fails as soon as nothing can wake it any more; see
///   `giveway::Builder::detect_deadlock`. Off by default: a thread of the test's own that will wake it, which a runtime
///   cannot know of, would have to say so (`giveway::Handle::expect_wake`).
///
/// # Not guaranteed
///
/// That a panic in a task fails the test: it does so only if the task's `JoinHandle` is awaited, and the error unwrapped.
///
/// That a timeout fails its test alone: one whose own thread is stuck in a call that does not return cannot be failed. When as
/// much time again has passed, and at least some seconds, the timeout says what the test is doing and aborts the process.
///
/// # Panics
///
/// If the future does; if the runtime cannot be started; if a timeout is over.
///
/// # Errors
///
/// It does not compile on anything but an async function without arguments and generics.
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
